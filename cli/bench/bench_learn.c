/* bench_learn.c - `bitrain bench learn`: how soon recipes reach a validation loss, on several corpora and
 * seeds.
 *
 * A recipe is a name and settings. Every one of them trains on every corpus with every seed, one run at a
 * time on all cores, the recipes in turn, so that a machine that slows down slows all alike. Minutes are
 * those of the steps, added up: validation, text samples and start are not in them. The goal is reached
 * where the straight line between two validations crosses it. With --minutes every recipe trains as many
 * steps as fit into that time, with its whole schedule. With --store the runs stay, and those that are done
 * there are not done again. */
#include <errno.h>
#include <ftw.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench/bench.h"
#include "cli/bench/bench_run.h"
#include "cli/bench/learn_result.h"
#include "cli/common/command.h"
#include "cli/common/database.h"
#include "cli/common/given_path.h"
#include "engine/base/clock.h"
#include "engine/base/opt.h"
#include "engine/config/run_cfg.h"
#include "engine/kernels/table/cpu.h"
#include "monitor/job/launch/child.h"
#include "store/store.h"

enum { SETTINGS = 64, POLL_MS = 50, TIMED = 20 /* steps */ };

static const bt_opt learn_opts[] = {
    BT_ROW_LIST(bt_learn_cfg, recipes, "--recipe", "default:",
                "'NAME: key=value key=value', what `train` is told besides; may be given several "
                "times, the "
                "others are held against the first"),
    BT_ROW_LIST(bt_learn_cfg, corpora, "--corpus", "builtin",
                "NAME=PATH, text, folder or shards to train on; 'builtin' is the built-in corpus"),
    BT_ROW_LIST(bt_learn_cfg, with, "--with", "",
                "key=value, settings of all runs, such as model.preset=nano train.steps=1000"),
    BT_ROW_REAL(bt_learn_cfg, minutes, "--minutes", "0", 0, 1e5, "minutes",
                "minutes of training steps for every run: a short run measures how many steps of "
                "each recipe "
                "fit (0: train.steps decides)"),
    BT_ROW_INT(bt_learn_cfg, seeds, "--seeds", "3", 1, 100, NULL,
               "runs of each, with the seeds 1, 2, ..."),
    BT_ROW_REAL(bt_learn_cfg, goal, "--goal", "1.88", 0.01, 100, "bits",
                "validation loss in bits per byte whose time is reported"),
    BT_ROW_TEXT(
        bt_learn_cfg, store, "--store", "",
        "database that keeps the runs, and takes those that are done from there (default: none "
        "stays)"),
    BT_ROW_TEXT(bt_learn_cfg, dir, "--dir", "",
                "folder for what the runs write (default: $TMPDIR or /tmp)"),
    BT_ROW_TEXT(bt_learn_cfg, curves, "--curves", "",
                "file for all validations as a table, which 'bitrain plot --curves FILE' draws"),
    BT_ROW_FLAG(bt_learn_cfg, force, "--force", "--curves: replace a file that exists"),
    BT_ROW_FLAG(bt_learn_cfg, json, "--json", "one JSON object, with the curves"),
};

const bt_option_set bt_bench_learn_opts = BT_OPTION_SET(learn_opts, bt_learn_cfg);

/* ---- the request ------------------------------------------------------------------------ */

static bt_code read_word_name(bt_learn_word *out, const char *word, size_t n, const char *what,
                              bt_err *err) {
    if (n >= sizeof out->name || n == 0)
        return bt_fail(err, BT_ARG, "%s '%.60s' has no name of up to %zu letters in front", what,
                       word, sizeof out->name - 1);
    memcpy(out->name, word, n);
    out->name[n] = '\0';
    if (!bt_name_ok(out->name))
        return bt_fail(err, BT_ARG, "%s '%s': a name has letters, digits, '.', '_' and '-'", what,
                       out->name);
    return BT_OK;
}

static bt_code take_words(bt_learn_word *out, size_t *n, size_t most, char *text, const char *what,
                          char ends_name, bt_err *err) {
    for (char *at = text, *next; at && *at; at = next) {
        next = strchr(at, '\n');
        if (next) *next++ = '\0';
        if (*n == most) return bt_fail(err, BT_ARG, "more than %zu of %s", most, what);
        const size_t name = strcspn(at, (char[]){ends_name, '\0'});
        if (at[name] == '\0' && ends_name == ':')
            return bt_fail(err, BT_ARG, "%s '%.60s' is not 'NAME: key=value ...'", what, at);
        BT_TRY(read_word_name(&out[*n], at, name, what, err));
        for (size_t i = 0; i < *n; i++)
            if (strcmp(out[i].name, out[*n].name) == 0)
                return bt_fail(err, BT_ARG, "%s '%s' is there twice", what, out[i].name);
        out[(*n)++].rest = at[name] ? at + name + 1 : at + name;
    }
    return BT_OK;
}

static bt_code make_runs(bt_learn *b, bt_err *err) {
    b->n_runs = (size_t)b->cfg->seeds * b->n_corpora * b->n_recipes;
    b->runs = calloc(b->n_runs, sizeof *b->runs);
    if (!b->runs) return bt_fail(err, BT_NOMEM, "no memory for %zu runs", b->n_runs);
    for (size_t i = 0; i < b->n_runs; i++) {
        bt_learn_run *r = &b->runs[i];
        r->recipe = i % b->n_recipes;
        r->corpus = i / b->n_recipes % b->n_corpora;
        r->seed = (int64_t)(i / b->n_recipes / b->n_corpora) + 1;
        const int n = snprintf(r->name, sizeof r->name, "%s.%s.%" PRId64,
                               b->recipes[r->recipe].name, b->corpora[r->corpus].name, r->seed);
        if (n >= (int)sizeof r->name)
            return bt_fail(err, BT_ARG, "the names of recipe '%s' and corpus '%s' are too long",
                           b->recipes[r->recipe].name, b->corpora[r->corpus].name);
    }
    return BT_OK;
}

/* ---- one run ----------------------------------------------------------------------------------- */

typedef struct words {
    const char *at[2 * SETTINGS + 64];
    size_t n, settings;
    char text[16384]; /* "key=value" of the settings, each ended by NUL */
    size_t used;
} words;

static void append_learn_word(words *w, const char *word) { w->at[w->n++] = word; }

static bt_code append_recipe_settings(words *w, const char *text, bt_err *err) {
    while (*text) {
        text += strspn(text, " \n\t");
        const size_t n = strcspn(text, " \n\t");
        if (n == 0) break;
        if (w->settings == SETTINGS || w->used + n + 1 > sizeof w->text)
            return bt_fail(err, BT_ARG, "a recipe has more than %d settings", SETTINGS);
        char *word = w->text + w->used;
        memcpy(word, text, n);
        word[n] = '\0';
        w->used += n + 1;
        w->settings++;
        if (!strchr(word, '='))
            return bt_fail(err, BT_ARG, "'%.80s' of a recipe is not key=value", word);
        append_learn_word(w, "--set");
        append_learn_word(w, word);
        text += n;
    }
    return BT_OK;
}

/* before the first run, so that none is done in vain */
static bt_code check_recipe(const bt_learn *b, const bt_learn_word *recipe, bt_err *err) {
    static bt_opts o;
    static bt_run_cfg cfg;
    bt_err why = BT_ERR_INIT;
    bool help = false;
    words *w = calloc(1, sizeof *w);
    if (!w) return bt_fail(err, BT_NOMEM, "no memory for a recipe");
    bt_code code = append_recipe_settings(w, b->cfg->with, &why);
    if (code == BT_OK) code = append_recipe_settings(w, recipe->rest, &why);
    if (code == BT_OK)
        code = bt_run_cfg_read(&o, &cfg, (int)w->n, (char *const *)(uintptr_t)w->at, &help, &why);
    if (code == BT_OK)
        code = bt_run_cfg_resolve_opts(&o, &cfg, bt_run_cfg_ranks(&cfg, bt_cpu_get()->cores), &why);
    free(w);
    return code == BT_OK ? BT_OK : bt_fail(err, code, "recipe '%s': %s", recipe->name, why.msg);
}

static bt_code wait_for_training(pid_t pid, const char *name, const char *log, bt_err *err) {
    int status = 0, asked = 0;
    char line[200];
    while (!bt_child_ended(pid, &status)) {
        if (!asked && bt_child_signals(true)) bt_child_signal(pid, SIGTERM), asked = 1;
        bt_sleep_ns((int64_t)POLL_MS * 1000000);
    }
    if (asked) return bt_fail(err, BT_STOPPED, "stopped in run '%s'", name);
    if (status == 0) return BT_OK;
    bt_child_last_line(log, line, sizeof line);
    return bt_fail(err, BT_IO, "run '%s' failed: %s", name, line[0] ? line : log);
}

/* steps: the length of the run; 0: train.steps decides */
static bt_code train_one_recipe(const bt_learn *b, const bt_learn_run *r, int64_t steps, words *w,
                                bt_err *err) {
    char out[700], log[700], seed[24], length[40];
    pid_t pid;
    const bt_learn_word *corpus = &b->corpora[r->corpus];
    /* nothing but steps and validations; the settings of a recipe follow and take precedence */
    static const char quiet[] = "ckpt.final=false ckpt.minutes=0 ckpt.keep_best=false "
                                "ckpt.memory=off train.sample_tokens=0 train.stats_every=0 "
                                "train.log_every=1";
    snprintf(out, sizeof out, "%s/%s", b->folder, r->name);
    snprintf(log, sizeof log, "%s/%s.log", b->folder, r->name);
    snprintf(seed, sizeof seed, "%" PRId64, r->seed);
    const char *const fixed[] = {"train", "--quiet", "--name", r->name,  "--store",
                                 b->db,   "--out",   out,      "--seed", seed};
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) append_learn_word(w, fixed[i]);
    if (corpus->rest[0]) append_learn_word(w, "--data"), append_learn_word(w, corpus->rest);
    BT_TRY(append_recipe_settings(w, quiet, err));
    BT_TRY(append_recipe_settings(w, b->cfg->with, err));
    BT_TRY(append_recipe_settings(w, b->recipes[r->recipe].rest, err));
    snprintf(length, sizeof length, "train.steps=%" PRId64, steps);
    if (steps) BT_TRY(append_recipe_settings(w, length, err));
    BT_TRY(bt_child_start(
        &pid, &(bt_child_cfg){.words = w->at, .n_words = w->n, .log = log, .part = 0, .parts = 1},
        err));
    return wait_for_training(pid, r->name, log, err);
}

/* ---- the curve of the run -------------------------------------------------------------------------- */

typedef struct record {
    bt_learn_run *r;
    double ms, bytes_per_token;
    bool done;
} record;

static bool read_run_state(void *ctx, const bt_row *row) {
    record *x = ctx;
    x->done = row->cells[0] && strcmp(row->cells[0], "done") == 0;
    x->bytes_per_token = row->cells[1] ? row->nums[1] : NAN;
    return false;
}

static bool read_curve_point(void *ctx, const bt_row *row) {
    record *x = ctx;
    bt_learn_run *r = x->r;
    if (isfinite(row->nums[1])) x->ms += row->nums[1];
    if (!isfinite(row->nums[2]) || r->n == BT_LEARN_POINTS) return true;
    r->curve[r->n++] = (bt_learn_point){.minutes = x->ms / 6e4,
                                        .tokens = row->nums[0],
                                        .bits = row->nums[2] / M_LN2 / x->bytes_per_token};
    return true;
}

static void find_goal(bt_learn_run *r, double goal) {
    r->goal_minutes = r->goal_tokens = NAN;
    for (size_t i = 0; i < r->n; i++) {
        const bt_learn_point *b = &r->curve[i], *a = i ? b - 1 : b;
        if (!(b->bits <= goal)) continue;
        const double to = a->bits > b->bits ? (a->bits - goal) / (a->bits - b->bits) : 1;
        r->goal_minutes = a->minutes + to * (b->minutes - a->minutes);
        r->goal_tokens = a->tokens + to * (b->tokens - a->tokens);
        return;
    }
}

/* done: false where no such run has ended */
static bt_code read_recorded_run(const bt_learn *b, bt_learn_run *r, bool *done, bt_err *err) {
    bt_db *db = NULL;
    record x = {.r = r, .bytes_per_token = 1};
    const char *const name[] = {r->name};
    bt_code code = bt_db_open(&db, b->db, err);
    *done = false;
    if (code == BT_NOTFOUND) return BT_OK;
    r->n = 0;
    if (code == BT_OK)
        code =
            bt_db_query(db,
                        &(bt_query){.sql = "SELECT state, (SELECT value FROM facts f WHERE "
                                           "f.run = r.run AND f.key = 'data.val_bytes_per_token')"
                                           " + 0.0 FROM runs r WHERE run = ?1",
                                    .params = name,
                                    .n_params = 1},
                        read_run_state, &x, err);
    if (code == BT_OK && x.done && isnan(x.bytes_per_token))
        code = bt_fail(
            err, BT_FORMAT,
            "run '%s' was recorded by a program that did not keep how many bytes a token of its "
            "validation stands for (use another --store)",
            r->name);
    if (code == BT_OK && x.done)
        code = bt_db_query(db,
                           &(bt_query){.sql = "SELECT tokens, step_ms, val_loss FROM steps "
                                              "WHERE run = ?1 ORDER BY step",
                                       .params = name,
                                       .n_params = 1,
                                       .max_rows = INT64_MAX},
                           read_curve_point, &x, err);
    bt_db_close(db);
    if (code == BT_OK && x.done) find_goal(r, b->cfg->goal);
    *done = x.done;
    return code;
}

static bt_code train_unless_recorded(const bt_learn *b, bt_learn_run *r, int64_t steps, bool *done,
                                     bt_err *err) {
    words *w = calloc(1, sizeof *w);
    if (!w) return bt_fail(err, BT_NOMEM, "no memory for a run");
    const bt_code code = train_one_recipe(b, r, steps, w, err);
    free(w);
    BT_TRY(code);
    return read_recorded_run(b, r, done, err);
}

/* Measures with a short run how many steps of r's recipe take cfg->minutes. Ramps are shares of a run's steps, so the
 * short run has the long one's mix of step sizes; a bigram model's steps are few and shorter, and left out. Its
 * database is removed with the folder. */
static bt_code measure_steps(const bt_learn *b, const bt_learn_run *r, int64_t *steps,
                             bt_err *err) {
    bt_learn timed = *b;
    bt_learn_run *run = calloc(1, sizeof *run);
    bool done = false;
    char recipe[sizeof b->cfg->recipes + 32];
    if (!run) return bt_fail(err, BT_NOMEM, "no memory for a run");
    snprintf(recipe, sizeof recipe, "%s train.bigram_steps=0", b->recipes[r->recipe].rest);
    timed.recipes[r->recipe].rest = recipe;
    snprintf(timed.db, sizeof timed.db, "%s/timed.db", b->folder);
    *run = (bt_learn_run){.recipe = r->recipe, .corpus = r->corpus, .seed = r->seed};
    memcpy(run->name, r->name, sizeof run->name);
    const bt_code code = train_unless_recorded(&timed, run, TIMED, &done, err);
    const double minutes = done && run->n ? run->curve[run->n - 1].minutes / TIMED : 0;
    free(run);
    BT_TRY(code);
    if (!(minutes > 0))
        return bt_fail(err, BT_NOTFOUND,
                       "the steps of recipe '%s' could not be measured: run '%s' recorded none",
                       b->recipes[r->recipe].name, r->name);
    *steps = llround(b->cfg->minutes / minutes);
    if (*steps < TIMED) *steps = TIMED;
    fprintf(stderr, "%s: %.4g ms a step, %" PRId64 " steps in %g minutes\n",
            b->recipes[r->recipe].name, minutes * 6e4, *steps, b->cfg->minutes);
    return BT_OK;
}

static bt_code one_run(bt_learn *b, bt_learn_run *r, bt_err *err) {
    bool done;
    int64_t *steps = &b->steps[r->recipe];
    BT_TRY(read_recorded_run(b, r, &done, err));
    if (!done && b->cfg->minutes > 0 && !*steps) BT_TRY(measure_steps(b, r, steps, err));
    if (!done) BT_TRY(train_unless_recorded(b, r, *steps, &done, err));
    if (!done || r->n == 0)
        return bt_fail(err, BT_NOTFOUND,
                       "run '%s' has no validation loss (give a corpus with validation data, and "
                       "train.eval_every)",
                       r->name);
    if (!b->cfg->json)
        fprintf(stderr, "%s: %.4f bits per byte after %.2f minutes\n", r->name,
                r->curve[r->n - 1].bits, r->curve[r->n - 1].minutes);
    return BT_OK;
}

static int remove_learn_entry(const char *path, const struct stat *st, int type, struct FTW *at) {
    (void)st, (void)type, (void)at;
    (void)remove(path); /* a remainder is in a folder for temporary files */
    return 0;
}

/* ---- verb -------------------------------------------------------------------------------------- */

static bt_code prepare_corpora(bt_learn *b, bt_learn_cfg *cfg, bt_err *err) {
    BT_TRY(take_words(b->recipes, &b->n_recipes, BT_LEARN_RECIPES, cfg->recipes, "--recipe", ':',
                      err));
    BT_TRY(take_words(b->corpora, &b->n_corpora, BT_LEARN_CORPORA, cfg->corpora, "--corpus", '=',
                      err));
    for (size_t i = 0; i < b->n_corpora; i++)
        if (!b->corpora[i].rest[0] && strcmp(b->corpora[i].name, "builtin") != 0)
            return bt_fail(err, BT_ARG, "--corpus '%s' is not NAME=PATH (or builtin)",
                           b->corpora[i].name);
    for (size_t i = 0; i < b->n_recipes; i++) BT_TRY(check_recipe(b, &b->recipes[i], err));
    BT_TRY(make_runs(b, err));
    BT_TRY(bt_bench_folder(b->folder, sizeof b->folder, cfg->dir, err));
    if (cfg->store[0])
        snprintf(b->db, sizeof b->db, "%.1000s", cfg->store);
    else
        snprintf(b->db, sizeof b->db, "%s/learn.db", b->folder);
    return BT_OK;
}

bt_code bt_bench_learn(bt_call *call, bt_err *err) {
    bt_learn_cfg *cfg = call->cfg;
    bt_learn *b = calloc(1, sizeof *b);
    bt_code code = b ? BT_OK : bt_fail(err, BT_NOMEM, "no memory for the recipes");
    if (code == BT_OK && cfg->curves[0]) code = bt_may_write(cfg->curves, cfg->force, err);
    if (code == BT_OK) b->cfg = cfg, code = prepare_corpora(b, cfg, err);
    if (code == BT_OK) bt_child_signals(true);
    for (size_t i = 0; code == BT_OK && i < b->n_runs; i++) code = one_run(b, &b->runs[i], err);
    if (code == BT_OK) code = bt_learn_curves(b, err);
    if (code == BT_OK) code = bt_learn_print(b, err);
    if (b && b->folder[0]) (void)nftw(b->folder, remove_learn_entry, 16, FTW_DEPTH | FTW_PHYS);
    if (b) free(b->runs);
    free(b);
    return code;
}

/* bench_learn.c - `bitrain bench learn`: measures how fast recipes reach a validation loss, on several corpora and
 * seeds.
 *
 * A recipe is a name with settings. Each recipe trains on each corpus with each seed, one run at a time on all cores.
 * Runs of different recipes alternate, so that a slower machine affects all alike. Minutes are the sum of the step
 * times, without validation, text samples and start. The time to the goal is interpolated linearly between two
 * validations. With --minutes every recipe trains as many steps as fit into that time, with its whole schedule. With
 * --store the database keeps the runs, and the same command trains only the missing ones. */
#include <ftw.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench/bench.h"
#include "cli/bench/bench_run.h"
#include "cli/bench/learn_result.h"
#include "cli/common/command.h"
#include "cli/common/database.h"
#include "cli/common/given_path.h"
#include "engine/base/system/folders.h"
#include "engine/config/part_rules.h"
#include "engine/config/run_cfg.h"
#include "engine/kernels/table/cpu.h"
#include "monitor/job/launch/child.h"

enum { TIMED = 20 /* steps */ };

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
    BT_ROW_TEXT(
        bt_learn_cfg, dir, "--dir", "",
        "folder for what the runs write (default: STORE.runs; without --store one in $TMPDIR or "
        "/tmp, removed at the end)"),
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

static bt_code read_recipe_words(bt_learn_word *out, size_t *n, size_t most, char *text,
                                 const char *what, char ends_name, bt_err *err) {
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

static bt_code list_learn_runs(bt_learn *b, bt_err *err) {
    b->n_runs = (size_t)b->cfg->seeds * b->n_corpora * b->n_recipes;
    b->runs = calloc(b->n_runs, sizeof *b->runs);
    if (!b->runs) return bt_fail(err, BT_NOMEM, "no memory for %zu runs", b->n_runs);
    for (size_t i = 0; i < b->n_runs; i++) {
        bt_learn_run *r = &b->runs[i];
        r->recipe = i % b->n_recipes;
        r->corpus = i / b->n_recipes % b->n_corpora;
        r->seed = (int64_t)(i / b->n_recipes / b->n_corpora) + 1;
        const int n = snprintf(r->run.name, sizeof r->run.name, "%s.%s.%" PRId64,
                               b->recipes[r->recipe].name, b->corpora[r->corpus].name, r->seed);
        if (n >= (int)sizeof r->run.name)
            return bt_fail(err, BT_ARG, "the names of recipe '%s' and corpus '%s' are too long",
                           b->recipes[r->recipe].name, b->corpora[r->corpus].name);
    }
    return BT_OK;
}

/* ---- words of a run ---------------------------------------------------------------------------- */

/* text: key=value words separated by blanks. */
static void append_recipe_settings(const char *text, bt_words *out) {
    for (size_t n; *(text += strspn(text, " \n\t")); text += n) {
        n = strcspn(text, " \n\t");
        bt_words_put(out, "--set");
        bt_words_putn(out, text, n);
    }
}

/* Checks the settings before the first run, so that no time is lost. */
static bt_code check_recipe(const bt_learn *b, const bt_learn_word *recipe, bt_err *err) {
    static bt_opts o;
    static bt_run_cfg cfg;
    bt_err why = BT_ERR_INIT;
    bool help = false;
    bt_words w = {0};
    append_recipe_settings(b->cfg->with, &w);
    append_recipe_settings(recipe->rest, &w);
    const char **argv = bt_words_argv(&w);
    bt_code code = argv ? bt_run_cfg_read(&o, &cfg, (int)w.n, (char *const *)(uintptr_t)argv, &help,
                                          &why)
                        : bt_fail(&why, BT_NOMEM, "no memory");
    if (code == BT_OK)
        code = bt_run_cfg_resolve_opts(&o, &cfg, bt_run_cfg_ranks(&cfg, bt_cpu_get()->cores), &why);
    free(argv);
    bt_words_release(&w);
    return code == BT_OK ? BT_OK : bt_fail(err, code, "recipe '%s': %s", recipe->name, why.msg);
}

/* Ramps are shares of a run, so a short run that measures time has the same mix of step sizes as the long one. */
static void append_learn_words(void *ctx, const bt_training *training, bool continues,
                               bt_words *out) {
    const bt_learn *b = ctx;
    const bt_learn_run *r = (const bt_learn_run *)training;
    char text[40];
    if (continues) return;
    snprintf(text, sizeof text, "%" PRId64, r->seed);
    bt_words_put(out, "--seed");
    bt_words_put(out, text);
    if (b->corpora[r->corpus].rest[0]) {
        bt_words_put(out, "--data");
        bt_words_put(out, b->corpora[r->corpus].rest);
    }
    /* measures only steps and validations; the settings of the recipe follow and override these settings */
    append_recipe_settings("ckpt.final=false ckpt.minutes=0 ckpt.keep_best=false ckpt.memory=off "
                           "train.stats_every=0 train.log_every=1",
                           out);
    const bt_forced *part;
    for (size_t i = 0; (part = bt_forced_at(BT_FORCE_LEARN, i)); i++)
        bt_words_set(out, part->key, part->value);
    append_recipe_settings(b->cfg->with, out);
    append_recipe_settings(b->recipes[r->recipe].rest, out);
    snprintf(text, sizeof text, "train.steps=%" PRId64, b->steps[r->recipe]);
    if (b->steps[r->recipe]) append_recipe_settings(text, out);
}

/* ---- the curve of the run -------------------------------------------------------------------------- */

typedef struct record {
    bt_learn_run *r;
    double ms, bytes_per_token;
} record;

static bool read_text_size(void *ctx, const bt_row *row) {
    record *x = ctx;
    x->bytes_per_token = row->cells[0] ? row->nums[0] : NAN;
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

static void find_time_of_goal(bt_learn_run *r, double goal) {
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

static bt_code read_curve(const bt_learn *b, bt_learn_run *r, bt_err *err) {
    bt_db *db = NULL;
    record x = {.r = r, .bytes_per_token = NAN};
    const char *const name[] = {r->run.name};
    bt_query q = {.sql = "SELECT value + 0.0 FROM facts WHERE run = ?1 AND key = "
                         "'data.val_bytes_per_token'",
                  .params = name,
                  .n_params = 1,
                  .max_rows = INT64_MAX};
    BT_TRY(bt_db_open(&db, b->db, err));
    bt_code code = bt_db_query(db, &q, read_text_size, &x, err);
    q.sql = "SELECT tokens, step_ms, val_loss FROM steps WHERE run = ?1 ORDER BY step";
    r->n = 0;
    if (code == BT_OK) code = bt_db_query(db, &q, read_curve_point, &x, err);
    bt_db_close(db);
    BT_TRY(code);
    if (r->n == 0)
        return bt_fail(err, BT_NOTFOUND,
                       "run '%s' has no validation loss (give a corpus with validation data, and "
                       "train.eval_every)",
                       r->run.name);
    if (isnan(x.bytes_per_token))
        return bt_fail(
            err, BT_FORMAT,
            "run '%s' was recorded by a program that did not keep how many bytes a token of its "
            "validation stands for (use another --store)",
            r->run.name);
    find_time_of_goal(r, b->cfg->goal);
    if (!b->cfg->json && !b->measures)
        fprintf(stderr, "%s: %.4f bits per byte after %.2f minutes\n", r->run.name,
                r->curve[r->n - 1].bits, r->curve[r->n - 1].minutes);
    return BT_OK;
}

/* ---- training ---------------------------------------------------------------------------------- */

static bt_code finish_learn_run(void *ctx, bt_training *training, bt_err *err) {
    const bt_learn *b = ctx;
    char log[700], line[200];
    if (training->at != BT_TRAINING_FAILED) return read_curve(b, (bt_learn_run *)training, err);
    snprintf(log, sizeof log, "%s/%s.log", b->folder, training->name);
    bt_child_last_line(log, line, sizeof line);
    return bt_fail(err, BT_IO, "run '%s' failed: %s", training->name, line[0] ? line : log);
}

static bt_code train_learn_runs(bt_learn *b, bt_training **runs, size_t n, bt_err *err) {
    bt_training_group g = {.store = b->db,
                           .folder = b->folder,
                           .any_folder = true,
                           .runs = runs,
                           .n = n,
                           .parallel = 1,
                           .retry = true,
                           .quiet = true,
                           .put_words = append_learn_words,
                           .ended = finish_learn_run,
                           .ctx = b};
    const bt_code code = bt_train_group(&g, err);
    if (code != BT_STOPPED) return code;
    fprintf(stderr, "stopped after %zu of %zu runs%s\n", g.n_ended, g.n,
            b->cfg->store[0] ? "; run the same command to continue" : "");
    *b->exit_status = 128 + g.signal;
    return code;
}

/* Determines how many steps take cfg->minutes, by a short run of each recipe that is not complete. The database of
 * these runs is temporary. */
static bt_code measure_recipe_steps(bt_learn *b, bt_training **runs, bt_err *err) {
    const bt_training_group g = {.store = b->db, .folder = b->folder, .any_folder = true};
    bt_training *first[BT_LEARN_RECIPES];
    size_t n = 0;
    bt_learn timed = *b;
    timed.measures = true;
    memcpy(timed.folder, b->temporary, sizeof timed.folder);
    snprintf(timed.db, sizeof timed.db, "%s/timed.db", b->temporary);
    for (size_t i = 0; i < b->n_runs; i++) {
        int64_t *steps = &timed.steps[b->runs[i].recipe];
        BT_TRY(bt_training_read(&g, runs[i], err));
        if (*steps || strcmp(runs[i]->state, "done") == 0) continue;
        *steps = TIMED;
        first[n++] = runs[i];
    }
    BT_TRY(train_learn_runs(&timed, first, n, err));
    for (size_t i = 0; i < n; i++) {
        bt_learn_run *r = (bt_learn_run *)first[i];
        const double minutes = r->curve[r->n - 1].minutes / TIMED;
        const int64_t steps = llround(b->cfg->minutes / minutes);
        b->steps[r->recipe] = steps > TIMED ? steps : TIMED;
        r->n = 0;
        fprintf(stderr, "%s: %.4g ms a step, %" PRId64 " steps in %g minutes\n",
                b->recipes[r->recipe].name, minutes * 6e4, b->steps[r->recipe], b->cfg->minutes);
    }
    return BT_OK;
}

static bt_code train_all_recipes(bt_learn *b, bt_err *err) {
    bt_training **runs = calloc(b->n_runs, sizeof *runs);
    if (!runs) return bt_fail(err, BT_NOMEM, "no memory for %zu runs", b->n_runs);
    for (size_t i = 0; i < b->n_runs; i++) runs[i] = &b->runs[i].run;
    bt_child_signals(true);
    bt_code code = b->cfg->minutes > 0 ? measure_recipe_steps(b, runs, err) : BT_OK;
    if (code == BT_OK) code = train_learn_runs(b, runs, b->n_runs, err);
    for (size_t i = 0; i < b->n_runs && code == BT_OK; i++)
        if (!b->runs[i].n) code = read_curve(b, &b->runs[i], err); /* it was complete before */
    free(runs);
    return code;
}

static int remove_learn_entry(const char *path, const struct stat *st, int type, struct FTW *at) {
    (void)st, (void)type, (void)at;
    (void)remove(path); /* if this fails, the file remains in a folder for temporary files */
    return 0;
}

/* ---- verb -------------------------------------------------------------------------------------- */

static bt_code prepare_corpora(bt_learn *b, bt_learn_cfg *cfg, bt_err *err) {
    BT_TRY(read_recipe_words(b->recipes, &b->n_recipes, BT_LEARN_RECIPES, cfg->recipes, "--recipe",
                             ':', err));
    BT_TRY(read_recipe_words(b->corpora, &b->n_corpora, BT_LEARN_CORPORA, cfg->corpora, "--corpus",
                             '=', err));
    for (size_t i = 0; i < b->n_corpora; i++)
        if (!b->corpora[i].rest[0] && strcmp(b->corpora[i].name, "builtin") != 0)
            return bt_fail(err, BT_ARG, "--corpus '%s' is not NAME=PATH (or builtin)",
                           b->corpora[i].name);
    for (size_t i = 0; i < b->n_recipes; i++) BT_TRY(check_recipe(b, &b->recipes[i], err));
    BT_TRY(list_learn_runs(b, err));
    BT_TRY(bt_bench_folder(b->temporary, sizeof b->temporary, cfg->store[0] ? "" : cfg->dir, err));
    memcpy(b->folder, b->temporary, sizeof b->temporary);
    snprintf(b->db, sizeof b->db, "%s/learn.db", b->temporary);
    if (!cfg->store[0]) return BT_OK;
    /* an interrupted run continues from the checkpoint in its folder */
    BT_TRY(bt_store_path(b->db, sizeof b->db, cfg->store, err));
    const int n = cfg->dir[0] ? snprintf(b->folder, sizeof b->folder, "%s", cfg->dir)
                              : snprintf(b->folder, sizeof b->folder, "%s.runs", b->db);
    if (n >= (int)sizeof b->folder)
        return bt_fail(err, BT_ARG, "the path '%.200s' is too long", b->folder);
    return bt_make_folders(b->folder, err);
}

bt_code bt_bench_learn(bt_call *call, bt_err *err) {
    bt_learn_cfg *cfg = call->cfg;
    bt_learn *b = calloc(1, sizeof *b);
    bt_code code = b ? BT_OK : bt_fail(err, BT_NOMEM, "no memory for the recipes");
    if (code == BT_OK && cfg->curves[0]) code = bt_may_write(cfg->curves, cfg->force, err);
    if (code == BT_OK) {
        b->cfg = cfg;
        b->exit_status = call->exit_status;
        code = prepare_corpora(b, cfg, err);
    }
    if (code == BT_OK) code = train_all_recipes(b, err);
    if (code == BT_OK) code = bt_learn_curves(b, err);
    if (code == BT_OK) code = bt_learn_print(b, err);
    if (b && b->temporary[0])
        (void)nftw(b->temporary, remove_learn_entry, 16, FTW_DEPTH | FTW_PHYS);
    if (b) free(b->runs);
    free(b);
    return code;
}

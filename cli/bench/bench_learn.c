/* bench_learn.c - `bitrain bench learn`: how soon recipes reach a validation loss, on several corpora and
 * seeds.
 *
 * A recipe is a name and settings. Every one of them trains on every corpus with every seed, one run at a
 * time on all cores, the recipes in turn, so that a machine that slows down slows all alike. Minutes are
 * those of the steps, added up: validation, text samples and start are not in them. The goal is reached
 * where the straight line between two validations crosses it. With --store the runs stay, and those that
 * are done there are not done again. */
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
#include "cli/common/command.h"
#include "cli/common/curve_table.h"
#include "cli/common/database.h"
#include "engine/base/clock.h"
#include "engine/base/opt.h"
#include "engine/config/run_cfg.h"
#include "engine/kernels/table/cpu.h"
#include "monitor/job/launch/child.h"
#include "store/store.h"

enum { RECIPES = 32, CORPORA = 16, SETTINGS = 64, CURVE = 512, POLL_MS = 50 };

typedef struct learn_cfg {
    char recipes[8192], corpora[4096], with[4096], store[1024], dir[512], curves[1024];
    int64_t seeds;
    double goal;
    bool json;
} learn_cfg;

#define TEXT(f) offsetof(learn_cfg, f), sizeof(((learn_cfg *)0)->f)
static const bt_opt learn_opts[] = {
    {"recipes", "--recipe", BT_OPT_LIST, TEXT(recipes), "default:", 0, 0, NULL, NULL,
     "'NAME: key=value key=value', what `train` is told besides; may be given several times, the "
     "others are held against the first"},
    {"corpora", "--corpus", BT_OPT_LIST, TEXT(corpora), "builtin", 0, 0, NULL, NULL,
     "NAME=PATH, text, folder or shards to train on; 'builtin' is the built-in corpus"},
    {"with", "--with", BT_OPT_LIST, TEXT(with), "", 0, 0, NULL, NULL,
     "key=value, settings of all runs, such as model.preset=nano train.steps=1000"},
    {"seeds", "--seeds", BT_OPT_INT, TEXT(seeds), "3", 1, 100, NULL, NULL,
     "runs of each, with the seeds 1, 2, ..."},
    {"goal", "--goal", BT_OPT_REAL, TEXT(goal), "1.88", 0.01, 100, NULL, "bits",
     "validation loss in bits per byte whose time is told"},
    {"store", "--store", BT_OPT_TEXT, TEXT(store), "", 0, 0, NULL, NULL,
     "database that keeps the runs, and takes those that are done from there (default: none "
     "stays)"},
    {"dir", "--dir", BT_OPT_TEXT, TEXT(dir), "", 0, 0, NULL, NULL,
     "folder for what the runs write (default: $TMPDIR or /tmp)"},
    {"curves", "--curves", BT_OPT_TEXT, TEXT(curves), "", 0, 0, NULL, NULL,
     "file for all validations as a table, which 'bitrain plot --curves FILE' draws"},
    {"json", "--json", BT_OPT_BOOL, TEXT(json), "false", 0, 0, NULL, NULL,
     "one JSON object, with the curves"},
};

const bt_opt *bt_bench_learn_opts(size_t *n) {
    *n = sizeof learn_opts / sizeof learn_opts[0];
    return learn_opts;
}

typedef struct named {
    char name[32];
    const char *rest; /* settings apart by blanks; a path */
} named;

typedef struct point {
    double minutes, tokens, bits;
} point;

typedef struct run {
    size_t recipe, corpus;
    int64_t seed;
    char name[BT_NAME_MAX];
    point curve[CURVE];
    size_t n;
    double goal_minutes, goal_tokens; /* NaN: not reached */
} run;

typedef struct bench {
    const learn_cfg *cfg;
    named recipes[RECIPES], corpora[CORPORA];
    size_t n_recipes, n_corpora, n_runs;
    run *runs; /* (seeds, corpora, recipes) */
    char folder[600], db[1024];
} bench;

/* ---- what was asked for ------------------------------------------------------------------------ */

static bt_code take_name(named *out, const char *word, size_t n, const char *what, bt_err *err) {
    if (n >= sizeof out->name || n == 0)
        return bt_fail(err, BT_ARG, "%s '%.60s' has no name of up to %zu letters in front", what,
                       word, sizeof out->name - 1);
    memcpy(out->name, word, n);
    out->name[n] = '\0';
    if (!bt_name_ok(out->name))
        return bt_fail(err, BT_ARG,
                       "%s '%s': a name has lower-case letters, digits, '.', '_' and '-'", what,
                       out->name);
    return BT_OK;
}

static bt_code take_words(named *out, size_t *n, size_t most, char *text, const char *what,
                          char ends_name, bt_err *err) {
    for (char *at = text, *next; at && *at; at = next) {
        next = strchr(at, '\n');
        if (next) *next++ = '\0';
        if (*n == most) return bt_fail(err, BT_ARG, "more than %zu of %s", most, what);
        const size_t name = strcspn(at, (char[]){ends_name, '\0'});
        if (at[name] == '\0' && ends_name == ':')
            return bt_fail(err, BT_ARG, "%s '%.60s' is not 'NAME: key=value ...'", what, at);
        BT_TRY(take_name(&out[*n], at, name, what, err));
        for (size_t i = 0; i < *n; i++)
            if (strcmp(out[i].name, out[*n].name) == 0)
                return bt_fail(err, BT_ARG, "%s '%s' is there twice", what, out[i].name);
        out[(*n)++].rest = at[name] ? at + name + 1 : at + name;
    }
    return BT_OK;
}

static bt_code make_runs(bench *b, bt_err *err) {
    b->n_runs = (size_t)b->cfg->seeds * b->n_corpora * b->n_recipes;
    b->runs = calloc(b->n_runs, sizeof *b->runs);
    if (!b->runs) return bt_fail(err, BT_NOMEM, "no memory for %zu runs", b->n_runs);
    for (size_t i = 0; i < b->n_runs; i++) {
        run *r = &b->runs[i];
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
    char text[16384]; /* of the settings, each ended by NUL */
    size_t used;
} words;

static void put(words *w, const char *word) { w->at[w->n++] = word; }

static bt_code put_settings(words *w, const char *text, bt_err *err) {
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
        put(w, "--set");
        put(w, word);
        text += n;
    }
    return BT_OK;
}

/* before the first run, so that none is done in vain */
static bt_code check_recipe(const bench *b, const named *recipe, bt_err *err) {
    static bt_opts o;
    static bt_run_cfg cfg;
    bt_err why = BT_ERR_INIT;
    bool help = false;
    words *w = calloc(1, sizeof *w);
    if (!w) return bt_fail(err, BT_NOMEM, "no memory for a recipe");
    bt_code code = put_settings(w, b->cfg->with, &why);
    if (code == BT_OK) code = put_settings(w, recipe->rest, &why);
    if (code == BT_OK)
        code = bt_run_cfg_read(&o, &cfg, (int)w->n, (char *const *)(uintptr_t)w->at, &help, &why);
    if (code == BT_OK)
        code = bt_run_cfg_settle(&o, &cfg, bt_run_cfg_ranks(&cfg, bt_cpu_get()->cores), &why);
    free(w);
    return code == BT_OK ? BT_OK : bt_fail(err, code, "recipe '%s': %s", recipe->name, why.msg);
}

static bt_code wait_for(pid_t pid, const char *name, const char *log, bt_err *err) {
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

static bt_code train(const bench *b, const run *r, words *w, bt_err *err) {
    char out[700], log[700], seed[24];
    pid_t pid;
    const named *corpus = &b->corpora[r->corpus];
    /* nothing but steps and validations; what a recipe says comes later and wins */
    static const char quiet[] = "ckpt.final=false ckpt.minutes=0 ckpt.keep_best=false "
                                "ckpt.memory=off train.sample_tokens=0 train.stats_every=0 "
                                "train.log_every=1";
    snprintf(out, sizeof out, "%s/%s", b->folder, r->name);
    snprintf(log, sizeof log, "%s/%s.log", b->folder, r->name);
    snprintf(seed, sizeof seed, "%" PRId64, r->seed);
    const char *const fixed[] = {"train", "--quiet", "--name", r->name,  "--store",
                                 b->db,   "--out",   out,      "--seed", seed};
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) put(w, fixed[i]);
    if (corpus->rest[0]) put(w, "--data"), put(w, corpus->rest);
    BT_TRY(put_settings(w, quiet, err));
    BT_TRY(put_settings(w, b->cfg->with, err));
    BT_TRY(put_settings(w, b->recipes[r->recipe].rest, err));
    BT_TRY(bt_child_start(
        &pid, &(bt_child_cfg){.words = w->at, .n_words = w->n, .log = log, .part = 0, .parts = 1},
        err));
    return wait_for(pid, r->name, log, err);
}

/* ---- what it recorded -------------------------------------------------------------------------- */

typedef struct record {
    run *r;
    double ms, bytes_per_token;
    bool done;
} record;

static bool take_state(void *ctx, const bt_row *row) {
    record *x = ctx;
    x->done = row->cells[0] && strcmp(row->cells[0], "done") == 0;
    x->bytes_per_token = row->cells[1] ? row->nums[1] : 1;
    return false;
}

static bool take_step(void *ctx, const bt_row *row) {
    record *x = ctx;
    run *r = x->r;
    if (isfinite(row->nums[1])) x->ms += row->nums[1];
    if (!isfinite(row->nums[2]) || r->n == CURVE) return true;
    r->curve[r->n++] = (point){.minutes = x->ms / 6e4,
                               .tokens = row->nums[0],
                               .bits = row->nums[2] / M_LN2 / x->bytes_per_token};
    return true;
}

static void find_goal(run *r, double goal) {
    r->goal_minutes = r->goal_tokens = NAN;
    for (size_t i = 0; i < r->n; i++) {
        const point *b = &r->curve[i], *a = i ? b - 1 : b;
        if (!(b->bits <= goal)) continue;
        const double to = a->bits > b->bits ? (a->bits - goal) / (a->bits - b->bits) : 1;
        r->goal_minutes = a->minutes + to * (b->minutes - a->minutes);
        r->goal_tokens = a->tokens + to * (b->tokens - a->tokens);
        return;
    }
}

/* done: false where there is no such run that came to its end */
static bt_code look(const bench *b, run *r, bool *done, bt_err *err) {
    bt_db *db = NULL;
    record x = {.r = r, .bytes_per_token = 1};
    const char *const name[] = {r->name};
    bt_code code = bt_db_open(&db, b->db, err);
    *done = false;
    if (code == BT_NOTFOUND) return BT_OK;
    r->n = 0;
    if (code == BT_OK)
        code = bt_db_query(
            db,
            &(bt_question){.sql = "SELECT state, (SELECT value FROM facts f WHERE "
                                  "f.run = r.run AND f.key = 'data.val_bytes_per_token')"
                                  " + 0.0 FROM runs r WHERE run = ?1",
                           .params = name,
                           .n_params = 1},
            take_state, &x, err);
    if (code == BT_OK && x.done)
        code = bt_db_query(db,
                           &(bt_question){.sql = "SELECT tokens, step_ms, val_loss FROM steps "
                                                 "WHERE run = ?1 ORDER BY step",
                                          .params = name,
                                          .n_params = 1,
                                          .max_rows = INT64_MAX},
                           take_step, &x, err);
    bt_db_close(db);
    if (code == BT_OK && x.done) find_goal(r, b->cfg->goal);
    *done = x.done;
    return code;
}

static bt_code one_run(const bench *b, run *r, bt_err *err) {
    bool done;
    BT_TRY(look(b, r, &done, err));
    if (!done) {
        words *w = calloc(1, sizeof *w);
        if (!w) return bt_fail(err, BT_NOMEM, "no memory for a run");
        const bt_code code = train(b, r, w, err);
        free(w);
        BT_TRY(code);
        BT_TRY(look(b, r, &done, err));
    }
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

/* ---- result ------------------------------------------------------------------------------------ */

typedef struct mean {
    double value, error; /* error: the standard error of the mean, NaN of one */
} mean;

static mean mean_of(const double *x, size_t n) {
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) sum += x[i];
    for (size_t i = 0; i < n; i++) squares += (x[i] - sum / (double)n) * (x[i] - sum / (double)n);
    return (mean){sum / (double)n, n > 1 ? sqrt(squares / (double)(n - 1) / (double)n) : NAN};
}

typedef struct summary {
    mean bits, minutes, goal_minutes, goal_tokens;
} summary;

static summary summary_of(const bench *b, size_t recipe, size_t corpus) {
    double x[4][100];
    size_t n = 0;
    for (size_t i = 0; i < b->n_runs; i++) {
        const run *r = &b->runs[i];
        if (r->recipe != recipe || r->corpus != corpus) continue;
        x[0][n] = r->curve[r->n - 1].bits;
        x[1][n] = r->curve[r->n - 1].minutes;
        x[2][n] = r->goal_minutes;
        x[3][n++] = r->goal_tokens;
    }
    return (summary){mean_of(x[0], n), mean_of(x[1], n), mean_of(x[2], n), mean_of(x[3], n)};
}

static void put_mean(bt_json *j, const char *key, const char *error, mean m) {
    bt_json_num(j, key, m.value);
    bt_json_num(j, error, m.error);
}

static bt_code print_json(const bench *b, bt_err *err) {
    bt_text out;
    bt_json j;
    bt_text_init(&out);
    bt_json_begin(&j, &out);
    bt_json_object(&j, NULL);
    bt_json_int(&j, "version", 1);
    bt_json_num(&j, "goal", b->cfg->goal);
    bt_json_array(&j, "summary");
    for (size_t k = 0; k < b->n_corpora; k++) {
        for (size_t i = 0; i < b->n_recipes; i++) {
            const summary s = summary_of(b, i, k), first = summary_of(b, 0, k);
            bt_json_object(&j, NULL);
            bt_json_str(&j, "recipe", b->recipes[i].name);
            bt_json_str(&j, "settings", b->recipes[i].rest);
            bt_json_str(&j, "corpus", b->corpora[k].name);
            bt_json_int(&j, "seeds", b->cfg->seeds);
            put_mean(&j, "bits_per_byte", "bits_per_byte_error", s.bits);
            put_mean(&j, "minutes", "minutes_error", s.minutes);
            put_mean(&j, "goal_minutes", "goal_minutes_error", s.goal_minutes);
            put_mean(&j, "goal_tokens", "goal_tokens_error", s.goal_tokens);
            bt_json_num(&j, "sooner", first.goal_minutes.value / s.goal_minutes.value);
            bt_json_end(&j, '}');
        }
    }
    bt_json_end(&j, ']');
    bt_json_array(&j, "runs");
    for (size_t i = 0; i < b->n_runs; i++) {
        const run *r = &b->runs[i];
        bt_json_object(&j, NULL);
        bt_json_str(&j, "recipe", b->recipes[r->recipe].name);
        bt_json_str(&j, "corpus", b->corpora[r->corpus].name);
        bt_json_int(&j, "seed", r->seed);
        bt_json_num(&j, "goal_minutes", r->goal_minutes);
        bt_json_num(&j, "goal_tokens", r->goal_tokens);
        bt_json_array(&j, "curve");
        for (size_t k = 0; k < r->n; k++)
            bt_curves_point_json(&j, r->curve[k].minutes, r->curve[k].tokens, r->curve[k].bits);
        bt_json_end(&j, ']');
        bt_json_end(&j, '}');
    }
    bt_json_end(&j, ']');
    bt_json_end(&j, '}');
    return bt_cli_put(&out, err);
}

static const char *number(char *buf, size_t size, const char *format, double value) {
    if (isfinite(value))
        snprintf(buf, size, format, value);
    else
        snprintf(buf, size, "-");
    return buf;
}

static void print_table(const bench *b) {
    char t[6][32];
    printf("%-16s %-12s %8s %8s %9s | to %.2f bits: %9s %9s %7s\n", "recipe", "corpus", "bits/byte",
           "+-", "minutes", b->cfg->goal, "minutes", "M tokens", "sooner");
    for (size_t k = 0; k < b->n_corpora; k++) {
        const summary first = summary_of(b, 0, k);
        for (size_t i = 0; i < b->n_recipes; i++) {
            const summary s = summary_of(b, i, k);
            printf("%-16s %-12s %8s %8s %9s | %13s %9s %9s %7s\n", b->recipes[i].name,
                   b->corpora[k].name, number(t[0], sizeof t[0], "%.4f", s.bits.value),
                   number(t[1], sizeof t[1], "%.4f", s.bits.error),
                   number(t[2], sizeof t[2], "%.2f", s.minutes.value), "",
                   number(t[3], sizeof t[3], "%.2f", s.goal_minutes.value),
                   number(t[4], sizeof t[4], "%.2f", s.goal_tokens.value / 1e6),
                   number(t[5], sizeof t[5], "%.2fx",
                          first.goal_minutes.value / s.goal_minutes.value));
        }
    }
}

/* settings that blanks or ends of lines separate, on the rest of a line */
static void put_words(FILE *f, const char *text) {
    for (size_t n; *text; text += n) {
        text += strspn(text, " \n\t");
        n = strcspn(text, " \n\t");
        if (n) fprintf(f, " %.*s", (int)n, text);
    }
    fputc('\n', f);
}

static bt_code write_curves(const bench *b, bt_err *err) {
    if (!b->cfg->curves[0]) return BT_OK;
    FILE *f = fopen(b->cfg->curves, "w");
    if (!f) return bt_fail_errno(err, BT_IO, errno, "cannot write '%.200s'", b->cfg->curves);
    fprintf(f,
            "# bitrain bench learn: bits per byte of validation over minutes of training steps\n"
            "# %d cores; all runs:",
            bt_cpu_get()->cores);
    put_words(f, b->cfg->with);
    for (size_t i = 0; i < b->n_recipes; i++) {
        fprintf(f, "# %s:", b->recipes[i].name);
        put_words(f, b->recipes[i].rest);
    }
    bt_curves_head(f);
    for (size_t i = 0; i < b->n_runs; i++) {
        const run *r = &b->runs[i];
        for (size_t k = 0; k < r->n; k++)
            bt_curves_put(f, b->recipes[r->recipe].name, b->corpora[r->corpus].name, r->seed,
                          r->curve[k].minutes, r->curve[k].tokens, r->curve[k].bits);
    }
    const bool bad = ferror(f) != 0;
    if (fclose(f) != 0 || bad)
        return bt_fail_errno(err, BT_IO, errno, "cannot write '%.200s'", b->cfg->curves);
    return BT_OK;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at) {
    (void)st, (void)type, (void)at;
    (void)remove(path); /* what is left lies in a folder for temporary files */
    return 0;
}

/* ---- verb -------------------------------------------------------------------------------------- */

static bt_code prepare(bench *b, learn_cfg *cfg, bt_err *err) {
    BT_TRY(take_words(b->recipes, &b->n_recipes, RECIPES, cfg->recipes, "--recipe", ':', err));
    BT_TRY(take_words(b->corpora, &b->n_corpora, CORPORA, cfg->corpora, "--corpus", '=', err));
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

bt_code bt_bench_learn(int argc, char **argv, int *exit_status, bt_err *err) {
    (void)exit_status;
    learn_cfg *cfg = calloc(1, sizeof *cfg);
    bench *b = calloc(1, sizeof *b);
    static bt_opts o;
    size_t n = 0;
    bool help;
    bt_code code = cfg && b ? BT_OK : bt_fail(err, BT_NOMEM, "no memory for the recipes");
    if (code == BT_OK)
        code = bt_opts_init(&o, learn_opts, sizeof learn_opts / sizeof learn_opts[0], cfg, err);
    if (code == BT_OK) code = bt_opts_argv(&o, argc, argv, NULL, 0, &n, &help, err);
    if (code == BT_OK) b->cfg = cfg, code = prepare(b, cfg, err);
    if (code == BT_OK) bt_child_signals(true);
    for (size_t i = 0; code == BT_OK && i < b->n_runs; i++) code = one_run(b, &b->runs[i], err);
    if (code == BT_OK) code = write_curves(b, err);
    if (code == BT_OK && cfg->json) code = print_json(b, err);
    if (code == BT_OK && !cfg->json) print_table(b);
    if (b && b->folder[0]) (void)nftw(b->folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    if (b) free(b->runs);
    free(b);
    free(cfg);
    return code;
}

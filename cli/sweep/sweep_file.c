/* sweep_file.c - reads the file of a sweep: the same strict YAML as a run's configuration, through an option table
 * generated from the settings of a run. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/sweep/sweep.h"

static const bt_opt head_rows[] = {
    BT_ROW_TEXT(bt_sweep_head, name, NULL, "", "name of the group"),
    BT_ROW_ENUM(bt_sweep_head, method, NULL, "grid", "grid|random|halving|find-lr",
                "method of choosing runs"),
    BT_ROW_TEXT(
        bt_sweep_head, goal, NULL, "",
        "metric of a step, or best_val (default: best_val where all runs have one, else loss)"),
    BT_ROW_ENUM(bt_sweep_head, better, NULL, "smaller", "smaller|larger",
                "better direction of the goal"),
    BT_ROW_TEXT(bt_sweep_head, config, NULL, "", "configuration file of all runs"),
    BT_ROW_INT(bt_sweep_head, runs, NULL, "0", 0, BT_SWEEP_RUNS, "runs", "maximum number of runs"),
    BT_ROW_INT(bt_sweep_head, seed, NULL, "1", 0, 9007199254740992.0, NULL,
               "seed of the random choices"),
    BT_ROW_ENUM(bt_sweep_head, on, NULL, "auto", "auto|local|slurm",
                "place of training: auto uses the nodes of the Slurm job in which the "
                "sweep was started"),
    BT_ROW_INT(bt_sweep_head, parallel, NULL, "0", 0, 1024, "runs", "number of concurrent runs"),
    {"budget.steps", NULL, BT_OPT_INT, BT_FIELD(bt_sweep_head, budget_steps), "0", 0, 1e15, NULL,
     "steps", "limit of steps of all runs together"},
    {"budget.hours", NULL, BT_OPT_REAL, BT_FIELD(bt_sweep_head, budget_hours), "0", 0, 1e6, NULL,
     "hours", "limit of the wall clock"},
    {"halving.keep", NULL, BT_OPT_INT, BT_FIELD(bt_sweep_head, keep), "3", 2, 100, NULL, NULL,
     "one of this number of runs continues"},
    {"halving.first_steps", NULL, BT_OPT_INT, BT_FIELD(bt_sweep_head, first_steps), "0", 0, 1e12,
     NULL, "steps", "steps before the first selection"},
};
enum { HEAD_ROWS = sizeof head_rows / sizeof head_rows[0] };

typedef struct table {
    bt_opts opts;
    bt_opt rows[BT_OPT_MAX];
    const bt_opt *of[BT_OPT_MAX]; /* the run's setting of a row; NULL: a row of the sweep itself */
    char keys[BT_OPT_MAX][64];
    size_t n, n_head;
    struct {
        bt_sweep_head head;
        char text[BT_OPT_MAX][BT_SWEEP_TEXT];
    } values;
} table;

/* The sweep itself sets name, folder and placement of its runs; seed and note may be set. */
static bool is_settable_in_sweep(const char *key) {
    return strncmp(key, "run.", 4) != 0 || strcmp(key, "run.seed") == 0 ||
           strcmp(key, "run.note") == 0;
}

static bt_code build_sweep_option_table(table *t, bt_err *err) {
    static const char *const groups[] = {"space", "settings"};
    for (t->n = 0; t->n < HEAD_ROWS; t->n++) t->rows[t->n] = head_rows[t->n];
    t->n_head = t->n;
    for (size_t g = 0; g < 2; g++) {
        for (size_t i = 0; i < bt_run_opts_n; i++) {
            if (!is_settable_in_sweep(bt_run_opts[i].key)) continue;
            if (t->n == BT_OPT_MAX)
                return bt_fail(err, BT_ARG, "the table of settings has no room for a sweep's");
            snprintf(t->keys[t->n], sizeof t->keys[0], "%s.%s", groups[g], bt_run_opts[i].key);
            t->of[t->n] = &bt_run_opts[i];
            t->rows[t->n] = (bt_opt){.key = t->keys[t->n],
                                     .type = BT_OPT_LIST,
                                     .offset = (size_t)(t->values.text[t->n] - (char *)&t->values),
                                     .size = BT_SWEEP_TEXT,
                                     .def = "",
                                     .help = bt_run_opts[i].help};
            t->n++;
        }
    }
    return bt_opts_init(&t->opts, t->rows, t->n, &t->values, err);
}

/* Fails with the error that a run would report for this value. */
static bt_code check_setting_value(const bt_opt *opt, const char *value, const char *where,
                                   bt_err *err) {
    static bt_opts o;
    static bt_run_cfg scratch;
    BT_TRY(bt_opts_init(&o, bt_run_opts, bt_run_opts_n, &scratch, err));
    return bt_opts_set(&o, opt->key, value, BT_FROM_FILE, where, err);
}

static const char *format_axis_number(const bt_opt *opt, double v, char buf[40]) {
    if (opt->type == BT_OPT_INT)
        snprintf(buf, 40, "%lld", llround(v));
    else
        snprintf(buf, 40, "%.4g", v);
    return buf;
}

/* Parses "[log] A .. B [in N]"; *points is 0 without "in". */
static bool parse_range(const char *text, bt_sweep_axis *a, long *points) {
    char *end;
    a->log = strncmp(text, "log ", 4) == 0;
    if (a->log) text += 4;
    a->from = strtod(text, &end);
    if (end == text) return false;
    text = end + strspn(end, " ");
    if (strncmp(text, "..", 2) != 0) return false;
    text += 2;
    a->to = strtod(text, &end);
    if (end == text) return false;
    text = end + strspn(end, " ");
    *points = 0;
    if (strncmp(text, "in ", 3) == 0) {
        *points = strtol(text + 3, &end, 10);
        if (end == text + 3 || *points < 2 || *points > BT_SWEEP_VALUES) return false;
        text = end + strspn(end, " ");
    }
    return !*text;
}

static bt_code read_axis_range(bt_sweep_file *f, bt_sweep_axis *a, long points, bt_err *err) {
    char buf[40];
    if (a->opt->type != BT_OPT_INT && a->opt->type != BT_OPT_REAL)
        return bt_fail(err, BT_ARG, "%s: space.%s is no number: give its values as a list",
                       a->where, a->opt->key);
    if (!isfinite(a->from) || !isfinite(a->to) || fabs(a->from) > 1e18 || fabs(a->to) > 1e18)
        return bt_fail(err, BT_ARG, "%s: space.%s: the ends of the range are no usable numbers",
                       a->where, a->opt->key);
    if (!(a->from < a->to) || (a->log && a->from <= 0))
        return bt_fail(err, BT_ARG, "%s: space.%s: the range must go upwards%s", a->where,
                       a->opt->key, a->log ? ", from a number above 0 where it is 'log'" : "");
    for (int i = 0; i < 2; i++)
        BT_TRY(check_setting_value(a->opt, format_axis_number(a->opt, i ? a->to : a->from, buf),
                                   a->where, err));
    for (long i = 0; i < points; i++) {
        const double u = (double)i / (double)(points - 1);
        const double v = a->log ? a->from * pow(a->to / a->from, u)
                                : a->from + u * (a->to - a->from);
        format_axis_number(a->opt, v, buf);
        if (a->n && strcmp(a->values[a->n - 1], buf) == 0)
            continue; /* integers of a fine range may coincide */
        a->values[a->n] = strdup(buf);
        if (!a->values[a->n++]) return bt_fail(err, BT_NOMEM, "no memory for the sweep");
    }
    if (!points && f->head.method == BT_SWEEP_GRID)
        return bt_fail(err, BT_ARG,
                       "%s: space.%s is a range, and a grid needs values: give their number "
                       "('%s%.4g .. %.4g in 5'), or use method: random",
                       a->where, a->opt->key, a->log ? "log " : "", a->from, a->to);
    return BT_OK;
}

static bt_code read_axis(bt_sweep_file *f, const bt_opt *opt, char *text, const char *where,
                         bt_err *err) {
    long points = 0;
    if (f->n_axes == BT_SWEEP_AXES)
        return bt_fail(err, BT_ARG, "%s: more than %d settings that differ", where, BT_SWEEP_AXES);
    bt_sweep_axis *a = &f->axes[f->n_axes];
    *a = (bt_sweep_axis){.opt = opt, .where = where};
    f->n_axes++;
    if (!text[0]) return bt_fail(err, BT_ARG, "%s: space.%s has no values", where, opt->key);
    if (parse_range(text, a, &points)) return read_axis_range(f, a, points, err);
    for (char *rest = text, *v; (v = strsep(&rest, "\n")) != NULL;) {
        if (a->n == BT_SWEEP_VALUES)
            return bt_fail(err, BT_ARG, "%s: space.%s has more than %d values", where, opt->key,
                           BT_SWEEP_VALUES);
        BT_TRY(check_setting_value(opt, v, where, err));
        for (size_t i = 0; i < a->n; i++)
            if (strcmp(a->values[i], v) == 0)
                return bt_fail(err, BT_ARG, "%s: space.%s has the value '%.60s' twice", where,
                               opt->key, v);
        a->values[a->n] = strdup(v);
        if (!a->values[a->n++]) return bt_fail(err, BT_NOMEM, "no memory for the sweep");
    }
    return BT_OK;
}

static bt_code read_fixed_settings(bt_sweep_file *f, table *t, bt_err *err) {
    for (size_t i = t->n_head; i < t->n; i++) {
        if (t->opts.origin[i] != BT_FROM_FILE) continue;
        if (strncmp(t->rows[i].key, "space.", 6) == 0) {
            BT_TRY(read_axis(f, t->of[i], t->values.text[i], t->opts.where[i], err));
            continue;
        }
        BT_TRY(check_setting_value(t->of[i], t->values.text[i], t->opts.where[i], err));
        f->settings[f->n_settings++] = (bt_sweep_setting){t->of[i], t->values.text[i],
                                                          t->opts.where[i]};
    }
    for (size_t i = 0; i < f->n_axes; i++)
        for (size_t k = 0; k < f->n_settings; k++)
            if (f->settings[k].opt == f->axes[i].opt)
                return bt_fail(err, BT_ARG,
                               "%s: '%s' is under settings, and under space as well (%s)",
                               f->settings[k].where, f->axes[i].opt->key, f->axes[i].where);
    return BT_OK;
}

/* "dir/lr_1.yaml" -> "lr_1"; characters not allowed in a run's name become '-'. */
static void group_name_from_path(const char *path, char name[BT_NAME_MAX]) {
    const char *base = strrchr(path, '/');
    base = base ? base + 1 : path;
    const size_t n = strcspn(base, ".");
    snprintf(name, 48, "%.*s", (int)(n < 40 ? n : 40), base);
    for (char *c = name; *c; c++) {
        if (*c >= 'A' && *c <= 'Z') *c = (char)(*c - 'A' + 'a');
        if (!strchr("abcdefghijklmnopqrstuvwxyz0123456789_-", *c)) *c = '-';
    }
    if (!name[0] || !bt_name_ok(name)) snprintf(name, BT_NAME_MAX, "sweep");
}

static bt_code check_sweep_settings(bt_sweep_file *f, bt_err *err) {
    bt_sweep_head *h = &f->head;
    if (!h->name[0]) group_name_from_path(f->path, h->name);
    h->goal_given = h->goal[0] != 0;
    if (!h->goal_given) snprintf(h->goal, sizeof h->goal, "loss");
    if (!bt_name_ok(h->name) || strlen(h->name) > BT_NAME_MAX - 9)
        return bt_fail(
            err, BT_ARG,
            "%s: name '%.60s' must be of letters, digits, . _ - and at most %d characters", f->path,
            h->name, BT_NAME_MAX - 9);
    if (strcmp(h->goal, "best_val") != 0 && bt_metric_find(BT_SCOPE_STEP, h->goal) < 0)
        return bt_fail(err, BT_ARG,
                       "%s: goal '%.40s' is no metric of a step (loss, val_loss, tokens_per_s, "
                       "...; `bitrain help metrics` lists them), nor best_val",
                       f->path, h->goal);
    if (h->method == BT_SWEEP_HALVING && strcmp(h->goal, "best_val") == 0)
        return bt_fail(err, BT_ARG,
                       "%s: halving compares runs at the same step, for which best_val is not "
                       "defined (use goal: loss or val_loss)",
                       f->path);
    if (!f->n_axes)
        return bt_fail(err, BT_ARG,
                       "%s: the space is empty: give settings with their values ('space:', below "
                       "it 'optim.lr: [1e-3, 2e-3]')",
                       f->path);
    if (h->method == BT_SWEEP_FIND_LR) return bt_sweep_find_settings(f, err);
    if (h->method == BT_SWEEP_HALVING && !h->runs)
        return bt_fail(err, BT_ARG, "%s: give the number of runs at the start: 'runs: N'", f->path);
    if (h->method == BT_SWEEP_RANDOM && !h->runs && !h->budget_steps)
        return bt_fail(err, BT_ARG,
                       "%s: give the number of runs: 'runs: N', or 'budget:' with 'steps: N'",
                       f->path);
    return BT_OK;
}

bt_code bt_sweep_file_read(bt_sweep_file *f, const char *path, bt_err *err) {
    memset(f, 0, sizeof *f);
    f->path = path;
    table *t = calloc(1, sizeof *t);
    if (!t) return bt_fail(err, BT_NOMEM, "no memory for the sweep");
    f->memory = t;
    bt_code code = build_sweep_option_table(t, err);
    if (code == BT_OK) code = bt_opts_yaml(&t->opts, path, err);
    if (code == BT_NOTFOUND)
        return bt_fail(err, code, "there is no file '%.140s' ('bitrain sweep --help' shows one)",
                       path);
    f->head = t->values.head;
    if (code == BT_OK) code = read_fixed_settings(f, t, err);
    if (code == BT_OK) code = check_sweep_settings(f, err);
    return code;
}

bt_code bt_sweep_file_find(bt_sweep_file *f, const bt_sweep_find *find, bt_err *err) {
    memset(f, 0, sizeof *f);
    f->path = "--find-lr";
    table *t = calloc(1, sizeof *t);
    if (!t) return bt_fail(err, BT_NOMEM, "no memory for the sweep");
    f->memory = t;
    char *steps = t->values.text[0], *range = t->values.text[1];
    bt_code code = build_sweep_option_table(t, err);
    if (code != BT_OK) return code;
    f->head = t->values.head;
    f->head.method = BT_SWEEP_FIND_LR;
    snprintf(f->head.name, sizeof f->head.name, "%s", find->name);
    if (snprintf(f->head.config, sizeof f->head.config, "%s", find->config) >=
        (int)sizeof f->head.config)
        return bt_fail(err, BT_ARG, "the path '%.60s...' is too long", find->config);
    snprintf(steps, BT_SWEEP_TEXT, "%lld", (long long)find->steps);
    snprintf(range, BT_SWEEP_TEXT, "log %.9g .. %.9g", find->from, find->to);
    f->settings[f->n_settings++] = (bt_sweep_setting){bt_sweep_opt("train.steps"), steps,
                                                      "--steps"};
    /* the run's configuration may give its length in epochs */
    f->settings[f->n_settings++] = (bt_sweep_setting){bt_sweep_opt("train.epochs"), "0", "--steps"};
    BT_TRY(read_axis(f, bt_sweep_opt("optim.lr"), range, "--from, --to", err));
    return check_sweep_settings(f, err);
}

void bt_sweep_file_release(bt_sweep_file *f) {
    for (size_t i = 0; i < f->n_axes; i++)
        for (size_t k = 0; k < f->axes[i].n; k++) free(f->axes[i].values[k]);
    free(f->memory);
    *f = (bt_sweep_file){0};
}

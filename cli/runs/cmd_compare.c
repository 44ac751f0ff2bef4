/* cmd_compare.c - `bitrain compare RUN RUN...`: compares settings, results at equal progress, speed, and the first
 * differing step; its exit code is a test for scripts. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/common/command.h"
#include "cli/common/database.h"
#include "cli/common/printout/printout.h"
#include "cli/runs/compare_groups.h"
#include "engine/base/tables/fact.h"
#include "engine/base/tables/figure.h"
#include "engine/base/tables/metric.h"
#include "store/read/compare_runs.h"

enum { RUNS_MAX = 12, GATES_MAX = 16, WORDS_MAX = 512 };
#define NEARLY \
    0.98 /* share of the compared point that suffices: a run of 2 M tokens may end some steps earlier */

typedef struct compare_cfg {
    char store[1024], metric[64], at[64], fail_if[2048], group_by[256], paired[64];
    int64_t window;
    bool json;
} compare_cfg;

static const bt_opt compare_opts[] = {
    BT_ROW_JSON(compare_cfg),
    BT_ROW_TEXT(compare_cfg, metric, "--metric", "loss", "metric compared at matched progress"),
    BT_ROW_TEXT(compare_cfg, at, "--at", "",
                "tokens=N, step=N or time=N (default: the end of the shortest run, in tokens)"),
    BT_ROW_INT(compare_cfg, window, "--window", "20", 1, 1000, "records",
               "number of averaged values"),
    BT_ROW_LIST(compare_cfg, fail_if, "--fail-if", "",
                "exit with code 5 if a run meets this condition compared with the first: "
                "'loss > +0.5% @ tokens=2M'"),
    BT_ROW_TEXT(
        compare_cfg, group_by, "--group-by", "",
        "KEY or KEY,KEY: mean and spread over the runs that share the value of these settings"),
    BT_ROW_TEXT(compare_cfg, paired, "--paired", "",
                "KEY, with --group-by: pair the runs with the same value, such as run.seed, and "
                "print the best group with its confidence"),
    BT_ROW_STORE(compare_cfg),
};

typedef struct result {
    char run[BT_NAME_MAX], state[16];
    double steps, tokens, best_val, tokens_per_s, step_ms, mfu, goodput;
    bt_level level;
    bt_first_difference first;
} result;

typedef struct check {
    char text[200];
    bt_gate gate;
    bt_gate_result results[RUNS_MAX];
    bt_level levels[RUNS_MAX];
} check;

typedef struct comparison {
    bt_db *db;
    const compare_cfg *cfg;
    const char *metric; /* metric compared at equal progress */
    bool metric_given;
    result runs[RUNS_MAX];
    const char *names[RUNS_MAX];
    size_t n, n_checks, n_failed;
    bt_at at;
    check checks[GATES_MAX];
} comparison;

/* ---- figures ---- */

static bool read_summary_row(void *ctx, const bt_row *row) {
    result *r = ctx;
    snprintf(r->state, sizeof r->state, "%s", bt_cli_cell(row, "state"));
    r->steps = bt_cli_num(row, "steps");
    r->tokens = bt_cli_num(row, "tokens");
    r->best_val = bt_cli_num(row, "best_val");
    r->tokens_per_s = bt_cli_num(row, "tokens_per_s");
    r->step_ms = bt_cli_num(row, "step_ms");
    r->mfu = bt_cli_num(row, "mfu");
    r->goodput = bt_cli_num(row, "goodput");
    return false;
}

static const char *const axis_words[] = {"tokens", "steps", "seconds"};

/* Checks that all runs reach the point: a shorter run's end would be compared with earlier points of longer runs. */
static bt_code check_all_reach(comparison *c, bt_at at, bt_err *err) {
    for (size_t i = 0; i < c->n; i++) {
        double end;
        char a[64], b[64];
        BT_TRY(bt_db_common_end(c->db, &c->names[i], 1, at.axis, &end, err));
        if (end >= NEARLY * at.x) continue;
        return bt_fail(err, BT_ARG, "run '%s' has only %s %s: it cannot be compared at %s",
                       c->names[i], bt_metric_format(a, sizeof a, end, BT_UNIT_COUNT),
                       axis_words[at.axis], bt_metric_format(b, sizeof b, at.x, BT_UNIT_COUNT));
    }
    return BT_OK;
}

static bt_code read_metric_levels(comparison *c, const char *metric, bt_at at,
                                  bt_level out[RUNS_MAX], bt_err *err) {
    if (isnan(at.x))
        BT_TRY(bt_db_common_end(c->db, c->names, c->n, at.axis, &at.x, err));
    else
        BT_TRY(check_all_reach(c, at, err));
    for (size_t i = 0; i < c->n; i++)
        BT_TRY(bt_db_level(c->db, c->names[i], metric, &at, (int)c->cfg->window, &out[i], err));
    return BT_OK;
}

static bt_code run_checks(comparison *c, bt_err *err) {
    char text[sizeof c->cfg->fail_if], *rest = text;
    snprintf(text, sizeof text, "%s", c->cfg->fail_if);
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        if (!*line) continue;
        if (c->n_checks == GATES_MAX)
            return bt_fail(err, BT_ARG, "more than %d conditions", GATES_MAX);
        check *k = &c->checks[c->n_checks++];
        snprintf(k->text, sizeof k->text, "%s", line);
        BT_TRY(bt_gate_parse(line, &k->gate, err));
        BT_TRY(read_metric_levels(c, k->gate.metric, k->gate.at, k->levels, err));
        for (size_t i = 1; i < c->n; i++) {
            k->results[i] = bt_gate_check(&k->gate, &k->levels[i], &k->levels[0]);
            c->n_failed += k->results[i] == BT_GATE_FAILS;
        }
    }
    return BT_OK;
}

static bt_code parse_compared_point(const compare_cfg *cfg, bt_at *at, bt_err *err) {
    bt_gate g;
    char as_gate[96];
    *at = (bt_at){BT_AT_TOKENS, NAN};
    if (!cfg->at[0]) return BT_OK;
    snprintf(as_gate, sizeof as_gate, "x > 0 @ %s", cfg->at);
    if (bt_gate_parse(as_gate, &g, err) != BT_OK)
        return bt_fail(err, BT_ARG, "--at '%s' is not understood (tokens=2M, step=500 or time=60)",
                       cfg->at);
    *at = g.at;
    return BT_OK;
}

static bt_code load_compared_runs(comparison *c, const char *const *words, size_t n, bt_err *err) {
    bt_level found[RUNS_MAX];
    c->n = n;
    for (size_t i = 0; i < n; i++) {
        result *r = &c->runs[i];
        c->names[i] = r->run;
        BT_TRY(bt_db_run(c->db, words[i], r->run, err));
        BT_TRY(bt_db_query(c->db,
                           &(bt_query){.sql = "SELECT * FROM runs WHERE run = ?1",
                                       .params = &c->names[i],
                                       .n_params = 1},
                           read_summary_row, r, err));
        if (i) BT_TRY(bt_db_first_difference(c->db, c->names[0], r->run, &r->first, err));
    }
    BT_TRY(parse_compared_point(c->cfg, &c->at, err));
    if (isnan(c->at.x)) BT_TRY(bt_db_common_end(c->db, c->names, n, c->at.axis, &c->at.x, err));
    BT_TRY(read_metric_levels(c, c->metric, c->at, found, err));
    /* runs without a training loss, such as imported curves: use the validation loss, unless the user named a metric */
    bool any = false;
    for (size_t i = 0; i < n; i++) any = any || found[i].n > 0;
    if (!any && !c->metric_given) {
        c->metric = bt_step_metrics[BT_MS_VAL_LOSS].key;
        BT_TRY(read_metric_levels(c, c->metric, c->at, found, err));
    }
    for (size_t i = 0; i < n; i++) c->runs[i].level = found[i];
    return run_checks(c, err);
}

/* ---- settings that differ ---- */

/* Builds SQL that returns (key, value in run 1, value in run 2, ...) of the rows whose values are not all equal. */
static void compose_difference_query(size_t n, const char *view, bt_text *sql) {
    bt_text_put(sql, "SELECT key");
    for (size_t i = 1; i <= n; i++)
        bt_text_printf(sql, ", max(CASE WHEN run = ?%zu THEN value END)", i);
    bt_text_printf(sql, " FROM %s WHERE run IN (", view);
    for (size_t i = 1; i <= n; i++) bt_text_printf(sql, "%s?%zu", i > 1 ? "," : "", i);
    bt_text_printf(sql,
                   ") AND key NOT IN ('run.name', 'run.store', 'run.out', 'run.resume') GROUP BY "
                   "key HAVING count(*) < %zu OR count(DISTINCT value) > 1 ORDER BY key",
                   n);
}

/* Compares each value with that of the first run; measured figures differ only beyond their noise. */
static bool is_equal_fact(const bt_row *row) {
    for (int i = 2; i < row->n; i++)
        if (!bt_fact_same(row->cells[0], row->cells[1], row->cells[i])) return false;
    return true;
}

typedef struct difference {
    bt_printout *to;
    const comparison *of;
    bool facts;
} difference;

static bool put_difference(void *ctx, const bt_row *row) {
    const difference *d = ctx;
    bt_printout *o = d->to;
    char text[300];
    if (d->facts && is_equal_fact(row)) return true;
    bt_printout_row(o);
    bt_printout_str(o, "key", "KEY", row->cells[0]);
    if (o->json) bt_json_array(&o->j, "values");
    for (int i = 1; i < row->n; i++) {
        if (o->json) bt_row_cell_json(&o->j, NULL, row, i);
        bt_printout_str(o, NULL, d->of->names[i - 1],
                        d->facts ? bt_fact_format(text, sizeof text, row->cells[0], row->cells[i])
                                 : bt_setting_format(text, sizeof text, row->cells[i]));
    }
    if (o->json) bt_json_end(&o->j, ']');
    bt_printout_end(o);
    return true;
}

/* view: "settings" or "facts". */
static bt_code put_differences(comparison *c, bt_printout *o, const char *title, const char *view,
                               bt_err *err) {
    difference d = {o, c, strcmp(view, "facts") == 0};
    bt_text sql;
    bt_text_init(&sql);
    compose_difference_query(c->n, view, &sql);
    bt_printout_rows(o, title);
    bt_code code = bt_db_query(
        c->db, &(bt_query){.sql = bt_text_str(&sql), .params = c->names, .n_params = (int)c->n},
        put_difference, &d, err);
    bt_text_release(&sql);
    bt_printout_line(o, o->n_rows ? "%s that differ\n" : "%s: none differ\n", title);
    bt_printout_rows_end(o, "  ");
    bt_printout_line(o, "\n");
    return code;
}

/* ---- the result ---- */

static const char *const axis_keys[] = {"tokens", "step", "time_s"};

static double relative_change(double v, double base) { return (v - base) / fabs(base); }

static void put_relative_change(bt_printout *o, size_t run, double v, double base) {
    if (run && isfinite(v) && isfinite(base) && base != 0)
        bt_printout_cellf(o, "AGAINST", "%+.2f %%", 100 * relative_change(v, base));
    else
        bt_printout_cellf(o, "AGAINST", run ? "-" : "base");
}

static void put_compared_level(bt_printout *o, const char *label, const char *noise,
                               const bt_level *l) {
    bt_printout_numf(o, "value", label, l->value, 1, "%.6g");
    bt_printout_numf(o, "noise", noise, l->noise, 1, "%.2g");
    bt_printout_int(o, "records", NULL, l->n);
}

static void put_compared_result(bt_printout *o, const comparison *c, size_t i) {
    const result *r = &c->runs[i], *base = &c->runs[0];
    bt_printout_row(o);
    bt_printout_str(o, "run", "RUN", r->run);
    bt_printout_str(o, "state", NULL, r->state);
    bt_printout_num(o, "steps", "STEPS", r->steps, BT_UNIT_COUNT);
    bt_printout_num(o, "tokens", "TOKENS", r->tokens, BT_UNIT_COUNT);
    put_compared_level(o, c->metric, "NOISE", &r->level);
    put_relative_change(o, i, r->level.value, base->level.value);
    bt_printout_num(o, "best_val", "BEST VAL", r->best_val, BT_UNIT_NATS);
    bt_printout_num(o, "tokens_per_s", "TOKENS/S", r->tokens_per_s, BT_UNIT_PER_S);
    put_relative_change(o, i, r->tokens_per_s, base->tokens_per_s);
    bt_printout_num(o, "step_ms", "STEP TIME", r->step_ms, BT_UNIT_MS);
    bt_printout_num(o, "mfu", "MFU", r->mfu, BT_UNIT_FRAC);
    bt_printout_num(o, "goodput", NULL, r->goodput, BT_UNIT_FRAC);
    bt_printout_str(o, NULL, "STATE", r->state);
    if (i) {
        bt_printout_num(o, "value_change", NULL, relative_change(r->level.value, base->level.value),
                        BT_UNIT_FRAC);
        bt_printout_num(o, "speed_change", NULL, r->tokens_per_s / base->tokens_per_s - 1,
                        BT_UNIT_FRAC);
        bt_printout_int(o, "common_steps", NULL, r->first.common);
        bt_printout_num(o, "first_different_step", NULL,
                        r->first.step >= 0 ? (double)r->first.step : NAN, BT_UNIT_COUNT);
    }
    bt_printout_end(o);
}

static void put_first_difference(bt_printout *o, const char *base, const result *r) {
    const bt_first_difference *f = &r->first;
    const char *a = bt_text_shown(base), *b = bt_text_shown(r->run);
    if (f->common == 0)
        bt_printout_line(o, "%s and %s have no step in common for which both recorded a loss\n", a,
                         b);
    else if (f->step < 0)
        bt_printout_line(o, "%s and %s: the same losses to the last bit in all %lld common steps\n",
                         a, b, (long long)f->common);
    else
        bt_printout_line(o, "%s and %s: losses differ from step %lld on (%.9g, %.9g)\n", a, b,
                         (long long)f->step + 1, f->a, f->b);
}

static void put_results(bt_printout *o, const comparison *c) {
    char x[64], y[24] = "";
    int least = c->runs[0].level.n, most = least;
    for (size_t i = 1; i < c->n; i++) {
        least = c->runs[i].level.n < least ? c->runs[i].level.n : least;
        most = c->runs[i].level.n > most ? c->runs[i].level.n : most;
    }
    if (least < most) snprintf(y, sizeof y, "%d to ", least);
    bt_printout_line(
        o, "results: %s at %s %s, mean of %s%d record%s; %s, %s and %s of each run's %s\n",
        bt_text_shown(c->metric), bt_metric_format(x, sizeof x, c->at.x, BT_UNIT_COUNT),
        axis_words[c->at.axis], y, most, most == 1 ? "" : "s",
        bt_figures[BT_FIGURE_TOKENS_PER_S].label, bt_figures[BT_FIGURE_STEP_MS].label,
        bt_figures[BT_FIGURE_MFU].label, bt_figure_span_name(BT_SPAN_RECENT));
    bt_printout_rows(o, "runs");
    for (size_t i = 0; i < c->n; i++) put_compared_result(o, c, i);
    bt_printout_rows_end(o, "  ");
    for (size_t i = 1; i < c->n; i++) put_first_difference(o, c->names[0], &c->runs[i]);
}

static void put_gate_results(bt_printout *o, const comparison *c) {
    static const char *const words[] = {"passes", "noise", "fails"}, *const shown[] = {
                                                                         "passes",
                                                                         "within the noise",
                                                                         "FAILS"};
    bt_printout_rows(o, "checks");
    for (size_t i = 0; i < c->n_checks * c->n; i++) {
        const check *q = &c->checks[i / c->n];
        const size_t run = i % c->n;
        if (run == 0) continue;
        bt_printout_row(o);
        bt_printout_str(o, "condition", NULL, q->text);
        bt_printout_str(o, "run", NULL, c->names[run]);
        put_compared_level(o, NULL, NULL, &q->levels[run]);
        bt_printout_num(o, "base", NULL, q->levels[0].value, BT_UNIT_NONE);
        bt_printout_str(o, "result", NULL, words[q->results[run]]);
        bt_printout_end(o);
        bt_printout_line(o, "check '%s': %s %s (%.6g, base %.6g)\n", bt_text_shown(q->text),
                         bt_text_shown(c->names[run]), shown[q->results[run]], q->levels[run].value,
                         q->levels[0].value);
    }
    bt_printout_rows_end(o, "");
}

static bt_code print_comparison(comparison *c, bt_err *err) {
    bt_printout o;
    bt_printout_begin(&o, c->cfg->json);
    bt_printout_version(&o);
    bt_printout_str(&o, "metric", NULL, c->metric);
    bt_printout_object(&o, "at");
    bt_printout_num(&o, axis_keys[c->at.axis], NULL, c->at.x, BT_UNIT_COUNT);
    bt_printout_end(&o);
    if (o.json) put_results(&o, c);
    bt_code code = put_differences(c, &o, "settings", "configs", err);
    if (code == BT_OK) code = put_differences(c, &o, "facts", "facts", err);
    if (!o.json) put_results(&o, c);
    put_gate_results(&o, c);
    return bt_printout_finish(&o, code, err);
}

static bt_code compare_by_groups(const compare_cfg *cfg, const char *const *words, size_t n,
                                 bt_err *err) {
    bt_db *db = NULL;
    bt_group_cfg g = {.keys = cfg->group_by,
                      .paired = cfg->paired,
                      .metric = cfg->metric,
                      .window = (int)cfg->window,
                      .json = cfg->json};
    if (cfg->fail_if[0])
        return bt_fail(err, BT_ARG, "--fail-if compares runs with the first, not groups of them");
    BT_TRY(parse_compared_point(cfg, &g.at, err));
    BT_TRY(bt_cli_open(&db, cfg->store, err));
    bt_code code = bt_compare_groups(db, &g, words, n, err);
    bt_db_close(db);
    return code;
}

static bt_code cmd_compare(bt_call *call, bt_err *err) {
    compare_cfg *cfg = call->cfg;
    const char *const *words = call->words;
    if (cfg->group_by[0]) return compare_by_groups(cfg, words, call->n, err);
    if (cfg->paired[0])
        return bt_fail(err, BT_ARG, "--paired compares groups of runs (give --group-by KEY)");
    if (call->n > RUNS_MAX)
        return bt_fail(err, BT_ARG, "at most %d runs side by side (many: --group-by KEY)",
                       RUNS_MAX);
    if (call->n < 2)
        return bt_fail(
            err, BT_ARG,
            "two runs at least are needed, the first is the base (`bitrain runs` lists them)");
    comparison *c = calloc(1, sizeof *c);
    if (!c) return bt_fail(err, BT_NOMEM, "cannot compare: out of memory");
    c->cfg = cfg;
    c->metric = cfg->metric;
    c->metric_given = bt_opts_given(&call->opts, "metric");
    bt_code code = bt_cli_open(&c->db, cfg->store, err);
    if (code == BT_OK) code = load_compared_runs(c, words, call->n, err);
    if (code == BT_OK) code = print_comparison(c, err);
    if (code == BT_OK && c->n_failed)
        code = bt_fail(err, BT_CHECK, "%zu check%s failed", c->n_failed,
                       c->n_failed == 1 ? "" : "s");
    bt_db_close(c->db);
    free(c);
    return code;
}

const bt_command bt_cmd_compare = {
    .name = "compare",
    .summary = "settings, results and speed of runs side by side",
    .args = "RUN RUN... | [RUN|FILTER...] --group-by KEY",
    .examples = "bitrain compare base-1 abl-3 # the first run is the base\n"
                "bitrain compare base-1 abl-3 --at tokens=2M --metric loss --json\n"
                "bitrain compare base-1 abl-3 --fail-if 'loss > +0.5% @ tokens=2M' 'tokens_per_s < "
                "-5%'   # exit 5\n"
                "bitrain compare group=lr --group-by optim.lr # mean and spread of the runs of a "
                "sweep\n"
                "bitrain compare group=lr --group-by optim.lr --paired run.seed # and the best, "
                "with its confidence\n",
    .options = BT_OPTION_SET(compare_opts, compare_cfg),
    .max_words = WORDS_MAX,
    .run = cmd_compare,
};

/* cmd_compare.c - `bitrain compare RUN RUN...`: settings, results at matched progress, speed, first
 * differing step; a gate for scripts. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/common/command.h"
#include "cli/common/database.h"
#include "cli/common/table.h"
#include "cli/runs/compare_groups.h"
#include "engine/base/tables/fact.h"
#include "engine/base/tables/figure.h"
#include "engine/base/tables/metric.h"
#include "store/read/compare_runs.h"

enum { RUNS_MAX = 12, GATES_MAX = 16, WORDS_MAX = 512 };
#define NEARLY 0.98 /* of the point compared at: a run of 2 M tokens may end some steps before */

typedef struct compare_cfg {
    char store[1024], metric[64], at[64], fail_if[2048], group_by[256];
    int64_t window;
    bool json;
} compare_cfg;

static const bt_opt compare_opts[] = {
    BT_ROW_JSON(compare_cfg),
    BT_ROW_TEXT(compare_cfg, metric, "--metric", "loss", "metric compared at matched progress"),
    BT_ROW_TEXT(compare_cfg, at, "--at", "",
                "tokens=N, step=N or time=N (default: the end of the shortest run, in tokens)"),
    BT_ROW_INT(compare_cfg, window, "--window", "20", 1, 1000, "records", "values averaged"),
    BT_ROW_LIST(compare_cfg, fail_if, "--fail-if", "",
                "exit 5 when a run fulfils this against the first: 'loss > +0.5% @ tokens=2M'"),
    BT_ROW_TEXT(
        compare_cfg, group_by, "--group-by", "",
        "KEY or KEY,KEY: mean and spread over the runs that share the value of these settings"),
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
    const char *metric; /* compared at matched progress */
    bool metric_given;
    result runs[RUNS_MAX];
    const char *names[RUNS_MAX];
    size_t n, n_checks, n_failed;
    bt_at at;
    check checks[GATES_MAX];
} comparison;

/* ---- figures ---- */

static bool take_summary(void *ctx, const bt_row *row) {
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

/* A run that never came so far would be judged by its end: at another point than the others. */
static bt_code all_reach(comparison *c, bt_at at, bt_err *err) {
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

static bt_code levels(comparison *c, const char *metric, bt_at at, bt_level out[RUNS_MAX],
                      bt_err *err) {
    if (isnan(at.x))
        BT_TRY(bt_db_common_end(c->db, c->names, c->n, at.axis, &at.x, err));
    else
        BT_TRY(all_reach(c, at, err));
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
        BT_TRY(levels(c, k->gate.metric, k->gate.at, k->levels, err));
        for (size_t i = 1; i < c->n; i++) {
            k->results[i] = bt_gate_check(&k->gate, &k->levels[i], &k->levels[0]);
            c->n_failed += k->results[i] == BT_GATE_FAILS;
        }
    }
    return BT_OK;
}

static bt_code read_at(const compare_cfg *cfg, bt_at *at, bt_err *err) {
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

static bt_code load(comparison *c, const char *const *words, size_t n, bt_err *err) {
    bt_level found[RUNS_MAX];
    c->n = n;
    for (size_t i = 0; i < n; i++) {
        result *r = &c->runs[i];
        c->names[i] = r->run;
        BT_TRY(bt_db_run(c->db, words[i], r->run, err));
        BT_TRY(bt_db_query(c->db,
                           &(bt_question){.sql = "SELECT * FROM runs WHERE run = ?1",
                                          .params = &c->names[i],
                                          .n_params = 1},
                           take_summary, r, err));
        if (i) BT_TRY(bt_db_first_difference(c->db, c->names[0], r->run, &r->first, err));
    }
    BT_TRY(read_at(c->cfg, &c->at, err));
    if (isnan(c->at.x)) BT_TRY(bt_db_common_end(c->db, c->names, n, c->at.axis, &c->at.x, err));
    BT_TRY(levels(c, c->metric, c->at, found, err));
    /* runs without a training loss, as imported curves: the validation loss, unless the user named a metric */
    bool any = false;
    for (size_t i = 0; i < n; i++) any = any || found[i].n > 0;
    if (!any && !c->metric_given) {
        c->metric = bt_step_metrics[BT_MS_VAL_LOSS].key;
        BT_TRY(levels(c, c->metric, c->at, found, err));
    }
    for (size_t i = 0; i < n; i++) c->runs[i].level = found[i];
    return run_checks(c, err);
}

/* ---- settings that differ ---- */

/* SQL of (key, value in run 1, value in run 2, ...) where not all are equal */
static void diff_sql(size_t n, const char *view, bt_text *sql) {
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

static bool diff_cells(void *ctx, const bt_row *row) {
    bt_table *t = ctx;
    char text[300];
    bt_table_cell(t, row->cells[0]);
    for (int i = 1; i < row->n; i++)
        bt_table_cell(t, bt_setting_format(text, sizeof text, row->cells[i]));
    bt_table_end_row(t);
    return true;
}

/* each run's value against the first run's: measured figures differ only beyond their noise */
static bool same_fact(const bt_row *row) {
    for (int i = 2; i < row->n; i++)
        if (!bt_fact_same(row->cells[0], row->cells[1], row->cells[i])) return false;
    return true;
}

static bool fact_cells(void *ctx, const bt_row *row) {
    bt_table *t = ctx;
    char text[300];
    if (same_fact(row)) return true;
    bt_table_cell(t, row->cells[0]);
    for (int i = 1; i < row->n; i++)
        bt_table_cell(t, bt_fact_format(text, sizeof text, row->cells[0], row->cells[i]));
    bt_table_end_row(t);
    return true;
}

static bool diff_json(void *ctx, const bt_row *row) {
    bt_json *j = ctx;
    bt_json_object(j, NULL);
    bt_json_str(j, "key", row->cells[0]);
    bt_json_array(j, "values");
    for (int i = 1; i < row->n; i++) bt_row_cell_json(j, NULL, row, i);
    bt_json_end(j, ']');
    bt_json_end(j, '}');
    return true;
}

static bool fact_json(void *ctx, const bt_row *row) {
    return same_fact(row) || diff_json(ctx, row);
}

static bt_code each_difference(comparison *c, const char *view, bt_row_fn fn, void *ctx,
                               bt_err *err) {
    bt_text sql;
    bt_text_init(&sql);
    diff_sql(c->n, view, &sql);
    bt_code code = bt_db_query(
        c->db, &(bt_question){.sql = bt_text_str(&sql), .params = c->names, .n_params = (int)c->n},
        fn, ctx, err);
    bt_text_release(&sql);
    return code;
}

static bt_code print_differences(comparison *c, const char *title, const char *view,
                                 bt_row_fn cells, bt_err *err) {
    bt_table t;
    bt_table_init(&t);
    bt_table_cell(&t, "KEY");
    for (size_t i = 0; i < c->n; i++) bt_table_cell(&t, c->names[i]);
    bt_table_end_row(&t);
    bt_code code = each_difference(c, view, cells, &t, err);
    if (code == BT_OK && t.n_rows == 1)
        printf("%s: none differ\n\n", title);
    else if (code == BT_OK) {
        printf("%s that differ\n", title);
        bt_table_print(&t, stdout, "  ");
        fputc('\n', stdout);
    }
    bt_table_release(&t);
    return code;
}

/* ---- text ---- */

static void delta_cell(bt_table *t, double v, double base) {
    if (isfinite(v) && isfinite(base) && base != 0)
        bt_table_cellf(t, "%+.2f %%", 100 * (v - base) / fabs(base));
    else
        bt_table_cell(t, "-");
}

static void print_results(comparison *c) {
    bt_table t;
    char b[64], x[64], y[24] = "";
    bt_table_init(&t);
    const char *heads[] = {"RUN",      "STEPS",    "TOKENS",  c->metric,   "NOISE", "AGAINST",
                           "BEST VAL", "TOKENS/S", "AGAINST", "STEP TIME", "MFU",   "STATE"};
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) bt_table_cell(&t, heads[i]);
    bt_table_end_row(&t);
    for (size_t i = 0; i < c->n; i++) {
        const result *r = &c->runs[i];
        bt_table_cell(&t, r->run);
        bt_table_cell(&t, bt_metric_format(b, sizeof b, r->steps, BT_UNIT_COUNT));
        bt_table_cell(&t, bt_metric_format(b, sizeof b, r->tokens, BT_UNIT_COUNT));
        if (r->level.n > 0)
            bt_table_cellf(&t, "%.6g", r->level.value);
        else
            bt_table_cell(&t, "-");
        if (isnan(r->level.noise))
            bt_table_cell(&t, "-");
        else
            bt_table_cellf(&t, "%.2g", r->level.noise);
        if (i)
            delta_cell(&t, r->level.value, c->runs[0].level.value);
        else
            bt_table_cell(&t, "base");
        bt_table_cell(&t, bt_metric_format(b, sizeof b, r->best_val, BT_UNIT_NATS));
        bt_table_cell(&t, bt_metric_format(b, sizeof b, r->tokens_per_s, BT_UNIT_PER_S));
        if (i)
            delta_cell(&t, r->tokens_per_s, c->runs[0].tokens_per_s);
        else
            bt_table_cell(&t, "base");
        bt_table_cell(&t, bt_metric_format(b, sizeof b, r->step_ms, BT_UNIT_MS));
        bt_table_cell(&t, bt_metric_format(b, sizeof b, r->mfu, BT_UNIT_FRAC));
        bt_table_cell(&t, r->state);
        bt_table_end_row(&t);
    }
    int least = c->runs[0].level.n, most = least;
    for (size_t i = 1; i < c->n; i++) {
        least = c->runs[i].level.n < least ? c->runs[i].level.n : least;
        most = c->runs[i].level.n > most ? c->runs[i].level.n : most;
    }
    if (least < most) snprintf(y, sizeof y, "%d to ", least);
    printf("results: %s at %s %s, mean of %s%d record%s; %s, %s and %s of each run's %s\n",
           bt_text_shown(c->metric), bt_metric_format(x, sizeof x, c->at.x, BT_UNIT_COUNT),
           axis_words[c->at.axis], y, most, most == 1 ? "" : "s",
           bt_figures[BT_FIGURE_TOKENS_PER_S].label, bt_figures[BT_FIGURE_STEP_MS].label,
           bt_figures[BT_FIGURE_MFU].label, bt_figure_span_name(BT_SPAN_RECENT));
    bt_table_print(&t, stdout, "  ");
    bt_table_release(&t);
    for (size_t i = 1; i < c->n; i++) {
        const bt_first_difference *f = &c->runs[i].first;
        if (f->common == 0)
            printf("%s and %s have no step in common for which both recorded a loss\n",
                   bt_text_shown(c->names[0]), bt_text_shown(c->names[i]));
        else if (f->step < 0)
            printf("%s and %s: the same losses to the last bit in all %lld common steps\n",
                   bt_text_shown(c->names[0]), bt_text_shown(c->names[i]), (long long)f->common);
        else
            printf("%s and %s: losses differ from step %lld on (%.9g, %.9g)\n",
                   bt_text_shown(c->names[0]), bt_text_shown(c->names[i]), (long long)f->step + 1,
                   f->a, f->b);
    }
}

static void print_checks(const comparison *c) {
    static const char *const words[] = {"holds", "within the noise", "FAILS"};
    for (size_t k = 0; k < c->n_checks; k++) {
        for (size_t i = 1; i < c->n; i++) {
            const check *q = &c->checks[k];
            printf("check '%s': %s %s (%.6g, base %.6g)\n", bt_text_shown(q->text),
                   bt_text_shown(c->names[i]),
                   q->results[i] == BT_GATE_HOLDS ? "passes" : words[q->results[i]],
                   q->levels[i].value, q->levels[0].value);
        }
    }
}

static bt_code print_text(comparison *c, bt_err *err) {
    BT_TRY(print_differences(c, "settings", "configs", diff_cells, err));
    BT_TRY(print_differences(c, "facts", "facts", fact_cells, err));
    print_results(c);
    print_checks(c);
    return BT_OK;
}

/* ---- JSON ---- */

static void json_level(bt_json *j, const bt_level *l) {
    bt_json_num(j, "value", l->value);
    bt_json_num(j, "noise", l->noise);
    bt_json_int(j, "records", l->n);
}

static void json_run(bt_json *j, const comparison *c, size_t i) {
    const result *r = &c->runs[i];
    bt_json_object(j, NULL);
    bt_json_str(j, "run", r->run);
    bt_json_str(j, "state", r->state);
    bt_json_num(j, "steps", r->steps);
    bt_json_num(j, "tokens", r->tokens);
    json_level(j, &r->level);
    bt_json_num(j, "best_val", r->best_val);
    bt_json_num(j, "tokens_per_s", r->tokens_per_s);
    bt_json_num(j, "step_ms", r->step_ms);
    bt_json_num(j, "mfu", r->mfu);
    bt_json_num(j, "goodput", r->goodput);
    if (i) {
        bt_json_num(j, "value_change",
                    (r->level.value - c->runs[0].level.value) / fabs(c->runs[0].level.value));
        bt_json_num(j, "speed_change", r->tokens_per_s / c->runs[0].tokens_per_s - 1);
        bt_json_int(j, "common_steps", r->first.common);
        if (r->first.step >= 0)
            bt_json_int(j, "first_different_step", r->first.step);
        else
            bt_json_null(j, "first_different_step");
    }
    bt_json_end(j, '}');
}

static void json_checks(bt_json *j, const comparison *c) {
    static const char *const words[] = {"holds", "noise", "fails"};
    bt_json_array(j, "checks");
    for (size_t k = 0; k < c->n_checks; k++) {
        for (size_t i = 1; i < c->n; i++) {
            bt_json_object(j, NULL);
            bt_json_str(j, "condition", c->checks[k].text);
            bt_json_str(j, "run", c->names[i]);
            json_level(j, &c->checks[k].levels[i]);
            bt_json_num(j, "base", c->checks[k].levels[0].value);
            bt_json_str(j, "result",
                        c->checks[k].results[i] == BT_GATE_HOLDS ? "passes"
                                                                 : words[c->checks[k].results[i]]);
            bt_json_end(j, '}');
        }
    }
    bt_json_end(j, ']');
}

static bt_code print_json(comparison *c, bt_err *err) {
    static const char *const axis[] = {"tokens", "step", "time_s"};
    bt_text out;
    bt_json j;
    bt_text_init(&out);
    bt_json_begin(&j, &out);
    bt_json_object(&j, NULL);
    bt_json_int(&j, "version", 1);
    bt_json_str(&j, "metric", c->metric);
    bt_json_object(&j, "at");
    bt_json_num(&j, axis[c->at.axis], c->at.x);
    bt_json_end(&j, '}');
    bt_json_array(&j, "runs");
    for (size_t i = 0; i < c->n; i++) json_run(&j, c, i);
    bt_json_end(&j, ']');
    bt_json_array(&j, "settings");
    bt_code code = each_difference(c, "configs", diff_json, &j, err);
    bt_json_end(&j, ']');
    bt_json_array(&j, "facts");
    if (code == BT_OK) code = each_difference(c, "facts", fact_json, &j, err);
    bt_json_end(&j, ']');
    json_checks(&j, c);
    bt_json_end(&j, '}');
    if (code == BT_OK) return bt_cli_put(&out, err);
    bt_text_release(&out);
    return code;
}

static bt_code groups(const compare_cfg *cfg, const char *const *words, size_t n, bt_err *err) {
    bt_db *db = NULL;
    bt_group_cfg g = {.keys = cfg->group_by,
                      .metric = cfg->metric,
                      .window = (int)cfg->window,
                      .json = cfg->json};
    if (cfg->fail_if[0])
        return bt_fail(err, BT_ARG, "--fail-if compares runs with the first, not groups of them");
    BT_TRY(read_at(cfg, &g.at, err));
    BT_TRY(bt_cli_open(&db, cfg->store, err));
    bt_code code = bt_compare_groups(db, &g, words, n, err);
    bt_db_close(db);
    return code;
}

static bt_code run(bt_call *call, bt_err *err) {
    compare_cfg *cfg = call->cfg;
    const char *const *words = call->words;
    if (cfg->group_by[0]) return groups(cfg, words, call->n, err);
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
    if (code == BT_OK) code = load(c, words, call->n, err);
    if (code == BT_OK) code = cfg->json ? print_json(c, err) : print_text(c, err);
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
                "sweep\n",
    .options = BT_OPTION_SET(compare_opts, compare_cfg),
    .max_words = WORDS_MAX,
    .run = run,
};

/* compare_runs.c - computes levels and differences of two runs, and evaluates gates. */
#include "store/read/compare_runs.h"

#include "engine/base/system/ascii.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW_MAX = 1000 };

static const struct {
    const char *name, *column;
} axes[] = {[BT_AT_TOKENS] = {"tokens", "tokens"},
            [BT_AT_STEP] = {"step", "step + 1"} /* steps are stored from 0 */,
            [BT_AT_TIME] = {"time", "time_s"}};

typedef struct window {
    double y[WINDOW_MAX], x_newest;
    int n;
} window;

static bool collect_window_value(void *ctx, const bt_row *row) { /* newest first */
    window *w = ctx;
    if (w->n == 0) w->x_newest = row->nums[1];
    w->y[w->n++] = row->nums[0];
    return w->n < WINDOW_MAX;
}

/* Computes the mean and its standard error around the least-squares line over the index. */
static void compute_level(const window *w, bt_level *out) {
    double n = w->n, sum = 0, sum_ii = 0, sum_iy = 0, rest = 0;
    *out = (bt_level){NAN, NAN, w->x_newest, w->n};
    if (w->n == 0) return;
    for (int i = 0; i < w->n; i++) {
        double d = i - (n - 1) / 2;
        sum += w->y[i];
        sum_ii += d * d;
        sum_iy += d * w->y[i];
    }
    out->value = sum / n;
    if (w->n < 4) return;
    double slope = sum_iy / sum_ii;
    for (int i = 0; i < w->n; i++) {
        double e = w->y[i] - out->value - slope * (i - (n - 1) / 2);
        rest += e * e;
    }
    out->noise = sqrt(rest / (n - 2) / n);
}

static bt_code has_column(bt_db *db, const char *view, const char *column, bool *has, bt_err *err) {
    char sql[128];
    double n = 0;
    snprintf(sql, sizeof sql, "SELECT count(*) FROM pragma_table_info('%s') WHERE name = ?1", view);
    const bt_code code = bt_db_value(db, sql, column, &n, err);
    *has = n > 0;
    return code;
}

bt_code bt_db_level(bt_db *db, const char *run, const char *metric, const bt_at *at, int n,
                    bt_level *out, bt_err *err) {
    bool of_step, of_run = false;
    BT_TRY(has_column(db, "steps", metric, &of_step, err));
    if (!of_step) BT_TRY(has_column(db, "runs", metric, &of_run, err));
    if (!of_step && !of_run)
        return bt_fail(err, BT_ARG, "no metric '%s' (see: bitrain help metrics)", metric);
    window *w = calloc(1, sizeof *w);
    if (!w) return bt_fail(err, BT_NOMEM, "cannot compare: out of memory");
    char sql[320], limit[40];
    const char *params[] = {run, limit};
    snprintf(limit, sizeof limit, "%.17g", isnan(at->x) ? INFINITY : at->x);
    if (isnan(at->x) || isinf(at->x)) snprintf(limit, sizeof limit, "9e999");
    if (of_step) {
        snprintf(sql, sizeof sql,
                 "SELECT \"%s\", %s FROM steps WHERE run = ?1 AND %s <= CAST(?2 AS REAL) AND "
                 "\"%s\" IS NOT NULL ORDER BY step DESC LIMIT %d",
                 metric, axes[at->axis].column, axes[at->axis].column, metric,
                 n < 1            ? 1
                 : n > WINDOW_MAX ? WINDOW_MAX
                                  : n);
    } else
        snprintf(sql, sizeof sql,
                 "SELECT \"%s\", %s FROM runs WHERE run = ?1 AND \"%s\" IS NOT NULL", metric,
                 at->axis == BT_AT_TIME   ? "duration_s"
                 : at->axis == BT_AT_STEP ? "steps"
                                          : "tokens",
                 metric);
    bt_code code =
        bt_db_query(db, &(bt_query){.sql = sql, .params = params, .n_params = of_step ? 2 : 1},
                    collect_window_value, w, err);
    compute_level(w, out);
    free(w);
    return code;
}

bt_code bt_db_common_end(bt_db *db, const char *const *runs, size_t n, bt_at_axis axis, double *out,
                         bt_err *err) {
    static const char newest_time[] = "SELECT max(time_s) FROM steps WHERE run = ?1 AND "
                                      "step = (SELECT steps - 1 FROM runs WHERE run = ?1)";
    static const char *const ends[] = {"SELECT tokens FROM runs WHERE run = ?1",
                                       "SELECT steps FROM runs WHERE run = ?1", newest_time};
    *out = INFINITY;
    for (size_t i = 0; i < n; i++) {
        double end;
        BT_TRY(bt_db_value(db, ends[axis], runs[i], &end, err));
        if (isnan(end)) end = 0;
        if (end < *out) *out = end;
    }
    return BT_OK;
}

static bool store_first_difference(void *ctx, const bt_row *row) {
    bt_first_difference *d = ctx;
    d->step = (int64_t)row->nums[0];
    d->a = row->nums[1];
    d->b = row->nums[2];
    return false;
}

bt_code bt_db_first_difference(bt_db *db, const char *a, const char *b, bt_first_difference *out,
                               bt_err *err) {
    const char *params[] = {a, b};
    *out = (bt_first_difference){.step = -1, .a = NAN, .b = NAN};
    BT_TRY(bt_db_query(
        db,
        &(bt_query){
            .sql = "SELECT x.step, x.loss, y.loss FROM steps x JOIN steps y ON y.step = x.step "
                   "WHERE x.run = ?1 AND y.run = ?2 AND x.loss IS NOT y.loss"
                   " ORDER BY x.attempt, x.step LIMIT 1",
            .params = params,
            .n_params = 2},
        store_first_difference, out, err));
    bt_first_difference count = {0};
    BT_TRY(bt_db_query(
        db,
        &(bt_query){.sql =
                        "SELECT count(*), 0, 0 FROM steps x JOIN steps y ON y.step = x.step WHERE "
                        "x.run = ?1 AND y.run = ?2 AND x.loss IS NOT NULL AND y.loss IS NOT NULL",
                    .params = params,
                    .n_params = 2},
        store_first_difference, &count, err));
    out->common = count.step;
    return BT_OK;
}

static const char *skip_blanks(const char *p) {
    while (bt_ascii_space(*p)) p++;
    return p;
}

static double parse_scaled_number(const char **p) { /* 2M, 1.5e6, 10k */
    char *end;
    double v = strtod(*p, &end);
    if (end == *p) return NAN;
    switch (*end) {
    case 'k':
        v *= 1e3;
        end++;
        break;
    case 'M':
        v *= 1e6;
        end++;
        break;
    case 'G':
        v *= 1e9;
        end++;
        break;
    default: break;
    }
    *p = end;
    return v;
}

bt_code bt_gate_parse(const char *text, bt_gate *g, bt_err *err) {
    const char *p = skip_blanks(text);
    size_t n = 0;
    char shown[120];
    bt_text_plain(shown, sizeof shown, text);
    *g = (bt_gate){.at = {BT_AT_TOKENS, NAN}};
    while ((bt_ascii_alnum(p[n]) || p[n] == '_') && n + 1 < sizeof g->metric) n++;
    memcpy(g->metric, p, n);
    p = skip_blanks(p + n);
    if (n == 0 || (*p != '<' && *p != '>')) goto bad;
    g->greater = *p == '>';
    p = skip_blanks(p + 1);
    g->relative = *p == '+' || *p == '-';
    g->limit = parse_scaled_number(&p);
    if (isnan(g->limit)) goto bad;
    if (*p == '%') {
        g->percent = g->relative = true;
        p++;
    }
    p = skip_blanks(p);
    if (*p == '@') {
        p = skip_blanks(p + 1);
        size_t a = 0;
        for (; a < sizeof axes / sizeof axes[0]; a++) {
            size_t m = strlen(axes[a].name);
            if (strncmp(p, axes[a].name, m) == 0 && *skip_blanks(p + m) == '=') {
                p = skip_blanks(skip_blanks(p + m) + 1);
                break;
            }
        }
        if (a == sizeof axes / sizeof axes[0]) goto bad;
        g->at.axis = (bt_at_axis)a;
        g->at.x = parse_scaled_number(&p);
        if (isnan(g->at.x)) goto bad;
        p = skip_blanks(p);
    }
    if (*p == 0) return BT_OK;
bad:
    return bt_fail(err, BT_ARG,
                   "condition '%s' is not understood at '%.20s' (METRIC >|< [+|-]NUMBER[%%] [@ "
                   "tokens|step|time=N], as 'loss > +0.5%% @ tokens=2M')",
                   shown, p);
}

bt_gate_result bt_gate_check(const bt_gate *g, const bt_level *run, const bt_level *base) {
    double limit = g->limit, noise = 0;
    if (g->relative) {
        if (!base || isnan(base->value)) return BT_GATE_FAILS;
        limit = g->percent ? base->value + fabs(base->value) * g->limit / 100
                           : base->value + g->limit;
        double a = isnan(run->noise) ? 0 : run->noise, b = isnan(base->noise) ? 0 : base->noise;
        noise = 2 * sqrt(a * a + b * b);
    }
    /* A run without the value fails the gate. */
    if (isnan(run->value)) return BT_GATE_FAILS;
    bool beyond = g->greater ? run->value > limit : run->value < limit;
    if (!beyond) return BT_GATE_HOLDS;
    return g->relative && fabs(run->value - base->value) <= noise ? BT_GATE_NOISE : BT_GATE_FAILS;
}

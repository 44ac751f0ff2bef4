/* view_panel.c - loads the metrics of a panel for any scope: its sampled steps and the values there. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/system/json_fields.h"
#include "store/view/view_impl.h"

/* A query reads the number of rows and three values per metric of one scope. */
_Static_assert(1 + 3 * BT_METRICS_COUNT <= BT_VQ_COLUMNS, "too many metrics for one query");

/* Samples are stats_every steps apart, so the searched range is widened. */
bt_code bt_view_sample_before(bt_view *v, bt_scope scope, int64_t to, int64_t *out, bt_err *err) {
    char sql[120];
    snprintf(sql, sizeof sql, "SELECT max(step) FROM %s WHERE run = ?1 AND step BETWEEN ?2 AND ?3",
             bt_scopes[scope].view);
    *out = -1;
    for (int64_t width = 32; to >= 0; width *= 8) {
        double args[] = {(double)(to - width + 1 > 0 ? to - width + 1 : 0), (double)to}, x;
        BT_TRY(bt_vq_row(v->impl, sql, v->impl->run, args, 2, &x, 1, err));
        if (!isnan(x)) *out = (int64_t)x;
        if (*out >= 0 || args[0] <= 0) break;
    }
    return BT_OK;
}

static bt_code find_first_sample(bt_view *v, bt_scope scope, int64_t from, int64_t newest,
                                 int64_t *out, bt_err *err) {
    char sql[140];
    double args[] = {(double)from, (double)newest}, x;
    snprintf(sql, sizeof sql,
             "SELECT step FROM %s WHERE run = ?1 AND step BETWEEN ?2 AND ?3 ORDER BY step LIMIT 1",
             bt_scopes[scope].view);
    *out = newest;
    if (from >= newest) return BT_OK;
    BT_TRY(bt_vq_row(v->impl, sql, v->impl->run, args, 2, &x, 1, err));
    if (!isnan(x)) *out = (int64_t)x;
    return BT_OK;
}

bt_code bt_view_samples(bt_view *v, bt_scope scope, int64_t from, int64_t newest,
                        bt_sample_steps *out, bt_err *err) {
    int64_t oldest = newest, at;
    int wanted = out->max;
    out->n = 0;
    if (wanted > 1) BT_TRY(find_first_sample(v, scope, from, newest, &oldest, err));
    for (int i = 0; i < wanted; i++) {
        int64_t want = wanted > 1 ? oldest + (newest - oldest) * i / (wanted - 1) : newest;
        BT_TRY(bt_view_sample_before(v, scope, want, &at, err));
        if (at >= 0 && (out->n == 0 || at > out->step[out->n - 1])) out->step[out->n++] = at;
    }
    return BT_OK;
}

typedef struct panel_reading {
    bt_view_metric *metric; /* n metrics of one scope */
    int n, slot;
    int64_t step;
} panel_reading;

static bool take_sample_values(void *ctx, const double *col, int n) {
    const panel_reading *r = ctx;
    for (int k = 0; k < r->n && 3 + 3 * k < n; k++) {
        bt_view_metric *x = &r->metric[k];
        const double *v = col + 1 + 3 * k;
        x->history[r->slot] = v[0];
        if (isnan(v[0])) continue;
        x->step = r->step;
        x->rows = (size_t)bt_whole(col[0], 0);
        x->mean = v[0];
        x->least = v[1];
        x->most = v[2];
    }
    return false;
}

static bt_code read_samples(bt_view *v, bt_scope scope, const bt_sample_steps *at,
                            bt_view_metric *metric, int n, bt_err *err) {
    panel_reading r = {.metric = metric, .n = n};
    bt_text sql;
    bt_text_init(&sql);
    bt_text_put(&sql, "SELECT count(*)");
    for (int k = 0; k < n; k++) {
        const char *key = bt_scopes[scope].metric[metric[k].metric].key;
        bt_text_printf(&sql, ", avg(\"%s\"), min(\"%s\"), max(\"%s\")", key, key, key);
    }
    bt_text_printf(&sql, " FROM %s WHERE run = ?1 AND step = ?2", bt_scopes[scope].view);
    bt_code code = sql.failed ? bt_fail(err, BT_NOMEM, "cannot build a query: out of memory")
                              : BT_OK;
    for (int i = 0; i < at->n && code == BT_OK; i++) {
        double step = (double)at->step[i];
        r.slot = BT_VIEW_SAMPLES - at->n + i;
        r.step = at->step[i];
        code = bt_vq_each(v->impl, bt_text_str(&sql), v->impl->run, &step, 1, take_sample_values,
                          &r, err);
    }
    bt_text_release(&sql);
    return code;
}

typedef struct evaluation_reading {
    bt_view_metric *metric; /* n metrics of a step */
    const int64_t *sampled; /* step of each history element, -1: empty */
    int n;
} evaluation_reading;

/* Returns the first element whose sample is not before the step; -1: none. */
static int sample_slot(const int64_t *sampled, int64_t step) {
    for (int i = 0; i < BT_VIEW_SAMPLES; i++)
        if (sampled[i] >= 0 && sampled[i] >= step) return i;
    return -1;
}

/* Steps ascend, so an element keeps the newest evaluation up to its sample. */
static bool take_evaluation_values(void *ctx, const double *col, int n) {
    const evaluation_reading *r = ctx;
    const int64_t step = bt_whole(col[0], -1);
    const int slot = sample_slot(r->sampled, step);
    for (int k = 0; k < r->n && 1 + k < n; k++) {
        bt_view_metric *x = &r->metric[k];
        const double v = col[1 + k];
        if (isnan(v)) continue;
        if (slot >= 0) x->history[slot] = v;
        if (x->step > step) continue;
        x->step = step;
        x->rows = 1;
        x->mean = x->least = x->most = v;
    }
    return true;
}

/* A metric that only evaluations have is rarely known at sampled steps, so it is read at the steps of evaluations. */
static bt_code read_evaluations(bt_view *v, int64_t from, int64_t to, bt_view_metric *metric, int n,
                                bt_err *err) {
    evaluation_reading r = {metric, v->panel.sampled[BT_SCOPE_STEP], n};
    const double args[] = {(double)from, (double)to};
    bt_text sql;
    bt_text_init(&sql);
    bt_text_put(&sql, "SELECT s.step");
    for (int k = 0; k < n; k++)
        bt_text_printf(&sql, ", s.\"%s\"", bt_step_metrics[metric[k].metric].key);
    bt_text_put(&sql,
                " FROM events e JOIN steps s ON s.run = e.run AND s.step = e.step WHERE e.run "
                "= ?1 AND e.kind = 'evaluation' AND e.step BETWEEN ?2 AND ?3 ORDER BY e.step");
    bt_code code = sql.failed ? bt_fail(err, BT_NOMEM, "cannot build a query: out of memory")
                              : bt_vq_each(v->impl, bt_text_str(&sql), v->impl->run, args, 2,
                                           take_evaluation_values, &r, err);
    bt_text_release(&sql);
    return code;
}

/* Appends the scope's metrics of the panel, without values; returns their number. */
static int list_metrics(bt_view_panel *p, bt_scope scope) {
    const bt_scope_row *s = &bt_scopes[scope];
    size_t before = p->n;
    for (int i = 0; i < s->n; i++) {
        if (s->metric[i].panel == BT_PANEL_NONE) continue;
        if (p->panel != BT_PANEL_COUNT && s->metric[i].panel != p->panel) continue;
        bt_view_metric *x = &p->metric[p->n++];
        *x = (bt_view_metric){
            .scope = scope, .metric = i, .step = -1, .mean = NAN, .least = NAN, .most = NAN};
        for (int k = 0; k < BT_VIEW_SAMPLES; k++) x->history[k] = NAN;
    }
    return (int)(p->n - before);
}

static bt_code load_scope(bt_view *v, bt_scope scope, int64_t from, int64_t to,
                          const bt_view_request *ask, bt_err *err) {
    bt_view_panel *p = &v->panel;
    bt_sample_steps at = {
        .max = ask->samples > 0 && ask->samples < BT_VIEW_SAMPLES ? ask->samples : BT_VIEW_SAMPLES};
    size_t first = p->n;
    int64_t newest;
    int n = list_metrics(p, scope);
    for (int i = 0; i < BT_VIEW_SAMPLES; i++) p->sampled[scope][i] = -1;
    if (n == 0) return BT_OK;
    BT_TRY(bt_view_sample_before(v, scope, to, &newest, err));
    if (newest < 0 || to < from) return BT_OK;
    BT_TRY(bt_view_samples(v, scope, from, newest, &at, err));
    memcpy(p->sampled[scope] + BT_VIEW_SAMPLES - at.n, at.step, (size_t)at.n * sizeof at.step[0]);
    BT_TRY(read_samples(v, scope, &at, &p->metric[first], n, err));
    return scope == BT_SCOPE_STEP ? read_evaluations(v, from, to, &p->metric[first], n, err)
                                  : BT_OK;
}

bt_code bt_view_load_panel(bt_view *v, const bt_view_request *ask, bt_err *err) {
    int64_t from, to;
    BT_TRY(bt_view_range(v, ask, &from, &to, err));
    v->panel.panel = ask->panel;
    v->panel.n = 0;
    for (int k = 0; k < BT_SCOPE_COUNT; k++) BT_TRY(load_scope(v, (bt_scope)k, from, to, ask, err));
    return BT_OK;
}

static void put_sampled_steps(const bt_view_panel *p, bt_scope scope, bt_json *j) {
    bt_json_object(j, NULL);
    bt_json_str(j, "scope", bt_scopes[scope].name);
    bt_json_array(j, "sampled");
    for (int i = 0; i < BT_VIEW_SAMPLES; i++)
        if (p->sampled[scope][i] >= 0) bt_json_int(j, NULL, p->sampled[scope][i]);
    bt_json_end(j, ']');
    bt_json_end(j, '}');
}

static void put_panel_metric(const bt_view_panel *p, const bt_view_metric *x, bt_json *j) {
    const bt_metric *m = &bt_scopes[x->scope].metric[x->metric];
    bt_json_object(j, NULL);
    bt_json_str(j, "scope", bt_scopes[x->scope].name);
    bt_json_str(j, "key", m->key);
    bt_json_str(j, "unit", bt_unit_name(m->unit));
    BT_JSON_FIELDS(j, x, F(step), F(rows), F(mean), F(least), F(most));
    bt_json_array(j, "history");
    for (int i = 0; i < BT_VIEW_SAMPLES; i++)
        if (p->sampled[x->scope][i] >= 0) bt_json_num(j, NULL, x->history[i]);
    bt_json_end(j, ']');
    bt_json_end(j, '}');
}

void bt_view_panel_json(const bt_view_panel *p, bt_json *j) {
    bt_json_object(j, "panel");
    bt_json_str(j, "panel", p->panel == BT_PANEL_COUNT ? "all" : bt_panel_name(p->panel));
    bt_json_array(j, "scopes");
    for (int k = 0; k < BT_SCOPE_COUNT; k++) put_sampled_steps(p, (bt_scope)k, j);
    bt_json_end(j, ']');
    bt_json_array(j, "metrics");
    for (size_t i = 0; i < p->n; i++) put_panel_metric(p, &p->metric[i], j);
    bt_json_end(j, ']');
    bt_json_end(j, '}');
}

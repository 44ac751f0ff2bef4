/* view_lists.c - loads the parts that are lists: layers, kinds of exchange, events, runs. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/tables/derived.h"
#include "store/read/run_ledger.h"
#include "store/read/run_state.h"
#include "store/sql/expand.h"
#include "store/view/view_impl.h"

enum { HISTORY = BT_VIEW_SAMPLES };

/* ---- layers ---------------------------------------------------------------------------------- */

typedef struct layer_reading {
    bt_view *v;
    bt_err *err;
    bt_code code;
    int64_t from, to;
    int slot;
} layer_reading;

static double code_entropy(double zero, double pos, double neg) {
    double p[3] = {zero, pos, neg}, h = 0;
    if (isnan(zero) || isnan(pos)) return NAN; /* not a ternary tensor */
    for (int i = 0; i < 3; i++)
        if (p[i] > 0) h -= p[i] * log2(p[i]);
    return h;
}

static bt_view_layer *find_or_add_layer(layer_reading *r, int layer, const char *tensor) {
    bt_view_layers *l = &r->v->layers;
    for (size_t i = 0; i < l->n; i++)
        if (l->layer[i].layer == layer && strcmp(l->layer[i].tensor, tensor) == 0)
            return &l->layer[i];
    r->code = BT_GROW(l->layer, r->v->impl->cap_layers, l->n + 1, r->err);
    if (r->code != BT_OK) return NULL;
    bt_view_layer *x = &l->layer[l->n++];
    *x = (bt_view_layer){.layer = layer};
    snprintf(x->tensor, sizeof x->tensor, "%s", tensor);
    for (int k = 0; k < BT_ML_COUNT; k++)
        for (int i = 0; i < HISTORY; i++) x->history[k][i] = NAN;
    return x;
}

static bool take_layer_row(void *ctx, const bt_row *row) {
    layer_reading *r = ctx;
    char tensor[32];
    bt_text_plain(tensor, sizeof tensor, row->cells[1] ? row->cells[1] : "");
    bt_view_layer *x = find_or_add_layer(r, (int)bt_whole(row->nums[0], -1), tensor);
    if (!x) return false;
    for (int i = 0; i < BT_ML_COUNT; i++) x->value[i] = row->nums[2 + i];
    x->neg_frac = bt_derived_neg(x->value[BT_ML_ZERO], x->value[BT_ML_POS]);
    x->entropy_bits = code_entropy(x->value[BT_ML_ZERO], x->value[BT_ML_POS], x->neg_frac);
    for (int k = 0; k < BT_ML_COUNT; k++) x->history[k][r->slot] = x->value[k];
    return true;
}

static bt_code read_sample(layer_reading *r, int64_t step, bt_err *err) {
    double at = (double)step;
    bt_text sql;
    bt_text_init(&sql);
    bt_text_put(&sql, "SELECT layer, tensor");
    for (int i = 0; i < BT_ML_COUNT; i++) bt_text_printf(&sql, ", \"%s\"", bt_layer_metrics[i].key);
    bt_text_put(&sql, " FROM layers WHERE run = ?1 AND step = ?2 ORDER BY layer, tensor");
    bt_code code = sql.failed ? bt_fail(err, BT_NOMEM, "cannot build a query: out of memory")
                              : bt_vq_rows(r->v->impl, bt_text_str(&sql), r->v->impl->run, &at, 1,
                                           take_layer_row, r, err);
    bt_text_release(&sql);
    return code == BT_OK ? r->code : code;
}

static int compare_layer_rows(const void *a, const void *b) {
    const bt_view_layer *x = a, *y = b;
    return x->layer != y->layer ? (x->layer > y->layer) - (x->layer < y->layer)
                                : strcmp(x->tensor, y->tensor);
}

bt_code bt_view_load_layers(bt_view *v, const bt_view_request *ask, bt_err *err) {
    int64_t from, to, newest;
    bt_view_impl *m = v->impl;
    BT_TRY(bt_view_range(v, ask, &from, &to, err));
    BT_TRY(bt_view_sample_before(v, BT_SCOPE_LAYER, to, &newest, err));
    const bt_requested_range range = bt_view_requested_range(ask);
    bool same = m->layer_newest == newest && bt_view_range_same(&m->layer_range, &range);
    if (same && v->layers.n > 0) return BT_OK; /* no new sample */
    m->layer_newest = newest;
    m->layer_range = range;
    v->layers.n = 0;
    v->layers.step = -1;
    v->layers.samples = 0;
    for (int i = 0; i < HISTORY; i++) v->layers.sampled[i] = -1;
    if (to < from || newest < 0) return BT_OK;
    layer_reading r = {.v = v, .err = err};
    bt_sample_steps sample = {.max = HISTORY};
    BT_TRY(bt_view_samples(v, BT_SCOPE_LAYER, from, newest, &sample, err));
    for (int i = 0; i < sample.n; i++) {
        r.slot = HISTORY - sample.n + i;
        v->layers.sampled[r.slot] = sample.step[i];
        BT_TRY(read_sample(&r, sample.step[i], err));
    }
    v->layers.samples = (size_t)sample.n;
    v->layers.step = newest;
    if (v->layers.n)
        qsort(v->layers.layer, v->layers.n, sizeof *v->layers.layer, compare_layer_rows);
    return BT_OK;
}

/* ---- exchanges ------------------------------------------------------------------------------- */

typedef struct op_reading {
    bt_view *v;
    bt_err *err;
    bt_code code;
} op_reading;

static bool append_op_row(void *ctx, const bt_row *row) {
    op_reading *r = ctx;
    bt_view_comm *l = &r->v->comm;
    r->code = BT_GROW(l->op, r->v->impl->cap_ops, l->n + 1, r->err);
    if (r->code != BT_OK) return false;
    const double *v = row->nums;
    bt_view_op *x = &l->op[l->n++];
    *x = (bt_view_op){.ranks = (int)bt_whole(v[2], 0),
                      .calls = v[4],
                      .bytes_logical = v[5],
                      .bytes_wire = v[6],
                      .busy_ms = v[7],
                      .exposed_ms = v[8],
                      .wait_ms = v[9],
                      .lost_max_ms = v[10],
                      .lost_rank = (int)bt_whole(v[11], -1),
                      .model_ms = v[12],
                      .overlap = NAN,
                      .rate = NAN,
                      .model_frac = NAN};
    bt_text_plain(x->op, sizeof x->op, row->cells[0] ? row->cells[0] : "");
    bt_text_plain(x->axis, sizeof x->axis, row->cells[1] ? row->cells[1] : "");
    if (!(x->busy_ms + x->wait_ms > 0)) {
        x->busy_ms = x->exposed_ms = x->wait_ms = x->lost_max_ms = NAN;
        x->lost_rank = -1;
    } else if (x->busy_ms > 0) {
        x->overlap = bt_derived_overlap(x->exposed_ms, x->busy_ms);
        x->rate = bt_derived_bus_rate(x->bytes_wire, x->busy_ms);
        x->model_frac = bt_derived_link_share(x->model_ms, x->busy_ms);
        /* A ratio above 1 is impossible: the link was measured while the machine was busy. */
        if (x->model_frac > 1) x->model_frac = NAN;
    }
    l->step0 = l->step1 - bt_whole(v[3], 1) + 1;
    return true;
}

static bool take_link_row(void *ctx, const bt_row *row) {
    bt_view_comm *l = &((op_reading *)ctx)->v->comm;
    const char *key = row->cells[0], *axis = key ? key + strlen("link.") : "",
               *what = strchr(axis, '.');
    size_t n = what ? (size_t)(what - axis) : 0, i = 0;
    if (n == 0 || n >= sizeof l->link[0].axis) return true;
    while (i < l->n_links &&
           (strlen(l->link[i].axis) != n || strncmp(l->link[i].axis, axis, n) != 0))
        i++;
    if (i == BT_VIEW_LINKS) return true;
    bt_view_link *x = &l->link[i];
    if (i == l->n_links) {
        l->n_links++;
        *x = (bt_view_link){.latency_us = NAN, .bytes_per_s = NAN};
        char plain[sizeof x->axis];
        snprintf(plain, sizeof plain, "%.*s", (int)n, axis);
        bt_text_plain(x->axis, sizeof x->axis, plain);
    }
    double v = row->cells[1] ? strtod(row->cells[1], NULL) : NAN;
    if (strcmp(what, ".latency_s") == 0) x->latency_us = v * 1e6;
    /* Old runs recorded impossible rates for links that could not be measured. */
    else if (strcmp(what, ".bytes_per_s") == 0)
        x->bytes_per_s = v <= 1e12 ? v : NAN;
    return true;
}

typedef struct pair_reading {
    bt_view *v;
    bt_err *err;
    bt_code code;
} pair_reading;

static bool append_pair_row(void *ctx, const double *col, int n) {
    pair_reading *r = ctx;
    bt_view_comm *l = &r->v->comm;
    r->code = BT_GROW(l->pair, r->v->impl->cap_pairs, l->n_pairs + 1, r->err);
    if (r->code != BT_OK || n < 7) return false;
    double steps = col[2] > 0 ? col[2] : 1;
    bt_view_pair *x = &l->pair[l->n_pairs++];
    *x = (bt_view_pair){.rank = (int)bt_whole(col[0], 0),
                        .peer = (int)bt_whole(col[1], 0),
                        .messages = col[3] / steps,
                        .bytes = col[4] / steps,
                        .flight_ms = col[5] > 0 ? col[6] / col[5] : NAN};
    int last = x->rank > x->peer ? x->rank : x->peer;
    if (last >= l->pair_ranks) l->pair_ranks = last + 1;
    l->pair0 = l->pair1 - (int64_t)steps + 1;
    return true;
}

static bt_code load_pairs(bt_view *v, int64_t to, bt_err *err) {
    bt_view_impl *m = v->impl;
    bt_view_comm *l = &v->comm;
    int64_t newest;
    BT_TRY(bt_view_sample_before(v, BT_SCOPE_PAIR, to, &newest, err));
    if (newest == m->pair_newest) return BT_OK;
    l->n_pairs = 0;
    l->pair_ranks = 0;
    l->pair0 = l->pair1 = newest;
    m->pair_newest = -2;
    if (newest >= 0) {
        pair_reading r = {v, err, BT_OK};
        double at = (double)newest;
        BT_TRY(bt_vq_each(m,
                          "SELECT rank, peer, steps, messages, bytes_wire, timed, flight_ms FROM "
                          "comm_pairs WHERE run = ?1 AND step = ?2 ORDER BY rank, peer",
                          m->run, &at, 1, append_pair_row, &r, err));
        if (r.code != BT_OK) return r.code;
    }
    m->pair_newest = newest;
    return BT_OK;
}

static bt_code compose_op_query(bt_view_impl *m, bt_err *err) {
    bt_text sql;
    if (m->op_sql) return BT_OK;
    bt_text_init(&sql);
    bt_code code = bt_sql_expand(
        &sql,
        "SELECT op, axis, count(*), steps, sum(calls) * 1.0 / sum(steps), sum(bytes_logical) * 1.0 "
        "/ sum(steps), sum(bytes_wire) * 1.0 / sum(steps),"
        " sum(busy_ms) / sum(steps), sum(exposed_ms) / sum(steps), sum(wait_ms) / sum(steps), "
        "max({lost(exposed_ms, wait_ms)} / steps), rank, sum(model_ms) / sum(steps)"
        " FROM comm_ops WHERE run = ?1 AND step = ?2 GROUP BY op, axis"
        " ORDER BY sum({lost(exposed_ms, wait_ms)}) DESC, sum(bytes_wire) DESC, op, axis",
        err);
    if (code != BT_OK) {
        bt_text_release(&sql);
        return code;
    }
    return bt_view_sql(&m->op_sql, &sql, err);
}

bt_code bt_view_load_comm(bt_view *v, const bt_view_request *ask, bt_err *err) {
    int64_t from, to;
    bt_view_comm *l = &v->comm;
    l->n = l->n_links = 0;
    l->step0 = l->step1 = -1;
    op_reading r = {.v = v, .err = err};
    BT_TRY(bt_view_range(v, ask, &from, &to, err));
    BT_TRY(load_pairs(v, to, err));
    BT_TRY(bt_vq_rows(v->impl,
                      "SELECT key, value FROM facts WHERE run = ?1 AND key BETWEEN 'link.' AND "
                      "'link/' ORDER BY key",
                      v->impl->run, NULL, 0, take_link_row, &r, err));
    BT_TRY(bt_view_sample_before(v, BT_SCOPE_COMM, to, &l->step1, err));
    if (l->step1 < 0) return BT_OK;
    double at = (double)l->step1;
    BT_TRY(compose_op_query(v->impl, err));
    BT_TRY(bt_vq_rows(v->impl, v->impl->op_sql, v->impl->run, &at, 1, append_op_row, &r, err));
    return r.code;
}

/* ---- events ---------------------------------------------------------------------------------- */

typedef struct event_reading {
    bt_view *v;
    bool marks; /* read marks instead of the list */
    bt_err *err;
    bt_code code;
} event_reading;

static bool add_event_row(void *ctx, const bt_row *row) {
    event_reading *r = ctx;
    bt_view_events *e = &r->v->events;
    r->code = r->marks ? BT_GROW(e->mark, r->v->impl->cap_marks, e->n_marks + 1, r->err)
                       : BT_GROW(e->event, r->v->impl->cap_events, e->n + 1, r->err);
    if (r->code != BT_OK) return false;
    const char *const *c = row->cells;
    const double *v = row->nums;
    bt_view_event *x = r->marks ? &e->mark[e->n_marks++] : &e->event[e->n++];
    *x = (bt_view_event){.seq = bt_whole(v[0], 0),
                         .attempt = (int)bt_whole(v[1], 0),
                         .time_s = v[2],
                         .step = bt_whole(v[3], -1),
                         .rank = (int)bt_whole(v[4], -1)};
    bt_text_plain(x->kind, sizeof x->kind, c[5] ? c[5] : "");
    x->level = !c[6]                          ? BT_EV_INFO
               : strcmp(c[6], "error") == 0   ? BT_EV_ERROR
               : strcmp(c[6], "warning") == 0 ? BT_EV_WARN
                                              : BT_EV_INFO;
    bt_text_plain(x->title, sizeof x->title, c[7] ? c[7] : "");
    return true;
}

/* ---- marks of charts ---- */

/* events that explain a curve, which have priority */
static const bt_event_kind explains[] = {BT_EVENT_FAILURE,   BT_EVENT_RESTARTED, BT_EVENT_RESUMED,
                                         BT_EVENT_RESIZED,   BT_EVENT_HOST_LOST, BT_EVENT_CONTROL,
                                         BT_EVENT_ANNOTATION};
/* 0: kinds of `explains`, and errors; 1: other marks, and warnings; 2: frequent kinds, which have faint marks */
enum { MARK_CLASSES = 3 };

static void put_kinds(bt_text *sql, const bt_event_kind *kinds, size_t n) {
    for (size_t i = 0; i < n; i++)
        bt_text_printf(sql, "%s'%s'", i ? ", " : "", bt_events[kinds[i]].name);
}

static size_t list_kinds_with_mark(bt_event_mark mark, bt_event_kind *out) {
    size_t n = 0;
    for (int k = 0; k < BT_EVENT_COUNT; k++)
        if (bt_events[k].mark == mark) out[n++] = (bt_event_kind)k;
    return n;
}

/* Composes the query of the marked events, each with its class and its number in the class, newest first. */
static bt_code compose_marks_query(bt_text *sql, const char *columns, const char *rest,
                                   bt_err *err) {
    bt_event_kind lines[BT_EVENT_COUNT], faint[BT_EVENT_COUNT];
    const size_t n_lines = list_kinds_with_mark(BT_MARK_LINE, lines),
                 n_faint = list_kinds_with_mark(BT_MARK_FAINT, faint);
    bt_text_init(sql);
    bt_text_put(sql, "WITH e AS (SELECT seq, attempt, time_s, step, rank, kind, level, title, CASE "
                     "WHEN level = 'error' OR kind IN (");
    put_kinds(sql, explains, sizeof explains / sizeof *explains);
    bt_text_put(sql, ") THEN 0 WHEN level = 'info' AND kind IN (");
    put_kinds(sql, faint, n_faint);
    bt_text_put(sql, ") THEN 2 ELSE 1 END AS class FROM events WHERE run = ?1 AND time_s <= ?2 AND "
                     "step IS NOT NULL AND (level <> 'info' OR kind IN (");
    put_kinds(sql, lines, n_lines);
    bt_text_put(sql, ") OR kind IN (");
    put_kinds(sql, faint, n_faint);
    bt_text_printf(sql, "))) SELECT %s %s", columns, rest);
    return sql->failed ? bt_fail(err, BT_NOMEM, "cannot build a query: out of memory") : BT_OK;
}

/* Computes the stride for each class: every n-th event is marked; 0: all. */
static void thin_marks(const double *counts, int max, double *strides) {
    double room = max;
    for (int c = 0; c < MARK_CLASSES; c++) {
        const double n = isnan(counts[c]) ? 0 : counts[c];
        strides[c] = n <= room ? 1 : room >= 1 ? ceil(n / room) : fmax(1, n);
        room = fmax(0, room - (n <= room ? n : room));
    }
}

static bt_code load_marks(bt_view *v, int max, double until_s, bt_err *err) {
    bt_view_impl *m = v->impl;
    bt_view_events *e = &v->events;
    event_reading r = {.v = v, .marks = true, .err = err};
    double counts[MARK_CLASSES], args[1 + MARK_CLASSES] = {until_s};
    bt_text sql;
    e->n_marks = 0;
    e->markable = 0;
    if (max <= 0) return BT_OK;
    bt_code code = compose_marks_query(&sql, "sum(class = 0), sum(class = 1), sum(class = 2)",
                                       "FROM e", err);
    if (code == BT_OK)
        code = bt_vq_row(m, bt_text_str(&sql), m->run, args, 1, counts, MARK_CLASSES, err);
    bt_text_release(&sql);
    BT_TRY(code);
    for (int c = 0; c < MARK_CLASSES; c++) e->markable += isnan(counts[c]) ? 0 : (int64_t)counts[c];
    thin_marks(counts, max, args + 1);
    code = compose_marks_query(
        &sql, "seq, attempt, time_s, step, rank, kind, level, title",
        "FROM (SELECT *, row_number() OVER (PARTITION BY class ORDER BY seq DESC) - 1 "
        "AS nth FROM e) WHERE nth % CASE class WHEN 0 THEN ?3 WHEN 1 THEN ?4 ELSE "
        "?5 END = 0 ORDER BY seq",
        err);
    if (code == BT_OK)
        code = bt_vq_rows(m, bt_text_str(&sql), m->run, args, 1 + MARK_CLASSES, add_event_row, &r,
                          err);
    bt_text_release(&sql);
    return code == BT_OK ? r.code : code;
}

/* Events are only appended, so the list is valid until there is a newer one. */
bt_code bt_view_load_events(bt_view *v, const bt_view_request *ask, bt_err *err) {
    bt_view_impl *m = v->impl;
    event_reading r = {.v = v, .err = err};
    int max = ask->max_events > 0 ? ask->max_events : 200;
    int64_t until_step = m->at_step < m->newest_step ? m->at_step : -1;
    double x;
    if (m->event_newest >= 0 && m->list_at == m->event_newest && m->list_step == until_step &&
        m->list_max == max && m->list_marks == ask->max_marks)
        return BT_OK;
    m->list_at = -1;
    v->events.n = 0;
    BT_TRY(bt_vq_row(m, "SELECT count(*) FROM events WHERE run = ?1", m->run, NULL, 0, &x, 1, err));
    v->events.total = isnan(x) ? 0 : (int64_t)x;
    double until = until_step >= 0 ? bt_view_time_of(v, m->run, until_step) : INFINITY;
    double args[] = {max, isfinite(until) ? until + 1e-3 : 1e15};
    BT_TRY(bt_vq_rows(m,
                      "SELECT * FROM (SELECT seq, attempt, time_s, step, rank, kind, level, title "
                      "FROM events WHERE run = ?1 AND time_s <= ?3 "
                      "ORDER BY seq DESC LIMIT ?2) ORDER BY seq",
                      m->run, args, 2, add_event_row, &r, err));
    if (r.code != BT_OK) return r.code;
    BT_TRY(load_marks(v, ask->max_marks, args[1], err));
    BT_TRY(bt_view_load_texts(v, until_step, err));
    m->list_marks = ask->max_marks;
    m->list_at = m->event_newest;
    m->list_step = until_step;
    m->list_max = max;
    return BT_OK;
}

/* ---- runs ------------------------------------------------------------------------------------ */

typedef struct run_reading {
    bt_view *v;
    bool fixed; /* the caller sets the time for all runs */
    bt_err *err;
    bt_code code;
} run_reading;

static int read_spark(const char *json, double *out, int max) {
    int n = 0;
    for (const char *p = json; p && *p && n < max;) {
        p += strspn(p, " ,[]\n");
        if (!*p) break;
        char *end;
        double v = strtod(p, &end);
        if (end == p) { /* null */
            v = NAN;
            end = (char *)p + strcspn(p, ",] ");
            if (end == p) break;
        }
        out[n++] = v;
        p = end;
    }
    return n;
}

static bool add_run_row(void *ctx, const bt_row *row) {
    run_reading *r = ctx;
    bt_view_runs *l = &r->v->runs;
    r->code = BT_GROW(l->run, r->v->impl->cap_runs, l->n + 1, r->err);
    if (r->code != BT_OK) return false;
    const char *const *c = row->cells;
    const double *v = row->nums;
    bt_view_run *x = &l->run[l->n++];
    *x = (bt_view_run){.ranks = (int)bt_whole(v[2], 0),
                       .steps = bt_whole(v[3], 0),
                       .tokens = v[4],
                       .loss = v[5],
                       .best_val = v[6],
                       .tokens_per_s = v[7],
                       .step_ms = v[8],
                       .goodput = v[9],
                       .comm_overhead = v[10],
                       .mfu = v[11],
                       .rss_mib = v[12],
                       .started_s = v[13],
                       .duration_s = v[14],
                       .attempts = (int)bt_whole(v[20], 0)};
    bt_text_plain(x->run, sizeof x->run, c[0] ? c[0] : "");
    bt_text_plain(x->host, sizeof x->host, c[16] ? c[16] : "");
    bt_text_plain(x->tags, sizeof x->tags, c[18] ? c[18] : "");
    bt_text_plain(x->note, sizeof x->note, c[19] ? c[19] : "");
    int64_t now_us = r->v->impl->now_us;
    if (!r->fixed && isnan(v[22])) {
        r->code = bt_run_now(r->v->impl->db, x->run, &now_us, r->err);
        if (r->code != BT_OK) return false;
    }
    const double updated = v[15], now = (double)now_us / 1e6;
    x->age_s = fmax(0, now - (isnan(updated) ? x->started_s : updated));
    x->state =
        bt_run_state_of(bt_run_state_word(c[1] ? c[1] : "", x->host, (int64_t)bt_whole(v[17], 0)),
                        x->age_s, x->step_ms / 1e3, false);
    x->n_spark = read_spark(c[21], x->spark, 64);
    return true;
}

/* Uses the clock of the view, like the head. */
static bt_code apply_live_state(bt_view *v, bool fixed, bt_err *err) {
    bt_view_impl *m = v->impl;
    for (size_t i = 0; i < v->runs.n; i++) {
        bt_view_run *x = &v->runs.run[i];
        if (!bt_run_states[x->state].live && x->state != BT_STATE_LOST) continue;
        int64_t now_us = m->now_us;
        if (!fixed) BT_TRY(bt_run_now(m->db, x->run, &now_us, err));
        BT_TRY(bt_run_ledger(&m->other, m->db, x->run, bt_run_until(x->state, now_us), err));
        x->goodput = bt_ledger_goodput(&m->other);
        x->duration_s = (double)(m->other.end_us - m->other.begin_us) / 1e6;
    }
    return BT_OK;
}

bt_code bt_view_load_runs(bt_view *v, const bt_view_request *ask, bt_err *err) {
    run_reading r = {v, ask->now_us != 0, err, BT_OK};
    double x;
    v->runs.n = 0;
    BT_TRY(bt_vq_row(v->impl, "SELECT count(*) FROM runs", NULL, NULL, 0, &x, 1, err));
    v->runs.total = isnan(x) ? 0 : (int64_t)x;
    double limit = ask->max_runs > 0 ? ask->max_runs : 500;
    BT_TRY(bt_vq_rows(
        v->impl,
        "SELECT run, state, ranks, steps, tokens, loss, best_val, tokens_per_s, "
        "step_ms, goodput, comm_overhead, mfu, rss_mib, started_s, "
        "duration_s, updated_s, host, pid, tags, note, attempts, spark, ended_s FROM main.runs "
        "ORDER BY started_s DESC, run LIMIT ?2",
        NULL, &limit, 1, add_run_row, &r, err));
    return r.code == BT_OK ? apply_live_state(v, r.fixed, err) : r.code;
}

/* view_heat.c - rank x time: one value per rank and column of steps, as a ratio to the ranks' median of the same step. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "store/blocks.h"
#include "store/view_impl.h"

enum { ROWS_BUDGET = 24576 };           /* rank rows read for one picture: beyond it each column is sampled */

static const struct { bt_rank_metric metric; bool ratio; } values[BT_HEAT_VALUES] = {
    [BT_HEAT_BUSY] = {BT_MR_STEP_TIME, true}, [BT_HEAT_STEP] = {BT_MR_STEP_TIME, false}, [BT_HEAT_WAIT] = {BT_MR_WAIT, false},
    [BT_HEAT_DATA] = {BT_MR_DATA, false},     [BT_HEAT_COMM] = {BT_MR_COMM_EXPOSED, false}, [BT_HEAT_RSS] = {BT_MR_RSS, false},
};

typedef struct picture {
    bt_view *v;
    bt_heat_cache *c;
    double *now;                        /* values of the step being read, by rank */
    double *work;
    int64_t step;                       /* -1: none read yet */
    double weight;                      /* steps the values being read stand for */
    bool ratio;
} picture;

static void end_step(picture *p) {
    bt_heat_cache *c = p->c;
    if (p->step < 0) return;
    size_t n = 0, col = (size_t)(p->step / c->size - c->first_key);
    for (size_t k = 0; k < c->rows; k++)
        if (!isnan(p->now[k])) p->work[n++] = p->now[k];
    double median = p->ratio ? bt_lower_median(p->work, n) : 1;
    for (size_t k = 0; k < c->rows && col < c->stride; k++) {
        if (!isnan(p->now[k]) && median > 0) c->sum[k * c->stride + col] += p->weight * p->now[k] / median, c->count[k * c->stride + col] += p->weight;
        p->now[k] = NAN;
    }
    p->step = -1;
}

/* step, rank, value, wait */
static bool on_row(void *ctx, const double *col, int n) {
    picture *p = ctx;
    (void)n;
    if ((int64_t)col[0] != p->step) end_step(p);
    p->step = (int64_t)col[0];
    p->weight = 1;
    size_t k = (size_t)col[1];
    if (k < p->c->rows) p->now[k] = p->v->heat.value == BT_HEAT_BUSY ? col[2] - (isnan(col[3]) ? 0 : col[3]) : col[2];
    return true;
}

/* the ranks' means over a block: a ratio of means instead of a mean of ratios */
static bool on_block(void *ctx, const bt_block *b) {
    picture *p = ctx;
    end_step(p);
    p->step = b->step0;
    p->weight = b->wall_us.n;
    for (int k = 0; k < b->n_ranks && (size_t)k < p->c->rows; k++) {
        const bt_block_stat *v = b->ranks + (size_t)k * BT_MR_COUNT, *x = &v[values[p->v->heat.value].metric], *w = &v[BT_MR_WAIT];
        if (x->n > 0) p->now[k] = x->sum / x->n - (p->v->heat.value == BT_HEAT_BUSY && w->n > 0 ? w->sum / w->n : 0);
    }
    return true;
}

static bt_code read_blocks(picture *p, int64_t from, int64_t to, bt_err *err) {
    bt_blocks_ask ask = {.run = p->v->impl->run, .step0 = from, .step1 = to, .max_steps = p->c->size >= 64 ? p->c->size / 4 : p->c->size, .ranks = true};
    bt_code code = bt_blocks_walk(p->v->impl->db, &ask, on_block, p, err);
    end_step(p);
    return code;
}

/* a long stretch comes from summaries; without them, from the beginning of each column */
static bt_code read_columns(picture *p, int64_t from, int64_t to, bt_err *err) {
    bt_heat_cache *c = p->c;
    int64_t budget = ROWS_BUDGET / (int64_t)(c->rows ? c->rows : 1), part = c->size;
    bool all = to - from + 1 <= budget;
    if (!all) c->exact = false;
    if (!all && c->size >= 16) return read_blocks(p, from, to, err);
    if (!all) part = budget / (int64_t)c->cols > 0 ? budget / (int64_t)c->cols : 1;
    if (part > c->size) part = c->size;
    bt_text sql;
    bt_text_init(&sql);
    bt_text_printf(&sql, "SELECT step, rank, \"%s\", wait_ms FROM rank_steps WHERE run = ?1 AND step BETWEEN ?2 AND ?3 ORDER BY step",
                   bt_rank_metrics[values[p->v->heat.value].metric].key);
    bt_code code = sql.failed ? bt_fail(err, BT_NOMEM, "cannot build a query: out of memory") : BT_OK;
    for (int64_t a = from; a <= to && code == BT_OK;) {
        int64_t next = all ? to + 1 : (a / c->size + 1) * c->size, last = all ? to : a + part - 1;
        double args[] = {(double)a, (double)(last < to ? last : to)};
        code = bt_vq_each(p->v->impl, bt_text_str(&sql), p->v->impl->run, args, 2, on_row, p, err);
        a = next;
    }
    end_step(p);
    bt_text_release(&sql);
    return code;
}

static bt_code column_times(bt_view *v, bt_err *err) {
    bt_view_impl *m = v->impl;
    for (size_t c = 0; c < v->heat.cols; c++) m->heat_time[c] = NAN;
    if (v->heat.cols == 0) return BT_OK;
    /* wall time is close to linear between the ends: two look-ups, not one a column */
    double a = bt_view_time_of(v, m->run, m->heat_step[0]), b = bt_view_time_of(v, m->run, m->at_step);
    int64_t s0 = m->heat_step[0], s1 = m->at_step;
    for (size_t c = 0; c < v->heat.cols; c++)
        m->heat_time[c] = s1 > s0 ? a + (b - a) * (double)(m->heat_step[c] - s0) / (double)(s1 - s0) : a;
    (void)err;
    return BT_OK;
}

/* steps a column: sixteenths of a power of two, so that a long run that grows is read anew once in many steps only */
static int64_t column_size(int64_t from, int64_t to, int columns) {
    int64_t size = (to - from + columns) / columns, unit = 1;
    while (size / unit >= 16) unit *= 2;
    size = (size + unit - 1) / unit * unit;
    while (to / size - from / size + 1 > columns) size += unit;
    return size;
}

/* what was read before and still fits moves to its place; *next: first step to read */
static bt_code prepare(bt_view *v, bt_heat_value value, int64_t from, int64_t to, int columns, int64_t *next, bt_err *err) {
    bt_view_impl *m = v->impl;
    bt_heat_cache *c = &m->heat;
    int64_t size = column_size(from, to, columns);
    int64_t first_key = from / size, gone = first_key - c->first_key;
    size_t stride = (size_t)columns, rows = v->ranks.n;
    bool kept = strcmp(c->run, m->run) == 0 && c->attempts == m->n_attempts && c->value == value && c->rows == rows && c->stride == stride && c->size == size &&
                gone >= 0 && c->next > from && c->next <= to + 1;
    if (!kept) {
        BT_TRY(BT_GROW(c->sum, c->cap_sum, rows * stride, err));
        BT_TRY(BT_GROW(c->count, c->cap_count, rows * stride, err));
        memset(c->sum, 0, rows * stride * sizeof *c->sum);
        memset(c->count, 0, rows * stride * sizeof *c->count);
        snprintf(c->run, sizeof c->run, "%s", m->run);
        c->attempts = m->n_attempts;
        c->value = value;
        c->rows = rows;
        c->stride = stride;
        c->size = size;
        c->next = from;
        c->exact = true;
    } else if (gone > 0) {
        size_t by = (size_t)gone < stride ? (size_t)gone : stride;
        for (size_t k = 0; k < rows; k++) {
            double *s = c->sum + k * stride, *n = c->count + k * stride;
            memmove(s, s + by, (stride - by) * sizeof *s);
            memmove(n, n + by, (stride - by) * sizeof *n);
            memset(s + stride - by, 0, by * sizeof *s);
            memset(n + stride - by, 0, by * sizeof *n);
        }
    }
    c->first_key = first_key;
    c->cols = (size_t)(to / size - first_key + 1);
    *next = c->next;
    return BT_OK;
}

bt_code bt_view_load_heat(bt_view *v, const bt_view_ask *ask, bt_err *err) {
    bt_view_impl *m = v->impl;
    bt_heat_cache *c = &m->heat;
    int64_t from, to, next;
    v->heat = (bt_view_heat){.value = ask->heat, .exact = true};
    BT_TRY(bt_view_range(v, ask, &from, &to, err));
    if (to < from || v->ranks.n == 0) return BT_OK;
    BT_TRY(prepare(v, ask->heat, from, to, ask->heat_columns > 0 ? ask->heat_columns : 120, &next, err));
    BT_TRY(BT_GROW(m->heat_cell, m->cap_heat_cell, c->rows * c->cols + 2 * c->rows, err));
    BT_TRY(BT_GROW(m->heat_time, m->cap_heat_time, c->cols, err));
    BT_TRY(BT_GROW(m->heat_step, m->cap_heat_step, c->cols, err));
    picture p = {.v = v, .c = c, .now = m->heat_cell + c->rows * c->cols, .step = -1, .ratio = values[ask->heat].ratio};
    p.work = p.now + c->rows;
    for (size_t k = 0; k < c->rows; k++) p.now[k] = NAN;
    bt_code code = next <= to ? read_columns(&p, next, to, err) : BT_OK;
    c->next = code == BT_OK ? to + 1 : 0;
    if (code != BT_OK) return code;
    for (size_t k = 0; k < c->rows; k++)
        for (size_t i = 0; i < c->cols; i++) {
            double n = c->count[k * c->stride + i];
            m->heat_cell[k * c->cols + i] = n > 0 ? c->sum[k * c->stride + i] / n : NAN;
        }
    for (size_t i = 0; i < c->cols; i++) m->heat_step[i] = (c->first_key + (int64_t)i) * c->size;
    v->heat.rows = c->rows;
    v->heat.cols = c->cols;
    v->heat.cell = m->heat_cell;
    v->heat.step = m->heat_step;
    v->heat.time_s = m->heat_time;
    v->heat.exact = c->exact;
    return column_times(v, err);
}

/* view_heat.c - rank x time: one value per rank and column of steps, as a ratio to the ranks' median of the same step. */
#include <math.h>
#include <stdlib.h>
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
    size_t rows, cols;
    int64_t size, first_key;            /* steps per column */
    double *sum, *count;                /* (rows, cols) */
    double *now;                        /* values of the step being read, by rank */
    double *work;
    int64_t step;                       /* -1: none read yet */
    double weight;                      /* steps the values being read stand for */
    bool ratio;
} picture;

static void end_step(picture *p) {
    if (p->step < 0) return;
    size_t n = 0, col = (size_t)(p->step / p->size - p->first_key);
    for (size_t k = 0; k < p->rows; k++)
        if (!isnan(p->now[k])) p->work[n++] = p->now[k];
    double median = p->ratio ? bt_lower_median(p->work, n) : 1;
    for (size_t k = 0; k < p->rows && col < p->cols; k++) {
        if (!isnan(p->now[k]) && median > 0) p->sum[k * p->cols + col] += p->weight * p->now[k] / median, p->count[k * p->cols + col] += p->weight;
        p->now[k] = NAN;
    }
}

/* step, rank, value, wait */
static bool on_row(void *ctx, const double *col, int n) {
    picture *p = ctx;
    (void)n;
    if ((int64_t)col[0] != p->step) end_step(p);
    p->step = (int64_t)col[0];
    p->weight = 1;
    size_t k = (size_t)col[1];
    if (k < p->rows) p->now[k] = p->v->heat.value == BT_HEAT_BUSY ? col[2] - (isnan(col[3]) ? 0 : col[3]) : col[2];
    return true;
}

/* the ranks' means over a block: a ratio of means instead of a mean of ratios */
static bool on_block(void *ctx, const bt_block *b) {
    picture *p = ctx;
    end_step(p);
    p->step = b->step0;
    p->weight = b->wall_us.n;
    for (int k = 0; k < b->n_ranks && (size_t)k < p->rows; k++) {
        const bt_block_stat *v = b->ranks + (size_t)k * BT_MR_COUNT, *x = &v[values[p->v->heat.value].metric], *w = &v[BT_MR_WAIT];
        if (x->n > 0) p->now[k] = x->sum / x->n - (p->v->heat.value == BT_HEAT_BUSY && w->n > 0 ? w->sum / w->n : 0);
    }
    return true;
}

static bt_code read_blocks(picture *p, int64_t from, int64_t to, bt_err *err) {
    bt_blocks_ask ask = {.run = p->v->impl->run, .step0 = from, .step1 = to, .max_steps = p->size >= 64 ? p->size / 4 : p->size, .ranks = true};
    bt_code code = bt_blocks_walk(p->v->impl->db, &ask, on_block, p, err);
    end_step(p);
    return code;
}

static bt_code read_columns(picture *p, int64_t from, int64_t to, bool *exact, bt_err *err) {
    bt_text sql;
    bt_text_init(&sql);
    bt_text_printf(&sql, "SELECT step, rank, \"%s\", wait_ms FROM rank_steps WHERE run = ?1 AND step BETWEEN ?2 AND ?3 ORDER BY step",
                   bt_rank_metrics[values[p->v->heat.value].metric].key);
    int64_t budget = ROWS_BUDGET / (int64_t)(p->rows ? p->rows : 1), part = p->size;
    *exact = to - from + 1 <= budget;
    if (!*exact && p->size >= 16) {
        bt_text_release(&sql);
        return read_blocks(p, from, to, err);
    }
    if (!*exact) part = budget / (int64_t)p->cols > 0 ? budget / (int64_t)p->cols : 1;
    if (part > p->size) part = p->size;
    bt_code code = sql.failed ? bt_fail(err, BT_NOMEM, "cannot build a query: out of memory") : BT_OK;
    for (int64_t a = from; a <= to && code == BT_OK;) {
        int64_t next = *exact ? to + 1 : (a / p->size + 1) * p->size, last = *exact ? to : a + part - 1;
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

bt_code bt_view_load_heat(bt_view *v, const bt_view_ask *ask, bt_err *err) {
    bt_view_impl *m = v->impl;
    int columns = ask->heat_columns > 0 ? ask->heat_columns : 120;
    int64_t from, to;
    v->heat = (bt_view_heat){.value = ask->heat, .exact = true};
    BT_TRY(bt_view_range(v, ask, &from, &to, err));
    if (to < from || v->ranks.n == 0) return BT_OK;
    picture p = {.v = v, .rows = v->ranks.n, .size = 1, .step = -1, .ratio = values[ask->heat].ratio};
    while ((to / p.size) - (from / p.size) + 1 > columns) p.size++;
    p.first_key = from / p.size;
    p.cols = (size_t)(to / p.size - p.first_key + 1);
    size_t cells = p.rows * p.cols;
    BT_TRY(BT_GROW(m->heat_cell, m->cap_heat_cell, 2 * cells + 2 * p.rows, err));
    BT_TRY(BT_GROW(m->heat_time, m->cap_heat_time, p.cols, err));
    BT_TRY(BT_GROW(m->heat_step, m->cap_heat_step, p.cols, err));
    p.sum = m->heat_cell;
    p.count = p.sum + cells;
    p.now = p.count + cells;
    p.work = p.now + p.rows;
    memset(p.sum, 0, 2 * cells * sizeof *p.sum);
    for (size_t k = 0; k < p.rows; k++) p.now[k] = NAN;
    BT_TRY(read_columns(&p, from, to, &v->heat.exact, err));
    for (size_t i = 0; i < cells; i++) p.sum[i] = p.count[i] > 0 ? p.sum[i] / p.count[i] : NAN;
    for (size_t c = 0; c < p.cols; c++) m->heat_step[c] = (p.first_key + (int64_t)c) * p.size;
    v->heat.rows = p.rows;
    v->heat.cols = p.cols;
    v->heat.cell = m->heat_cell;
    v->heat.step = m->heat_step;
    v->heat.time_s = m->heat_time;
    return column_times(v, err);
}

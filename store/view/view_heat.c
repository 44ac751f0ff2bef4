/* view_heat.c - heat map rank x time: one value per rank and column of steps. Busy times are ratios to the median of
 * their step, other values are absolute; with a baseline all are ratios to its values at the same steps. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "store/read/blocks.h"
#include "store/view/view_impl.h"

/* rank rows read for one heat map; beyond this number each column is sampled */
enum { ROWS_BUDGET = 24576 };

static const struct {
    bt_rank_metric metric;
    bool ratio;
} values[BT_HEAT_VALUES] = {
    [BT_HEAT_BUSY] = {BT_MR_STEP_TIME, true},     [BT_HEAT_STEP] = {BT_MR_STEP_TIME, false},
    [BT_HEAT_WAIT] = {BT_MR_WAIT, false},         [BT_HEAT_DATA] = {BT_MR_DATA, false},
    [BT_HEAT_COMM] = {BT_MR_COMM_EXPOSED, false}, [BT_HEAT_RSS] = {BT_MR_RSS, false},
    [BT_HEAT_FWD] = {BT_MR_FWD, false},           [BT_HEAT_BWD] = {BT_MR_BWD, false},
    [BT_HEAT_OPTIM] = {BT_MR_OPTIM, false},       [BT_HEAT_LOSS] = {BT_MR_LOSS, false},
};

typedef struct picture {
    bt_view *v;
    bt_heat_cache *c;
    double *now; /* values of the current step, by rank */
    double *work;
    int64_t step;  /* -1: none read yet */
    double weight; /* number of steps that each value covers */
} picture;

static void add_finished_step(picture *p) {
    bt_heat_cache *c = p->c;
    if (p->step < 0) return;
    size_t n = 0, col = (size_t)(p->step / c->size - c->first_key);
    for (size_t k = 0; k < c->rows; k++)
        if (!isnan(p->now[k])) p->work[n++] = p->now[k];
    /* A cell is a ratio of sums, like in the table of ranks, so short steps have little weight. */
    double median = c->ratio ? bt_lower_median(p->work, n) : 1;
    for (size_t k = 0; k < c->rows && col < c->stride; k++) {
        if (!isnan(p->now[k]) && median > 0)
            c->sum[k * c->stride + col] += p->weight * p->now[k],
                c->count[k * c->stride + col] += p->weight * median;
        p->now[k] = NAN;
    }
    p->step = -1;
}

/* Columns: step, rank, value, wait. */
static bool add_heat_row(void *ctx, const double *col, int n) {
    picture *p = ctx;
    (void)n;
    if ((int64_t)col[0] != p->step) add_finished_step(p);
    p->step = (int64_t)col[0];
    p->weight = 1;
    size_t k = (size_t)col[1];
    if (k < p->c->rows)
        p->now[k] = p->c->value == BT_HEAT_BUSY ? col[2] - (isnan(col[3]) ? 0 : col[3]) : col[2];
    return true;
}

static bool add_heat_block(void *ctx, const bt_block *b) {
    picture *p = ctx;
    add_finished_step(p);
    p->step = b->step0;
    p->weight = b->wall_us.n;
    for (int k = 0; k < b->n_ranks && (size_t)k < p->c->rows; k++) {
        const bt_block_stat *v = b->ranks + (size_t)k * BT_MR_COUNT,
                            *x = &v[values[p->c->value].metric], *w = &v[BT_MR_WAIT];
        if (x->n > 0)
            p->now[k] = x->sum / x->n -
                        (p->c->value == BT_HEAT_BUSY && w->n > 0 ? w->sum / w->n : 0);
    }
    return true;
}

static bt_code read_blocks(picture *p, int64_t from, int64_t to, bt_err *err) {
    bt_blocks_request ask = {.run = p->c->run,
                             .step0 = from,
                             .step1 = to,
                             .max_steps = p->c->size >= 64 && p->c->size < 4096 ? p->c->size / 4
                                                                                : p->c->size,
                             .ranks = true};
    bt_code code = bt_blocks_walk(p->v->impl->db, &ask, add_heat_block, p, err);
    add_finished_step(p);
    return code;
}

/* A long range is read from summaries or, without them, from the beginning of each column. */
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
    bt_text_printf(&sql,
                   "SELECT step, rank, \"%s\", wait_ms FROM rank_steps WHERE run = ?1 AND step "
                   "BETWEEN ?2 AND ?3 ORDER BY step",
                   bt_rank_metrics[values[p->c->value].metric].key);
    bt_code code = sql.failed ? bt_fail(err, BT_NOMEM, "cannot build a query: out of memory")
                              : BT_OK;
    for (int64_t a = from; a <= to && code == BT_OK;) {
        int64_t next = all ? to + 1 : (a / c->size + 1) * c->size, last = all ? to : a + part - 1;
        double args[] = {(double)a, (double)(last < to ? last : to)};
        code = bt_vq_each(p->v->impl, bt_text_str(&sql), p->c->run, args, 2, add_heat_row, p, err);
        a = next;
    }
    add_finished_step(p);
    bt_text_release(&sql);
    return code;
}

static bt_code column_times(bt_view *v, bt_err *err) {
    bt_view_impl *m = v->impl;
    for (size_t c = 0; c < v->heat.cols; c++) m->heat_time[c] = NAN;
    if (v->heat.cols == 0) return BT_OK;
    /* Wall time is nearly linear between the ends, so two look-ups replace one per column. */
    double a = bt_view_time_of(v, m->run, m->heat_step[0]),
           b = bt_view_time_of(v, m->run, m->at_step);
    int64_t s0 = m->heat_step[0], s1 = m->at_step;
    for (size_t c = 0; c < v->heat.cols; c++)
        m->heat_time[c] = s1 > s0 ? a + (b - a) * (double)(m->heat_step[c] - s0) / (double)(s1 - s0)
                                  : a;
    (void)err;
    return BT_OK;
}

/* Steps per column are multiples of a sixteenth of a power of two, so that a growing long run is rarely read again. */
static int64_t column_size(int64_t from, int64_t to, int columns) {
    int64_t size = (to - from + columns) / columns, unit = 1;
    while (size / unit >= 16) unit *= 2;
    size = (size + unit - 1) / unit * unit;
    while (to / size - from / size + 1 > columns) size += unit;
    return size;
}

typedef struct heat_want {
    const char *run;
    int attempts;
    size_t rows;
    bt_heat_value value;
    bool ratio;
} heat_want;

static bool is_same_heat_map(const bt_heat_cache *c, const heat_want *w) {
    return strcmp(c->run, w->run) == 0 && c->attempts == w->attempts && c->value == w->value &&
           c->ratio == w->ratio && c->rows == w->rows;
}

/* Moves the columns that are still in range and reads the new ones. The first column is always complete, so that a
 * view that follows a run equals a fresh one. */
static bt_code shift_heat_columns(bt_heat_cache *c, const heat_want *w, int64_t from, int64_t to,
                                  int columns, bt_err *err) {
    int64_t size = column_size(from, to, columns), first_key = from / size,
            gone = first_key - c->first_key;
    size_t stride = (size_t)columns, rows = w->rows;
    bool kept = is_same_heat_map(c, w) && c->stride == stride && c->size == size && gone >= 0 &&
                c->next > from && c->next <= to + 1;
    if (!kept) {
        BT_TRY(BT_GROW(c->sum, c->cap_sum, rows * stride, err));
        BT_TRY(BT_GROW(c->count, c->cap_count, rows * stride, err));
        memset(c->sum, 0, rows * stride * sizeof *c->sum);
        memset(c->count, 0, rows * stride * sizeof *c->count);
        snprintf(c->run, sizeof c->run, "%s", w->run);
        c->attempts = w->attempts;
        c->value = w->value;
        c->ratio = w->ratio;
        c->rows = rows;
        c->stride = stride;
        c->size = size;
        c->next = first_key * size;
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
    return BT_OK;
}

/* newest: last step of the run. There are columns up to `to`, even if the run has not reached it. */
static bt_code fill_heat_columns(bt_view *v, bt_heat_cache *c, const heat_want *w, int64_t from,
                                 int64_t to, int64_t newest, int columns, bt_err *err) {
    bt_view_impl *m = v->impl;
    BT_TRY(shift_heat_columns(c, w, from, to, columns, err));
    BT_TRY(BT_GROW(m->heat_work, m->cap_heat_work, 2 * c->rows, err));
    picture p = {.v = v, .c = c, .now = m->heat_work, .work = m->heat_work + c->rows, .step = -1};
    int64_t last = to < newest ? to : newest;
    for (size_t k = 0; k < c->rows; k++) p.now[k] = NAN;
    bt_code code = c->next <= last ? read_columns(&p, c->next, last, err) : BT_OK;
    if (code != BT_OK)
        c->next = 0;
    else if (c->next <= last)
        c->next = last + 1;
    return code;
}

static double heat_cell_mean(const bt_heat_cache *c, size_t row, size_t col) {
    double n = c->count[row * c->stride + col];
    return n > 0 ? c->sum[row * c->stride + col] / n : NAN;
}

/* Returns the baseline's value for a rank in a column; with another number of ranks, their median. */
static double baseline_cell(const bt_heat_cache *b, size_t rows, size_t row, size_t col,
                            double *work) {
    size_t n = 0;
    if (b->rows == rows) return heat_cell_mean(b, row, col);
    for (size_t k = 0; k < b->rows; k++) {
        double v = heat_cell_mean(b, k, col);
        if (!isnan(v)) work[n++] = v;
    }
    return bt_lower_median(work, n);
}

/* Divides cells by the baseline's values at the same steps, or by its mean for steps that it lacks. */
static bt_code divide_by_baseline(bt_view *v, bt_err *err) {
    bt_view_impl *m = v->impl;
    const bt_heat_cache *b = &m->heat_base;
    BT_TRY(BT_GROW(m->heat_work, m->cap_heat_work, b->rows + b->cols, err));
    double *base = m->heat_work + b->rows;
    for (size_t k = 0; k < v->heat.rows; k++) {
        double sum = 0, n = 0;
        for (size_t i = 0; i < b->cols; i++) {
            base[i] = baseline_cell(b, v->heat.rows, k, i, m->heat_work);
            if (!isnan(base[i])) sum += base[i], n++;
        }
        if (n > 0) v->heat.against = true;
        for (size_t i = 0; i < v->heat.cols && n > 0; i++) {
            double d = isnan(base[i]) ? sum / n : base[i];
            m->heat_cell[k * v->heat.cols + i] /= d > 0 ? d : NAN;
        }
    }
    return BT_OK;
}

static bt_code load_baseline(bt_view *v, const bt_view_request *ask, int64_t from, int64_t to,
                             int columns, bt_err *err) {
    double x[3];
    BT_TRY(bt_vq_row(v->impl, "SELECT attempts, steps, ranks FROM runs WHERE run = ?1",
                     ask->baseline, NULL, 0, x, 3, err));
    heat_want w = {ask->baseline, (int)bt_whole(x[0], 0), (size_t)bt_whole(x[2], 0), ask->heat,
                   false};
    int64_t newest = bt_whole(x[1], 0) - 1;
    if (w.rows == 0 || w.rows > 65536 || newest < 0) return BT_OK;
    BT_TRY(fill_heat_columns(v, &v->impl->heat_base, &w, from, to, newest, columns, err));
    return divide_by_baseline(v, err);
}

bt_code bt_view_load_heat(bt_view *v, const bt_view_request *ask, bt_err *err) {
    bt_view_impl *m = v->impl;
    bt_heat_cache *c = &m->heat;
    int64_t from, to;
    int columns = ask->heat_columns > 0 ? ask->heat_columns : 120;
    bool against = ask->baseline && ask->baseline[0];
    v->heat = (bt_view_heat){.value = ask->heat, .exact = true, .low = NAN, .high = NAN};
    BT_TRY(bt_view_range(v, ask, &from, &to, err));
    if (to < from || v->ranks.n == 0) return BT_OK;
    heat_want w = {m->run, m->n_attempts, v->ranks.n, ask->heat,
                   values[ask->heat].ratio && !against};
    BT_TRY(fill_heat_columns(v, c, &w, from, to, to, columns, err));
    BT_TRY(BT_GROW(m->heat_cell, m->cap_heat_cell, c->rows * c->cols, err));
    BT_TRY(BT_GROW(m->heat_time, m->cap_heat_time, c->cols, err));
    BT_TRY(BT_GROW(m->heat_step, m->cap_heat_step, c->cols, err));
    for (size_t k = 0; k < c->rows; k++)
        for (size_t i = 0; i < c->cols; i++)
            m->heat_cell[k * c->cols + i] = heat_cell_mean(c, k, i);
    for (size_t i = 0; i < c->cols; i++) m->heat_step[i] = (c->first_key + (int64_t)i) * c->size;
    v->heat.rows = c->rows;
    v->heat.cols = c->cols;
    v->heat.cell = m->heat_cell;
    v->heat.step = m->heat_step;
    v->heat.time_s = m->heat_time;
    v->heat.exact = c->exact;
    if (against) BT_TRY(load_baseline(v, ask, from, to, columns, err));
    BT_TRY(bt_view_heat_scale(v, err));
    return column_times(v, err);
}

/* view_series.c - rows of a run in buckets of 2^k steps: min, max, first, last, mean of each
 * metric. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "store/read/blocks.h"
#include "store/view/view_impl.h"

/* x, first, last, min, max, mean of a bucket */
enum { STREAMS_MAX = 2 * BT_VIEW_SERIES_MAX, VALUES = 6 };
/* step, count, steps of the least and of the greatest value */
enum { INTS = 4 };

void bt_view_stream_release(bt_stream *s) {
    free(s->bucket);
    free(s->stat);
    free(s->sql);
    free(s->shown);
    free(s->shown_int);
    *s = (bt_stream){0};
}

/* ---- buckets --------------------------------------------------------------------------------- */

static void add_value_to_stat(bt_stat *t, double v, int64_t step) {
    if (isnan(v)) {
        if (t->lost == 0) t->lost = step + 1;
        return;
    }
    if (t->n == 0) t->first = v;
    if (t->n == 0 || v < t->min) t->min = v, t->min_step = step;
    if (t->n == 0 || v > t->max) t->max = v, t->max_step = step;
    t->last = v;
    t->last_step = step;
    t->lost = 0;
    t->sum += v;
    t->n++;
}

static void merge_stats(bt_stat *into, const bt_stat *b) {
    if (b->n == 0) {
        if (into->lost == 0) into->lost = b->lost;
        return;
    }
    if (into->n == 0) {
        *into = *b;
        return;
    }
    into->last = b->last;
    into->last_step = b->last_step;
    into->lost = b->lost;
    into->near |= b->near;
    if (b->min < into->min) into->min = b->min, into->min_step = b->min_step;
    if (b->max > into->max) into->max = b->max, into->max_step = b->max_step;
    into->sum += b->sum;
    into->n += b->n;
}

static void bucket_merge(bt_bucket *into, const bt_bucket *b) {
    int64_t rows = into->rows + b->rows, key = into->key;
    *into = *b;
    into->key = key;
    into->rows = rows;
}

/* After buckets have moved, all points must be written again. */
static void rewrite_all_points(bt_stream *s) {
    s->settled = 0;
    memset(s->filled, 0, sizeof s->filled);
}

/* Halves the resolution: bucket k is merged into k / 2. */
static void halve_resolution(bt_stream *s) {
    rewrite_all_points(s);
    size_t out = 0, per = (size_t)s->n_metrics;
    for (size_t i = 0; i < s->n; i++) {
        int64_t key = s->bucket[i].key / 2;
        if (out > 0 && s->bucket[out - 1].key == key) {
            bucket_merge(&s->bucket[out - 1], &s->bucket[i]);
            for (size_t k = 0; k < per; k++)
                merge_stats(&s->stat[(out - 1) * per + k], &s->stat[i * per + k]);
        } else {
            s->bucket[out] = s->bucket[i];
            s->bucket[out].key = key;
            memmove(&s->stat[out * per], &s->stat[i * per], per * sizeof *s->stat);
            out++;
        }
    }
    s->n = out;
    s->size *= 2;
}

/* Drops the buckets before `from`; a bucket that contains `from` remains complete. */
static void drop_buckets_before(bt_stream *s, int64_t from) {
    size_t k = 0, per = (size_t)s->n_metrics;
    while (k < s->n && s->bucket[k].step < from) k++;
    if (k == 0) return;
    rewrite_all_points(s);
    memmove(s->bucket, s->bucket + k, (s->n - k) * sizeof *s->bucket);
    memmove(s->stat, s->stat + k * per, (s->n - k) * per * sizeof *s->stat);
    s->n -= k;
}

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct reading {
    bt_stream *s;
    bt_err *err;
    bt_code code;
    double created_us;
} reading;

/* Returns the bucket of a step, or opens it; NULL: out of memory. */
static bt_bucket *find_or_open_bucket(reading *r, int64_t step) {
    bt_stream *s = r->s;
    int64_t key = step / s->size;
    size_t per = (size_t)s->n_metrics;
    if (s->n == 0 || s->bucket[s->n - 1].key != key) {
        size_t cap_stat = s->cap * per, cap = s->cap;
        r->code = BT_GROW(s->stat, cap_stat, (s->n + 1) * per, r->err);
        if (r->code == BT_OK) r->code = BT_GROW(s->bucket, cap, s->n + 1, r->err);
        if (r->code != BT_OK) return NULL;
        s->cap = cap_stat / per < cap ? cap_stat / per : cap;
        s->bucket[s->n] = (bt_bucket){.key = key};
        memset(&s->stat[s->n * per], 0, per * sizeof *s->stat);
        s->n++;
    }
    return &s->bucket[s->n - 1];
}

/* Columns: step, tokens, time_s, step_ms, bytes_wire, then the metrics. */
static bool add_series_row(void *ctx, const double *col, int n) {
    reading *r = ctx;
    bt_stream *s = r->s;
    int64_t step = (int64_t)col[0];
    size_t per = (size_t)s->n_metrics;
    bt_bucket *b = find_or_open_bucket(r, step);
    if (!b) return false;
    s->active_s += isnan(col[3]) ? 0 : col[3] / 1e3;
    s->bytes += isnan(col[4]) ? 0 : col[4];
    b->step = step;
    b->rows++;
    b->tokens = col[1];
    b->time_s = col[2];
    b->active_s = s->active_s;
    b->bytes = s->bytes;
    for (int k = 0; k < s->n_metrics && 5 + k < n; k++)
        add_value_to_stat(&s->stat[(s->n - 1) * per + (size_t)k], col[5 + k], step);
    return true;
}

static bt_code stream_query(bt_stream *s, bt_err *err) {
    bt_text text, *sql = &text;
    if (s->sql) return BT_OK;
    bt_text_init(sql);
    if (s->rank < 0) {
        bt_text_put(sql, "SELECT step, tokens, time_s, step_ms, bytes_wire");
        for (int k = 0; k < s->n_metrics; k++)
            bt_text_printf(sql, ", \"%s\"", bt_step_metrics[s->metric[k]].key);
        bt_text_put(sql, " FROM steps WHERE run = ?1 AND step BETWEEN ?2 AND ?3 ORDER BY step");
    } else {
        bt_text_put(sql, "SELECT k.step, s.tokens, s.time_s, k.step_ms, k.bytes_wire");
        for (int k = 0; k < s->n_metrics; k++)
            bt_text_printf(sql, ", k.\"%s\"", bt_rank_metrics[s->metric[k]].key);
        bt_text_put(
            sql, " FROM rank_steps k LEFT JOIN steps s ON s.run = ?1 AND s.step = k.step"
                 " WHERE k.run = ?1 AND k.step BETWEEN ?2 AND ?3 AND k.rank = ?4 ORDER BY k.step");
    }
    return bt_view_sql(&s->sql, sql, err);
}

/* Adds many steps from the writer's summaries, which are as exact as the rows. */
static bool add_series_block(void *ctx, const bt_block *k) {
    reading *r = ctx;
    bt_stream *s = r->s;
    if (s->rank >= k->n_ranks) return true;
    const bt_block_stat *v = s->rank < 0 ? k->steps : k->ranks + (size_t)s->rank * BT_MR_COUNT;
    bt_bucket *b = find_or_open_bucket(r, k->step0);
    if (!b) return false;
    s->active_s += v[s->rank < 0 ? (int)BT_MS_STEP_TIME : (int)BT_MR_STEP_TIME].sum / 1e3;
    s->bytes += v[s->rank < 0 ? (int)BT_MS_BYTES_WIRE : (int)BT_MR_BYTES_WIRE].sum;
    b->step = k->step1;
    b->rows += (int64_t)k->wall_us.n;
    b->tokens = k->steps[BT_MS_TOKENS].last;
    b->time_s = (k->wall_us.last - r->created_us) / 1e6;
    b->active_s = s->active_s;
    b->bytes = s->bytes;
    for (int i = 0; i < s->n_metrics; i++) {
        const bt_block_stat *m = &v[s->metric[i]];
        merge_stats(&s->stat[(s->n - 1) * (size_t)s->n_metrics + (size_t)i],
                    &(bt_stat){.first = m->first,
                               .last = m->last,
                               .min = m->min,
                               .max = m->max,
                               .sum = m->sum,
                               .n = (int64_t)m->n,
                               .last_step = k->step1,
                               .min_step = k->step1,
                               .max_step = k->step1,
                               .lost = m->n > 0 ? 0 : k->step0 + 1,
                               .near = true});
    }
    return true;
}

enum { LONG_STRETCH = 8192 };

static bt_code stream_blocks(bt_view *v, bt_stream *s, int64_t to, bt_err *err) {
    double created_s;
    reading r = {.s = s, .err = err};
    bt_blocks_request ask = {
        .run = s->run, .step0 = s->next, .step1 = to, .max_steps = s->size, .ranks = s->rank >= 0};
    BT_TRY(bt_db_value(v->impl->db, "SELECT started_s FROM runs WHERE run = ?1", s->run, &created_s,
                       err));
    r.created_us = created_s * 1e6;
    /* The smallest blocks contain only means of ranks. */
    if (s->rank >= 0 && s->size < 256) s->exact = false;
    bt_code code = bt_blocks_walk(v->impl->db, &ask, add_series_block, &r, err);
    if (code == BT_OK) code = r.code;
    if (code == BT_OK) s->next = to + 1;
    return code;
}

/* Reads steps next..to, or the first steps of each bucket if the range is too long to be read completely. */
static bt_code read_metric_stream(bt_view *v, bt_stream *s, int64_t to, bt_err *err) {
    if (to < s->next) return BT_OK;
    if (to - s->next >= LONG_STRETCH && s->size >= 16) return stream_blocks(v, s, to, err);
    BT_TRY(stream_query(s, err));
    reading r = {.s = s, .err = err};
    int64_t stretch = to - s->next + 1, part = s->size,
            limit = BT_VIEW_EXACT_STEPS / (s->rank < 0 ? 1 : 8);
    if (stretch > limit) {
        part = limit * s->size / stretch;
        part = part < 1 ? 1 : part;
        s->exact = s->exact && part >= s->size;
    }
    bt_code code = BT_OK;
    for (int64_t a = s->next; a <= to && code == BT_OK;) {
        int64_t end = part == s->size ? to : (a / s->size + 1) * s->size - 1,
                last = part == s->size ? to : a + part - 1;
        double args[] = {(double)a, (double)(last < to ? last : to), (double)s->rank};
        code = bt_vq_each(v->impl, s->sql, s->run, args, s->rank < 0 ? 2 : 3, add_series_row, &r,
                          err);
        if (code == BT_OK) code = r.code;
        a = end + 1;
    }
    if (code == BT_OK) s->next = to + 1;
    return code;
}

static int64_t bucket_size(int64_t steps, int columns) {
    int64_t size = 1;
    while ((steps + size - 1) / size > columns) size *= 2;
    return size;
}

static bool is_same_stream(const bt_stream *s, const bt_stream *want) {
    return s->rank == want->rank && s->ghost == want->ghost && s->n_metrics == want->n_metrics &&
           strcmp(s->run, want->run) == 0 &&
           memcmp(s->metric, want->metric, sizeof s->metric[0] * (size_t)s->n_metrics) == 0;
}

static bt_code find_or_create_stream(bt_view *v, const bt_stream *want, int64_t from, int64_t to,
                                     int columns, bt_stream **out, bt_err *err) {
    bt_view_impl *m = v->impl;
    if (!m->stream) {
        m->stream = calloc(STREAMS_MAX, sizeof *m->stream);
        if (!m->stream) return bt_fail(err, BT_NOMEM, "cannot allocate the series of the view");
    }
    bt_stream *s = NULL;
    for (size_t i = 0; i < m->n_streams && !s; i++)
        if (is_same_stream(&m->stream[i], want)) s = &m->stream[i];
    /* Evicts the least recently used streams; those of this load always fit. */
    if (!s && m->n_streams == STREAMS_MAX) {
        s = &m->stream[0];
        for (size_t i = 1; i < m->n_streams; i++)
            if (m->stream[i].used < s->used) s = &m->stream[i];
        bt_view_stream_release(s);
    } else if (!s) {
        s = &m->stream[m->n_streams++];
    }
    s->used = m->loads;
    int64_t size = bucket_size(to - from + 1, columns);
    bool usable = s->n > 0 && s->n_attempts == want->n_attempts && s->from <= from &&
                  s->next <= to + 1 && s->size <= size && s->next > from;
    if (!usable) {
        const bt_stream old = *s;
        *s = *want;
        s->bucket = old.bucket;
        s->stat = old.stat;
        s->cap = old.cap;
        if (is_same_stream(&old, want))
            s->sql = old.sql;
        else
            free(old.sql);
        s->shown = old.shown;
        s->shown_int = old.shown_int;
        s->columns = old.n_metrics == want->n_metrics ? old.columns : 0;
        s->used = old.used;
        s->from = s->next = from;
        s->size = size;
        s->exact = true;
    }
    while (s->size < size) halve_resolution(s);
    drop_buckets_before(s, from);
    s->from = from;
    *out = s;
    return read_metric_stream(v, s, to, err);
}

/* ---- into the public arrays ------------------------------------------------------------------ */

static double x_of_bucket(const bt_bucket *b, bt_x_axis x) {
    switch (x) {
    case BT_X_TOKENS: return b->tokens;
    case BT_X_WALL: return b->time_s;
    case BT_X_ACTIVE: return b->active_s;
    case BT_X_BYTES: return b->bytes;
    default: return (double)b->step;
    }
}

/* Allocates `columns` buckets for every metric. */
static bt_code reserve_points(bt_stream *s, size_t columns, bt_err *err) {
    if (s->columns == columns) return BT_OK;
    size_t n = (size_t)s->n_metrics * columns;
    rewrite_all_points(s);
    s->columns = 0;
    double *values = realloc(s->shown, n * VALUES * sizeof *values);
    if (values) s->shown = values;
    int64_t *ints = values ? realloc(s->shown_int, n * INTS * sizeof *ints) : NULL;
    if (!ints) return bt_fail(err, BT_NOMEM, "cannot hold %zu values of the view", n);
    s->shown_int = ints;
    s->columns = columns;
    return BT_OK;
}

static void write_extremes(const bt_stream *s, size_t k, bt_view_series *out) {
    const int64_t *least = s->shown_int + k * INTS * s->columns + 2 * s->columns,
                  *most = least + s->columns;
    size_t a = out->n, b = out->n;
    for (size_t i = 0; i < out->n; i++) {
        if (isnan(out->min[i])) continue;
        if (a == out->n || out->min[i] < out->min[a]) a = i, out->least_step = least[i];
        if (b == out->n || out->max[i] > out->max[b]) b = i, out->most_step = most[i];
    }
}

/* Returns the first of the final steps that lack the metric; -1: the last step has it, or no step has it. */
static int64_t find_lost_step(const bt_stream *s, size_t k) {
    int64_t lost = 0;
    for (size_t i = s->n; i-- > 0;) {
        const bt_stat *t = &s->stat[i * (size_t)s->n_metrics + k];
        if (t->lost) lost = t->lost;
        if (t->n > 0) return lost - 1;
    }
    return -1;
}

static bool has_approximate_steps(const bt_stream *s, size_t k) {
    for (size_t i = 0; i < s->n; i++)
        if (s->stat[i * (size_t)s->n_metrics + k].near) return true;
    return false;
}

/* Points of a sparse line belong to evaluations, of which summaries contain only the step range. */
static bt_code place_evaluations(bt_view *v, bt_stream *s, size_t k, size_t n, bt_x_axis axis,
                                 bt_err *err) {
    double *x = s->shown + k * VALUES * s->columns;
    int64_t *step = s->shown_int + k * INTS * s->columns, *count = step + s->columns,
            *least = step + 2 * s->columns, *most = step + 3 * s->columns;
    size_t n_at, a = 0;
    BT_TRY(bt_view_evaluated_steps(v, s->run, &n_at, err));
    const double *at = v->impl->work;
    for (size_t i = 0; i < n; i++) {
        const double before = i > 0 ? (double)step[i - 1] : -1;
        while (a < n_at && at[a] <= (double)step[i]) a++;
        if (count[i] == 0 || a == 0 || at[a - 1] <= before) continue;
        step[i] = (int64_t)at[a - 1];
        if (axis == BT_X_STEP) x[i] = at[a - 1];
        if (count[i] == 1) least[i] = most[i] = step[i];
    }
    return BT_OK;
}

/* Only the newest bucket may still grow, so all other buckets are written once. A metric that most buckets lack
 * (validation loss) is a sparse line; one that a few lack has gaps of NaN. */
static void write_points(bt_stream *s, bt_x_axis axis, size_t k, bt_view_series *out) {
    size_t per = (size_t)s->n_metrics, cap = s->columns, from = s->settled, with = s->filled[k];
    double *x = s->shown + k * VALUES * cap, *first = x + cap, *last = x + 2 * cap,
           *min = x + 3 * cap, *max = x + 4 * cap, *mean = x + 5 * cap;
    int64_t *step = s->shown_int + k * INTS * cap, *count = step + cap, *least = step + 2 * cap,
            *most = step + 3 * cap;
    for (size_t i = from; i < s->n; i++) with += s->stat[i * per + k].n > 0;
    bool skip = with * 2 < s->n;
    if (skip != s->skip[k]) from = 0;
    size_t n = from == 0 ? 0 : skip ? s->filled[k] : from;
    n = n < cap ? n : cap;
    s->skip[k] = skip;
    const bool few = bt_view_few_steps(s, k);
    for (size_t i = from; i < s->n; i++) {
        const bt_stat *t = &s->stat[i * per + k];
        if ((t->n == 0 && skip) || n == cap) continue;
        bool none = t->n == 0;
        x[n] = x_of_bucket(&s->bucket[i], axis);
        first[n] = none ? NAN : t->first;
        last[n] = none ? NAN : t->last;
        min[n] = none ? NAN : t->min;
        max[n] = none ? NAN : t->max;
        mean[n] = none ? NAN : t->sum / (double)t->n;
        step[n] = few && !none ? t->last_step : s->bucket[i].step;
        if (axis == BT_X_STEP) x[n] = (double)step[n];
        count[n] = t->n;
        least[n] = t->min_step;
        most[n] = t->max_step;
        n++;
    }
    s->filled[k] = with - (s->n > 0 && s->stat[(s->n - 1) * per + k].n > 0 ? 1 : 0);
    *out = (bt_view_series){.what = {s->rank, s->metric[k]},
                            .n = n,
                            .x = x,
                            .first = first,
                            .last = last,
                            .min = min,
                            .max = max,
                            .mean = mean,
                            .step = step,
                            .count = count,
                            .exact = s->exact,
                            .least_step = -1,
                            .most_step = -1,
                            .lost_step = few ? -1 : find_lost_step(s, k),
                            .start = NAN,
                            .end = NAN};
    write_extremes(s, k, out);
    const bt_metric *metric = s->rank < 0 ? &bt_step_metrics[s->metric[k]]
                                          : &bt_rank_metrics[s->metric[k]];
    out->key = metric->key;
    out->unit = metric->unit;
}

static bt_code read_run_attempts(bt_view *v, const char *run, int *n, int64_t *newest,
                                 bt_err *err) {
    double x[2];
    BT_TRY(bt_vq_row(v->impl, "SELECT attempts, steps FROM runs WHERE run = ?1", run, NULL, 0, x, 2,
                     err));
    *n = isnan(x[0]) ? 0 : (int)x[0];
    *newest = isnan(x[1]) ? -1 : (int64_t)x[1] - 1;
    return BT_OK;
}

/* one stream per requested rank (-1: whole steps) */
static bt_code load_run_series(bt_view *v, const bt_view_request *ask, const char *run,
                               int n_attempts, int64_t from, int64_t to, bool ghost, bt_err *err) {
    int columns = ask->columns > 0 ? ask->columns : 256;
    bool done[BT_VIEW_SERIES_MAX] = {false};
    for (int i = 0; i < ask->n_series; i++) {
        if (done[i]) continue;
        bt_stream want = {.rank = ask->series[i].rank, .n_attempts = n_attempts, .ghost = ghost};
        int index[BT_VIEW_SERIES_MAX];
        strncpy(want.run, run, sizeof want.run - 1);
        for (int k = i; k < ask->n_series; k++) {
            if (done[k] || ask->series[k].rank != want.rank) continue;
            done[k] = true;
            index[want.n_metrics] = k;
            want.metric[want.n_metrics++] = ask->series[k].metric;
        }
        bt_stream *s = NULL;
        BT_TRY(find_or_create_stream(v, &want, from, to, columns, &s, err));
        BT_TRY(reserve_points(s, (size_t)columns + 2, err));
        if (s->x != v->x) rewrite_all_points(s);
        s->x = v->x;
        for (int k = 0; k < want.n_metrics; k++) {
            bt_view_series *out = &v->series[(ghost ? ask->n_series : 0) + index[k]];
            write_points(s, v->x, (size_t)k, out);
            const bool near = want.rank < 0 && has_approximate_steps(s, (size_t)k);
            if (near && bt_view_few_steps(s, (size_t)k)) {
                BT_TRY(place_evaluations(v, s, (size_t)k, out->n, v->x, err));
                write_extremes(s, (size_t)k, out);
            }
            out->ghost = ghost;
            if (ask->ends && want.rank < 0)
                BT_TRY(bt_view_series_ends(v, run, (const int64_t[]){from, to}, out, near, err));
            bt_view_usual_range(out, &out->low, &out->high);
        }
        s->settled = s->n > 0 ? s->n - 1 : 0;
    }
    return BT_OK;
}

bt_code bt_view_load_series(bt_view *v, const bt_view_request *ask, bt_err *err) {
    bt_view_impl *m = v->impl;
    int64_t from = 0, to = -1;
    v->n_series = 0;
    v->x = ask->x;
    BT_TRY(bt_view_range(v, ask, &from, &to, err));
    if (to < from || ask->n_series == 0) return BT_OK;
    BT_TRY(load_run_series(v, ask, ask->run, m->n_attempts, from, to, false, err));
    v->n_series = ask->n_series;
    if (ask->baseline) {
        int attempts;
        int64_t newest;
        BT_TRY(read_run_attempts(v, ask->baseline, &attempts, &newest, err));
        if (newest >= 0) {
            BT_TRY(load_run_series(v, ask, ask->baseline, attempts, 0, newest, true, err));
            v->n_series = 2 * ask->n_series;
        }
    }
    return BT_OK;
}

/* ---- time and steps -------------------------------------------------------------------------- */

/* Returns time_s of the first recorded step at or after this one. Steps are recorded every N-th time, so the
 * searched range grows. */
static bt_code find_time_at_step(bt_view *v, const char *run, int64_t step, int64_t last,
                                 double out[2], bt_err *err) {
    out[0] = out[1] = NAN;
    for (int64_t width = 1; step <= last; step += width, width *= 16) {
        double args[] = {(double)step, (double)(step + width - 1)};
        BT_TRY(bt_vq_row(v->impl,
                         "SELECT time_s, step FROM steps WHERE run = ?1 AND step BETWEEN ?2 AND ?3 "
                         "ORDER BY step LIMIT 1",
                         run, args, 2, out, 2, err));
        if (!isnan(out[0])) break;
    }
    return BT_OK;
}

bt_code bt_view_step_at(bt_view *v, const char *run, double time_s, int64_t *out, bt_err *err) {
    int attempts;
    int64_t newest, lo = 0;
    double x[2];
    *out = -1;
    BT_TRY(read_run_attempts(v, run, &attempts, &newest, err));
    int64_t hi = newest;
    while (lo <= hi) { /* time grows with the step, so this is a binary search */
        int64_t mid = lo + (hi - lo) / 2;
        BT_TRY(find_time_at_step(v, run, mid, newest, x, err));
        if (!isnan(x[0]) && x[0] <= time_s) {
            *out = (int64_t)x[1];
            lo = (int64_t)x[1] + 1;
        } else {
            hi = mid - 1;
        }
    }
    return BT_OK;
}

double bt_view_time_of(bt_view *v, const char *run, int64_t step) {
    double x[2];
    bt_err err = BT_ERR_INIT;
    return step >= 0 && find_time_at_step(v, run, step, step + 4096, x, &err) == BT_OK ? x[0] : NAN;
}

bt_requested_range bt_view_requested_range(const bt_view_request *ask) {
    return (bt_requested_range){ask->span_s, ask->step0, ask->step1};
}

bool bt_view_range_same(const bt_requested_range *a, const bt_requested_range *b) {
    return a->span_s == b->span_s && a->step0 == b->step0 && a->step1 == b->step1;
}

bt_code bt_view_range(bt_view *v, const bt_view_request *ask, int64_t *from, int64_t *to,
                      bt_err *err) {
    bt_view_impl *m = v->impl;
    *from = 0;
    *to = m->at_step;
    if (ask->step1 > 0) {
        *from = ask->step0 > 0 ? ask->step0 : 0;
        if (ask->step1 < *to) *to = ask->step1;
        return BT_OK;
    }
    if (!(ask->span_s > 0) || m->at_step < 0) return BT_OK;
    double now = bt_view_time_of(v, m->run, m->at_step);
    if (isnan(now) || now <= ask->span_s) return BT_OK;
    BT_TRY(bt_view_step_at(v, m->run, now - ask->span_s, from, err));
    *from = *from < 0 ? 0 : *from + 1 > *to ? *to : *from + 1;
    return BT_OK;
}

bt_code bt_view_event_step(bt_view *v, const char *run, int64_t step, int dir, int64_t *out,
                           bt_err *err) {
    double args[] = {(double)step}, x;
    BT_TRY(bt_vq_row(v->impl,
                     dir < 0 ? "SELECT max(step) FROM events WHERE run = ?1 AND step < ?2"
                             : "SELECT min(step) FROM events WHERE run = ?1 AND step > ?2",
                     run, args, 1, &x, 1, err));
    *out = isnan(x) ? -1 : (int64_t)x;
    return BT_OK;
}

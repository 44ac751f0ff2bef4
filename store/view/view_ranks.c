/* view_ranks.c - finds slow ranks and their cause: statistics of the newest sampled steps,
 * blame, phase at fault, what-if. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/tables/derived.h"
#include "store/view/view_impl.h"

enum { BLOCKS = 8, ROWS_MAX = 131072 };

/* ---- the window of rows ---------------------------------------------------------------------- */

typedef struct reading {
    bt_view_impl *m;
    bt_err *err;
    bt_code code;
} reading;

static bool add_rank_step_row(void *ctx, const double *col, int n) {
    reading *r = ctx;
    bt_view_impl *m = r->m;
    r->code = BT_GROW(m->row, m->cap_rows, m->n_rows + 1, r->err);
    if (r->code != BT_OK || n < 2 + BT_MR_COUNT) return false;
    bt_rank_row *x = &m->row[m->n_rows++];
    x->step = (int64_t)col[0];
    x->rank = (int)col[1];
    memcpy(x->v, col + 2, sizeof x->v);
    return true;
}

static bt_code rank_query(bt_view_impl *m, bt_err *err) {
    bt_text sql;
    if (m->rank_sql) return BT_OK;
    bt_text_init(&sql);
    bt_text_put(&sql, "SELECT step, rank");
    for (int i = 0; i < BT_MR_COUNT; i++) bt_text_printf(&sql, ", \"%s\"", bt_rank_metrics[i].key);
    bt_text_put(&sql,
                " FROM rank_steps WHERE run = ?1 AND step BETWEEN ?2 AND ?3 ORDER BY step, rank");
    return bt_view_sql(&m->rank_sql, &sql, err);
}

static bt_code read_rank_rows(bt_view *v, int64_t from, int64_t to, bt_err *err) {
    reading r = {v->impl, err, BT_OK};
    double args[] = {(double)from, (double)to};
    bt_code code = bt_vq_each(v->impl, v->impl->rank_sql, v->impl->run, args, 2, add_rank_step_row,
                              &r, err);
    return code == BT_OK ? r.code : code;
}

static void clear_rank_cache(bt_view_impl *m) {
    m->n_rows = m->row_first = m->n_judged = m->judged_first = 0;
}

static size_t sampled_steps(const bt_view_impl *m) {
    size_t n = 0;
    for (size_t i = 0; i < m->n_rows; i++) n += i == 0 || m->row[i].step != m->row[i - 1].step;
    return n;
}

bt_code bt_view_rank_window(bt_view *v, int64_t to, int window, bt_err *err) {
    bt_view_impl *m = v->impl;
    bool follows = m->row_window == window && m->n_rows > 0 && to >= m->row_to &&
                   to - m->row_to < 4 * window;
    BT_TRY(rank_query(m, err));
    bt_code code = BT_OK;
    if (follows) {
        if (to > m->row_to) code = read_rank_rows(v, m->row_to + 1, to, err);
    } else {
        /* Ranks may be sampled every N-th step only. */
        for (int64_t width = window; code == BT_OK; width *= 8) {
            int64_t from = to - width + 1 > 0 ? to - width + 1 : 0;
            clear_rank_cache(m);
            code = read_rank_rows(v, from, to, err);
            if (from == 0 || sampled_steps(m) >= (size_t)(window / 8) || width > 1000000) break;
        }
    }
    if (code != BT_OK) clear_rank_cache(m);
    m->row_window = window;
    m->row_to = to;
    return code;
}

/* Keeps the last `window` steps and occasionally moves them to the front of the array. */
static void keep_last_judged_steps(bt_view_impl *m, size_t window) {
    for (; m->n_judged - m->judged_first > window; m->judged_first++)
        m->row_first += m->judged[m->judged_first].rows;
    if (m->judged_first < 2 * window) return;
    m->n_rows -= m->row_first;
    m->n_judged -= m->judged_first;
    memmove(m->row, m->row + m->row_first, m->n_rows * sizeof *m->row);
    memmove(m->judged, m->judged + m->judged_first, m->n_judged * sizeof *m->judged);
    m->row_first = m->judged_first = 0;
}

/* ---- identities of the ranks ----------------------------------------------------------------- */

typedef struct naming {
    bt_view_ranks *r;
    bt_view_impl *m;
    bt_err *err;
    bt_code code;
    int attempt;
} naming;

static bt_code reserve_rank(bt_view_impl *m, bt_view_ranks *r, int rank, bt_view_rank **out,
                            bt_err *err) {
    if (rank < 0 || rank > 1000000)
        return bt_fail(err, BT_FORMAT, "metrics database has the impossible rank %d", rank);
    while (r->n <= (size_t)rank) {
        BT_TRY(BT_GROW(r->rank, m->cap_ranks, r->n + 1, err));
        r->rank[r->n] = (bt_view_rank){.rank = (int)r->n,
                                       .fault = BT_PHASE_COUNT,
                                       .since_step = -1,
                                       .busy_p50_ms = NAN,
                                       .step_p50_ms = NAN,
                                       .step_p95_ms = NAN,
                                       .step_p99_ms = NAN,
                                       .step_max_ms = NAN,
                                       .wait_p50_ms = NAN,
                                       .score = NAN,
                                       .score_own = NAN,
                                       .blame_frac = NAN,
                                       .fault_frac = NAN,
                                       .excess_ms = NAN,
                                       .what_if_ms = NAN,
                                       .late_p50_ms = NAN,
                                       .late_p95_ms = NAN,
                                       .rss_peak_mib = NAN,
                                       .cpu_frac = NAN};
        for (int k = 0; k < BT_MR_COUNT; k++) r->rank[r->n].mean[k] = NAN;
        r->n++;
    }
    if (out) *out = &r->rank[rank];
    return BT_OK;
}

static bool take_rank_identity(void *ctx, const bt_row *row) {
    naming *x = ctx;
    bt_view_rank *k = NULL;
    x->attempt = (int)bt_whole(row->nums[9], -1);
    x->code = reserve_rank(x->m, x->r, (int)bt_whole(row->nums[0], 0), &k, x->err);
    if (x->code != BT_OK) return false;
    bt_text_plain(k->host, sizeof k->host, row->cells[1] ? row->cells[1] : "");
    bt_text_plain(k->isa, sizeof k->isa, row->cells[2] ? row->cells[2] : "");
    k->pid = (int)bt_whole(row->nums[3], 0);
    k->threads = (int)bt_whole(row->nums[4], 0);
    k->pp = (int)bt_whole(row->nums[5], 0);
    k->dp_replicate = (int)bt_whole(row->nums[6], 0);
    k->dp_shard = (int)bt_whole(row->nums[7], 0);
    k->tp = (int)bt_whole(row->nums[8], 0);
    return true;
}

/* Displayed steps may belong to an older attempt. The identities are complete when all ranks have reported. */
static bt_code load_rank_names(bt_view *v, bt_err *err) {
    bt_view_impl *m = v->impl;
    bt_view_ranks *r = &v->ranks;
    const char *run = m->run;
    if (m->n_named > 0 && m->n_named == (size_t)v->head.world_size) {
        BT_TRY(BT_GROW(r->rank, m->cap_ranks, m->n_named, err));
        memcpy(r->rank, m->named, m->n_named * sizeof *r->rank);
        r->n = m->n_named;
        return BT_OK;
    }
    naming x = {r, m, err, BT_OK, -1};
    m->n_named = 0;
    BT_TRY(bt_vq_rows(m,
                      "SELECT rank, host, isa, pid, threads, pp, dp_replicate, dp_shard, tp, "
                      "attempt FROM "
                      "ranks WHERE run = ?1 AND attempt = "
                      "(SELECT max(attempt) FROM ranks WHERE run = ?1) ORDER BY rank",
                      run, NULL, 0, take_rank_identity, &x, err));
    /* Keeps the ranks of the previous attempt until those of the new one are recorded. */
    if (x.code != BT_OK || r->n == 0 || x.attempt != m->attempt) return x.code;
    BT_TRY(BT_GROW(m->named, m->cap_named, r->n, err));
    memcpy(m->named, r->rank, r->n * sizeof *r->rank);
    m->n_named = r->n;
    return BT_OK;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static double zero_if_nan(double x) { return isnan(x) ? 0 : x; }
static double busy_ms_of_row(const bt_rank_row *r) {
    return bt_derived_busy(r->v[BT_MR_STEP_TIME], r->v[BT_MR_WAIT]);
}

/* Returns the phase of `row` with the largest excess over the ranks' median. */
static bt_phase phase_at_fault(const bt_rank_row *row, const bt_rank_row *rows, size_t n,
                               double *work) {
    bt_phase worst = BT_PHASE_COUNT;
    double most = 0;
    for (int p = 0; p < BT_PHASE_COUNT; p++) {
        if (p == BT_PH_WAIT) continue;
        for (size_t i = 0; i < n; i++) work[i] = zero_if_nan(rows[i].v[bt_phases[p].metric]);
        double excess = zero_if_nan(row->v[bt_phases[p].metric]) - bt_lower_median(work, n);
        if (excess > most) most = excess, worst = (bt_phase)p;
    }
    return worst;
}

/* Returns the time saved in the step if the ranks in `out` had the median busy time. */
static double saved_ms_in_step(const bt_rank_row *rows, size_t n, const bool *out, double *work) {
    for (size_t i = 0; i < n; i++) work[i] = rows[i].busy;
    double median = bt_lower_median(work, n), before = 0, after = 0;
    for (size_t i = 0; i < n; i++) {
        double b = rows[i].busy;
        before = fmax(before, b);
        after = fmax(after, out[rows[i].rank] ? fmin(b, median) : b);
    }
    return before - after;
}

static void blame_step(bt_rank_step_stats *j, const bt_rank_row *rows, size_t n, double *work) {
    size_t last = 0;
    double least = INFINITY, second = INFINITY;
    for (size_t i = 0; i < n; i++) {
        double w = zero_if_nan(rows[i].v[BT_MR_WAIT]);
        if (w < least || (w <= least && rows[i].busy > rows[last].busy))
            second = least, least = w, last = i;
        else
            second = fmin(second, w);
    }
    if (n < 2 || !(second - least > 0)) return;
    j->amount = second - least;
    j->blamed = rows[last].rank;
    j->fault = phase_at_fault(&rows[last], rows, n, work);
}

/* Computes for each rank by how much the step would be shorter without the excess of this rank: in O(n), from the two
 * largest busy times. */
static void compute_saved_times(bt_rank_row *rows, size_t n, double *work) {
    double first = -INFINITY, second = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        double b = work[i] = rows[i].busy;
        if (b > first)
            second = first, first = b;
        else
            second = fmax(second, b);
    }
    double median = bt_lower_median(work, n);
    if (n == 1) second = median;
    for (size_t i = 0; i < n; i++) {
        double b = rows[i].busy, after = fmax(b >= first ? second : first, fmin(b, median));
        rows[i].saved = first - after;
    }
}

/* Statistics of one step do not depend on later steps. */
static void evaluate_step(bt_rank_step_stats *j, bt_rank_row *rows, size_t n, double *work) {
    *j = (bt_rank_step_stats){
        .step = rows[0].step, .rows = n, .blamed = -1, .fault = BT_PHASE_COUNT};
    for (size_t i = 0; i < n; i++) {
        double wait = zero_if_nan(rows[i].v[BT_MR_WAIT]),
               step = zero_if_nan(rows[i].v[BT_MR_STEP_TIME]);
        rows[i].busy = busy_ms_of_row(&rows[i]);
        j->slowest = fmax(j->slowest, step);
        j->skew = fmax(j->skew, wait);
        j->mean_ms += step / (double)n;
        for (int p = 0; p < BT_PHASE_COUNT; p++)
            j->phase_ms[p] += zero_if_nan(rows[i].v[bt_phases[p].metric]) / (double)n;
    }
    for (size_t i = 0; i < n; i++) rows[i].late = j->skew - zero_if_nan(rows[i].v[BT_MR_WAIT]);
    blame_step(j, rows, n, work);
    compute_saved_times(rows, n, work);
}

static bt_code evaluate_new_steps(bt_view_impl *m, size_t n_ranks, bt_err *err) {
    BT_TRY(BT_GROW(m->work, m->cap_work, n_ranks + 16, err));
    BT_TRY(BT_GROW(m->at_median, m->cap_at_median, n_ranks + 16, err));
    size_t a = m->row_first;
    for (size_t i = m->judged_first; i < m->n_judged; i++) a += m->judged[i].rows;
    for (size_t b; a < m->n_rows; a = b) {
        for (b = a; b < m->n_rows && m->row[b].step == m->row[a].step; b++) {}
        BT_TRY(BT_GROW(m->judged, m->cap_judged, m->n_judged + 1, err));
        evaluate_step(&m->judged[m->n_judged++], m->row + a, b - a, m->work);
    }
    return BT_OK;
}

double bt_view_what_if(const bt_view *v, const int *ranks, size_t n) {
    const bt_view_impl *m = v->impl;
    if (m->n_rows == 0 || v->ranks.n == 0) return NAN;
    double saved = 0;
    size_t steps = m->n_judged - m->judged_first, a = m->row_first;
    memset(m->at_median, 0, v->ranks.n * sizeof *m->at_median);
    for (size_t i = 0; i < n; i++)
        if (ranks[i] >= 0 && (size_t)ranks[i] < v->ranks.n) m->at_median[ranks[i]] = true;
    for (size_t i = m->judged_first; i < m->n_judged; a += m->judged[i++].rows)
        saved += saved_ms_in_step(m->row + a, m->judged[i].rows, m->at_median, m->work);
    return v->ranks.step_ms - saved / (double)steps;
}

/* ---- one rank over the window ---------------------------------------------------------------- */

/* Rows grouped by rank, in step order: rank k has row[start[k]] .. row[start[k + 1] - 1]. */
typedef struct grouped {
    const bt_rank_row **row;
    size_t *start;
} grouped;

static bt_code group_rows_by_rank(const bt_view_impl *m, size_t n_ranks, grouped *g, bt_err *err) {
    g->row = malloc((m->n_rows - m->row_first + 1) * sizeof(*g->row));
    g->start = calloc(n_ranks + 2, sizeof *g->start);
    if (!g->row || !g->start)
        return bt_fail(err, BT_NOMEM, "cannot evaluate %zu ranks: out of memory", n_ranks);
    for (size_t i = m->row_first; i < m->n_rows; i++) g->start[m->row[i].rank + 2]++;
    for (size_t k = 2; k < n_ranks + 2; k++) g->start[k] += g->start[k - 1];
    for (size_t i = m->row_first; i < m->n_rows; i++)
        g->row[g->start[m->row[i].rank + 1]++] = &m->row[i];
    return BT_OK;
}

static void release_grouped_rows(grouped *g) {
    free(g->row);
    free(g->start);
}

static size_t rank_metric_column(const grouped *g, int rank, int metric, double *out) {
    size_t n = 0;
    for (size_t i = g->start[rank]; i < g->start[rank + 1]; i++) {
        double x = g->row[i]->v[metric];
        if (!isnan(x)) out[n++] = x;
    }
    return n;
}

static size_t collect_busy_times(const grouped *g, int rank, int64_t first, int64_t last,
                                 double *out) {
    size_t n = 0;
    for (size_t i = g->start[rank]; i < g->start[rank + 1]; i++)
        if (g->row[i]->step >= first && g->row[i]->step <= last && !isnan(g->row[i]->busy))
            out[n++] = g->row[i]->busy;
    return n;
}

static void average_rank_metrics(const grouped *g, bt_view_rank *k) {
    double sum[BT_MR_COUNT] = {0}, n[BT_MR_COUNT] = {0};
    for (size_t i = g->start[k->rank]; i < g->start[k->rank + 1]; i++) {
        const double *v = g->row[i]->v;
        for (int c = 0; c < BT_MR_COUNT; c++) {
            bool none = isnan(v[c]);
            sum[c] += none ? 0 : v[c];
            n[c] += none ? 0 : 1;
        }
    }
    for (int c = 0; c < BT_MR_COUNT; c++) k->mean[c] = n[c] > 0 ? sum[c] / n[c] : NAN;
}

static void measure_rank(const grouped *m, bt_view_rank *k, double *work) {
    average_rank_metrics(m, k);
    size_t n = rank_metric_column(m, k->rank, BT_MR_STEP_TIME, work);
    k->n = n;
    bt_sort_doubles(work, n);
    k->step_p50_ms = bt_quantile(work, n, 0.50);
    k->step_p95_ms = bt_quantile(work, n, 0.95);
    k->step_p99_ms = bt_quantile(work, n, 0.99);
    k->step_max_ms = n ? work[n - 1] : NAN;
    n = rank_metric_column(m, k->rank, BT_MR_WAIT, work);
    k->wait_p50_ms = bt_lower_median(work, n);
    n = collect_busy_times(m, k->rank, INT64_MIN, INT64_MAX, work);
    k->busy_p50_ms = bt_lower_median(work, n);
    n = rank_metric_column(m, k->rank, BT_MR_RSS, work);
    for (size_t j = 0; j < n; j++) k->rss_peak_mib = fmax(k->rss_peak_mib, work[j]);
    k->cpu_frac = bt_derived_cpu_share(k->mean[BT_MR_CPU], k->mean[BT_MR_STEP_TIME], k->threads);
}

static void measure_arrivals(bt_view *v, const grouped *g, double *work) {
    bt_view_ranks *r = &v->ranks;
    const bt_view_impl *m = v->impl;
    size_t steps = 0;
    for (size_t i = m->judged_first; i < m->n_judged; i++) work[steps++] = m->judged[i].skew;
    bt_sort_doubles(work, steps);
    r->skew_p50_ms = bt_quantile(work, steps, 0.50);
    r->skew_p95_ms = bt_quantile(work, steps, 0.95);
    for (size_t k = 0; k < r->n; k++) {
        size_t n = 0;
        for (size_t i = g->start[k]; i < g->start[k + 1]; i++) work[n++] = g->row[i]->late;
        bt_sort_doubles(work, n);
        r->rank[k].late_p50_ms = bt_quantile(work, n, 0.50);
        r->rank[k].late_p95_ms = bt_quantile(work, n, 0.95);
    }
}

/* Computes medians of busy in up to BLOCKS equal parts of the window: (blocks, ranks). */
static size_t block_medians(const bt_view *v, const grouped *g, double *median, int64_t *block_step,
                            double *work) {
    const bt_rank_step_stats *j = v->impl->judged + v->impl->judged_first;
    size_t steps = v->ranks.steps, blocks = steps / 4 < BLOCKS ? steps / 4 : BLOCKS,
           n_ranks = v->ranks.n;
    for (size_t b = 0; b < blocks; b++) {
        int64_t first = block_step[b] = j[b * steps / blocks].step,
                last = j[(b + 1) * steps / blocks - 1].step;
        for (size_t k = 0; k < n_ranks; k++)
            median[b * n_ranks + k] =
                bt_lower_median(work, collect_busy_times(g, (int)k, first, last, work));
    }
    return blocks;
}

static bool is_late_now(const bt_view_rank *x) {
    return x->verdict == BT_VERDICT_STEADY || x->verdict == BT_VERDICT_BURSTY ||
           x->verdict == BT_VERDICT_NODE_WIDE || x->verdict == BT_VERDICT_CROWDED;
}

/* Ranks that are late now precede those that were late, because they need attention. */
static int compare_by_lateness_and_blame(const void *a, const void *b, void *ctx) {
    const bt_view_ranks *r = ctx;
    const bt_view_rank *x = &r->rank[*(const int *)a], *y = &r->rank[*(const int *)b];
    bool x_late = is_late_now(x), y_late = is_late_now(y);
    if (x_late != y_late) return y_late - x_late;
    double d = zero_if_nan(y->lost_s) - zero_if_nan(x->lost_s),
           e = zero_if_nan(y->busy_p50_ms) - zero_if_nan(x->busy_p50_ms);
    return d > 0 ? 1 : d < 0 ? -1 : e > 0 ? 1 : e < 0 ? -1 : x->rank - y->rank;
}

typedef struct tally {
    double blame, fault[BT_PHASE_COUNT];
    double saved; /* saved time of the what-if, summed over the steps */
} tally;

static void compute_shares_and_scores(bt_view_ranks *r, const tally *t, double *work) {
    double total = 0, best = INFINITY;
    size_t n = 0;
    for (size_t k = 0; k < r->n; k++) {
        total += t[k].blame;
        if (!isnan(r->rank[k].busy_p50_ms))
            best = fmin(best, r->rank[k].busy_p50_ms), work[n++] = r->rank[k].busy_p50_ms;
    }
    r->busy_median_ms = bt_lower_median(work, n);
    for (int i = 0; i < BT_MR_COUNT; i++) {
        n = 0;
        for (size_t k = 0; k < r->n; k++)
            if (!isnan(r->rank[k].mean[i])) work[n++] = r->rank[k].mean[i];
        r->median[i] = bt_lower_median(work, n);
    }
    for (size_t k = 0; k < r->n; k++) {
        bt_view_rank *x = &r->rank[k];
        x->score = x->busy_p50_ms > 0 ? best / x->busy_p50_ms : NAN;
        x->excess_ms = x->busy_p50_ms - r->busy_median_ms;
        x->lost_s = t[k].blame / 1e3;
        x->blame_frac = total > 0 ? t[k].blame / total : 0;
        x->what_if_ms = r->step_ms - t[k].saved / (double)(r->steps ? r->steps : 1);
        double most = 0;
        for (int p = 0; p < BT_PHASE_COUNT; p++)
            if (t[k].fault[p] > most) most = t[k].fault[p], x->fault = (bt_phase)p;
        x->fault_frac = t[k].blame > 0 ? most / t[k].blame : NAN;
        r->order[k] = (int)k;
    }
}

static void compose_rank_sentence(bt_view_rank *x) {
    char phase[64] = "", since[48] = "";
    if (x->fault < BT_PHASE_COUNT)
        snprintf(phase, sizeof phase, "; %.0f %% of its delay %s in %s", 100 * x->fault_frac,
                 x->verdict == BT_VERDICT_RECOVERING ? "was" : "is", bt_phases[x->fault].name);
    if (x->since_step >= 0)
        snprintf(since, sizeof since, " since step %lld", (long long)x->since_step + 1);
    switch (x->verdict) {
    case BT_VERDICT_STEADY:
        snprintf(x->says, sizeof x->says, "rank %d %s slow%s%s", x->rank,
                 since[0] ? "has been" : "is", since, phase);
        break;
    case BT_VERDICT_BURSTY:
        snprintf(x->says, sizeof x->says, "rank %d is slow at times%s", x->rank, phase);
        break;
    case BT_VERDICT_NODE_WIDE:
        snprintf(x->says, sizeof x->says, "all ranks of %s %s slow%s%s", x->host,
                 since[0] ? "have been" : "are", since, phase);
        break;
    case BT_VERDICT_RECOVERING:
        snprintf(x->says, sizeof x->says, "rank %d was slow and is recovering%s", x->rank, phase);
        break;
    case BT_VERDICT_CROWDED:
        snprintf(x->says, sizeof x->says, "rank %d %s slow%s; its host is overloaded", x->rank,
                 since[0] ? "has been" : "is", since);
        break;
    default: x->says[0] = 0;
    }
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void sum_up_ranks(bt_view *v, tally *t) {
    const bt_view_impl *m = v->impl;
    bt_view_ranks *r = &v->ranks;
    double step_sum = 0;
    const double steps = (double)r->steps;
    r->mean_ms = 0;
    memset(r->phase_ms, 0, sizeof r->phase_ms);
    r->ranks_least = r->ranks_most = (int)m->judged[m->judged_first].rows;
    for (size_t i = m->judged_first; i < m->n_judged; i++) {
        const bt_rank_step_stats *j = &m->judged[i];
        step_sum += j->slowest;
        r->mean_ms += j->mean_ms / steps;
        for (int p = 0; p < BT_PHASE_COUNT; p++) r->phase_ms[p] += j->phase_ms[p] / steps;
        if ((int)j->rows < r->ranks_least) r->ranks_least = (int)j->rows;
        if ((int)j->rows > r->ranks_most) r->ranks_most = (int)j->rows;
        if (j->blamed < 0) continue;
        t[j->blamed].blame += j->amount;
        if (j->fault < BT_PHASE_COUNT) t[j->blamed].fault[j->fault] += j->amount;
    }
    for (size_t i = m->row_first; i < m->n_rows; i++) t[m->row[i].rank].saved += m->row[i].saved;
    r->step_ms = step_sum / steps;
    v->head.wait_frac = r->mean_ms > 0 ? r->phase_ms[BT_PH_WAIT] / r->mean_ms : NAN;
}

static bt_code load_rank_statistics(bt_view *v, bt_err *err) {
    bt_view_impl *m = v->impl;
    bt_view_ranks *r = &v->ranks;
    size_t rows = m->n_rows - m->row_first;
    BT_TRY(BT_GROW(m->work, m->cap_work, rows + r->n + (size_t)BLOCKS * r->n + 16, err));
    grouped g = {0};
    tally *t = calloc(r->n, sizeof *t);
    bt_code code = t ? group_rows_by_rank(m, r->n, &g, err)
                     : bt_fail(err, BT_NOMEM, "cannot evaluate %zu ranks: out of memory", r->n);
    if (code == BT_OK) {
        double *work = m->work, *median = m->work + rows + r->n;
        int64_t block_step[BLOCKS];
        sum_up_ranks(v, t);
        for (size_t k = 0; k < r->n; k++) measure_rank(&g, &r->rank[k], work);
        if (r->n > 1) measure_arrivals(v, &g, work);
        compute_shares_and_scores(r, t, work);
        size_t blocks = block_medians(v, &g, median, block_step, work);
        bt_view_verdicts(r, median, block_step, blocks);
        bt_view_crowded(r, !v->head.live || m->at_step < m->newest_step);
        qsort_r(r->order, r->n, sizeof *r->order, compare_by_lateness_and_blame, r);
        for (size_t k = 0; k < r->n; k++) compose_rank_sentence(&r->rank[k]);
    }
    free(t);
    release_grouped_rows(&g);
    return code;
}

bt_code bt_view_load_ranks(bt_view *v, const bt_view_request *ask, bt_err *err) {
    bt_view_impl *m = v->impl;
    bt_view_ranks *r = &v->ranks;
    int window = ask->window > 0 ? ask->window : BT_VIEW_WINDOW;
    if (v->head.world_size > 0 && window * v->head.world_size > ROWS_MAX)
        window = ROWS_MAX / v->head.world_size > 8 ? ROWS_MAX / v->head.world_size : 8;
    r->n = r->steps = 0;
    r->ranks_least = r->ranks_most = 0;
    r->crowded[0] = 0;
    r->step0 = r->step1 = -1;
    r->step_ms = r->mean_ms = r->busy_median_ms = r->skew_p50_ms = r->skew_p95_ms = NAN;
    r->tokens_per_s = v->head.tokens_per_s;
    for (int i = 0; i < BT_MR_COUNT; i++) r->median[i] = NAN;
    for (int p = 0; p < BT_PHASE_COUNT; p++) r->phase_ms[p] = NAN;
    BT_TRY(load_rank_names(v, err));
    if (m->at_step < 0)
        clear_rank_cache(m);
    else
        BT_TRY(bt_view_rank_window(v, m->at_step, window, err));
    for (size_t i = m->row_first; i < m->n_rows; i++)
        BT_TRY(reserve_rank(m, r, m->row[i].rank, NULL, err));
    BT_TRY(BT_GROW(r->order, m->cap_order, r->n + 1, err));
    for (size_t k = 0; k < r->n; k++) r->order[k] = (int)k;
    v->head.ranks_reporting = 0;
    if (m->n_rows == 0) return BT_OK;
    BT_TRY(evaluate_new_steps(m, r->n, err));
    keep_last_judged_steps(m, (size_t)window);
    r->steps = m->n_judged - m->judged_first;
    r->step0 = m->judged[m->judged_first].step;
    r->step1 = m->judged[m->n_judged - 1].step;
    v->head.ranks_reporting = (int)m->judged[m->n_judged - 1].rows;
    return load_rank_statistics(v, err);
}

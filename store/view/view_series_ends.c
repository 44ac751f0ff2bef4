/* view_series_ends.c - values for the sentence below a curve: means over a fixed number of steps at both ends, and
 * the exact steps of the extremes. */
#include <math.h>
#include <stdio.h>

#include "store/view/view_impl.h"

enum { END_STEPS = 512 };
static const double END_SHARE = 0.02;

typedef struct step_reading {
    bt_view_impl *m;
    size_t n;
    bt_err *err;
    bt_code code;
} step_reading;

static bool add_end_step(void *ctx, const double *col, int n) {
    step_reading *r = ctx;
    (void)n;
    r->code = BT_GROW(r->m->work, r->m->cap_work, r->n + 1, r->err);
    if (r->code != BT_OK) return false;
    r->m->work[r->n++] = col[0];
    return true;
}

bt_code bt_view_evaluated_steps(bt_view *v, const char *run, size_t *n, bt_err *err) {
    step_reading r = {.m = v->impl, .err = err};
    BT_TRY(bt_vq_each(v->impl,
                      "SELECT DISTINCT step FROM events WHERE run = ?1 AND kind = 'evaluation' AND "
                      "step >= 0 ORDER BY step",
                      run, NULL, 0, add_end_step, &r, err));
    *n = r.n;
    return r.code;
}

bool bt_view_few_steps(const bt_stream *s, size_t k) {
    int64_t rows = 0, values = 0;
    for (size_t i = 0; i < s->n; i++) {
        rows += s->bucket[i].rows;
        values += s->stat[i * (size_t)s->n_metrics + k].n;
    }
    return 2 * values < rows;
}

static bt_code mean_between(bt_view *v, const char *run, const char *metric, double from, double to,
                            double *out, bt_err *err) {
    char sql[200];
    const double args[] = {from, to};
    snprintf(sql, sizeof sql,
             "SELECT avg(\"%s\") FROM steps WHERE run = ?1 AND step BETWEEN ?2 AND ?3", metric);
    return bt_vq_row(v->impl, sql, run, args, 2, out, 1, err);
}

/* Searches the bucket that the summaries give; *step is the last step of that bucket. */
static bt_code find_extreme(bt_view *v, const char *run, const bt_view_series *s, bool least,
                            int64_t *step, bt_err *err) {
    char sql[240];
    double found, from = -1;
    if (*step < 0) return BT_OK;
    for (size_t i = 0; i < s->n && s->step[i] < *step; i++) from = (double)s->step[i];
    const double args[] = {from + 1, (double)*step};
    snprintf(sql, sizeof sql,
             "SELECT step FROM steps WHERE run = ?1 AND step BETWEEN ?2 AND ?3 AND \"%s\" IS NOT "
             "NULL ORDER BY \"%s\" %s, step LIMIT 1",
             s->key, s->key, least ? "ASC" : "DESC");
    BT_TRY(bt_vq_row(v->impl, sql, run, args, 2, &found, 1, err));
    if (!isnan(found)) *step = (int64_t)found;
    return BT_OK;
}

bt_code bt_view_series_ends(bt_view *v, const char *run, const int64_t steps[2], bt_view_series *s,
                            bool near, bt_err *err) {
    if (s->n == 0) return BT_OK;
    const double from = (double)steps[0], to = (double)steps[1],
                 wide = fmin(END_STEPS, fmax(1, floor(END_SHARE * (to - from + 1))));
    if (near) {
        BT_TRY(find_extreme(v, run, s, true, &s->least_step, err));
        BT_TRY(find_extreme(v, run, s, false, &s->most_step, err));
    }
    BT_TRY(mean_between(v, run, s->key, from, from + wide - 1, &s->start, err));
    return mean_between(v, run, s->key, to - wide + 1, to, &s->end, err);
}

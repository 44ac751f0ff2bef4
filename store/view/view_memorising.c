/* view_memorising.c - finds out whether a run memorises its text, from its evaluations (SQL view `evaluations`).
 *
 * A run memorises since its best evaluation b if all of these hold at its newest evaluation n:
 *     - at least LATER evaluations followed b, all of them worse than b
 *     - the validation loss of n is more than WORSE (a share) above that of b
 *     - the training loss (mean of the BT_GAP_STEPS steps up to an evaluation) of n is more than LESS (a share) below
 *       that of b
 *     - the run has trained on more tokens than one pass over its data has: before that a validation loss that rises
 *       has another cause, because nothing was read twice
 * The verdict ends with the next best evaluation. WORSE and LESS keep noise of a run that has converged from being a
 * verdict: evaluations of its weights a few hundred steps apart differ by about 0.1 %. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/view/view_impl.h"

enum { LATER = 2 };
static const double WORSE = 0.002, LESS = 0.005;

size_t bt_memorising_since(const bt_evaluated *e, size_t n) {
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (e[i].val < e[best].val) best = i;
    if (best + LATER >= n) return n;
    const bt_evaluated *b = &e[best], *now = &e[n - 1];
    return now->val > (1 + WORSE) * b->val && now->train < (1 - LESS) * b->train ? best : n;
}

typedef struct reading {
    bt_evaluated *at;
    size_t n, cap;
    double val_gap;
    bt_code code;
    bt_err *err;
} reading;

static bool append_evaluation_row(void *ctx, const double *col, int n) {
    reading *r = ctx;
    if (n < 4) return false;
    r->code = bt_view_grow((void **)&r->at, &r->cap, r->n + 1, sizeof *r->at, r->err);
    if (r->code != BT_OK) return false;
    r->at[r->n++] = (bt_evaluated){.step = (int64_t)col[0], .val = col[1], .train = col[2]};
    r->val_gap = col[3];
    return true;
}

/* Evaluations change only with an event. */
static bt_code read_run_evaluations(bt_view *v, bt_err *err) {
    bt_view_impl *m = v->impl;
    const double until = (double)v->head.step;
    const bool same = strcmp(m->memorising.run, v->head.run) == 0 &&
                      m->memorising.event == m->event_newest &&
                      m->memorising.at_step == v->head.step;
    if (same) return BT_OK;
    m->memorising.run[0] = '\0';
    reading r = {.val_gap = NAN, .err = err};
    bt_code code = bt_vq_each(m,
                              "SELECT step, val_loss, train_loss, val_gap FROM evaluations WHERE "
                              "run = ?1 AND step <= ?2 ORDER BY step",
                              v->head.run, &until, 1, append_evaluation_row, &r, err);
    if (code == BT_OK) code = r.code;
    const size_t since = bt_memorising_since(r.at, r.n);
    m->memorising.memorises = since < r.n;
    if (since < r.n) {
        m->memorising.best = r.at[since];
        m->memorising.newest = r.at[r.n - 1];
    }
    m->memorising.val_gap = r.val_gap;
    free(r.at);
    BT_TRY(code);
    snprintf(m->memorising.run, sizeof m->memorising.run, "%s", v->head.run);
    m->memorising.event = m->event_newest;
    m->memorising.at_step = v->head.step;
    return BT_OK;
}

bt_code bt_view_memorising(bt_view *v, bt_err *err) {
    bt_view_head *h = &v->head;
    const bt_view_impl *m = v->impl;
    BT_TRY(read_run_evaluations(v, err));
    const bt_evaluated *best = &m->memorising.best, *now = &m->memorising.newest;
    h->val_gap = m->memorising.val_gap;
    h->memorising_step = m->memorising.memorises && h->passes > 1 ? best->step : -1;
    if (h->memorising_step < 0 || h->n_remarks == BT_VIEW_REMARKS) return BT_OK;
    char step[32], losses[160];
    bt_metric_format(step, sizeof step, (double)(best->step + 1), BT_UNIT_COUNT);
    snprintf(
        losses, sizeof losses,
        "the training loss fell from %.3f to %.3f, but the validation loss rose from %.3f to %.3f",
        best->train, now->train, best->val, now->val);
    snprintf(
        h->remark[h->n_remarks++], sizeof h->remark[0],
        "Memorising since step %s: %s (%.3g passes over the data). %s@best has the weights of that "
        "step. More text, a smaller model or stronger regularisers delay it (bitrain train "
        "--minutes M chooses them).",
        step, losses, h->passes, m->run);
    return BT_OK;
}

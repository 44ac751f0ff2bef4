/* view_verdict.c - classifies ranks (steady, bursty, node-wide, recovering, crowded) by their
 * medians over the last blocks of steps. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "store/view/view_impl.h"

#define LATE 0.9 /* a rank is late if the best rank's busy time / its own is below this */
enum { IN_A_ROW = 3 };
/* busy tasks per processor, mean of the window */
#define CROWDED 1.25
/* Ranks of an overloaded host are all slow, so only a rank below this share of the host's typical speed is slow for
 * its own reasons. */
#define OWN_FAULT 0.75

static double smallest_median(const double *median, size_t n) {
    double best = INFINITY;
    for (size_t k = 0; k < n; k++)
        if (median[k] > 0) best = fmin(best, median[k]);
    return best;
}

/* Scores of one rank per block: 1 = as good as the best rank of that block. */
static void classify_rank(bt_view_rank *x, size_t k, const double *median,
                          const int64_t *block_step, size_t blocks, size_t n) {
    size_t late = 0, run = 0;
    double own_best = INFINITY;
    int64_t since = -1;
    for (size_t b = 0; b < blocks; b++) {
        double own = median[b * n + k],
               score = own > 0 ? smallest_median(median + b * n, n) / own : NAN;
        if (own > 0) own_best = fmin(own_best, own);
        if (score < LATE) {
            if (run == 0) since = block_step[b];
            late++;
            run++;
        } else {
            run = 0;
        }
    }
    double now = blocks ? median[(blocks - 1) * n + k] : NAN;
    x->score_own = now > 0 ? own_best / now : NAN;
    size_t need = blocks < IN_A_ROW ? blocks : IN_A_ROW;
    if (blocks == 0) return;
    if (run >= need)
        x->verdict = BT_VERDICT_STEADY, x->since_step = since;
    else if (late >= IN_A_ROW && run == 0)
        x->verdict = BT_VERDICT_RECOVERING;
    else if (late > 0)
        x->verdict = BT_VERDICT_BURSTY;
}

/* If all ranks of a host are late, the machine is the cause. Another host exists, because the best rank is never
 * late. */
static void mark_node_wide_slowness(bt_view_ranks *r) {
    for (size_t k = 0; k < r->n; k++) {
        bt_view_rank *x = &r->rank[k];
        size_t here = 0, late = 0;
        if (x->verdict != BT_VERDICT_STEADY || !x->host[0]) continue;
        for (size_t i = 0; i < r->n; i++) {
            if (strcmp(r->rank[i].host, x->host) != 0) continue;
            here++;
            late += r->rank[i].verdict == BT_VERDICT_STEADY ||
                    r->rank[i].verdict == BT_VERDICT_NODE_WIDE;
        }
        if (here >= 2 && late == here) x->verdict = BT_VERDICT_NODE_WIDE;
    }
}

/* Tests whether the rank is far slower than other ranks of its host, which share the overload. */
static bool is_slow_on_host(const bt_view_ranks *r, const bt_view_rank *x) {
    size_t faster = 0, here = 0;
    for (size_t i = 0; i < r->n; i++) {
        if (i == (size_t)x->rank || strcmp(r->rank[i].host, x->host) != 0) continue;
        if (!(r->rank[i].busy_p50_ms > 0)) continue;
        here++;
        faster += r->rank[i].busy_p50_ms < OWN_FAULT * x->busy_p50_ms;
    }
    return here > 0 && 2 * faster > here;
}

/* An overloaded host (more runnable tasks than cores) delays all its ranks: it is the cause,
 * except for a rank that is slow even among the ranks of that host. One task more than cores
 * does not count, because monitors and the system occasionally take that much. */
void bt_view_crowded(bt_view_ranks *r, bool over) {
    const bt_view_rank *worst = NULL;
    r->crowded[0] = 0;
    for (size_t k = 0; k < r->n; k++) {
        bt_view_rank *x = &r->rank[k];
        double load = x->mean[BT_MR_LOAD];
        if (!(load >= CROWDED)) continue;
        if (!worst || load > worst->mean[BT_MR_LOAD]) worst = x;
        if (is_slow_on_host(r, x)) continue;
        if (x->verdict == BT_VERDICT_STEADY || x->verdict == BT_VERDICT_BURSTY ||
            x->verdict == BT_VERDICT_NODE_WIDE)
            x->verdict = BT_VERDICT_CROWDED;
    }
    if (!worst) return;
    snprintf(r->crowded, sizeof r->crowded,
             "%s%.60s %s overloaded (%.1f runnable tasks per core: other programs, or too many "
             "ranks x threads): its ranks %s late",
             worst->host[0] ? "host " : "the host", worst->host, over ? "was" : "is",
             worst->mean[BT_MR_LOAD], over ? "ran" : "run");
}

void bt_view_verdicts(bt_view_ranks *r, const double *busy_median, const int64_t *block_step,
                      size_t blocks) {
    for (size_t k = 0; k < r->n; k++)
        classify_rank(&r->rank[k], k, busy_median, block_step, blocks, r->n);
    mark_node_wide_slowness(r);
}

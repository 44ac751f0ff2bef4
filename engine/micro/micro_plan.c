/* micro_plan.c - contiguous ranges of a step's micro-batches, even, given, or by measured speed. */
#include "engine/micro/micro_plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void set_own_range(bt_micro_plan *p) {
    p->first = 0;
    for (int64_t d = 0; d < p->mesh->me.dp; d++) p->first += p->shares[d];
    p->n = p->shares[p->mesh->me.dp];
}

size_t bt_micro_plan_bytes(size_t dp) { return dp * (2 * sizeof(int64_t) + sizeof(double)); }

static bt_code divide_micro_batches(bt_micro_plan *p, const bt_train_settings *train,
                                    int64_t seq_len, bt_err *err) {
    p->sequences = train->batch_tokens / seq_len;
    p->micros = p->sequences / train->micro_batch;
    if (p->sequences * seq_len != train->batch_tokens ||
        p->micros * train->micro_batch != p->sequences)
        return bt_fail(err, BT_ARG,
                       "%" PRId64 " tokens a step do not divide into micro-batches of %" PRId64
                       " x %" PRId64 " tokens",
                       train->batch_tokens, train->micro_batch, seq_len);
    if (p->micros < (int64_t)p->dp)
        return bt_fail(err, BT_ARG,
                       "%" PRId64
                       " micro-batches a step for %zu data-parallel ranks: every rank needs one",
                       p->micros, p->dp);
    return BT_OK;
}

bt_code bt_micro_plan_create(bt_micro_plan *p, const bt_train_settings *train, int64_t seq_len,
                             const char *balance, const bt_mesh *mesh, bt_err *err) {
    *p = (bt_micro_plan){.mesh = mesh, .dp = (size_t)bt_comm_size(mesh->dp)};
    BT_TRY(divide_micro_batches(p, train, seq_len, err));
    p->shares = calloc(2 * p->dp, sizeof *p->shares);
    p->costs = calloc(p->dp, sizeof *p->costs);
    if (!p->shares || !p->costs)
        return bt_fail(err, BT_NOMEM, "cannot take memory for %" PRId64 " micro-batches",
                       p->micros);
    BT_TRY(bt_balance_parse(balance, &p->balance, p->shares, p->dp, err));
    if (p->balance == BT_BALANCE_SHARES) {
        for (size_t i = 0; i < p->dp; i++) p->costs[i] = 1 / (double)p->shares[i];
        bt_balance_plan(p->shares, p->costs, p->dp, p->micros);
    } else {
        bt_balance_even(p->shares, p->dp, p->micros);
    }
    set_own_range(p);
    return BT_OK;
}

void bt_micro_plan_release(bt_micro_plan *p) {
    free(p->shares);
    free(p->costs);
    memset(p, 0, sizeof *p);
}

bt_code bt_micro_plan_adjust(bt_micro_plan *p, double seconds_per_micro, double *gain,
                             bt_err *err) {
    *gain = 0;
    if (p->balance != BT_BALANCE_AUTO || p->dp == 1) return BT_OK;
    bt_balance_saw(&p->pace, seconds_per_micro);
    if (!bt_balance_due(&p->pace)) return BT_OK;

    int64_t *next = p->shares + p->dp;
    double mine =
        p->pace.smoothed; /* a group that shares a micro-batch is as slow as its slowest */
    BT_TRY(bt_all_reduce_f64(p->mesh->tp, &mine, 1, BT_MAX, err));
    BT_TRY(bt_all_reduce_f64(p->mesh->pp, &mine, 1, BT_MAX, err));
    BT_TRY(bt_all_gather(p->mesh->dp, &mine, sizeof mine, p->costs, err));
    bt_balance_plan(next, p->costs, p->dp, p->micros);
    if (!bt_balance_worth(p->shares, next, p->costs, p->dp)) return BT_OK;
    *gain = 1 -
            bt_balance_time(next, p->costs, p->dp) / bt_balance_time(p->shares, p->costs, p->dp);
    memcpy(p->shares, next, p->dp * sizeof *p->shares);
    set_own_range(p);
    bt_balance_changed(&p->pace);
    return BT_OK;
}

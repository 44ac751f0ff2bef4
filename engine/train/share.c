/* share.c - the step's micro-batches over the data-parallel ranks: the plan at the start, and its
 * change by measured speed. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/train/parts.h"

/* Micro-batches in order, shared out in contiguous runs. */
static void take_run(bt_trainer *t) {
    t->first_micro = 0;
    for (int64_t d = 0; d < t->mesh.me.dp; d++) t->first_micro += t->shares[d];
    t->n_micro = t->shares[t->mesh.me.dp];
}

/* BITRAIN_TEST_SLOW=RANK:FACTOR makes a rank that much slower, for rehearsals and tests. */
static double slowness(int rank) {
    const char *text = getenv("BITRAIN_TEST_SLOW");
    char *end;
    if (!text || strtol(text, &end, 10) != rank || *end != ':') return 1;
    double factor = strtod(end + 1, NULL);
    return factor > 1 && factor < 1000 ? factor : 1;
}

bt_code bt_share_plan(bt_trainer *t, bt_err *err) {
    const bt_run_cfg *c = &t->cfg;
    size_t dp = (size_t)bt_comm_size(t->mesh.dp);
    t->sequences = c->batch_tokens / c->seq_len;
    t->micros = t->sequences / c->micro_batch;
    if (t->sequences * c->seq_len != c->batch_tokens ||
        t->micros * c->micro_batch != t->sequences) {
        return bt_fail(err, BT_ARG,
                       "%" PRId64 " tokens a step do not divide into micro-batches of %" PRId64
                       " x %" PRId64 " tokens",
                       c->batch_tokens, c->micro_batch, c->seq_len);
    }
    if (t->micros < (int64_t)dp)
        return bt_fail(err, BT_ARG,
                       "%" PRId64
                       " micro-batches a step for %zu data-parallel ranks: every rank needs one",
                       t->micros, dp);
    t->micro_losses = calloc((size_t)t->micros, sizeof *t->micro_losses);
    t->shares = calloc(2 * dp, sizeof *t->shares);
    t->costs = calloc(dp, sizeof *t->costs);
    if (!t->micro_losses || !t->shares || !t->costs)
        return bt_fail(err, BT_NOMEM, "cannot take memory for %" PRId64 " micro-batches",
                       t->micros);
    BT_TRY(bt_balance_parse(c->balance, &t->balance, t->shares, dp, err));
    if (t->balance == BT_BALANCE_SHARES) {
        for (size_t i = 0; i < dp; i++) t->costs[i] = 1 / (double)t->shares[i];
        bt_balance_plan(t->shares, t->costs, dp, t->micros);
    } else {
        bt_balance_even(t->shares, dp, t->micros);
    }
    take_run(t);
    t->slow = slowness(t->rank);
    return BT_OK;
}

bt_code bt_share_reducer(bt_trainer *t, bt_err *err) {
    bt_reducer_cfg c = {.mesh = &t->mesh,
                        .grads = bt_model_grads(t->model),
                        .n = bt_model_params(t->model)->total,
                        .bucket_bytes = (size_t)t->cfg.bucket_bytes,
                        .overlap = t->cfg.overlap,
                        .shards = &t->shards,
                        .discard = t->cfg.zero >= 2,
                        .units = t->cfg.reproducible ? t->micros : 0,
                        .shares = t->shares};
    bt_reducer_destroy(t->reducer);
    t->reducer = NULL;
    return bt_reducer_create(&t->reducer, &c, err);
}

void bt_share_release(bt_trainer *t) {
    free(t->micro_losses);
    free(t->shares);
    free(t->costs);
}

static void tell(bt_trainer *t, double gain) {
    char body[512], *p = body, *end = body + sizeof body;
    size_t dp = (size_t)bt_comm_size(t->mesh.dp);
    int64_t least = t->shares[0], most = t->shares[0];
    p += snprintf(p, (size_t)(end - p), "{\"micro_batches\":[");
    for (size_t i = 0; i < dp; i++) {
        if (t->shares[i] < least) least = t->shares[i];
        if (t->shares[i] > most) most = t->shares[i];
        /* of the first hundred ranks */
        if (end - p > 32)
            p += snprintf(p, (size_t)(end - p), "%s%" PRId64, i ? "," : "", t->shares[i]);
    }
    snprintf(p, (size_t)(end - p), "]}");
    bt_telemetry_event(&t->telemetry, "balance", BT_EV_INFO, t->at.step - 1, body,
                       "from the next step ranks take %" PRId64 " to %" PRId64
                       " micro-batches by their speed: steps %.0f %% shorter",
                       least, most, 100 * gain);
}

static bt_code change(bt_trainer *t, const int64_t *next, bt_err *err) {
    size_t dp = (size_t)bt_comm_size(t->mesh.dp);
    double gain = 1 -
                  bt_balance_time(next, t->costs, dp) / bt_balance_time(t->shares, t->costs, dp);
    memcpy(t->shares, next, dp * sizeof *t->shares);
    take_run(t);
    bt_balance_changed(&t->pace);
    tell(t, gain);
    /* other units are added elsewhere, in the same tree */
    if (t->cfg.reproducible) BT_TRY(bt_share_reducer(t, err));
    return bt_loader_move(t->loader, t->at.step, (int)(t->first_micro * t->cfg.micro_batch),
                          (int)(t->n_micro * t->cfg.micro_batch), err);
}

bt_code bt_share_adjust(bt_trainer *t, bt_err *err) {
    size_t dp = (size_t)bt_comm_size(t->mesh.dp);
    if (t->balance != BT_BALANCE_AUTO || dp == 1) return BT_OK;
    bt_balance_saw(&t->pace, (double)t->compute_ns / 1e9 / (double)t->n_micro);
    if (!bt_balance_due(&t->pace)) return BT_OK;

    int64_t start = bt_now_ns(), *next = t->shares + dp;
    /* a group that shares a micro-batch is as slow as its slowest */
    double mine = t->pace.smoothed;
    BT_TRY(bt_all_reduce_f64(t->mesh.tp, &mine, 1, BT_MAX, err));
    BT_TRY(bt_all_reduce_f64(t->mesh.pp, &mine, 1, BT_MAX, err));
    BT_TRY(bt_all_gather(t->mesh.dp, &mine, sizeof mine, t->costs, err));
    bt_balance_plan(next, t->costs, dp, t->micros);
    if (bt_balance_worth(t->shares, next, t->costs, dp)) BT_TRY(change(t, next, err));
    bt_meter_add(&t->meter, BT_MR_COMM_EXPOSED, bt_now_ns() - start);
    return BT_OK;
}

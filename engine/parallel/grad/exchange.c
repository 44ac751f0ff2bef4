/* exchange.c - buckets on their way, each in a slot with staging memory: a round begins when this
 * rank's messages of the round before it have come and gone. A round without messages takes no
 * time, so that ranks that are host groups by themselves know two rounds, or (sharded, without replicas)
 * one. */
#include <assert.h>

#include "engine/base/clock.h"
#include "engine/parallel/grad/exchange_internal.h"

static bt_code begin_round(bt_exchange *x, bt_exchange_slot *s, bt_round round, bt_err *err) {
    s->round = round;
    if (round == BT_ROUND_NONE) return BT_OK;
    s->n_requests = 0;
    s->logical = s->wire = 0;
    s->asked_ns = bt_now_ns();
    BT_TRY(bt_rounds[round].post(x, s, err));
    bt_exchange_count_sent(x, s);
    s->n_left = s->n_requests;
    return BT_OK;
}

/* Finishes rounds whose messages have come and gone, and begins the next ones. */
static bt_code next_rounds(bt_exchange *x, bt_exchange_slot *s, bt_err *err) {
    while (s->round != BT_ROUND_NONE && s->n_left == 0) {
        if (bt_rounds[s->round].finish) BT_TRY(bt_rounds[s->round].finish(x, s, err));
        BT_TRY(begin_round(x, s, s->round + 1, err));
    }
    return BT_OK;
}

static bt_code advance(bt_exchange *x, bt_exchange_slot *s, bt_err *err) {
    if (s->n_left > 0) BT_TRY(bt_exchange_take_arrivals(x, s, err));
    return next_rounds(x, s, err);
}

static bt_code start(bt_exchange *x, bt_exchange_slot *s, size_t bucket, bt_err *err) {
    s->bucket = bucket;
    BT_TRY(begin_round(x, s, BT_ROUND_SUM_INSIDE, err));
    return next_rounds(x, s, err);
}

/* ---- the interface --------------------------------------------------------------------------- */

static bt_code post_what_fits(bt_exchange *x, bt_err *err) {
    while (x->posted < x->asked && x->slots[x->posted % x->n_slots].round == BT_ROUND_NONE &&
           x->posted < x->done + x->n_slots) {
        BT_TRY(start(x, &x->slots[x->posted % x->n_slots], x->posted, err));
        x->posted++;
    }
    return BT_OK;
}

bt_code bt_exchange_progress(bt_exchange *x, size_t *done, bt_err *err) {
    for (size_t b = x->done; b < x->posted; b++) {
        bt_exchange_slot *s = &x->slots[b % x->n_slots];
        if (s->round != BT_ROUND_NONE) BT_TRY(advance(x, s, err));
    }
    while (x->done < x->posted && x->slots[x->done % x->n_slots].round == BT_ROUND_NONE) x->done++;
    *done = x->done;
    return post_what_fits(x, err);
}

bt_code bt_exchange_start(bt_exchange *x, size_t bucket, bt_err *err) {
    x->asked = bucket + 1;
    return post_what_fits(x, err);
}

bt_coll bt_exchange_kind(const bt_exchange *x) {
    return x->cfg.plan.sharded ? BT_COLL_REDUCE_SCATTER : BT_COLL_ALL_REDUCE;
}

void bt_exchange_reset(bt_exchange *x) { x->asked = x->posted = x->done = 0; }

void bt_exchange_nodes(bt_exchange *x, const bt_tree_sum *nodes) {
    assert(nodes->n == x->route.nodes[x->route.me].n);
    x->mine = *nodes;
}

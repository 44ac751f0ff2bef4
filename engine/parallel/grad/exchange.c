/* exchange.c - items in flight, each in a slot with staging memory. A round begins when this rank's messages of the
 * previous round have been sent and received. Rounds without messages take no time: if every rank is its own host
 * group, or all ranks share memory, there are two rounds, or one (sharded, without replicas). */
#include <assert.h>

#include "engine/base/clock.h"
#include "engine/parallel/grad/exchange_internal.h"

/* A rank that waits longer yields its core. */
enum { SPIN_NS = 50000 };

static const bt_round_ops *round_ops_of(const bt_exchange *x, bt_round round) {
    const bool inside = round == BT_ROUND_SUM_INSIDE || round == BT_ROUND_BACK_INSIDE;
    return inside && x->host.memory.at ? &bt_host_rounds[round] : &bt_rounds[round];
}

static bt_code begin_round(bt_exchange *x, bt_exchange_slot *s, bt_round round, bt_err *err) {
    s->round = round;
    if (round == BT_ROUND_NONE) return BT_OK;
    s->n_requests = 0;
    s->logical = s->wire = 0;
    s->asked_ns = bt_now_ns();
    BT_TRY(round_ops_of(x, round)->post(x, s, err));
    bt_exchange_count_sent(x, s);
    s->n_left = s->n_requests;
    return BT_OK;
}

/* Finishes each round whose messages are complete and begins the slot's next round. */
static bt_code next_rounds(bt_exchange *x, bt_exchange_slot *s, bt_err *err) {
    while (s->round != BT_ROUND_NONE && s->n_left == 0) {
        const bt_round_ops *ops = round_ops_of(x, s->round);
        if (ops->came && !ops->came(x, s)) break;
        if (ops->finish) BT_TRY(ops->finish(x, s, err));
        BT_TRY(begin_round(x, s, s->round + 1, err));
        x->moved = true;
    }
    return BT_OK;
}

static bt_code advance_slot(bt_exchange *x, bt_exchange_slot *s, bt_err *err) {
    if (s->n_left > 0) BT_TRY(bt_exchange_take_arrivals(x, s, err));
    return next_rounds(x, s, err);
}

static bt_code start_item(bt_exchange *x, uint64_t item, bt_err *err) {
    bt_exchange_slot *s = &x->slots[item % x->n_slots];
    s->item = item;
    s->bucket = (size_t)(item - x->first) / x->pieces;
    s->piece = (size_t)(item - x->first) % x->pieces;
    x->moved = true;
    BT_TRY(begin_round(x, s, BT_ROUND_SUM_INSIDE, err));
    return next_rounds(x, s, err);
}

static bt_code post_ready_items(bt_exchange *x, bt_err *err) {
    while (x->posted < x->asked && x->slots[x->posted % x->n_slots].round == BT_ROUND_NONE &&
           x->posted < x->done + x->n_slots && bt_exchange_host_free(x, x->posted)) {
        BT_TRY(start_item(x, x->posted, err));
        x->posted++;
    }
    return BT_OK;
}

bt_code bt_exchange_progress(bt_exchange *x, size_t *done, bt_err *err) {
    x->moved = false;
    for (uint64_t i = x->done; i < x->posted; i++) {
        bt_exchange_slot *s = &x->slots[i % x->n_slots];
        if (s->round != BT_ROUND_NONE) BT_TRY(advance_slot(x, s, err));
    }
    while (x->done < x->posted && x->slots[x->done % x->n_slots].round == BT_ROUND_NONE) x->done++;
    *done = (size_t)(x->done - x->first) / x->pieces;
    BT_TRY(post_ready_items(x, err));
    if (x->moved)
        x->still_since_ns = 0;
    else if (x->still_since_ns == 0)
        x->still_since_ns = bt_now_ns();
    return BT_OK;
}

/* MPI receives only inside its calls, so a rank that waits for a message must not sleep. */
void bt_exchange_rest(const bt_exchange *x) {
    if (!x->host.memory.at || x->still_since_ns == 0) return;
    for (uint64_t i = x->done; i < x->posted; i++)
        if (x->slots[i % x->n_slots].n_left > 0) return;
    if (bt_now_ns() - x->still_since_ns > SPIN_NS) bt_exchange_host_sleep(x);
}

bt_code bt_exchange_start(bt_exchange *x, size_t bucket, bt_err *err) {
    x->asked = x->first + (bucket + 1) * x->pieces;
    return post_ready_items(x, err);
}

bool bt_exchange_shares_memory(const bt_exchange *x) { return x->host.memory.at != NULL; }

bool bt_exchange_has_room(const bt_exchange *x) { return x->asked == x->posted; }

void bt_exchange_reset(bt_exchange *x) { x->first = x->asked = x->done = x->posted; }

void bt_exchange_nodes(bt_exchange *x, const bt_tree_sum *nodes) {
    assert(nodes->n == x->route.nodes[x->route.me].n);
    x->mine = *nodes;
}

/* island_client.h - an island's side of the conversation with its hub: hello, push, fetch, bye; repeated
 * until they are answered.
 *
 * A hub of several processes has an address for each. What a payload has for each of them is its cut; hello, push
 * and bye go to the first, which has the payload's first bytes as well.
 * Every call waits for the hub until it has been silent for lost_s seconds (BT_NOTFOUND), and returns early with
 * BT_STOPPED when `interrupted` says so. A hub that does not answer is told once (`tell`) and asked again.
 * Threads: one at a time; `lost` may be read by any. */
#ifndef BT_ENGINE_ISLANDS_ISLAND_ISLAND_CLIENT_H
#define BT_ENGINE_ISLANDS_ISLAND_ISLAND_CLIENT_H

#include <stdatomic.h>

#include "engine/islands/wire/hub_port.h"
#include "engine/islands/wire/island_message.h"

typedef struct bt_island_client_cfg {
    bt_island_port ports[BT_HUB_PARTS]; /* (n_ports) one for each process of the hub */
    size_t n_ports;
    const char *hello; /* lines 'key=value'; borrowed */
    void *ctx;         /* of the next two, which may be NULL */
    bool (*interrupted)(void *ctx);
    void (*tell)(void *ctx, bool lost, const char *line); /* the hub was lost, or found again */
    double patience_s;                                    /* for the first welcome; then BT_IO */
    double lost_s; /* for any word of a hub that answered before; then BT_NOTFOUND. 0: for ever */
} bt_island_client_cfg;

/* bytes of a payload that are for each process of the hub, one after the other */
typedef struct bt_island_cut {
    size_t bytes[BT_HUB_PARTS];
} bt_island_cut;

/* What the next update is made of. A hub that was started again is told, and keeps it for this island */
typedef struct bt_island_claim {
    int64_t begin, end;           /* sequences */
    int64_t next_begin, next_end; /* those dealt for the update after it; equal: none */
    int64_t base, kind, steps;    /* as bt_island_push */
} bt_island_claim;

typedef struct bt_island_client {
    bt_island_client_cfg cfg;
    uint64_t epoch, seq; /* of the hub; of the newest push */
    uint32_t island, incarnation;
    bool want_weights; /* the hub's welcome asked for them */
    bool resend;       /* it asked for the update that the hello spoke of */
    bool had;          /* that was applied; only its go was lost */
    bool
        left_behind; /* a welcome between two steps did not ask for it: the next push is left out */
    char refusal[512];       /* what the hub said to the newest fetch that it refused */
    bool stranger;           /* a fetch found a hub that does not know this island: join again */
    bool between_steps;      /* nothing is waited for */
    bool given_up;           /* an error said that the hub has been silent for lost_s */
    bt_island_claim claim;   /* set by the caller */
    int64_t heard_ns;        /* when the hub last said something, or a question was first asked */
    atomic_bool lost;        /* told that it does not answer */
    unsigned char *in, *out; /* frames */
} bt_island_client;

bt_code bt_island_client_init(bt_island_client *c, const bt_island_client_cfg *cfg, bt_err *err)
    BT_MUST_CHECK;
void bt_island_client_release(bt_island_client *c); /* accepts an all-zero struct */

/* Becomes a member. weights: fp32 values of the whole model (vector_code.h), sent where the hub has none.
 * Returns with the first go, which comes when the job begins. BT_BUSY, BT_ARG: refused, and why */
bt_code bt_island_client_join(bt_island_client *c, const void *weights, const bt_island_cut *cut,
                              bt_island_go *go, bt_err *err) BT_MUST_CHECK;
/* One update, made of the claim, and its go. A hub that has been started again is offered the update: one that
 * had applied it gives its go again. *rejoined: it was not wanted, and `go` is that of a join. With
 * want_weights: there is no go yet, join again */
typedef struct bt_island_payload { /* bytes 0 in the push: none is sent */
    const void *bytes;
    const bt_island_cut *cut;
} bt_island_payload;
bt_code bt_island_client_push(bt_island_client *c, const bt_island_push *push,
                              const bt_island_payload *payload, bt_island_go *go, bool *rejoined,
                              bt_err *err) BT_MUST_CHECK;
/* After a push whose go came, and a fetch that met a stranger: the hub is told which update this island was at
 * and says that it had it. Its payload is not needed */
bt_code bt_island_client_push_again(bt_island_client *c, const bt_island_push *push,
                                    bt_island_go *go, bool *rejoined, bt_err *err) BT_MUST_CHECK;
typedef struct bt_island_fetched {
    bool
        gone; /* the hub has no such bytes (any more): ask for others, or with c->stranger join again */
    int64_t oldest, newest; /* versions of the chunks: an asynchronous hub goes on meanwhile */
} bt_island_fetched;
/* bytes of the hub's weights, which must be that many, of `version` (an update) or of that and newer ones; what an
 * earlier question left on its way is passed over */
bt_code bt_island_client_fetch(bt_island_client *c, bt_fetch_kind kind, int64_t version, void *out,
                               const bt_island_cut *cut, bt_island_fetched *got, bt_err *err)
    BT_MUST_CHECK;
/* a sign of life, and whether the hub has been started again: then it is told the claim. Waits for nothing but
 * its welcome, and for that 2 s at most */
void bt_island_client_beat(bt_island_client *c);
void bt_island_client_leave(bt_island_client *c);

#endif

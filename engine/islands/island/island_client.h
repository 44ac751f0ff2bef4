/* island_client.h - an island's side of the conversation with its hub: hello, push, fetch, bye; repeated
 * until they are answered.
 *
 * Every call waits for the hub, without end, and returns early with BT_STOPPED when `interrupted` says so.
 * A hub that cannot be reached is told once a `tell`; it is asked again every second.
 * Threads: one. */
#ifndef BT_ENGINE_ISLANDS_ISLAND_ISLAND_CLIENT_H
#define BT_ENGINE_ISLANDS_ISLAND_ISLAND_CLIENT_H

#include "engine/islands/wire/hub_port.h"
#include "engine/islands/wire/island_message.h"

typedef struct bt_island_client_cfg {
    bt_island_port port;
    const char *hello; /* lines 'key=value'; borrowed */
    void *ctx;         /* of the next two, which may be NULL */
    bool (*interrupted)(void *ctx);
    void (*tell)(void *ctx, bool lost, const char *line); /* the hub was lost, or found again */
    double patience_s;                                    /* for the first welcome; then BT_IO */
} bt_island_client_cfg;

typedef struct bt_island_client {
    bt_island_client_cfg cfg;
    uint64_t epoch, seq; /* of the hub; of the newest push */
    uint32_t island, incarnation;
    bool want_weights;       /* the hub's welcome asked for them */
    bool resend;             /* it asked for the update that the hello spoke of */
    int64_t begin, end;      /* sequences that the next push is made of; set by the caller */
    bool lost;               /* told */
    unsigned char *in, *out; /* frames */
} bt_island_client;

bt_code bt_island_client_init(bt_island_client *c, const bt_island_client_cfg *cfg, bt_err *err)
    BT_MUST_CHECK;
void bt_island_client_release(bt_island_client *c); /* accepts an all-zero struct */

/* Becomes a member. weights: fp32 values of the whole model (vector_code.h), sent where the hub has none.
 * Returns with the first go, which comes when the job begins. BT_BUSY, BT_ARG: refused, and why */
bt_code bt_island_client_join(bt_island_client *c, const void *weights, size_t bytes,
                              bt_island_go *go, bt_err *err) BT_MUST_CHECK;
/* One update, and its go. go: of the push before, with the data that the update is made of. A hub that has been
 * started again is offered the update; *rejoined: it did not want it, the update is lost and `go` is that
 * of a join. With want_weights: there is no go yet, join again */
bt_code bt_island_client_push(bt_island_client *c, const bt_island_push *push, const void *payload,
                              bt_island_go *go, bool *rejoined, bt_err *err) BT_MUST_CHECK;
/* bytes of the hub's weights, which must be that many. *gone: the hub has no such bytes (any more): ask
 * for others. */
bt_code bt_island_client_fetch(bt_island_client *c, bt_fetch_kind kind, int64_t version, void *out,
                               size_t bytes, bool *gone, bt_err *err) BT_MUST_CHECK;
/* a sign of life, where some time has passed since the last */
void bt_island_client_beat(bt_island_client *c);
void bt_island_client_leave(bt_island_client *c);

#endif

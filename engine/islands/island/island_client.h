/* island_client.h - an island's side of the protocol: hello, push, fetch and bye, each repeated until the hub replies.
 *
 * A call waits until the hub has been silent for lost_s seconds (BT_NOTFOUND), or `interrupted` returns true
 * (BT_STOPPED). It reports a silent hub once (`tell`) and repeats the request.
 * Threads: one at a time; any thread may read `lost`. */
#ifndef BT_ENGINE_ISLANDS_ISLAND_ISLAND_CLIENT_H
#define BT_ENGINE_ISLANDS_ISLAND_ISLAND_CLIENT_H

#include <stdatomic.h>

#include "engine/islands/wire/hub_port.h"
#include "engine/islands/wire/island_message.h"

typedef struct bt_island_client_cfg {
    bt_island_port port;
    const char *hello; /* lines 'key=value'; borrowed */
    void *ctx;         /* argument of the two functions, each of which may be NULL */
    bool (*interrupted)(void *ctx);
    /* reports that the hub was lost or found again */
    void (*tell)(void *ctx, bool lost, const char *line);
    double patience_s; /* time limit for the first welcome; then BT_IO */
    /* longest silence of a hub that responded before; then BT_NOTFOUND. 0: no limit */
    double lost_s;
} bt_island_client_cfg;

/* Data and weights of the next update. A restarted hub receives this claim and reserves the data for this island. */
typedef struct bt_island_claim {
    int64_t begin, end;           /* sequences */
    int64_t next_begin, next_end; /* sequences leased for the next update; equal: none */
    int64_t base, kind, steps;    /* see bt_island_push */
} bt_island_claim;

typedef struct bt_island_client {
    bt_island_client_cfg cfg;
    uint64_t epoch, seq; /* epoch of the hub; sequence number of the newest push */
    uint32_t island, incarnation;
    bool want_weights; /* the hub's welcome requests the first weights */
    bool resend;       /* the welcome requests the update named in the hello */
    bool had;          /* the hub had already processed this update, and only its reply was lost */
    /* a welcome between two steps did not request the update, so the next push is omitted */
    bool left_behind;
    char refusal[512];  /* the hub's reason for refusing the newest fetch */
    bool stranger;      /* a fetch found that this island is not a member of the hub: join again */
    bool between_steps; /* calls do not wait */
    bool given_up;      /* the error occurred because the hub was silent for lost_s */
    bt_island_claim claim; /* set by the caller */
    int64_t heard_ns;      /* time of the hub's newest message, or of the first request after it */
    atomic_bool lost;      /* silence of the hub has been reported */
    unsigned char *in, *out; /* frames */
} bt_island_client;

bt_code bt_island_client_init(bt_island_client *c, const bt_island_client_cfg *cfg, bt_err *err)
    BT_MUST_CHECK;
void bt_island_client_release(bt_island_client *c); /* accepts an all-zero struct */

/* Becomes a member. weights: fp32 values of the whole model (vector_code.h), sent if the hub has none. Returns with the
 * first go when the job begins. BT_BUSY, BT_ARG: the hub refused the island; the error contains its reason. */
bt_code bt_island_client_join(bt_island_client *c, const void *weights, size_t bytes,
                              bt_island_go *go, bt_err *err) BT_MUST_CHECK;
/* Sends one update of push->bytes bytes, which the claim describes, and waits for its go. A restarted hub is offered
 * the update; if it was applied before, the hub repeats its go. *rejoined: the update was not accepted, and `go` is
 * that of a new join. If want_weights is set, there is no go yet: join again. */
bt_code bt_island_client_push(bt_island_client *c, const bt_island_push *push, const void *payload,
                              bt_island_go *go, bool *rejoined, bt_err *err) BT_MUST_CHECK;
/* Repeats a push, without payload, whose go had arrived, after a fetch that set `stranger`: the hub had this update. */
bt_code bt_island_client_push_again(bt_island_client *c, const bt_island_push *push,
                                    bt_island_go *go, bool *rejoined, bt_err *err) BT_MUST_CHECK;
typedef struct bt_island_fetched {
    /* the hub does not have these bytes: fetch something else, or join again if c->stranger is set */
    bool gone;
    /* Versions of the chunks; they differ if an asynchronous hub applied updates during the fetch. */
    int64_t oldest, newest;
} bt_island_fetched;
/* Fetches exactly `bytes` bytes from the hub: the update to `version`, or weights of that version or newer. Late
 * replies to earlier requests are skipped. */
bt_code bt_island_client_fetch(bt_island_client *c, bt_fetch_kind kind, int64_t version, void *out,
                               size_t bytes, bt_island_fetched *got, bt_err *err) BT_MUST_CHECK;
/* Sends a sign of life. A restarted hub receives the claim; waits at most 2 s for its welcome. */
void bt_island_client_beat(bt_island_client *c);
void bt_island_client_leave(bt_island_client *c);

#endif

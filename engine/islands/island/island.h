/* island.h - makes this job an island of a hub; the trainer calls it instead of, or in addition to, its optimizer.
 *
 *     join      becomes a member and adopts the hub's weights
 *     gradient  one step of all islands: sends the gradient to the hub and adopts its new weights
 *     delta     after the inner steps of a go: sends the change of the weights and adopts the hub's new weights
 *     ahead     after each further inner step before the delta is acknowledged
 *     skip      reports that the step was not applied; the job continues
 *
 * `go` describes the next step: the data, the kind of exchange, the clock (island_message.h). Inner steps continue
 * while a delta is in flight: islands.overlap steps in any case (-1: until the reply, at most those of the next round),
 * and islands.away steps if the hub does not respond. When the hub's weights arrive, the change of these steps is added
 * to them and becomes part of the next delta. A delta is never changed after it has been sent.
 * Order:    create -> join -> { gradient | delta ahead* | skip }* -> leave -> destroy.
 * Ranks:    every function is collective over the world; rank 0 exchanges messages with the hub. BT_STOPPED on all
 *           ranks: a stop was requested while waiting for the hub.
 * Threads:  the training thread; a delta is sent by a thread of its own (exchange_thread.h). */
#ifndef BT_ENGINE_ISLANDS_ISLAND_ISLAND_H
#define BT_ENGINE_ISLANDS_ISLAND_ISLAND_H

#include "engine/config/rank_setup.h"
#include "engine/islands/rules/job_settings.h"
#include "engine/islands/wire/island_message.h"
#include "engine/update/update.h"

typedef struct bt_island bt_island;

typedef struct bt_island_cfg {
    const bt_run_cfg *cfg; /* resolved; borrowed, like the next two members */
    bt_update *update;
    bt_comm *world;
    bt_job_hashes hashes;
    int64_t sequences; /* number of sequences per step */
    void *ctx;         /* argument of the functions, which only rank 0 calls */
    bool (*interrupted)(void *ctx);
    void (*tell)(void *ctx, bool lost, const char *line);
} bt_island_cfg;

/* Returns the memory of bt_island_create for the memory plan: the whole model, and the exchange on rank 0. */
size_t bt_island_bytes(const bt_rank_setup *s);
bt_code bt_island_create(bt_island **out, const bt_island_cfg *cfg, bt_err *err) BT_MUST_CHECK;
void bt_island_destroy(bt_island *i); /* leaves first; accepts NULL */

bt_code bt_island_join(bt_island *i, bt_err *err) BT_MUST_CHECK;
const bt_island_go *bt_island_now(const bt_island *i);

typedef struct bt_island_work { /* one update */
    int64_t tokens;
    double loss, grad_norm, unscale; /* unscale: factor for gradients */
} bt_island_work;
/* *rejoined: the hub has restarted, had declared this island dead, or had closed the round by a quorum
 * (bt_island_outcome). The weights are then those of the hub without this update, whose steps must be repeated from
 * `now` on. */
bt_code bt_island_gradient(bt_island *i, const bt_island_work *w, bool *rejoined, bt_err *err)
    BT_MUST_CHECK;
typedef enum {
    /* the delta is acknowledged; `now` is the next round, of which some steps may already be done */
    BT_ISLAND_SETTLED,
    /* like *rejoined above; or the steps done ahead are lost, because they began from weights that were not applied */
    /* not acknowledged yet: do one more step on the data of now->next_begin */
    BT_ISLAND_REJOINED,
    BT_ISLAND_AHEAD
} bt_island_state;
bt_code bt_island_delta(bt_island *i, const bt_island_work *w, bt_island_state *state, bt_err *err)
    BT_MUST_CHECK;
/* steps: number of steps since the delta. */
bt_code bt_island_ahead(bt_island *i, int64_t steps, bt_island_state *state, bt_err *err)
    BT_MUST_CHECK;
/* Returns the outcome of the newest update, the same on all ranks. A rejected update was reported (bt_island_cfg.tell),
 * and the earlier residual restored. */
bt_update_outcome bt_island_outcome(const bt_island *i);
/* Returns true on all ranks if the last error occurred because the hub was silent for islands.patience. */
bool bt_island_gave_up(const bt_island *i);
bt_code bt_island_skip(bt_island *i, bool *rejoined, bt_err *err) BT_MUST_CHECK;
/* Sends a sign of life between two steps that do not exchange. */
void bt_island_beat(bt_island *i);

/* Cancels a delta in flight. Afterwards only destroy and the counts may be called. */
void bt_island_end(bt_island *i);
/* Counts of this process, on rank 0: applied updates and their tokens, and rejected or lost updates by reason. */
typedef struct bt_island_count {
    int64_t applied, tokens, left_out, by_outcome[BT_UPDATE_OUTCOMES];
} bt_island_count;
bt_island_count bt_island_counted(const bt_island *i);

#endif

/* island.h - this job as an island of a hub: what a trainer calls instead of (or beside) its optimizer.
 *
 *     join      becomes a member; the weights are the hub's from now on
 *     gradient  one step of all islands: the gradient goes to the hub, its new weights come back
 *     delta     after the go's inner steps: what they changed goes to the hub, as above
 *     ahead     after each further inner step that is done while a delta has not been answered
 *     skip      the step was not applied; the others go on
 *
 * `go` says what the next step is: the data, the kind of exchange, the clock (island_message.h).
 * Inner steps go on while a delta is on its way: always for islands.overlap steps (-1: as many as it takes, at most
 * the next round's), and for islands.away steps
 * where the hub does not answer. What they changed is added to the hub's weights when those arrive, and is
 * part of the next delta; a delta that has once been sent is never changed.
 * Order:    create -> join -> { gradient | delta ahead* | skip }* -> leave -> destroy.
 * Ranks:    every function is collective over the world; rank 0 talks to the hub. BT_STOPPED on all ranks:
 *           somebody asked to stop while the hub was waited for.
 * Threads:  the training thread; a delta travels in a thread of its own (exchange_thread.h). */
#ifndef BT_ENGINE_ISLANDS_ISLAND_ISLAND_H
#define BT_ENGINE_ISLANDS_ISLAND_ISLAND_H

#include "engine/islands/rules/job_settings.h"
#include "engine/islands/wire/island_message.h"
#include "engine/update/update.h"

typedef struct bt_island bt_island;

typedef struct bt_island_cfg {
    const bt_run_cfg *cfg; /* resolved; borrowed, as the next two */
    bt_update *update;
    bt_comm *world;
    bt_job_hashes hashes;
    int64_t sequences; /* of a step */
    void *ctx;         /* of the functions; rank 0 alone calls them */
    bool (*interrupted)(void *ctx);
    void (*tell)(void *ctx, bool lost, const char *line);
} bt_island_cfg;

bt_code bt_island_create(bt_island **out, const bt_island_cfg *cfg, bt_err *err) BT_MUST_CHECK;
void bt_island_destroy(bt_island *i); /* leaves first; accepts NULL */

bt_code bt_island_join(bt_island *i, bt_err *err) BT_MUST_CHECK;
const bt_island_go *bt_island_now(const bt_island *i);

typedef struct bt_island_work { /* what an update is made of */
    int64_t tokens;
    double loss, grad_norm, unscale; /* unscale: gradients are multiplied by it */
} bt_island_work;
/* *rejoined: the hub was started again or had declared this island dead, or a quorum had closed the round without it
 * (bt_island_outcome). The update is not in the weights, which are the hub's, and its steps are done again where
 * `now` says */
bt_code bt_island_gradient(bt_island *i, const bt_island_work *w, bool *rejoined, bt_err *err)
    BT_MUST_CHECK;
typedef enum {
    BT_ISLAND_SETTLED, /* the delta is answered; `now` is the next round, of which steps may be done */
    BT_ISLAND_REJOINED, /* as *rejoined above; or steps ahead are lost, as they began with what was not applied */
    BT_ISLAND_AHEAD /* no answer yet: do one more step on the data of now->next_begin */
} bt_island_state;
bt_code bt_island_delta(bt_island *i, const bt_island_work *w, bt_island_state *state, bt_err *err)
    BT_MUST_CHECK;
/* steps: done so far since the delta. */
bt_code bt_island_ahead(bt_island *i, int64_t steps, bt_island_state *state, bt_err *err)
    BT_MUST_CHECK;
/* of the newest update, the same on all ranks. What is not applied is told (bt_island_cfg.tell); what encoding lost
 * before it is owed again */
bt_update_outcome bt_island_outcome(const bt_island *i);
/* the error was that the hub has been silent for islands.patience; the same on all ranks */
bool bt_island_gave_up(const bt_island *i);
bt_code bt_island_skip(bt_island *i, bool *rejoined, bt_err *err) BT_MUST_CHECK;
/* between two steps that do not exchange: a sign of life */
void bt_island_beat(bt_island *i);

/* a delta that is on its way is not waited for; only destroy may follow, and the counts */
void bt_island_end(bt_island *i);
/* of this process, on rank 0: updates that the hub has said are applied, and their tokens; those that it left out or
 * never had, and why */
typedef struct bt_island_count {
    int64_t applied, tokens, left_out, by_outcome[BT_UPDATE_OUTCOMES];
} bt_island_count;
bt_island_count bt_island_counted(const bt_island *i);

#endif

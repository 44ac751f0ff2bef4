/* simulate_islands.h - islands around a hub that are not here, as discrete events: who computes, who waits
 * for the hub or for others, how full the hub's link is, how old the updates are.
 *
 * A round of an island is `inner` steps, an update sent, the hub's answer fetched. The first `warmup` steps of a
 * run are rounds of one step, which all islands do together; then a round is of `ramp` times the steps done so far,
 * until that is `inner`. The hub's link has one queue for what comes and one for what leaves; a transfer also takes
 * what the island's own link needs. The hub writes what it has applied to its disk before it answers.
 *     bound 0:   the hub answers when all living islands have sent (ps sync, diloco)
 *     bound > 0: at once; an island begins a round when the slowest has done at least its own steps - bound
 *     bound < 0: at once, and nobody waits for others
 * Both ends of a transfer encrypt and copy its bytes, the hub's with one thread for all islands and both ways.
 * Where islands and hub share the cores of one machine (`cores`), all that computes at a moment gets the same share
 * of them: islands exactly, what the hub and its link do as it is when they begin.
 * An island that fails loses the steps that it has not sent, and comes back after restart_s; the others go
 * on without it. What is simulated is time; what staleness does to the loss is not.
 * Threads: none shared. Pure arithmetic: the same words give the same numbers. */
#ifndef BT_ENGINE_PLAN_SIMULATE_ISLANDS_H
#define BT_ENGINE_PLAN_SIMULATE_ISLANDS_H

#include <stdint.h>

#include "engine/base/status.h"

enum { BT_SIM_ISLANDS_MOST = 4096 };

typedef struct bt_islands_sim {
    int n;
    int64_t inner,
        overlap;   /* steps of a round; of the next round that are done while an update travels */
    int64_t bound; /* in steps */
    /* of each island; 0: rounds of `inner` steps for ever */
    int64_t steps, warmup;
    double ramp;                             /* 0: rounds do not grow */
    double step_s;                           /* of an island by itself */
    double spread;                           /* an island is slower by |normal| of this width */
    double up_bytes, down_bytes;             /* of an update and of its answer, over the wire */
    double island_rate, hub_rate, latency_s; /* bytes a second, each way; of a message */
    double coding_s; /* of a byte at each end: encrypting or decrypting, copying */
    /* of the hub: taking one update in; one outer step and its answer; writing it to the disk; handing an answer to
     * one island */
    double add_s, update_s, keep_s, answer_s;
    double island_s; /* of an island: making an update, taking the answer in */
    int cores;       /* that the islands and the hub share; 0: each has a machine of its own */
    int threads;     /* of an island, all of its ranks; 0: one */
    double mtbf_s, restart_s; /* of an island; mtbf 0: it never fails */
    int64_t
        rounds; /* of an island on average; 0: all of a run that is not too long, else as many as are enough */
    uint64_t seed;
} bt_islands_sim;

typedef struct bt_islands_time {
    double seconds, rounds; /* simulated; rounds of all islands that the hub took */
    double steps_per_s;     /* of all islands */
    double held_frac;       /* of the islands' time: waiting for the hub, the link, or each other */
    double lost_frac; /* of the islands' time: failed, coming back, work that was never sent */
    double in_frac, out_frac; /* of the time the hub's link is busy, each way */
    double disk_frac;         /* of the time the hub writes */
    double staleness_mean;    /* versions between what an update was made of and what it met */
    int64_t staleness_most;
    int64_t failures;
} bt_islands_time;

/* BT_ARG: not a round's worth of steps, or more islands than BT_SIM_ISLANDS_MOST */
bt_code bt_islands_simulate(const bt_islands_sim *s, bt_islands_time *out, bt_err *err)
    BT_MUST_CHECK;

#endif

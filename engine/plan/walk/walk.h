/* walk.h - one training step as discrete events: what every rank does, in the order in which
 * engine/micro, engine/parallel and engine/train do it, with a duration for each piece.
 *
 *     begin | F F .. F B F B .. B B | exchange | agreement | norm, update, weights | the rest
 *            the order of pass_order.h: a stage waits for its neighbours' messages
 *                            a bucket leaves when its last gradient is made (reducer.h), at most
 *                            BT_STRIPES_IN_FLIGHT are on their way
 *                                        all ranks meet
 * Numbers in, numbers out: where durations come from is time_model.h's. Tensor-parallel ranks of a
 * stage do the same at the same time and are one walker. Equal data-parallel ranks may be walked as
 * one: `slow` tells them apart.
 * Ideal numbers give the textbook's: of m micro-batches on P equal stages of v chunks of layers
 * (P - 1) / (v m + P - 1) of the time is waiting (Narayanan et al. 2021, arXiv:2104.04473, section
 * 2.2), and an exchange alone costs its rounds' latencies and its bytes over the rate.
 * Threads: none shared. */
#ifndef BT_ENGINE_PLAN_WALK_WALK_H
#define BT_ENGINE_PLAN_WALK_WALK_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/status.h"
#include "engine/base/tables/metric.h"

/* Seconds, of one rank of a pipeline stage: processor time of a rank that has its cores for itself,
 * which takes as many times longer as ranks share cores (moving bytes within a host is processor time
 * too); but for what is on a wire between hosts. Where a stage has several chunks of layers, a
 * micro-batch's is one chunk's, and the rest is the stage's and stands with its first chunk. */
typedef struct bt_stage_work {
    double fwd_s, bwd_s;           /* a micro-batch: computing */
    double fwd_comm_s, bwd_comm_s; /* a micro-batch: exchanges that computing does not hide */
    /* a micro-batch: ranks of a tensor-parallel group wait for the last of them at their meetings */
    double fwd_meet_s, bwd_meet_s;
    double begin_s; /* once a step, before the first micro-batch */
    /* gradients: buckets, of each the processor time of sending, adding and encoding; the time on
     * the wire, one bucket after another; and the latencies of its rounds, which overlap */
    int64_t buckets;
    double bucket_cpu_s, bucket_wire_s, bucket_latency_s;
    double optim_s, optim_comm_s; /* norm, update, new codes; weights to other ranks */
} bt_stage_work;

typedef struct bt_walk {
    int pp, dp;                 /* stages; data-parallel ranks that are walked one by one */
    int chunks;                 /* of layers, of each stage (virtual stages); 0: one */
    int64_t micros;             /* of a data-parallel rank; with several chunks a multiple of pp */
    const bt_stage_work *stage; /* (chunks, pp) */
    bool overlap;               /* buckets leave while backward goes on */
    /* a message between stages: each side's work; until it arrives; of that, how long it takes the link of its
     * sender, on which it waits for the one before it: 0 where memory is the link */
    double copy_s, flight_s, wire_s;
    double tied_s;      /* gradients of a tied embedding, last stage to first */
    double tied_back_s; /* its new values, first stage to last */
    bool tied_wired; /* both cross a network: what goes up travels while the first stage computes */
    double agree_s;  /* all ranks' meeting */
    double data_s, monitor_s, ckpt_s; /* a step's share */
    const double *slow;               /* (dp, pp) factors on computing, >= 1; NULL: 1 */
    /* threads of all ranks over the cores that they share, and the job's ranks; 0: each rank has its
     * own (walk_shared.c) */
    double crowd;
    int ranks;
    /* rank r is bound to core r % cores (placement.h of the monitor); 0: the kernel moves ranks about */
    int cores;
} bt_walk;

typedef struct bt_step_time {
    double step_s;
    double phase_s[BT_PHASE_COUNT]; /* mean of the ranks; together step_s */
    /* processor time of a rank in each phase, without what waits and what shares cores; mean of the
     * ranks */
    double processor_s[BT_PHASE_COUNT];
    /* of the time from the first forward to the last backward pass the share in which a stage waits
     * for another */
    double bubble_frac;
    double exchange_s; /* the gradient exchange's time that nothing hides, mean of the ranks */
} bt_step_time;

bt_code bt_walk_step(const bt_walk *w, bt_step_time *out, bt_err *err) BT_MUST_CHECK;

#endif

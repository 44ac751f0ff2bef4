/* step_simulator.h - simulates one training step as discrete events. Every rank executes the operations of
 * engine/micro, engine/parallel and engine/train in their order, each with a given duration.
 *
 *     begin | F F .. F B F B .. B B | exchange | agreement | norm, update, weights | the rest
 *            the order of pass_order.h: a stage waits for its neighbours' messages
 *                            a bucket is sent when its last gradient is complete (reducer.h), at most
 *                            BT_STRIPES_IN_FLIGHT are in transit
 *                                        all ranks synchronise
 * The durations are inputs; time_model.h computes them. Tensor-parallel ranks of a stage execute the same operations at
 * the same time and are simulated as one. Equal data-parallel ranks may be simulated as one; `slow` makes them differ.
 * With ideal numbers the result is the textbook's: for m micro-batches on P equal stages of v chunks of layers,
 * (P - 1) / (v m + P - 1) of the time is waiting (Narayanan et al. 2021, arXiv:2104.04473, section 2.2), and an
 * exchange alone costs its rounds' latencies plus its bytes over the rate.
 * Threads: no shared state. */
#ifndef BT_ENGINE_PLAN_STEP_SIMULATOR_STEP_SIMULATOR_H
#define BT_ENGINE_PLAN_STEP_SIMULATOR_STEP_SIMULATOR_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/status.h"
#include "engine/base/tables/metric.h"

/* Seconds of one rank of a pipeline stage. They are processor time of a rank that has its cores for itself, and are
 * multiplied by the slow-down where ranks share cores (moving bytes within a host is processor time too); time on a
 * wire between hosts is not. In a stage of several chunks the times of a micro-batch are those of one chunk; the
 * other times are the stage's and are stored with its first chunk. */
typedef struct bt_stage_work {
    double fwd_s, bwd_s;           /* computing, per micro-batch */
    double fwd_comm_s, bwd_comm_s; /* exchanges that computing does not hide, per micro-batch */
    /* waiting for the slowest rank of the tensor-parallel group, per micro-batch */
    double fwd_tp_wait_s, bwd_tp_wait_s;
    double begin_s; /* once a step, before the first micro-batch */
    /* gradient buckets, and for each the processor time of sending, adding and encoding, the time on the wire (one
     * bucket after another) and the latencies of its rounds, which overlap */
    int64_t buckets;
    double bucket_cpu_s, bucket_wire_s, bucket_latency_s;
    double optim_s, optim_comm_s; /* norm, update, new codes; weights to other ranks */
} bt_stage_work;

typedef struct bt_step_simulation {
    int pp, dp; /* pipeline stages; data-parallel ranks simulated one by one */
    int chunks; /* virtual stages of each pipeline stage; 0 means 1 */
    /* micro-batches of a data-parallel rank; a multiple of pp with several chunks */
    int64_t micros;
    const bt_stage_work *stage; /* (chunks, pp) */
    bool overlap;               /* buckets are sent during the backward pass */
    /* Message between stages: each side's processor time; time until it arrives; part of that time during which it
     * occupies the sender's link, 0 if memory is the link. Messages queue for the link. */
    double copy_s, flight_s, wire_s;
    double tied_s;      /* gradients of a tied embedding, last stage to first */
    double tied_back_s; /* its new values, first stage to last */
    /* both transfers cross a network: the gradients travel while the first stage computes */
    bool tied_wired;
    double agree_s;                   /* agreement of all ranks */
    double data_s, monitor_s, ckpt_s; /* mean per step */
    const double *slow;               /* (dp, pp) factors on computing, >= 1; NULL: 1 */
    /* threads of all ranks over the cores that they share; 0 gives each rank its own cores */
    double crowd;
} bt_step_simulation;

typedef struct bt_step_time {
    double step_s;
    double phase_s[BT_PHASE_COUNT]; /* mean over ranks; the sum is step_s */
    /* processor time of a rank in each phase without waiting and without the slow-down of shared cores; mean over
     * ranks */
    double processor_s[BT_PHASE_COUNT];
    /* share of the time from the first forward to the last backward pass in which a stage waits for another stage */
    double bubble_frac;
    double exchange_s; /* part of the gradient exchange that is not hidden; mean over ranks */
} bt_step_time;

bt_code bt_simulate_step(const bt_step_simulation *w, bt_step_time *out, bt_err *err) BT_MUST_CHECK;

#endif

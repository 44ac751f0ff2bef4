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
 * With ideal inputs the result equals the known formula: for m micro-batches on P equal stages of v chunks of layers,
 * (P - 1) / (v m + P - 1) of the time is waiting (Narayanan et al. 2021, arXiv:2104.04473, section 2.2), and an
 * exchange alone costs its rounds' latencies plus its bytes over the rate. Threads: no shared state. */
#ifndef BT_ENGINE_PLAN_STEP_SIMULATOR_STEP_SIMULATOR_H
#define BT_ENGINE_PLAN_STEP_SIMULATOR_STEP_SIMULATOR_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/status.h"
#include "engine/base/tables/metric.h"

/* Seconds of one rank of a pipeline stage, for a rank that does not share its cores. Where ranks share cores, they are
 * multiplied by the slow-down, except time on a wire between hosts; copies within a host use the processor. With
 * several chunks per stage, the times of a micro-batch are those of one chunk; all other times are of the whole stage
 * and are in its first chunk. */
typedef struct bt_stage_work {
    double fwd_s, bwd_s;           /* computing, per micro-batch */
    double fwd_comm_s, bwd_comm_s; /* exchanges that computation does not hide, per micro-batch */
    /* waiting for the slowest rank of the tensor-parallel group, per micro-batch */
    double fwd_tp_wait_s, bwd_tp_wait_s;
    double begin_s; /* once a step, before the first micro-batch */
    /* Gradient buckets. For each: processor time of sending, adding and encoding; time on the wire, where buckets
     * follow one another; latencies of its rounds, which overlap. */
    int64_t buckets;
    double bucket_cpu_s, bucket_wire_s, bucket_latency_s;
    double optim_s, optim_comm_s; /* norm, update and new codes; sending weights to other ranks */
} bt_stage_work;

typedef struct bt_step_simulation {
    int pp, dp; /* pipeline stages; data-parallel ranks that are simulated individually */
    int chunks; /* virtual stages of each pipeline stage; 0 means 1 */
    /* micro-batches of a data-parallel rank; a multiple of pp with several chunks */
    int64_t micros;
    const bt_stage_work *stage; /* (chunks, pp) */
    bool overlap;               /* buckets are sent during the backward pass */
    /* Message between stages: processor time on each side; time until it arrives; time in which it occupies the
     * sender's link, 0 if both share memory. Messages queue for the link. */
    double copy_s, flight_s, wire_s;
    double tied_s; /* sending the gradients of a tied embedding from the last stage to the first */
    double tied_back_s; /* sending its new values from the first stage to the last */
    /* Both transfers use a network, so the gradients are sent while the first stage computes. */
    bool tied_wired;
    double agree_s;                   /* agreement of all ranks */
    double data_s, monitor_s, ckpt_s; /* mean time per step */
    const double *slow;               /* (dp, pp) slow-down factors of ranks, >= 1; NULL: all 1 */
    double crowd; /* Threads of all ranks per core of a host; 0: each rank has its own cores. */
} bt_step_simulation;

typedef struct bt_step_time {
    double step_s;
    double phase_s[BT_PHASE_COUNT]; /* mean over the ranks; the sum is step_s */
    /* Processor time of a rank in each phase, without waits and shared cores; mean over the ranks. */
    double processor_s[BT_PHASE_COUNT];
    /* Share of the time from the first forward to the last backward pass in which a stage waits for another stage. */
    double bubble_frac;
    double exchange_s; /* gradient exchange that computation does not hide; mean over the ranks */
} bt_step_time;

bt_code bt_simulate_step(const bt_step_simulation *w, bt_step_time *out, bt_err *err) BT_MUST_CHECK;

#endif

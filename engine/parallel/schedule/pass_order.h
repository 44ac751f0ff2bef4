/* pass_order.h - the passes of a pipeline stage in a step, and their order.
 *
 *     one chunk of layers (1F1B, PipeDream-Flush): stage s of n makes n-1-s forward passes, then forward and
 *     backward passes in turn, then backward passes
 *         stage 0   F0 F1 F2 F3 .. .. B0 F4 B1 F5 B2 ...        with m micro-batches (n-1) / (m+n-1) of the time
 *                   is
 *         stage 1      F0 F1 F2 .. B0 F3 B1 F4 B2               the pipeline filling and draining
 *         stage 2         F0 F1 B0 F2 B1 F3 B2
 *         stage 3            F0 B0 F1 B1 F2 B2
 *     v chunks (interleaved; Narayanan et al. 2021, arXiv:2104.04473, section 2.2): n micro-batches pass
 *     chunk 0 of all stages, then chunk 1 and so on, before the next n start; backward the same from the
 *     last chunk to the first. A stage makes 2 (n-1-s) + (v-1) n forward passes before its first backward pass.
 *     The pipeline fills and drains v times as fast: (n-1) / (v m + n-1) of the time
 *         stage 0   F0 F1 f0 f1 B.. ...                         n = 2, v = 2; f: chunk 1
 *         stage 1      F0 F1 f0 b0 ...
 *
 * The orders of forward passes and of backward passes are the same on all stages, so that two stages send and
 * receive their messages in one order. Each forward pass of the last virtual stage is followed by the backward
 * pass of the same micro-batch.
 * Pure arithmetic. Threads: no shared state. */
#ifndef BT_ENGINE_PARALLEL_PASS_ORDER_H
#define BT_ENGINE_PARALLEL_PASS_ORDER_H

#include <stdbool.h>
#include <stdint.h>

typedef struct bt_pass_order {
    int stages, stage, chunks;
    int64_t micros; /* number of micro-batches; with several chunks a multiple of `stages` */
} bt_pass_order;

typedef struct bt_pass {
    bool backward;
    int chunk;
    int64_t micro;
} bt_pass;

/* Returns the number of passes in a step, half of which are backward passes. */
int64_t bt_pass_count(const bt_pass_order *o);
/* Returns pass i of the step, 0 <= i < bt_pass_count. */
bt_pass bt_pass_at(const bt_pass_order *o, int64_t i);
/* Returns forward pass k, 0 <= k < chunks * micros; without backward passes `micros` may be any number. */
bt_pass bt_pass_forward(const bt_pass_order *o, int64_t k);
/* maximum number of forward passes whose activations backward has yet to read: min(chunks * micros, ahead + 1) */
int64_t bt_passes_in_flight(const bt_pass_order *o);
/* Returns the maximum number of micro-batches from the lowest to the highest one that has begun and is unfinished. */
int64_t bt_micros_in_flight(const bt_pass_order *o);

#endif

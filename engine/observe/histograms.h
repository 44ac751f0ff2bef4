/* histograms.h - distributions of the latent weights and the gradients of every tensor: exact counts in the bins
 * of engine/base/tables/histogram.h.
 *
 * Latent weights are counted only for ternary tensors, gradients for all. Ranks with the same elements divide them as
 * in codes.h, so the sum over all ranks counts every element of a tensor once. Cost: one pass over this rank's share of
 * weights and gradients, on all threads. A sample of `nano` takes 19 ms of
 *    processor time, including the transfer of its rows, and 44 kB in the database. The state of training is not
 *    changed. Threads: the training thread. */
#ifndef BT_ENGINE_OBSERVE_HISTOGRAMS_H
#define BT_ENGINE_OBSERVE_HISTOGRAMS_H

#include "engine/base/tables/histogram.h"
#include "engine/observe/codes.h"

typedef struct bt_histogram {
    double weights[BT_HIST_BINS], gradients[BT_HIST_BINS]; /* numbers of elements */
} bt_histogram;

/* Adds this rank's share of tensor k. Gradients are first multiplied by unscale (1 / loss scale). */
void bt_histogram_add(bt_model *m, const bt_codes_cfg *slices, size_t k, float unscale,
                      bt_histogram *out);

/* Returns true if distributions are due together with the statistics of `step` (from 0), which are taken every `every`
 * steps. The run is divided into `most` intervals, and the first statistics in each include distributions. most 0:
 * never. */
bool bt_histogram_due(int64_t step, int64_t every, int64_t steps, int64_t most);

#endif

/* replica_check.h - verifies by hash that data-parallel replicas hold the same weights.
 *
 * Gradients are the same on all ranks because they are sums over all ranks. Nothing else verifies the update that each
 * rank computes: a flipped bit in one rank's memory would remain in its weights without any visible effect.
 *
 * Compared tensor by tensor, bit by bit:
 *     without shards, ZeRO 1, 2   all latent weights, among the data-parallel ranks
 *     ZeRO 3                      embedding, norms and head among the data-parallel ranks; this rank's own
 *                                 pieces of ternary tensors among the ranks with the same pieces
 *                                 (dp_replicate > 1), not compared if there is one replica
 *
 * It does not compare optimizer states, or data replicated over tensor-parallel ranks or pipeline stages.
 *
 * Order:    init -> run* -> release. Call run between two updates.
 * Ranks:    run is collective over the world; a difference is an error on all ranks.
 * Cost:     reads the weights once, on all threads; an all-reduce of 16 bytes per tensor; 24 bytes of memory per MiB
 *           of weights. */
#ifndef BT_ENGINE_UPDATE_REPLICA_CHECK_H
#define BT_ENGINE_UPDATE_REPLICA_CHECK_H

#include "engine/base/sink.h"
#include "engine/update/update.h"

typedef struct bt_hashed_range { /* a part of one tensor */
    size_t tensor, begin, end;   /* elements of the flat arrays */
} bt_hashed_range;

typedef struct bt_replica_blame { /* ranks that differ; the same on all ranks of the world */
    bool found,
        majority; /* majority: rank[0] alone differs from a majority; else one of the two is damaged */
    char tensor[48];
    int rank[2]; /* ranks in the world; rank[1] holds other weights than rank[0] */
    char host[2][BT_HOST_MAX];
    int64_t hash[2];
    /* first element of the flat array that differs, and its values, if there is no majority */
    int64_t element;
    double value[2];
} bt_replica_blame;

typedef struct bt_replica_check {
    const bt_update *update; /* borrowed */
    bt_hashed_range *ranges; /* (n_ranges), ordered by tensor */
    uint64_t *hashes;        /* (n_ranges) */
    size_t n_ranges;
    /* (2 * tensors) each tensor's hash and its negative: first tensors compared along dp, then along replicate */
    int64_t (*pairs)[2];
} bt_replica_check;

bt_code bt_replica_check_init(bt_replica_check *c, const bt_update *u, bt_err *err) BT_MUST_CHECK;
void bt_replica_check_release(bt_replica_check *c); /* accepts an all-zero struct */
/* step: number of steps done, for the message. BT_DAMAGED, and blame (may be NULL), name the first tensor that differs
 * and its ranks. */
bt_code bt_replica_check_run(bt_replica_check *c, int64_t step, bt_replica_blame *blame,
                             bt_err *err) BT_MUST_CHECK;
/* Number of steps until the next comparison, if a comparison takes cost_ns and a step step_ns. Comparisons take 0.25 %
 * of the time, at intervals of 1 to 50 steps; 10 if step_ns is unknown (0). */
int64_t bt_replica_check_every(double cost_ns, double step_ns);
/* Checks that every weight of every rank is finite. BT_DAMAGED names a tensor, and the lowest rank with a weight that
 * is not finite. Collective over the world. */
bt_code bt_replica_check_finite(const bt_replica_check *c, int64_t step, bt_err *err) BT_MUST_CHECK;

/* Flips a bit if bt_testing_flip requests it. */
void bt_replica_check_test_flip(const bt_replica_check *c, int64_t step);

#endif

/* codes.h - counts changes of the ternary codes from one statistics sample to the next.
 *
 *     flip          the code differs from that of the previous sample
 *     sign flip     -1 <-> +1 since the previous sample
 *     oscillation   a flip back to the code of two samples ago
 *     boundary      the latent weight is within BT_CODES_BAND scales of a threshold, so it could flip soon. Of
 *                   Gaussian latent weights, 5.9 % are
 *
 * The codes of the last two samples need 4 bits per weight. Replicas divide a tensor, so a rank stores and examines
 * 1/dp of the weights. Cost: about 2 ns per examined weight and sample, on all threads.
 * Order: create -> sample* -> destroy, after the model's quantise. No allocation after create. */
#ifndef BT_ENGINE_OBSERVE_CODES_H
#define BT_ENGINE_OBSERVE_CODES_H

#include "engine/model/net/model.h"
#include "engine/parallel/shard/shard_map.h"
#include "engine/update/weights.h"

#define BT_CODES_BAND 0.05f

typedef struct bt_codes bt_codes;
typedef struct bt_code_counts {
    double flips, sign_flips, back, near;
} bt_code_counts;

typedef struct bt_codes_cfg {
    const bt_shards *shards;
    int shard;       /* shard whose latent weights are on this rank */
    int part, parts; /* index among the ranks with the same weights, and their number */
    /* Owner of the codes; NULL: the model has all of them. Not needed for a plan. */
    const bt_weights *weights;
} bt_codes_cfg;

/* Returns the part of tensor t in stripe i that this rank examines, which may be empty. One rank examines each part. */
bt_range bt_codes_slice(const bt_codes_cfg *cfg, const bt_tensor *t, size_t i);
/* Returns the stripes [begin, end) in which bt_codes_slice of t may have elements. */
bt_range bt_codes_stripes(const bt_codes_cfg *cfg, const bt_tensor *t);
size_t bt_codes_bytes(const bt_params *p, const bt_codes_cfg *cfg);
bt_code bt_codes_create(bt_codes **out, bt_model *m, const bt_codes_cfg *cfg, bt_err *err)
    BT_MUST_CHECK;
void bt_codes_destroy(bt_codes *c); /* accepts NULL */
/* counts: (tensors) this rank's share of each tensor's counts. Flips need two samples, oscillations three. */
void bt_codes_sample(bt_codes *c, bt_code_counts *counts);
int bt_codes_samples(const bt_codes *c); /* number of samples so far, at most 3 */

#endif

/* weights.h - the weights after an update, from the ranks that own their pieces to all that compute with them.
 *
 *     one shard     nothing travels
 *     ZeRO 1, 2     every piece travels as fp32, while the next is updated: every rank holds all latent weights
 *     ZeRO 3        embedding, norms and head travel as fp32; ternary weights as 2-bit codes, under scales made of all ranks'
 *                   sums. A rank never holds latent ternary weights that are not its own: those pages are never touched.
 * Order:    create -> quantise -> { gather (pieces from the last to the first, each after its update) -> quantise }* -> destroy.
 * Collective over the shard axis. No allocation after create. */
#ifndef BT_ENGINE_TRAIN_WEIGHTS_H
#define BT_ENGINE_TRAIN_WEIGHTS_H

#include "engine/model/model.h"
#include "engine/parallel/pieces.h"

typedef struct bt_weights bt_weights;

bt_code bt_weights_create(bt_weights **out, bt_model *m, const bt_mesh *mesh, const bt_shards *shards, int zero, bt_err *err) BT_MUST_CHECK;
void bt_weights_destroy(bt_weights *w);                 /* accepts NULL */
size_t bt_weights_bytes(const bt_params *p, const bt_shards *shards, int zero);         /* that create takes */
size_t bt_weights_latent_bytes(const bt_params *p, const bt_shards *shards, int zero, int shard);    /* of latent weights a rank holds */
/* a part of the flat array that this rank computes with as fp32, from its own updates or gathered */
bool bt_weights_holds(const bt_weights *w, const bt_tensor *t);
bt_code bt_weights_gather(bt_weights *w, size_t stripe, bt_err *err) BT_MUST_CHECK;     /* starts; quantise waits */
/* codes, scales and panels of all weights; *comm_ns grows by the time blocked on other ranks */
bt_code bt_weights_quantise(bt_weights *w, int64_t *comm_ns, bt_err *err) BT_MUST_CHECK;

#endif

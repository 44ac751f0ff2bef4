/* weights.h - sends the weights after an update from the ranks that own their pieces to all ranks that compute
 * with them.
 *
 *     one shard     nothing is sent
 *     ZeRO 1, 2     every piece is sent as fp32, while the next is updated: every rank holds all latent weights;
 *                   if weights are GATHERED: like ZeRO 3
 *     ZeRO 3        weights are sent in the form that products read (bt_model_read): ternary ones as 2-bit
 *                   codes, under scales made of all ranks' sums; those of dense layers as bf16 if products
 *                   round their operands to it, else as fp32. So the bits are those of a rank that holds
 *                   everything. A rank never touches the pages of latent weights of linear layers that it
 *                   does not own. Of its own pieces it keeps a copy in the sent form. Remote weights arrive by
 *                   layers:
 *                       BT_WEIGHTS_PREFETCHED   one layer ahead of each pass, freed after use; a layer used
 *                                         twice in a row (the last layer of forward, the first of a
 *                                         backward before the next micro-batch) is kept
 *                       BT_WEIGHTS_GATHERED     once a step, and the panels of all layers are kept;
 *                                         with `flips` only ternary codes that changed since the
 *                                         last gather are sent (flip_gather.h)
 *                   While layers fade to ternary (bt_model_lambda below 1; PREFETCHED alone) the owners send
 *                   mixtures of values and codes instead, as bf16 or fp32.
 *                   Embedding and head are sent once a step in pieces, each while the next piece is updated. If
 *                   products round to bf16 they are sharded too, and received into a table of bf16 on every rank;
 *                   else every rank holds them, like all norms, as fp32.
 *
 * Bytes a rank sends per step for T parameters in linear layers, with L layers, S shards, m micro-batches and b
 * bytes a parameter (1/4, in runs padded to 128 codes; 2 or 4): (S-1)/S b T x  1 (GATHERED) or  (2 m (L-1) + 1) /
 * L  (PREFETCHED; an evaluation: its micro-batches)
 *
 * Order:    create -> quantise -> { begin -> passes -> serve -> end }* -> { gather (pieces from the last to the
 *           first, each after its update) -> quantise -> ... }* -> destroy. serve: before this rank waits for
 *           other ranks in another way.
 * Collective over the shard axis. No allocation after create.
 * Threads:  the training thread. */
#ifndef BT_ENGINE_UPDATE_WEIGHTS_H
#define BT_ENGINE_UPDATE_WEIGHTS_H

#include "engine/config/rank_setup.h"
#include "engine/model/net/model.h"
#include "engine/parallel/shard/shard_all_gather.h"
#include "engine/parallel/shard/weight_prefetch.h"

typedef struct bt_weights bt_weights;

typedef struct bt_weights_cfg {
    bt_model *model; /* all borrowed */
    const bt_mesh *mesh;
    const bt_shards *shards;
    bool flips;                     /* sends only changed codes; used if weights are GATHERED */
    bool fades;                     /* the model fades to ternary; used if weights are PREFETCHED */
    bt_weight_source weight_source; /* setting of the model, as is prec */
    bt_prec prec;
} bt_weights_cfg;

bt_code bt_weights_create(bt_weights **out, const bt_weights_cfg *cfg, bt_err *err) BT_MUST_CHECK;
void bt_weights_destroy(bt_weights *w); /* accepts NULL */
/* memory used by create */
size_t bt_weights_bytes(const bt_rank_setup *s);
/* Returns the bytes of the latent weights that a rank holds, and of those that it updates. */
size_t bt_weights_latent_bytes(const bt_rank_setup *s);
size_t bt_weights_own_bytes(const bt_rank_setup *s);
/* true if this rank computes with the tensor's fp32 values in the flat array, from its own updates or gathered */
bool bt_weights_holds(const bt_weights *w, const bt_tensor *t);
/* true if the counts in bt_model_quant_stat must be summed over ranks */
bool bt_weights_counts(const bt_weights *w);
/* Returns n codes of the last quantise, for a piece whose latent weights are on this rank; `spare` has space for n
 * codes. NULL: not on this rank */
const int8_t *bt_weights_codes(const bt_weights *w, size_t tensor, size_t first, size_t n,
                               int8_t *spare);
/* starts; quantise waits */
bt_code bt_weights_gather(bt_weights *w, size_t stripe, bt_err *err) BT_MUST_CHECK;
/* Computes scales, own codes, and the panels of all weights unless these arrive layer by layer. */
bt_code bt_weights_quantise(bt_weights *w, bt_err *err) BT_MUST_CHECK;

/* Passes of the model; all four do nothing unless panels arrive by layers. begin: micro-batches of each
 * data-parallel rank, or (NULL) `each` for all; forward only (BT_PASSES_FORWARD) or with backward
 * (BT_PASSES_FORWARD_BACKWARD). check: after a pass. */
bt_code bt_weights_begin(bt_weights *w, bt_passes walk, const int64_t *micros, int64_t each,
                         bt_err *err) BT_MUST_CHECK;
bt_code bt_weights_check(const bt_weights *w, bt_err *err) BT_MUST_CHECK;
bt_code bt_weights_drain_sends(bt_weights *w, bt_err *err) BT_MUST_CHECK;
bt_code bt_weights_end(bt_weights *w, bt_err *err) BT_MUST_CHECK;
/* Blocked time is charged by base/span.h. This returns how long transfers were in flight since the last call,
 * hidden by computation or not: */
int64_t bt_weights_take_busy_ns(bt_weights *w);

#endif

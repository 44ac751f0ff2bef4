/* rank_setup.h - describes one rank of a layout, as derived from the settings.
 *
 * The objects of a training plan their memory and create themselves from this description, so `--dry-run` and a running
 * rank cannot differ. Pure arithmetic, for any rank of any world, without MPI.
 * Threads: no shared state. */
#ifndef BT_ENGINE_CONFIG_RANK_SETUP_H
#define BT_ENGINE_CONFIG_RANK_SETUP_H

#include "engine/config/run_cfg.h"
#include "engine/model/net/model.h"
#include "engine/optim/lr_schedule.h"
#include "engine/optim/optim.h"
#include "engine/parallel/grad/payload.h"
#include "engine/parallel/shard/shard_map.h"

typedef struct bt_rank_setup {
    const bt_run_cfg *cfg; /* resolved; borrowed */
    bt_mesh_shape shape;
    bt_mesh_coord me;
    bt_model_setup model; /* slice of the model; its tensor-parallel group is not set */
    bt_params params;     /* tensors of this slice */
    bt_payload_tensor *payload_tensors; /* (params.n) how each tensor is exchanged */
    bt_range *chunks; /* (n_chunks) range of each chunk of layers in the flat array. */
    int n_chunks;
    bt_shards shards; /* pieces of the flat array; without sharding one shard has all of it */
    bool sharded;     /* true if other ranks hold other pieces */
    int shard;        /* index of this rank's shard */
    /* Index of this rank among the ranks with the same pieces, and their number. */
    int replica, replicas;
    int64_t dp, micros; /* number of data-parallel ranks; number of micro-batches in a step */
    /* reproducible training: number of micro-batches that are summed separately; else 0 */
    int64_t units;
    /* Range of this rank's micro-batches, if all ranks have equally many. */
    int64_t first_micro, n_micro;
    bool even; /* all ranks have equally many micro-batches during the whole run */
} bt_rank_setup;

/* BT_ARG: the model or the layout is impossible. */
bt_code bt_rank_setup_init(bt_rank_setup *s, const bt_run_cfg *cfg, int rank, bt_err *err)
    BT_MUST_CHECK;
void bt_rank_setup_release(bt_rank_setup *s); /* accepts an all-zero struct */

/* Returns the form of the gradient exchange; its `tensors` belong to the setup. */
bt_payload_form bt_rank_setup_form(const bt_rank_setup *s);

bt_weight_source bt_run_cfg_weight_source(const bt_run_cfg *cfg);
/* Returns the model of a rank without its tensor-parallel group. */
bt_model_setup bt_run_cfg_setup(const bt_run_cfg *cfg, int rank);

/* Converts the settings optim.* to the configuration of the optimizer and of its schedule. */
bt_optim_cfg bt_run_cfg_optim(const bt_run_cfg *cfg);
bt_lr_schedule bt_run_cfg_lr_schedule(const bt_run_cfg *cfg);
/* Writes one span per tensor, (p->n). */
void bt_params_spans(bt_optim_span *spans, const bt_params *p, const bt_run_cfg *cfg);

#endif

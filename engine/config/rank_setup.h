/* rank_setup.h - what one rank of a layout is and holds, from the settings alone.
 *
 * The objects of a training plan their memory and create themselves from this one description, so
 * that `--dry-run` and a running rank cannot differ. Pure arithmetic: any rank of any world can be
 * asked for, without MPI.
 * Threads: none shared. */
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
    bt_model_setup model;               /* without its tensor-parallel group */
    bt_params params;                   /* the tensors of this rank's slice of the model */
    bt_payload_tensor *payload_tensors; /* (params.n) how each travels */
    /* (n_chunks) of their flat array: each chunk of layers of a pipeline stage */
    bt_range *chunks;
    int n_chunks;
    bt_shards shards; /* of their flat array; one shard: everything is one piece */
    bool sharded;     /* other ranks hold other pieces */
    int shard;        /* whose pieces are here */
    /* of the ranks that hold the same pieces, the how-manyth this is */
    int replica, replicas;
    int64_t dp, micros; /* data-parallel ranks; micro-batches of a step */
    int64_t units;      /* reproducible: the micro-batches, each summed by itself; else 0 */
    /* this rank's micro-batches where all take equally many */
    int64_t first_micro, n_micro;
    bool even; /* they do, for the whole run */
} bt_rank_setup;

/* BT_ARG for a model or layout that cannot be */
bt_code bt_rank_setup_init(bt_rank_setup *s, const bt_run_cfg *cfg, int rank, bt_err *err)
    BT_MUST_CHECK;
void bt_rank_setup_release(bt_rank_setup *s); /* accepts an all-zero struct */

/* how gradients travel; `tensors` is borrowed from the setup */
bt_payload_form bt_rank_setup_form(const bt_rank_setup *s);

/* where a rank has its ternary weights from */
bt_weight_source bt_run_cfg_weight_source(const bt_run_cfg *cfg);
/* the model of a rank, without its tensor-parallel group */
bt_model_setup bt_run_cfg_setup(const bt_run_cfg *cfg, int rank);

/* the settings optim.* as the optimizer and its schedule take them */
bt_optim_cfg bt_run_cfg_optim(const bt_run_cfg *cfg);
bt_lr_schedule bt_run_cfg_lr_schedule(const bt_run_cfg *cfg);
/* (p->n) one span a tensor */
void bt_params_spans(bt_optim_span *spans, const bt_params *p, const bt_run_cfg *cfg);

#endif

/* sink.h - the only door out of the engine: what a run says of itself.
 *
 * Called on rank 0, from the training thread only. A sink must not block a step: it copies into a
 * bounded queue and returns. store implements it twice (straight into SQLite; as frames to the
 * supervisor), tests fake it. Values are in the unit of their metric (metrics.def); NaN means
 * unknown. Pointers live until the call returns. A NULL function means: not interested. */
#ifndef BT_ENGINE_BASE_SINK_H
#define BT_ENGINE_BASE_SINK_H

#include <stddef.h>
#include <stdint.h>

#include "engine/base/metric.h"

enum { BT_NAME_MAX = 64, BT_HOST_MAX = 64 };

typedef struct bt_rank_info { /* one row of the `ranks` view */
    int rank, pid, threads;
    char host[BT_HOST_MAX];
    char isa[32];                       /* fastest kernel set in use, e.g. "avx512" */
    int pp, dp_replicate, dp_shard, tp; /* mesh coordinates */
} bt_rank_info;

typedef struct bt_step_record {
    int64_t step;              /* 0-based: the first update is step 0 */
    int64_t wall_us;           /* when the step ended, microseconds since 1970 */
    const double *values;      /* [BT_MS_COUNT] */
    int n_ranks;               /* 0 when ranks were not sampled at this step */
    const double *rank_values; /* (n_ranks, BT_MR_COUNT) */
} bt_step_record;

typedef struct bt_layer_record {
    int64_t step;
    int layer;            /* -1: not in a layer */
    const char *tensor;   /* "attn_q", "ffn_down", ... */
    const double *values; /* [BT_ML_COUNT] */
} bt_layer_record;

/* one kind of exchange of one rank, over the steps since the previous records */
typedef struct bt_comm_record {
    int64_t step; /* the last of them */
    int rank;
    const char *op, *axis; /* "all_reduce", "dp" */
    const double *values;  /* [BT_MC_COUNT] */
} bt_comm_record;

/* what one rank received straight from another, over the steps since the previous records */
typedef struct bt_pair_record {
    int64_t step;
    int rank, peer;
    const double *values; /* [BT_MP_COUNT] */
} bt_pair_record;

typedef enum { BT_EV_INFO, BT_EV_WARN, BT_EV_ERROR } bt_event_level;

typedef struct bt_event {
    /* started checkpoint evaluation warning stopped resumed control failure ... */
    const char *kind;
    bt_event_level level;
    int64_t step; /* -1: none */
    int rank;     /* -1: the whole run */
    int64_t wall_us;
    const char *title; /* one line for people */
    const char *body;  /* JSON object, or NULL */
} bt_event;

typedef struct bt_ckpt_record {
    int64_t step; /* steps completed */
    const char *path;
    int64_t bytes, took_us;
    const char *hash; /* of the manifest, hex */
} bt_ckpt_record;

typedef struct bt_sink {
    void *ctx;
    /* once per attempt, before the first step */
    void (*ranks)(void *ctx, const bt_rank_info *ranks, size_t n);
    /* what is true of the run: "params", "kernel.gemm", "peak_flops" */
    void (*fact)(void *ctx, const char *key, const char *value);
    void (*step)(void *ctx, const bt_step_record *r);
    void (*layers)(void *ctx, const bt_layer_record *r, size_t n);
    /* of all ranks, every train.stats_every steps */
    void (*comm)(void *ctx, const bt_comm_record *r, size_t n);
    void (*event)(void *ctx, const bt_event *e);
    void (*checkpoint)(void *ctx, const bt_ckpt_record *c);
    /* of all ranks, now and then (observe_exchanges.c) */
    void (*pairs)(void *ctx, const bt_pair_record *r, size_t n);
} bt_sink;

#endif

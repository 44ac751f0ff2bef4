/* sink.h - the only output interface of the engine: records and events of a run.
 *
 * Called on rank 0, from the training thread only. A sink must not block a step: it copies into a bounded queue
 * and returns. store implements it twice (directly into SQLite; as frames to the supervisor), tests replace it.
 * Values are in the unit of their metric (metrics.def); NaN means unknown. Pointers are valid until the call
 * returns. A NULL function ignores its records. */
#ifndef BT_ENGINE_BASE_SINK_H
#define BT_ENGINE_BASE_SINK_H

#include <stddef.h>
#include <stdint.h>

#include "engine/base/tables/event.h"
#include "engine/base/tables/metric.h"

enum { BT_NAME_MAX = 65, BT_HOST_MAX = 64 };

typedef struct bt_rank_info { /* one row of the `ranks` view */
    int rank, pid, threads;
    char host[BT_HOST_MAX];
    char isa[32];                       /* fastest kernel set in use, such as "avx512" */
    int pp, dp_replicate, dp_shard, tp; /* mesh coordinates */
} bt_rank_info;

typedef struct bt_step_record {
    int64_t step;              /* 0-based: the first update is step 0 */
    int64_t wall_us;           /* end of the step, microseconds since 1970 */
    const double *values;      /* [BT_MS_COUNT] */
    int n_ranks;               /* 0: ranks were not sampled at this step */
    const double *rank_values; /* (n_ranks, BT_MR_COUNT) */
} bt_step_record;

/* key of a row; the scope's row in scopes.def determines which member is used */
typedef union bt_key {
    int64_t i;
    const char *s; /* "attn_q" */
} bt_key;

/* Rows of one scope sampled at one step, such as statistics of tensors, or of exchanges since the previous sample. */
typedef struct bt_row_record {
    bt_scope scope;
    int64_t step;
    size_t n;             /* rows */
    const bt_key *keys;   /* (n, n_keys of the scope) */
    const double *values; /* (n, metrics of the scope) */
} bt_row_record;

typedef struct bt_event {
    bt_event_kind kind;
    int64_t step; /* -1: the event belongs to no step */
    int rank;     /* -1: the event belongs to the whole run */
    int64_t wall_us;
    const char *title; /* one line for people */
    const char *body;  /* JSON object, or NULL */
} bt_event;

typedef struct bt_ckpt_record {
    int64_t step;    /* steps completed */
    int64_t wall_us; /* when it was complete, microseconds since 1970 */
    const char *path;
    int64_t bytes, took_us; /* took_us: duration for which training stopped */
    const char *hash;       /* hash of the manifest, hex */
} bt_ckpt_record;

typedef struct bt_sink {
    void *ctx;
    /* called once per attempt, before the first step */
    void (*ranks)(void *ctx, const bt_rank_info *ranks, size_t n);
    /* property of the run, with a key such as "params", "kernel.gemm" or "peak_flops" */
    void (*fact)(void *ctx, const char *key, const char *value);
    void (*step)(void *ctx, const bt_step_record *r);
    /* rows of all ranks, every few steps */
    void (*rows)(void *ctx, const bt_row_record *r);
    void (*event)(void *ctx, const bt_event *e);
    void (*checkpoint)(void *ctx, const bt_ckpt_record *c);
    /* called once at the end with a JSON object for the caller of the run; it is not recorded */
    void (*result)(void *ctx, const char *json);
} bt_sink;

#endif

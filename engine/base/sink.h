/* sink.h - the only output interface of the engine: records and events of a run.
 *
 * Only the training thread of rank 0 calls a sink. A sink must not block a step, so it copies records into a bounded
 * queue and returns. `store` has two implementations (SQLite; frames to the supervisor), and tests replace them. Values
 * have the unit of their metric (metrics.def); NaN: unknown. Pointers are valid until the call returns. If a function
 * is NULL, its records are ignored. */
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
    int pp, dp_replicate, dp_shard, tp; /* coordinates in the mesh */
} bt_rank_info;

typedef struct bt_step_record {
    int64_t step;              /* the first update is step 0 */
    int64_t wall_us;           /* end of the step, microseconds since 1970 */
    const double *values;      /* [BT_MS_COUNT] */
    int n_ranks;               /* 0: ranks were not sampled in this step */
    const double *rank_values; /* (n_ranks, BT_MR_COUNT) */
} bt_step_record;

/* Key of a row; the row's scope in scopes.def determines which member is used. */
typedef union bt_key {
    int64_t i;
    const char *s; /* "attn_q" */
} bt_key;

/* Rows of one scope in one step: samples such as statistics of tensors, or sums since the previous sample. */
typedef struct bt_row_record {
    bt_scope scope;
    int64_t step;
    size_t n;
    const bt_key *keys;   /* (n, n_keys of the scope) */
    const double *values; /* (n, metrics of the scope) */
} bt_row_record;

typedef struct bt_event {
    bt_event_kind kind;
    int64_t step; /* -1: the event belongs to no step */
    int rank;     /* -1: the event belongs to the whole run */
    int64_t wall_us;
    const char *title; /* one line for display */
    const char *body;  /* a JSON object, or NULL */
} bt_event;

typedef struct bt_ckpt_record {
    int64_t step;    /* number of completed steps */
    int64_t wall_us; /* time of completion, microseconds since 1970 */
    const char *path;
    int64_t bytes, took_us; /* took_us: time during which training was stopped */
    const char *hash;       /* hash of the manifest in hexadecimal */
} bt_ckpt_record;

typedef struct bt_sink {
    void *ctx;
    /* once per attempt, before the first step */
    void (*ranks)(void *ctx, const bt_rank_info *ranks, size_t n);
    /* a property of the run; examples of keys: "params", "kernel.gemm", "peak_flops" */
    void (*fact)(void *ctx, const char *key, const char *value);
    void (*step)(void *ctx, const bt_step_record *r);
    /* rows of all ranks, every few steps */
    void (*rows)(void *ctx, const bt_row_record *r);
    void (*event)(void *ctx, const bt_event *e);
    void (*checkpoint)(void *ctx, const bt_ckpt_record *c);
    /* once at the end: a JSON object for the caller of the run, which is not recorded */
    void (*result)(void *ctx, const char *json);
} bt_sink;

#endif

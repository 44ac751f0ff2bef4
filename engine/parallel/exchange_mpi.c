/* exchange_mpi.c - buckets by MPI_Iallreduce. */
#include <stdlib.h>

#include "engine/parallel/exchange.h"

typedef struct all_reduce {
    bt_exchange_cfg cfg;
    bt_request *requests;               /* (buckets) */
    size_t started, done;
} all_reduce;

static void reset(void *self) {
    all_reduce *a = self;
    a->started = a->done = 0;
}

static bt_code start(void *self, size_t bucket, bt_err *err) {
    all_reduce *a = self;
    bt_range b = bt_bucket_at(a->cfg.buckets, bucket);
    BT_TRY(bt_all_reduce_f32_start(a->cfg.mesh->dp, a->cfg.grads + b.begin, b.end - b.begin, &a->requests[bucket], err));
    a->started = bucket + 1;
    return BT_OK;
}

/* Testing the oldest makes progress on all of them. */
static bt_code progress(void *self, size_t *done, bt_err *err) {
    all_reduce *a = self;
    bool arrived = true;
    while (arrived && a->done < a->started) {
        BT_TRY(bt_request_test(&a->requests[a->done], &arrived, err));
        a->done += arrived;
    }
    *done = a->done;
    return BT_OK;
}

static void destroy(void *self) {
    all_reduce *a = self;
    free(a->requests);
    free(a);
}

bt_code bt_exchange_all_reduce(bt_exchange *out, const bt_exchange_cfg *cfg, bt_err *err) {
    all_reduce *a = calloc(1, sizeof *a);
    if (a) a->requests = calloc(cfg->buckets->n + 1, sizeof *a->requests);
    if (!a || !a->requests) {
        free(a);
        return bt_fail(err, BT_NOMEM, "cannot take memory for %zu gradient buckets", cfg->buckets->n);
    }
    a->cfg = *cfg;
    *out = (bt_exchange){a, reset, start, progress, destroy};
    return BT_OK;
}

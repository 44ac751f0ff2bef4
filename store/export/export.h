/* export.h - a run for other programs: TensorBoard event files, and a Chrome trace of a few steps.
 * Live steps only. */
#ifndef BT_STORE_EXPORT_EXPORT_H
#define BT_STORE_EXPORT_EXPORT_H

#include <stdio.h>

#include "store/store.h"

typedef struct bt_export_cfg {
    const char *run;
    /* Called from time to time with the written share, 0..1; NULL: no progress. */
    void (*progress)(void *ctx, double done);
    /* Called before each pass over new steps. Waits for the time between passes; returns false if the run has ended
     * and this pass is the last. NULL: one pass. TensorBoard only. */
    bool (*wait)(void *ctx);
    void *ctx;
} bt_export_cfg;

/* Writes DIR/RUN/events.out.tfevents.* (per_rank: also DIR/RUN/rankN/...) and replaces an earlier export of the run:
 * every scalar, samples as texts, distributions as histograms, settings for the page HPARAMS. Steps count from 1.
 * path receives the main file; n_points counts scalars. */
bt_code bt_export_tensorboard(bt_db *db, const bt_export_cfg *cfg, const char *dir, bool per_rank,
                              char path[1200], int64_t *n_points, bt_err *err) BT_MUST_CHECK;

/* Writes traceEvents of steps first..last: a process per rank, phases as spans, loss and speed as counters, events
 * as instants. Phases are sums over the micro-batches of a step, so their order inside the step is not measured. */
bt_code bt_export_trace(bt_db *db, const bt_export_cfg *cfg, int64_t first, int64_t last, FILE *to,
                        bt_err *err) BT_MUST_CHECK;

#endif

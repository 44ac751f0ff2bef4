/* telemetry.h - collects the values of a step from all ranks on rank 0 and passes them to the sink, without a barrier.
 *
 * `post` starts a small gather of this rank's values and returns. The gather completes during the next step, and
 * `poll`, called between micro-batches, passes the values to the sink. A record may therefore reach the sink after the
 * next step has begun; `flush` waits for it. Rank 0 stores the last BT_HISTORY steps for the medians in the run's
 * result.
 * Order:    init -> { post, poll* }* -> flush -> release. post and flush are collective.
 * No allocation after init.
 * Threads:  the training thread. */
#ifndef BT_ENGINE_OBSERVE_TELEMETRY_H
#define BT_ENGINE_OBSERVE_TELEMETRY_H

#include "engine/base/sink.h"
#include "engine/base/tables/derived.h"
#include "engine/parallel/mpi/comm.h"

enum { BT_HISTORY = 1024 };

typedef struct bt_telemetry {
    bt_comm *comm;
    bt_sink sink;       /* all members NULL: no receiver */
    double *mine, *all; /* (BT_MR_COUNT); on rank 0 (size, BT_MR_COUNT) */
    double step_values[BT_MS_COUNT];
    int64_t step, wall_us;
    bt_request gather;
    bool pending;
    double flop_token, peak_flops; /* peak_flops: sum over all ranks; 0: unknown */
    int64_t step_tokens;
    double predicted_ms; /* step time that the planner predicted; 0: no prediction */
    double last_loss;
    /* Number of recorded steps, of which the first `warmup` are not in the history. */
    int64_t seen, warmup;
    /* (BT_HISTORY) mean over the ranks; for STEP_TIME the slowest rank. */
    double (*history)[BT_MR_COUNT];
} bt_telemetry;

bt_code bt_telemetry_init(bt_telemetry *t, bt_comm *comm, const bt_sink *sink, bt_err *err)
    BT_MUST_CHECK;
void bt_telemetry_release(bt_telemetry *t);
/* Returns the fraction of the peak that this number of tokens per second uses. A fraction above 1 is impossible and
 * means that other programs used the processors while the peak was measured; it becomes NaN. */
static inline double bt_telemetry_mfu(const bt_telemetry *t, double tokens_per_s) {
    const double mfu = bt_derived_mfu(t->flop_token, tokens_per_s, t->peak_flops);
    return mfu <= 1 ? mfu : (double)NAN;
}
/* step_values: on rank 0, without the loss, which all ranks' losses give. rank_values: of this rank. */
bt_code bt_telemetry_post(bt_telemetry *t, int64_t step, const double step_values[BT_MS_COUNT],
                          const double rank_values[BT_MR_COUNT], bt_err *err) BT_MUST_CHECK;
bt_code bt_telemetry_poll(bt_telemetry *t, bt_err *err) BT_MUST_CHECK;
bt_code bt_telemetry_flush(bt_telemetry *t, bt_err *err) BT_MUST_CHECK;
/* NaN before the first record. */
double bt_telemetry_median(const bt_telemetry *t, bt_rank_metric metric);
/* Writes minimum and maximum over the same steps as the median. */
void bt_telemetry_extremes(const bt_telemetry *t, bt_rank_metric metric, double *least,
                           double *most);
/* Sends an event about a rank (-1: none). Only rank 0 passes it to the sink. body: a JSON object or NULL. */
void bt_telemetry_event_of(const bt_telemetry *t, bt_event_kind kind, int rank, int64_t step,
                           const char *body, const char *title);
/* Sends an event about this rank. */
void bt_telemetry_event(const bt_telemetry *t, bt_event_kind kind, int64_t step, const char *body,
                        const char *fmt, ...) BT_PRINTF(5, 6);

#endif

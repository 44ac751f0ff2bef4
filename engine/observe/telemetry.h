/* telemetry.h - the values of a step, from every rank to rank 0 and into the sink, without stopping
 * anybody.
 *
 * `post` starts a small gather of this rank's values and returns; it arrives while the next step
 * computes, and `poll` (called between micro-batches) hands it on. So a record may reach the sink a
 * moment after its step; `flush` waits for it. Rank 0 keeps the last BT_HISTORY steps for the
 * medians of the run's result.
 * Order:    init -> { post, poll* }* -> flush -> release. Collective: post and flush on all ranks alike.
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
    bt_sink sink;       /* all NULL if there is no receiver */
    double *mine, *all; /* (BT_MR_COUNT), on rank 0 (size, BT_MR_COUNT) */
    double step_values[BT_MS_COUNT];
    int64_t step, wall_us;
    bt_request gather;
    bool pending;
    double flop_token, peak_flops; /* peak of all ranks together; 0: unknown */
    int64_t step_tokens;
    double predicted_ms; /* duration of a step predicted by the planner; 0: none */
    double last_loss;
    /* steps recorded; the first `warmup` are left out of the history */
    int64_t seen, warmup;
    /* (BT_HISTORY) mean of the ranks, but STEP_TIME: slowest rank */
    double (*history)[BT_MR_COUNT];
} bt_telemetry;

bt_code bt_telemetry_init(bt_telemetry *t, bt_comm *comm, const bt_sink *sink, bt_err *err)
    BT_MUST_CHECK;
void bt_telemetry_release(bt_telemetry *t);
/* Share of the peak used by this number of tokens per second. More than 1 is impossible: then the peak was
 * measured while other programs used the processors, and the share is unknown (NaN). */
static inline double bt_telemetry_mfu(const bt_telemetry *t, double tokens_per_s) {
    const double mfu = bt_derived_mfu(t->flop_token, tokens_per_s, t->peak_flops);
    return mfu <= 1 ? mfu : (double)NAN;
}
/* step_values: values of rank 0 (loss is computed from the ranks' losses here); rank_values: of this rank */
bt_code bt_telemetry_post(bt_telemetry *t, int64_t step, const double step_values[BT_MS_COUNT],
                          const double rank_values[BT_MR_COUNT], bt_err *err) BT_MUST_CHECK;
bt_code bt_telemetry_poll(bt_telemetry *t, bt_err *err) BT_MUST_CHECK;
bt_code bt_telemetry_flush(bt_telemetry *t, bt_err *err) BT_MUST_CHECK;
/* NaN before the first record */
double bt_telemetry_median(const bt_telemetry *t, bt_rank_metric metric);
/* minimum and maximum over the same steps */
void bt_telemetry_extremes(const bt_telemetry *t, bt_rank_metric metric, double *least,
                           double *most);
/* an event about a rank (-1: about none); reaches the sink on rank 0 only. body: JSON object or NULL */
void bt_telemetry_event_of(const bt_telemetry *t, bt_event_kind kind, int rank, int64_t step,
                           const char *body, const char *title);
/* an event from this rank; reaches the sink on rank 0 only. body: JSON object or NULL */
void bt_telemetry_event(const bt_telemetry *t, bt_event_kind kind, int64_t step, const char *body,
                        const char *fmt, ...) BT_PRINTF(5, 6);

#endif

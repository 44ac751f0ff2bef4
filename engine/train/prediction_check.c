/* prediction_check.c - a median of steps, a threshold, and the likeliest cause. */
#include "engine/train/prediction_check.h"

#include <math.h>
#include <stdio.h>

/* tasks over processors: beyond it others have taken what the ranks wanted */
static const double CROWDED = 1.2, MUCH = 0.25;

const char *bt_prediction_cause(double ratio, double load, double comm_ms, double wait_ms,
                                double step_ms) {
    if (ratio < 1) return "the machine is quieter than when its rates were measured";
    if (load > CROWDED) return "the machine is busy with other work (machine_load)";
    if (wait_ms > MUCH * step_ms) return "ranks wait for a slower one (wait_ms)";
    if (comm_ms > MUCH * step_ms)
        return "messages take longer than the links allow (comm_exposed_ms)";
    return "computing is slower than when rates were measured ('bitrain plan --measure' does it "
           "anew)";
}

void bt_prediction_check_step(bt_prediction_check *c, const bt_telemetry *t, int64_t step) {
    char body[160];
    if (++c->steps % BT_PREDICTION_EVERY != 0) return;
    double ms = bt_telemetry_median(t, BT_MR_STEP_TIME), ratio = ms / t->predicted_ms;
    if (!isfinite(ratio)) return;
    bool parted = fabs(ratio - 1) > BT_PREDICTION_PART;
    if (parted == c->parted) return;
    c->parted = parted;
    snprintf(body, sizeof body, "{\"predicted_ms\":%.9g,\"step_ms\":%.9g,\"machine_load\":%.3g}",
             t->predicted_ms, ms, bt_telemetry_median(t, BT_MR_LOAD));
    if (parted)
        bt_telemetry_event(t, BT_EVENT_PREDICTION, step, body,
                           "steps take %.3g ms, %.0f %% %s than the %.3g ms predicted: %s", ms,
                           100 * fabs(ratio - 1), ratio > 1 ? "longer" : "less", t->predicted_ms,
                           bt_prediction_cause(ratio, bt_telemetry_median(t, BT_MR_LOAD),
                                               bt_telemetry_median(t, BT_MR_COMM_EXPOSED),
                                               bt_telemetry_median(t, BT_MR_WAIT), ms));
    else
        bt_telemetry_event(t, BT_EVENT_LAYOUT, step, body,
                           "steps take %.3g ms, as predicted (%.3g ms)", ms, t->predicted_ms);
}

/* prediction_check.h - compares the time of steps with the prediction or trial of the planner: an event when they
 * differ by more than a fifth, with the likely cause and the phase that grew most, and another when they agree
 * again. Threads: the training thread of rank 0. */
#ifndef BT_ENGINE_TRAIN_PREDICTION_CHECK_H
#define BT_ENGINE_TRAIN_PREDICTION_CHECK_H

#include "engine/base/numbers/predicted.h"
#include "engine/observe/telemetry.h"

/* steps between checks and before the first one */
enum { BT_PREDICTION_EVERY = 20 };
#define BT_PREDICTION_PART 0.2

typedef struct bt_prediction_check {
    bt_predicted predicted; /* phases are NaN if unknown */
    int64_t steps;
    bool parted; /* state of the last event */
} bt_prediction_check;

/* Called after a step was posted, if telemetry->predicted_ms > 0. */
void bt_prediction_check_step(bt_prediction_check *c, const bt_telemetry *t, int64_t step);

/* measured medians of the mean over ranks */
typedef struct bt_prediction_seen {
    double ratio, step_ms; /* ratio to the time of comparison */
    double load;           /* tasks over processors; NaN if unknown */
    double phase_ms[BT_PHASE_COUNT];
} bt_prediction_seen;

/* Returns the phase that differs most from its prediction, in the direction of the step; BT_PHASE_COUNT if there is
 * none or no phase was predicted. */
bt_phase bt_prediction_phase(const bt_prediction_seen *s, const bt_predicted *p);
/* Writes the likely cause of a slower or faster step as a phrase to buf. phase: as above. Without predicted phases
 * the cause is derived from the measured ones. */
const char *bt_prediction_cause(const bt_prediction_seen *s, const bt_predicted *p, bt_phase phase,
                                char *buf, size_t size);

#endif

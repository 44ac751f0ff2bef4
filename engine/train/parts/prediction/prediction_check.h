/* prediction_check.h - compares step times with the planner's prediction or trial. Emits an event when they differ
 * by more than a fifth, with the likely cause and the phase that grew most, and another when they agree again.
 * Threads: the training thread of rank 0. */
#ifndef BT_ENGINE_TRAIN_PREDICTION_CHECK_H
#define BT_ENGINE_TRAIN_PREDICTION_CHECK_H

#include "engine/base/numbers/predicted.h"
#include "engine/observe/telemetry.h"

/* number of steps between checks and before the first check */
enum { BT_PREDICTION_EVERY = 20 };
#define BT_PREDICTION_PART 0.2

typedef struct bt_prediction_check {
    bt_predicted predicted; /* phases are NaN if unknown */
    int64_t steps;
    bool deviates; /* the last event reported a difference */
} bt_prediction_check;

/* Called after a step was posted, if telemetry->predicted_ms > 0. */
void bt_prediction_check_step(bt_prediction_check *c, const bt_telemetry *t, int64_t step);

/* measured medians of the mean over all ranks */
typedef struct bt_prediction_seen {
    double ratio, step_ms; /* ratio of measured to expected step time */
    double load;           /* tasks per processor; NaN if unknown */
    double phase_ms[BT_PHASE_COUNT];
} bt_prediction_seen;

/* Returns the phase that differs most from its prediction, in the direction of the step's difference, or
 * BT_PHASE_COUNT if there is none or no phase was predicted. */
bt_phase bt_prediction_phase(const bt_prediction_seen *s, const bt_predicted *p);
/* Writes the likely cause of a slower or faster step as a phrase to buf. phase: result of bt_prediction_phase.
 * Without predicted phases it derives the cause from the measured ones. */
const char *bt_prediction_cause(const bt_prediction_seen *s, const bt_predicted *p, bt_phase phase,
                                char *buf, size_t size);

#endif

/* prediction_check.h - the steps' time against the time that the planner predicted: an event when they
 * part by more than a fifth, with the likely cause, and another when they agree again.
 * Threads: the training thread of rank 0. */
#ifndef BT_ENGINE_TRAIN_PREDICTION_CHECK_H
#define BT_ENGINE_TRAIN_PREDICTION_CHECK_H

#include "engine/observe/telemetry.h"

/* steps between looks; the first come after as many */
enum { BT_PREDICTION_EVERY = 20 };
#define BT_PREDICTION_PART 0.2

typedef struct bt_prediction_check {
    int64_t steps;
    bool parted; /* as it was told last */
} bt_prediction_check;

/* after a step has been posted; telemetry->predicted_ms > 0 */
void bt_prediction_check_step(bt_prediction_check *c, const bt_telemetry *t, int64_t step);

/* what makes a step slower (or faster) than predicted, from the ranks' mean figures; a phrase */
const char *bt_prediction_cause(double ratio, double load, double comm_ms, double wait_ms,
                                double step_ms);

#endif

/* prediction_check.h - the steps' time against the time that the planner predicted, or that trying the layout took: an
 * event when they part by more than a fifth, with the likely cause and the phase that grew most beyond its
 * prediction, and another when they agree again.
 * Threads: the training thread of rank 0. */
#ifndef BT_ENGINE_TRAIN_PREDICTION_CHECK_H
#define BT_ENGINE_TRAIN_PREDICTION_CHECK_H

#include "engine/base/numbers/predicted.h"
#include "engine/observe/telemetry.h"

/* steps between looks; the first come after as many */
enum { BT_PREDICTION_EVERY = 20 };
#define BT_PREDICTION_PART 0.2

typedef struct bt_prediction_check {
    bt_predicted predicted; /* phases NaN: not known */
    int64_t steps;
    bool parted; /* as it was told last */
} bt_prediction_check;

/* after a step has been posted; telemetry->predicted_ms > 0 */
void bt_prediction_check_step(bt_prediction_check *c, const bt_telemetry *t, int64_t step);

/* what was measured: medians of the ranks' mean */
typedef struct bt_prediction_seen {
    double ratio, step_ms; /* ratio: to the time that is compared with */
    double load;           /* tasks over processors; NaN: not known */
    double phase_ms[BT_PHASE_COUNT];
} bt_prediction_seen;

/* the phase that parts most from its prediction, in the direction in which the step does; BT_PHASE_COUNT: none, or
 * no phase was predicted */
bt_phase bt_prediction_phase(const bt_prediction_seen *s, const bt_predicted *p);
/* what makes a step slower (or faster) than predicted, as a phrase in buf; phase: as above. Without predicted phases it
 * is guessed from the measured ones alone */
const char *bt_prediction_cause(const bt_prediction_seen *s, const bt_predicted *p, bt_phase phase,
                                char *buf, size_t size);

#endif

/* predicted.h - the planner's prediction of a step's duration, as the text of the setting launch.predicted_parts:
 * "step_ms=153 tried_ms=160 fwd_ms=40 bwd_ms=80 ...". The planner passes the setting to rank 0 and writes it to a
 * configuration file. Rank 0 records the values as facts ("plan.step_ms", ...) and compares them with measured phases.
 * Pure functions. Threads: any. */
#ifndef BT_ENGINE_BASE_NUMBERS_PREDICTED_H
#define BT_ENGINE_BASE_NUMBERS_PREDICTED_H

#include <stdbool.h>

#include "engine/base/tables/metric.h"
#include "engine/base/text.h"

typedef struct bt_predicted {
    double step_ms; /* predicted; NaN, here and in all members: unknown */
    /* measured in a trial of a few steps before the run; NaN: there was no trial */
    double tried_ms;
    double phase_ms[BT_PHASE_COUNT];
} bt_predicted;

enum { BT_PREDICTED_PARTS = 2 + BT_PHASE_COUNT };
/* Return the key of a part, and the index of the part with a key. */
const char *bt_predicted_key(int part);
double *bt_predicted_part(bt_predicted *p, int part);

/* trial_s 0: there was no trial. phase_s: BT_PHASE_COUNT values in seconds. */
bt_predicted bt_predicted_of(double step_s, const double *phase_s, double trial_s);
/* Appends the parts that are known. */
void bt_predicted_put(const bt_predicted *p, bt_text *out);
/* "": all parts are unknown. Returns false for malformed text, and sets all parts to unknown. */
bool bt_predicted_read(const char *text, bt_predicted *out);

#endif

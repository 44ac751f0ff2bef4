/* predicted.h - the planner's prediction of a step, as the text of the setting launch.predicted_parts:
 * "step_ms=153 tried_ms=160 fwd_ms=40 bwd_ms=80 ...". The setting passes it from the planning process to rank 0,
 * which records it as facts ("plan.step_ms", ...) and compares the steps' phases with it, and to a written
 * configuration. Pure. Threads: any. */
#ifndef BT_ENGINE_BASE_NUMBERS_PREDICTED_H
#define BT_ENGINE_BASE_NUMBERS_PREDICTED_H

#include <stdbool.h>

#include "engine/base/tables/metric.h"
#include "engine/base/text.h"

typedef struct bt_predicted {
    double step_ms;  /* by the model; NaN: unknown, like all fields */
    double tried_ms; /* measured, if a few steps of the layout were tried before the run */
    double phase_ms[BT_PHASE_COUNT];
} bt_predicted;

enum { BT_PREDICTED_PARTS = 2 + BT_PHASE_COUNT };
/* the key of a part, and where it is */
const char *bt_predicted_key(int part);
double *bt_predicted_part(bt_predicted *p, int part);

/* trial_s 0: it was not tried. phase_s: seconds (BT_PHASE_COUNT) */
bt_predicted bt_predicted_of(double step_s, const double *phase_s, double trial_s);
/* the parts that are known */
void bt_predicted_put(const bt_predicted *p, bt_text *out);
/* "": nothing is known. false: it is no such text; nothing is known then either */
bool bt_predicted_read(const char *text, bt_predicted *out);

#endif

/* layout_why.h - explains in words why a layout is the first of a list. */
#ifndef BT_ENGINE_PLAN_LAYOUT_WHY_H
#define BT_ENGINE_PLAN_LAYOUT_WHY_H

#include "engine/base/text.h"
#include "engine/plan/layout_search.h"

/* Writes one line without a line feed: the advantage of the first layout over the best one with another mesh, and for a
 * pipeline what several chunks of layers per stage gain or cost. Layouts without a prediction (bt_layouts_predict) are
 * ignored. If both layouts were tried, their trials are compared, otherwise their predictions, and the line states
 * which. Only between predictions, and only for half of the difference or more, a phase is named as the cause. */
void bt_layout_why(const bt_layouts *l, bt_text *out);
/* If the trial differs from the prediction by more than a fifth, writes the ratio and the likely cause, to follow a
 * phrase with both times; otherwise nothing. rates_load and load: tasks per processor while the rates were measured,
 * and before the trial; NaN if unknown. */
void bt_layout_why_parted(const bt_layout *l, double rates_load, double load, bt_text *out);

#endif

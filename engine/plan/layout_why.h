/* layout_why.h - the reasons for the first layout of a list, in words. */
#ifndef BT_ENGINE_PLAN_LAYOUT_WHY_H
#define BT_ENGINE_PLAN_LAYOUT_WHY_H

#include "engine/base/text.h"
#include "engine/plan/layout_search.h"

/* Writes one line without a line end: how the first layout is better than the best one with another mesh, and for a
 * pipeline what several chunks of layers a stage gain or cost. Layouts without a prediction (bt_layouts_predict) are
 * ignored. Two tried layouts are compared by their trials, all other pairs by their predictions, and the line names
 * which. A phase is named as the cause only between predictions, and only if it explains half of the difference. */
void bt_layout_why(const bt_layouts *l, bt_text *out);
/* If the trial differs from the prediction by more than a fifth, writes the ratio and the likely cause as the end of
 * a phrase that contains both times; otherwise nothing. rates_load and load are tasks over processors while the
 * rates were measured and before the trial; NaN if unknown. */
void bt_layout_why_parted(const bt_layout *l, double rates_load, double load, bt_text *out);

#endif

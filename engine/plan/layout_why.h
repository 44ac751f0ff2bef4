/* layout_why.h - what speaks for the first of a list of layouts, in words. */
#ifndef BT_ENGINE_PLAN_LAYOUT_WHY_H
#define BT_ENGINE_PLAN_LAYOUT_WHY_H

#include "engine/base/text.h"
#include "engine/plan/layout_search.h"

/* In what the first layout is better than the best one that differs in its mesh; of a pipeline also what several
 * chunks of layers a stage are worth, or would cost. One line without end. Those that were left out of the list's
 * predictions (bt_layouts_predict) are no others. Two layouts that were both tried are compared by their trials,
 * others by their predictions, and the line says which; a phase is named as the cause between two that are
 * predicted only, where it explains half of the difference. */
void bt_layout_why(const bt_layouts *l, bt_text *out);
/* Where the trial took more than a fifth longer or less than the prediction: how many times, and the likely cause, as
 * the end of a phrase that has both times; nothing otherwise. Tasks over processors: rates_load when rates were
 * measured, load of other programs before the trial; NaN: not known */
void bt_layout_why_parted(const bt_layout *l, double rates_load, double load, bt_text *out);

#endif

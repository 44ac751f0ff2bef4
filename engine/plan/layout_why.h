/* layout_why.h - what speaks for the first of a list of layouts, in words. */
#ifndef BT_ENGINE_PLAN_LAYOUT_WHY_H
#define BT_ENGINE_PLAN_LAYOUT_WHY_H

#include "engine/base/text.h"
#include "engine/plan/layout_search.h"

/* In what the first layout is better than the best one that differs in its mesh; of a pipeline also what several
 * chunks of layers a stage are worth, or would cost. One line without end. Those that were left out of the list's
 * predictions (bt_layouts_predict) are no others. */
void bt_layout_why(const bt_layouts *l, bt_text *out);

#endif

/* layout_remedy.h - proposes changes under which a model fits a cluster that is too small; a search verifies each. */
#ifndef BT_ENGINE_PLAN_LAYOUT_REMEDY_H
#define BT_ENGINE_PLAN_LAYOUT_REMEDY_H

#include "engine/base/text.h"
#include "engine/plan/layout_search.h"

/* Writes, for example, "8 hosts of 4 ranks, 2 ranks on each of the 4 hosts, or hosts with 3.7 GiB", to be the end of a
 * sentence. The search doubles the hosts and halves the ranks of a host until a layout fits, or until more hosts no
 * longer help. For each size it searches the smallest layouts without predicting times. */
void bt_layout_remedies(const bt_layout_search *s, bt_text *out);

#endif

/* layout_remedy.h - changes under which a model fits a cluster on which no layout fits. Each proposal is verified by
 * a search. */
#ifndef BT_ENGINE_PLAN_LAYOUT_REMEDY_H
#define BT_ENGINE_PLAN_LAYOUT_REMEDY_H

#include "engine/base/text.h"
#include "engine/plan/layout_search.h"

/* Writes for example "8 hosts of 4 ranks, 2 ranks on each of the 4 hosts, or hosts with 3.7 GiB", the end of a
 * sentence. Doubles the hosts and halves the ranks of a host until a layout fits, or until more hosts no longer
 * help. Cost: for each size a search of the smallest layouts, without times. */
void bt_layout_remedies(const bt_layout_search *s, bt_text *out);

#endif

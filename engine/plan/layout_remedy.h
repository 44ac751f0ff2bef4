/* layout_remedy.h - what would make a model fit that fits under no layout of a cluster: each proposal is searched for
 * layouts first, and only one that fits is told. */
#ifndef BT_ENGINE_PLAN_LAYOUT_REMEDY_H
#define BT_ENGINE_PLAN_LAYOUT_REMEDY_H

#include "engine/base/text.h"
#include "engine/plan/layout_search.h"

/* "8 hosts of 4 ranks, 2 ranks on each of the 4 hosts, or hosts with 3.7 GiB", as the end of a sentence. Hosts are
 * doubled, ranks of a host halved, until something fits; the search ends where more hosts help no more. Costs a search
 * of the smallest layouts for each size, without times */
void bt_layout_remedies(const bt_layout_search *s, bt_text *out);

#endif

/* probe_group.h - tensor-parallel group of one rank, used to measure the computing time of a slice of a model. It
 * reports the size of the real group, and its exchanges take no time. Copies of this rank's data replace those of the
 * missing ranks, so that values have a usual magnitude. Threads: one owner. */
#ifndef BT_ENGINE_PLAN_PROBE_PROBE_GROUP_H
#define BT_ENGINE_PLAN_PROBE_PROBE_GROUP_H

#include "engine/base/tp_group.h"

/* rows, cols: shape of the largest exchanged matrix. The caller calls the group's `destroy`. */
bt_code bt_probe_group_create(bt_tp_group **out, int size, size_t rows, size_t cols, bt_err *err)
    BT_MUST_CHECK;
/* From this call on, exchanges no longer copy rows. */
void bt_probe_group_skip_copies(bt_tp_group *t);

#endif

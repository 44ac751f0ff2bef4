/* probe_group.h - a tensor-parallel group in which one rank measures what its slice of a model costs to
 * compute: it has the size of the real one, and its exchanges take no time.
 *
 * What the others would send is what this rank has, once, so that numbers are of a usual size.
 * Threads: one owner. */
#ifndef BT_ENGINE_PLAN_PROBE_PROBE_GROUP_H
#define BT_ENGINE_PLAN_PROBE_PROBE_GROUP_H

#include "engine/base/tp_group.h"

/* rows, cols: the largest matrix exchanged. Ended with its `destroy` */
bt_code bt_probe_group_create(bt_tp_group **out, int size, size_t rows, size_t cols, bt_err *err)
    BT_MUST_CHECK;
/* from now on rows of others stay as they are */
void bt_probe_group_settle(bt_tp_group *t);

#endif

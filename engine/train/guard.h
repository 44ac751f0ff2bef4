/* guard.h - keeps a non-finite loss or gradient out of the weights, and ends a run that produces
 * nothing else.
 *
 * Every rank judges alike: the gradient is the same everywhere after its exchange, and "my loss is
 * not finite" travels as a note. A bad step is not applied; BT_GUARD_PATIENCE bad steps in a row
 * are a failure that names the tensor. */
#ifndef BT_ENGINE_TRAIN_GUARD_H
#define BT_ENGINE_TRAIN_GUARD_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/status.h"
#include "engine/model/shape/params.h"

enum { BT_GUARD_PATIENCE = 5 };

typedef struct bt_guard {
    int in_row;      /* bad steps since the last good one */
    int64_t skipped; /* bad steps of this attempt */
} bt_guard;

/* name of the first tensor with a non-finite gradient, or NULL; squares: of every tensor's
 * gradient */
const char *bt_guard_find(const bt_params *p, const double *squares);
/* true when the step may be applied */
bool bt_guard_step(bt_guard *g, double grad_norm, bool loss_finite);
/* BT_CHECK when the patience is at its end */
bt_code bt_guard_verdict(const bt_guard *g, int64_t step, const char *tensor, bt_err *err)
    BT_MUST_CHECK;

#endif

/* guard.c - counts updates that were not finite, in a row and in all. */
#include "engine/train/guard.h"

#include <math.h>

const char *bt_guard_find(const bt_params *p, const double *squares) {
    for (size_t i = 0; i < p->n; i++)
        if (!isfinite(squares[i])) return p->tensors[i].name;
    return NULL;
}

bool bt_guard_step(bt_guard *g, double grad_norm, bool loss_finite) {
    if (isfinite(grad_norm) && loss_finite) {
        g->in_row = 0;
        return true;
    }
    g->in_row++;
    g->skipped++;
    return false;
}

bt_code bt_guard_verdict(const bt_guard *g, int64_t step, const char *tensor, bt_err *err) {
    if (g->in_row < BT_GUARD_PATIENCE) return BT_OK;
    return bt_fail(err, BT_CHECK,
                   "step %lld: %s is not finite for %d steps in a row (last: '%s'; lower optim.lr, "
                   "or resume from an earlier checkpoint)",
                   (long long)step, tensor ? "the gradient" : "the loss", g->in_row,
                   tensor ? tensor : "loss");
}

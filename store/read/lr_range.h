/* lr_range.h - evaluates a learning-rate range test (optim.schedule=range), in which the rate
 * rises geometrically from step to step, and suggests a rate for training.
 * The test: Smith, "Cyclical Learning Rates for Training Neural Networks", WACV 2017, section
 * 3.3.
 * The rule: the rate of steepest descent of the smoothed loss over the logarithm of the rate (as
 * fastai's lr_find), but at most a tenth of the rate at which the loss diverges or, without
 * divergence, is smallest (Gugger, "How do you find a good learning rate", 2018: one order of
 * magnitude below).
 * Smoothed: centred mean over a twentieth of the steps, which has no lag.
 * Steepest: the smallest slope of the line through such a window.
 * Diverges: the first rate after the smallest loss at which the smoothed loss has lost half of
 *           its gain, or is not finite. */
#ifndef BT_STORE_READ_LR_RANGE_H
#define BT_STORE_READ_LR_RANGE_H

#include "engine/base/text.h"
#include "store/store.h"

enum { BT_LR_RANGE_LEAST = 20, BT_LR_RANGE_MOST = 4096 }; /* steps */

typedef struct bt_lr_range {
    size_t n;
    double lr[BT_LR_RANGE_MOST], loss[BT_LR_RANGE_MOST], smooth[BT_LR_RANGE_MOST];
    /* rates; NaN: none */
    double suggested, steepest, least, diverged;
    double top;   /* upper limit of the loss axis of a chart; NaN: none */
    int64_t step; /* step with the suggested rate; -1: none */
    /* reason for which no rate is suggested, without a full stop; NULL: there is a rate */
    const char *nothing;
} bt_lr_range;

/* Computes all other fields from lr[0..n-1], ascending, and loss[0..n-1]. The evaluation ends before
 * a non-finite loss: n is reduced, and `diverged` is the rate of that loss. Pure. */
void bt_lr_range_evaluate(bt_lr_range *r);
/* Evaluates a run, of which it reads at most BT_LR_RANGE_MOST steps. *is: true if the settings of the run declare a
 * range test; otherwise n is 0. */
bt_code bt_db_lr_range(bt_db *db, const char *run, bool *is, bt_lr_range *out, bt_err *err)
    BT_MUST_CHECK;
/* Adds suggested, steepest, least, diverged, top, step, nothing, lr, loss and smooth to an open object. */
void bt_lr_range_json(const bt_lr_range *r, bt_json *j);

#endif

/* lr_range.h - what a learning-rate range test found: a run whose rate rises geometrically from step to
 * step (optim.schedule=range), and what its losses say about the rate to train with.
 *
 * The test:  Smith, "Cyclical Learning Rates for Training Neural Networks", WACV 2017, section 3.3.
 * The rule:  the rate of steepest descent of the smoothed loss over the logarithm of the rate (the rule
 *            of fastai's lr_find), but at most a tenth of the rate at which the loss diverges, or is
 *            least where it does not (Gugger, "How do you find a good learning rate", 2018: one order
 *            of magnitude below).
 * Smoothed:  the mean over a window of a twentieth of the steps around each, which has no lag. Steepest:
 *            the least slope of the line through such a window. Diverges: the first rate after the
 *            least loss at which the smoothed loss has lost half of what it had gained, or is not finite. */
#ifndef BT_STORE_READ_LR_RANGE_H
#define BT_STORE_READ_LR_RANGE_H

#include "engine/base/text.h"
#include "store/store.h"

enum { BT_LR_RANGE_LEAST = 20, BT_LR_RANGE_MOST = 4096 }; /* steps */

typedef struct bt_lr_range {
    size_t n;
    double lr[BT_LR_RANGE_MOST], loss[BT_LR_RANGE_MOST], smooth[BT_LR_RANGE_MOST];
    /* rates; NaN: there is none */
    double suggested, steepest, least, diverged;
    double top;   /* a loss up to which a chart shows what matters; NaN: all of it */
    int64_t step; /* at which the suggested rate was used; -1: none */
    const char
        *nothing; /* why no rate is suggested, one sentence without a full stop; NULL: one is */
} bt_lr_range;

/* lr[0..n-1] rising, loss[0..n-1]: fills the rest. A loss that is not finite ends what is looked at:
 * n shrinks, and diverged is its rate. Pure. */
void bt_lr_range_judge(bt_lr_range *r);
/* a run's rates and losses, judged. is: the run is a range test by its settings; else n is 0.
 * At most BT_LR_RANGE_MOST steps are read. */
bt_code bt_db_lr_range(bt_db *db, const char *run, bool *is, bt_lr_range *out, bt_err *err)
    BT_MUST_CHECK;
/* into an open object: suggested, steepest, least, diverged, top, step, nothing, and lr, loss, smooth */
void bt_lr_range_json(const bt_lr_range *r, bt_json *j);

#endif

/* guard.h - judges the loss and the gradient of a step before the update is applied.
 *
 *     NOT_FINITE   the loss of some rank, or the norm of the gradient, is NaN or infinite
 *     SPIKE        loss or gradient norm is far above what the last good steps had
 * Far above is Iglewicz and Hoaglin's modified z-score, which a few outliers in the history do not
 * move ("How to Detect and Handle Outliers", ASQC 1993, section 3.4):
 *     z = 0.6745 (x - median) / MAD        MAD = median of |x_i - median|
 * of the last `window` good steps, for x = the loss and for x = ln(gradient norm), which is heavy-tailed.
 * 0.6745 / MAD is 1 / sigma for normal values. Where the history hardly varies sigma is taken as 2 % of
 * the median loss, and 0.25 in ln(norm), so that a spike at the default limit of 12 is a loss 24 %
 * above the median at least, or a norm 20 times as large. Without half a window of history nothing is
 * a spike.
 *
 * What is judged is the same on all ranks, so all ranks judge alike. In reproducible training it is
 * the same on all layouts; the history is part of a checkpoint, and so a run that is resumed judges as
 * if it had never ended.
 * Threads: the training thread. No allocation after create. */
#ifndef BT_ENGINE_TRAIN_GUARD_H
#define BT_ENGINE_TRAIN_GUARD_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/status.h"
#include "engine/ckpt/state.h"
#include "engine/model/shape/params.h"

enum { BT_GUARD_PATIENCE = 5, BT_GUARD_WINDOW_MAX = 1024 };

typedef enum {
    BT_STEP_GOOD,
    BT_STEP_NOT_FINITE,
    BT_STEP_LOSS_SPIKE,
    BT_STEP_NORM_SPIKE
} bt_step_verdict;

typedef struct bt_guard {
    int patience;       /* bad steps in a row that are too many */
    double spike_limit; /* z; 0: nothing is a spike */
    int64_t window;     /* good steps that make the history, at most BT_GUARD_WINDOW_MAX */
    int in_row;         /* bad steps since the last good one */
    int64_t skipped;    /* bad steps of this attempt */
    int64_t n;          /* good steps since the history began */
    /* rings of the last `window` good steps: loss, ln(gradient norm) */
    double loss[BT_GUARD_WINDOW_MAX], norm[BT_GUARD_WINDOW_MAX], sorted[BT_GUARD_WINDOW_MAX];
} bt_guard;

typedef struct bt_step_facts { /* of a step that is not applied yet, the same on all ranks */
    double loss;               /* NaN: unknown */
    double grad_norm;
    bool loss_finite; /* on every rank */
} bt_step_facts;

/* what a spike stood out from; z NaN: of no spike */
typedef struct bt_spike {
    double value, median, z;
} bt_spike;

/* name of the first tensor with a non-finite gradient, or NULL; squares: of every tensor's
 * gradient */
const char *bt_guard_find(const bt_params *p, const double *squares);
/* changes nothing but scratch; spike may be NULL */
bt_step_verdict bt_guard_judge(bt_guard *g, const bt_step_facts *f, bt_spike *spike);
/* the step was applied: it joins the history */
void bt_guard_good(bt_guard *g, const bt_step_facts *f);
/* it was not */
void bt_guard_bad(bt_guard *g);
/* forgets the history: the level has changed */
void bt_guard_forget(bt_guard *g);
/* BT_CHECK when the patience is at its end. step: from 1, for the message; tensor: whose gradient is
 * not finite; NULL: the loss is not */
bt_code bt_guard_verdict(const bt_guard *g, int64_t step, const char *tensor, bt_err *err)
    BT_MUST_CHECK;

/* row "guard" */
void bt_guard_add_state(bt_guard *g, bt_state *s);

#endif

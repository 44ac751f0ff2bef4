/* guard.h - classifies the loss and the gradient norm of a step before the update.
 *
 *  NOT_FINITE the loss of some rank, or the norm of the gradient, is NaN or infinite
 *  SPIKE loss or gradient norm is far above those of the last good steps
 * The distance is Iglewicz and Hoaglin's modified z-score, which a few outliers in the history do not change ("How to
 * Detect and Handle Outliers", ASQC 1993, section 3.4):
 *  z = 0.6745 (x - median) / MAD MAD = median of |x_i - median|
 * over the last `window` good steps, for x = the loss and for x = ln(gradient norm), which is heavy-tailed.
 * 0.6745 / MAD is 1 / sigma for normal values. Sigma is at least 2 % of the median loss, and 0.25 in ln(norm), so a
 * spike at the default limit of 12 is a loss at least 24 % above the median, or a norm 20 times as large. No step is
 * a spike before half a window of history exists.
 *
 * The inputs, and therefore the results, are equal on all ranks; in reproducible training also on all layouts. The
 * history is part of a checkpoint, so a resumed run decides as if it had not been interrupted.
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
    int patience;       /* consecutive bad steps that end the run */
    double spike_limit; /* limit of z; 0 disables spikes */
    int64_t window;     /* good steps in the history, at most BT_GUARD_WINDOW_MAX */
    int in_row;         /* bad steps since the last good one */
    int64_t skipped;    /* bad steps of this attempt */
    int64_t n;          /* good steps since the history began */
    /* rings of the last `window` good steps: loss, ln(gradient norm) */
    double loss[BT_GUARD_WINDOW_MAX], norm[BT_GUARD_WINDOW_MAX], sorted[BT_GUARD_WINDOW_MAX];
} bt_guard;

typedef struct bt_step_facts {
    double loss;
    double grad_norm;
    bool loss_finite; /* on every rank */
} bt_step_facts;

typedef struct bt_spike {
    double value, median, z;
} bt_spike;

/* Returns the name of the first tensor with a non-finite gradient, or NULL. squares: sum of squares of each tensor's
 * gradient. */
const char *bt_guard_find(const bt_params *p, const double *squares);
/* Changes only scratch memory; spike may be NULL. */
bt_step_verdict bt_guard_classify(bt_guard *g, const bt_step_facts *f, bt_spike *spike);
void bt_guard_good(bt_guard *g, const bt_step_facts *f);
void bt_guard_bad(bt_guard *g);
/* Clears the history after a change of level. */
void bt_guard_forget(bt_guard *g);
/* Fails with BT_CHECK when the patience is exhausted. step: 1-based, for the message; tensor: tensor with a
 * non-finite gradient, NULL if the loss is not finite. */
bt_code bt_guard_verdict(const bt_guard *g, int64_t step, const char *tensor, bt_err *err)
    BT_MUST_CHECK;

void bt_guard_add_state(bt_guard *g, bt_state *s);

#endif

/* layout_trial.h - a few real steps of the layouts between which the model cannot decide: those predicted to
 * be within BT_TRIAL_NEAR of the first, of each mesh and micro-batch the best, at most BT_TRIALS_MOST, on
 * synthetic data, in turn in one job of ranks (layout_race.h), until what choosing the best may lose is about
 * 1 % (engine/plan/trial_race.h), or the seconds are over.
 *
 * Where the seconds do not suffice for whole steps a run is of steps of fewer micro-batches, then of a model of
 * fewer layers, and what it takes is multiplied by the predicted ratio of the whole step and this one; where they
 * do not suffice for two runs of each, it is one.
 * What was tried is kept beside the rates and not tried again. Nothing is tried where one layout stands
 * alone, where even these do not fit the seconds (which is told), or where the work is no plain training
 * from text (forms, adapters, distillation), which `bench train` does not do. */
#ifndef BT_CLI_LAYOUT_LAYOUT_TRIAL_H
#define BT_CLI_LAYOUT_LAYOUT_TRIAL_H

#include "cli/layout/choose_layout.h"

/* of the first one's time: the model's own error */
#define BT_TRIAL_NEAR 0.15
enum { BT_TRIALS_MOST = 4 };

/* the kept trial of the layout that resolved settings have; NULL: it was never tried. Points into rates */
const bt_trial_rate *bt_layout_tried(const bt_opts *o, const bt_run_cfg *cfg, int ranks,
                                     const bt_rates *rates);

/* spent_s: what measuring has taken. Orders c->layouts anew. A trial that fails is told, and the predictions stand. */
bt_code bt_layout_trial(bt_layout_choice *c, const bt_layout_job *job, double spent_s,
                        bt_text *told, bt_err *err) BT_MUST_CHECK;

#endif

/* layout_trial.h - measures a few real steps of the layouts that the model cannot separate: the best of each mesh
 * and micro-batch within BT_TRIAL_NEAR of the first, at most BT_TRIALS_MOST. These layouts train on synthetic data, in
 * turn in one job of ranks (layout_race.h), until the expected loss of choosing the best is about 1 %
 * (engine/plan/trial_race.h) or the time is over.
 *
 * If time is short, a run has steps of fewer micro-batches, then a model of fewer layers; the predicted ratio
 * scales its time to that of a whole step. If the time does not suffice for two runs of each layout, each has one
 * run.
 * Results are saved with the rates and not measured again. No trial takes place for a single candidate, if two
 * short steps exceed the time (a line in `notes` reports it), or for work that `bench train` cannot do (forms,
 * adapters, distillation). */
#ifndef BT_CLI_LAYOUT_LAYOUT_TRIAL_H
#define BT_CLI_LAYOUT_LAYOUT_TRIAL_H

#include "cli/layout/choose_layout.h"

/* largest distance from the first layout's time, as a fraction: the error of the model */
#define BT_TRIAL_NEAR 0.15
enum { BT_TRIALS_MOST = 4 };

/* Returns the stored trial of the layout of resolved settings; NULL: there is none. Points into rates. */
const bt_trial_rate *bt_layout_tried(const bt_opts *o, const bt_run_cfg *cfg, int ranks,
                                     const bt_rates *rates);

/* Sorts c->layouts again. spent_s: seconds already used by measuring. If a trial fails, `notes` receives a line and
 * the predicted order remains. */
bt_code bt_layout_trial(bt_layout_choice *c, const bt_layout_job *job, double spent_s,
                        bt_text *notes, bt_err *err) BT_MUST_CHECK;

#endif

/* trainer_island.h - a training that is an island of a hub (--hub): where it joins, and what takes the place
 * of the optimizer's step.
 *
 * Ranks:   all functions are collective. Threads: the training thread. */
#ifndef BT_ENGINE_TRAIN_ISLAND_PART_H
#define BT_ENGINE_TRAIN_ISLAND_PART_H

#include "engine/train/trainer_impl.h"

/* before the first step: the weights, the clock and the data are the hub's. Nothing without --hub */
bt_code bt_trainer_island_join(bt_trainer *t, bt_err *err) BT_MUST_CHECK;
/* the loader gives the data of the step, which the hub has dealt out */
bt_code bt_trainer_island_data(bt_trainer *t, bt_err *err) BT_MUST_CHECK;
/* targets that are learned in the step; -1: all */
int64_t bt_trainer_island_counted(const bt_trainer *t);

/* the hub does the optimizer's step: gradients, or nothing where the step is skipped, are exchanged */
bool bt_trainer_island_steps_at_hub(const bt_trainer *t);
/* after the gradients (steps_at_hub), or after the own step. apply: false for a skipped step */
bt_code bt_trainer_island_exchange(bt_trainer *t, bt_step_outcome *out, bool apply, bt_err *err)
    BT_MUST_CHECK;
/* after the last checkpoint: what the hub has of this island; an error where the hub was lost */
bt_code bt_trainer_island_end(bt_trainer *t, bt_err *err) BT_MUST_CHECK;

#endif

/* budget_steps.h - number of steps that fit into a time. Pure. Threads: any. */
#ifndef BT_ENGINE_TRAIN_PARTS_TIME_BUDGET_BUDGET_STEPS_H
#define BT_ENGINE_TRAIN_PARTS_TIME_BUDGET_BUDGET_STEPS_H

#include <stdint.h>

typedef struct bt_time_use {
    int64_t steps;  /* steps done */
    double seconds; /* time that they took, with validations and checkpoints */
} bt_time_use;

/* Returns the total number of steps of a run that has `now` behind it and `budget_s` seconds in all, if the steps after
 * `now` take as long as those between `before` and `now`. At least `now.steps` and at most `most`; `planned` where the
 * result is within 2 % of it, or where no step was measured. */
int64_t bt_budget_steps(double budget_s, bt_time_use before, bt_time_use now, int64_t planned,
                        int64_t most);

#endif

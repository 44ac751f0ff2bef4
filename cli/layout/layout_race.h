/* layout_race.h - runs a few steps of several layouts in turn on the same ranks, until one is significantly the
 * fastest or the time is over (engine/plan/trial_race.h). layout_trial.c starts it as `bitrain plan layout-race
 * ...`.
 *
 * The ranks start once. If memory suffices ("keep"), the trainers of all layouts exist at the same time and a run
 * costs only its steps; otherwise ("anew") each run creates its trainer. If creating the first trainers has used
 * the time of a whole round, the race drops the last layouts.
 * Words: seconds, "keep" or "anew", then for each layout BT_RACE_WORD, steps per run, predicted seconds per step,
 * the factor from a measured step to a whole step, and the words of `bench train` (cli/common/quiet_settings.h).
 * Result: {"rounds":n, "spent_s":s, "settled":true, "loss_frac":f, "racers":[{"step_s":s, "runs":n, "out":false}]} */
#ifndef BT_CLI_LAYOUT_LAYOUT_RACE_H
#define BT_CLI_LAYOUT_LAYOUT_RACE_H

#include "engine/base/status.h"

#define BT_LAYOUT_RACE_WORD "layout-race"
#define BT_RACE_WORD "--racer"
/* argv: words after layout-race */
bt_code bt_layout_race_rank(int argc, char **argv, int *exit_status, bt_err *err) BT_MUST_CHECK;

#endif

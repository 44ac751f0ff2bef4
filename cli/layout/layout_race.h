/* layout_race.h - several layouts on the same ranks, a few steps of each in turn, until one is known to be the fastest
 * or the seconds are over (engine/plan/trial_race.h): what layout_trial.c starts as `bitrain plan layout-race ...`.
 *
 * The ranks start once, and where the memory suffices the trainers of all layouts stay, so that a run costs no more
 * than its steps; otherwise each is made anew whenever its turn comes. Where making the first of them has taken too
 * long for a round of all, the last ones are left out.
 * Words: seconds, "keep" or "anew", then of every layout BT_RACE_WORD, its steps a run, the predicted seconds of a
 * step, what the seconds of a step that is run are to be multiplied by, and the words of `bench train`
 * (cli/common/quiet_settings.h).
 * Result: {"rounds":n, "spent_s":s, "settled":true, "loss_frac":f, "racers":[{"step_s":s, "runs":n, "out":false}]} */
#ifndef BT_CLI_LAYOUT_LAYOUT_RACE_H
#define BT_CLI_LAYOUT_LAYOUT_RACE_H

#include "engine/base/status.h"

#define BT_LAYOUT_RACE_WORD "layout-race"
#define BT_RACE_WORD "--racer"
/* argv: words after layout-race */
bt_code bt_layout_race_rank(int argc, char **argv, int *exit_status, bt_err *err) BT_MUST_CHECK;

#endif

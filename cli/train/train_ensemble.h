/* train_ensemble.h - `bitrain train --ensemble N`: N trainings that differ by seed, one after the other as the group
 * NAME of runs NAME-1 to NAME-N; the quality of their mean; and with --distill one model, NAME-distilled, that learns
 * from it. */
#ifndef BT_CLI_TRAIN_TRAIN_ENSEMBLE_H
#define BT_CLI_TRAIN_TRAIN_ENSEMBLE_H

#include "cli/train/train_parts.h"

/* true if the settings ask for an ensemble, also with an impossible number of members */
bool bt_train_is_ensemble(const bt_train_plan *p);
/* Checks the settings of an ensemble. BT_ARG, BT_BUSY: the name is that of a run */
bt_code bt_train_ensemble_check(const bt_train_plan *p, bt_err *err) BT_MUST_CHECK;
/* Prints the trainings, their time and the memory of the student: after the plan of one member. */
void bt_train_ensemble_print_plan(const bt_train_plan *p);
/* Trains what is not complete yet. After a signal the running training saves and ends; the same command continues. */
bt_code bt_train_ensemble(bt_train_plan *p, int *exit_status, bt_err *err) BT_MUST_CHECK;

#endif

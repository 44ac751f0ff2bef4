/* train_ensemble.h - `bitrain train --ensemble N`: N trainings that differ by seed, one after the other, as runs
 * NAME-1 to NAME-N of the group NAME; the quality of their mean; with --distill also a model NAME-distilled that
 * learns from it. */
#ifndef BT_CLI_TRAIN_TRAIN_ENSEMBLE_H
#define BT_CLI_TRAIN_TRAIN_ENSEMBLE_H

#include "cli/train/train_parts.h"

/* True if the settings request an ensemble, also with an invalid number of members. */
bool bt_train_is_ensemble(const bt_train_plan *p);
/* Checks the settings of an ensemble. BT_ARG; BT_BUSY: a run has this name. */
bt_code bt_train_ensemble_check(const bt_train_plan *p, bt_err *err) BT_MUST_CHECK;
/* Prints the trainings, their time and the student's memory, after the plan of one member. */
void bt_train_ensemble_print_plan(const bt_train_plan *p);
/* Trains the models that are not complete. After a signal the current training saves and exits, and the same command
 * continues. */
bt_code bt_train_ensemble(bt_train_plan *p, int *exit_status, bt_err *err) BT_MUST_CHECK;

#endif

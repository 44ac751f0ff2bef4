/* show_group.h - `bitrain show GROUP`: prints the runs of a group and the measured quality of their ensemble. */
#ifndef BT_CLI_RUNS_SHOW_GROUP_H
#define BT_CLI_RUNS_SHOW_GROUP_H

#include "store/store.h"

/* *found: a group of this name exists; otherwise nothing is printed. */
bt_code bt_show_group(bt_db *db, const char *group, bool json, bool *found, bt_err *err)
    BT_MUST_CHECK;

#endif

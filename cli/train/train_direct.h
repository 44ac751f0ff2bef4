/* train_direct.h - `bitrain train` under mpirun or srun: every process is a rank, and rank 0 writes to the database. */
#ifndef BT_CLI_TRAIN_TRAIN_DIRECT_H
#define BT_CLI_TRAIN_TRAIN_DIRECT_H

#include "cli/train/train_parts.h"

bt_code bt_train_direct(bt_train_plan *p, int argc, char **argv, int *exit_status, bt_err *err)
    BT_MUST_CHECK;
#endif

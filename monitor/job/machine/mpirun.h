/* mpirun.h - which mpirun starts ranks, and whether it belongs to the MPI library that this program is linked with.
 *
 * MPICH's, Intel's and conda's mpirun may be the first in PATH; their ranks would each believe to be alone. The launch
 * and doctor use this one function. Threads: one at a time. */
#ifndef BT_MONITOR_JOB_MACHINE_MPIRUN_H
#define BT_MONITOR_JOB_MACHINE_MPIRUN_H

#include <limits.h>
#include <stdbool.h>

#include "engine/base/status.h"

typedef struct bt_mpirun {
    char command
        [PATH_MAX];      /* to be executed: "mpirun", or a path where PATH's is not the right one */
    char path[PATH_MAX]; /* the file that this is */
    char owner[80]; /* "Open MPI 4.1.4", "MPICH 4.2.0"; "": it was not asked, or did not answer */
    char library[PATH_MAX]; /* the MPI library in this process; "": unknown */
    char passed_over[400];  /* why the first one in PATH is not used; "" */
} bt_mpirun;

/* $BITRAIN_MPIRUN, else the first mpirun in PATH where it belongs to the linked library, else the one beside that
 * library. BT_UNSUPPORTED: there is none, or it belongs to another MPI; the message names file and owner.
 * $BITRAIN_MPIRUN is asked for its owner only with `ask`, as it may be a script of the user */
bt_code bt_mpirun_find(bt_mpirun *out, bool ask, bt_err *err) BT_MUST_CHECK;

/* "Open MPI 4.1.4" and so on from what `mpirun --version` prints; "" for an empty text */
void bt_mpirun_owner(const char *version, char *out, int size);

#endif

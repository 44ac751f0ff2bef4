/* mpirun.h - selects the mpirun that starts ranks, and checks that it belongs to the MPI library
 * linked into this program.
 *
 * MPICH's, Intel's or conda's mpirun may be the first in PATH; with these each rank would run as
 * a job of its own. Launch and doctor share this function.
 * Threads:  one at a time. */
#ifndef BT_MONITOR_JOB_MACHINE_MPIRUN_H
#define BT_MONITOR_JOB_MACHINE_MPIRUN_H

#include <limits.h>
#include <stdbool.h>

#include "engine/base/status.h"

typedef struct bt_mpirun {
    char command
        [PATH_MAX];      /* command to execute: "mpirun", or a path if that of PATH is unsuitable */
    char path[PATH_MAX]; /* path of the executable */
    char owner[80];      /* "Open MPI 4.1.4", "MPICH 4.2.0"; "": not queried, or no answer */
    int major; /* major version of the linked Open MPI, which is also its mpirun's; 0: unknown */
    char library[PATH_MAX]; /* the MPI library in this process; "": unknown */
    char passed_over[400];  /* reason for skipping the first one in PATH; "" */
} bt_mpirun;

/* Selects $BITRAIN_MPIRUN, else the first mpirun in PATH if it belongs to the linked library,
 * else the one beside that library. BT_UNSUPPORTED: there is none, or it belongs to another MPI;
 * the message has its path and owner. The owner of $BITRAIN_MPIRUN is queried only with `ask`,
 * as it may be a user's script */
bt_code bt_mpirun_find(bt_mpirun *out, bool ask, bt_err *err) BT_MUST_CHECK;

/* Extracts "Open MPI 4.1.4" from the output of `mpirun --version`; "" for an empty text */
void bt_mpirun_owner(const char *version, char *out, int size);

#endif

/* mpirun.h - selects the mpirun that starts ranks, and checks that it belongs to the MPI library linked into this
 * program.
 *
 * The first mpirun in PATH may belong to MPICH, Intel or conda, and would run each rank as a separate job.
 * Threads: one at a time. */
#ifndef BT_MONITOR_JOB_MACHINE_MPIRUN_H
#define BT_MONITOR_JOB_MACHINE_MPIRUN_H

#include <limits.h>
#include <stdbool.h>

#include "engine/base/status.h"

typedef struct bt_mpirun {
    char command
        [PATH_MAX]; /* command to execute: "mpirun", or a path if the first mpirun in PATH is unsuitable */
    char path[PATH_MAX]; /* path of the executable */
    char owner[80]; /* for example "Open MPI 4.1.4", "MPICH 4.2.0"; "": not queried, or no answer */
    int major;      /* major version of the linked Open MPI and of its mpirun; 0: unknown */
    char library[PATH_MAX]; /* path of the MPI library in this process; "": unknown */
    char passed_over[400];  /* reason for skipping the first one in PATH, or "" */
} bt_mpirun;

/* Selects $BITRAIN_MPIRUN, else the first mpirun in PATH if it belongs to the linked library, else the one beside
 * that library. BT_UNSUPPORTED: none was found, or it belongs to another MPI; the message has its path and owner.
 * ask: query the owner of $BITRAIN_MPIRUN as well, which may be a user's script. */
bt_code bt_mpirun_find(bt_mpirun *out, bool ask, bt_err *err) BT_MUST_CHECK;

/* Extracts for example "Open MPI 4.1.4" from the output of `mpirun --version`; "" for an empty text. */
void bt_mpirun_owner(const char *version, char *out, int size);

#endif

/* host_file.h - checks the host file of --hosts before mpirun reads it: errors by line, and enough slots for the
 * ranks. */
#ifndef BT_MONITOR_JOB_LAUNCH_HOST_FILE_H
#define BT_MONITOR_JOB_LAUNCH_HOST_FILE_H

#include <stddef.h>

#include "engine/base/status.h"

/* BT_NOTFOUND: no such file. BT_ARG: an invalid line, no host, or fewer slots than ranks. Hosts without slots=N are
 * left to mpirun; slots are not counted if `more` (further arguments of mpirun) allows oversubscription. */
bt_code bt_host_file_check(const char *path, int ranks, const char *more, bt_err *err)
    BT_MUST_CHECK;

/* Returns the sum of all slots; 0: the file is unreadable, or a host lacks slots=N. */
int bt_host_file_slots(const char *path);
/* Writes the slots of each host in the order of the file and returns the number of hosts; 0 also for more than
 * `most` hosts. */
int bt_host_file_each(const char *path, int *slots, int most);

/* Writes the ranks of each host to on (ranks) if mpirun fills the slots in the order of the file; returns the number
 * of hosts with ranks; 0: the file is unreadable. If a host lacks slots=N, ranks are distributed evenly. */
int bt_host_file_ranks(const char *path, int *on, int ranks);

/* Writes the path of a file for Open MPI, which refuses carriage returns and byte order marks: `path` itself, or a
 * copy without them in `folder`. Also checks the file like bt_host_file_check and returns the same errors. */
bt_code bt_host_file_for_mpirun(const char *path, const char *folder, char *out, size_t size,
                                bt_err *err) BT_MUST_CHECK;

#endif

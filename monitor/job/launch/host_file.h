/* host_file.h - checks the host file of --hosts before mpirun reads it: errors by line, and room
 * for the ranks. */
#ifndef BT_MONITOR_JOB_LAUNCH_HOST_FILE_H
#define BT_MONITOR_JOB_LAUNCH_HOST_FILE_H

#include <stddef.h>

#include "engine/base/status.h"

/* BT_NOTFOUND: no such file. BT_ARG: an invalid line, no host at all, or fewer slots than ranks.
 * mpirun decides on a host without slots=N; slots are not counted if `more` (further words for
 * mpirun) allows oversubscription. */
bt_code bt_host_file_check(const char *path, int ranks, const char *more, bt_err *err)
    BT_MUST_CHECK;

/* sum of all slots; 0: unreadable, or a host lacks slots=N */
int bt_host_file_slots(const char *path);
/* Slots of each host in the order of the file; returns the number of hosts. 0: as above, or more
 * than `most` hosts */
int bt_host_file_each(const char *path, int *slots, int most);

/* Ranks of each host if mpirun fills the slots in the order of the file with `ranks` of them,
 * into on (ranks); returns the number of hosts with ranks. If a host lacks slots=N, all get
 * about as many. 0: unreadable */
int bt_host_file_ranks(const char *path, int *on, int ranks);

/* The file for Open MPI, which refuses carriage returns and byte order marks: `path` itself, or
 * a copy without them in `folder`. It includes the check and returns its errors */
bt_code bt_host_file_for_mpirun(const char *path, const char *folder, char *out, size_t size,
                                bt_err *err) BT_MUST_CHECK;

#endif

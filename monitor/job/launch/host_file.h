/* host_file.h - the host file given with --hosts, looked at before mpirun reads it: what is wrong
 * with it, by line, and whether it has room for the ranks. */
#ifndef BT_MONITOR_JOB_LAUNCH_HOST_FILE_H
#define BT_MONITOR_JOB_LAUNCH_HOST_FILE_H

#include <stddef.h>

#include "engine/base/status.h"

/* BT_NOTFOUND: no such file. BT_ARG: a line that is none, no host at all, or fewer slots than
 * ranks. A host without slots=N has as many as mpirun finds there, and `more` (further words for
 * mpirun) that ask to oversubscribe end the counting too. */
bt_code bt_host_file_check(const char *path, int ranks, const char *more, bt_err *err)
    BT_MUST_CHECK;

/* slots of all hosts together; 0: it cannot be read, or not every host says */
int bt_host_file_slots(const char *path);
/* slots of each host, in the file's order; how many hosts. 0: as above, or more than `most` hosts */
int bt_host_file_each(const char *path, int *slots, int most);

/* Ranks of each host when mpirun fills the hosts' slots in the file's order with `ranks` of them, into on (ranks);
 * how many hosts have any. Where some host has no slots=N, all get about as many. 0: the file cannot be read */
int bt_host_file_ranks(const char *path, int *on, int ranks);

/* The file for Open MPI, which refuses carriage returns and byte order marks: `path` itself, or a copy without them in
 * `folder`. Errors as those of the check, which it includes */
bt_code bt_host_file_for_mpirun(const char *path, const char *folder, char *out, size_t size,
                                bt_err *err) BT_MUST_CHECK;

#endif

/* job_dirs.h - folders that die with a job: its sockets, mpirun's files, the shared-memory segments
 * of the ranks.
 *
 * Each folder holds a file `lock`, which names the job's folder in TMPDIR, with a file lock that
 * the supervisor and mpirun share; when both are gone the lock is free and the next supervisor of
 * the same user sweeps the folder, so a killed pair leaves nothing for ever. */
#ifndef BT_MONITOR_JOB_LAUNCH_JOB_DIRS_H
#define BT_MONITOR_JOB_LAUNCH_JOB_DIRS_H

#include "engine/base/status.h"

typedef struct bt_job_dirs {
    /* shm may be a folder inside tmp when /dev/shm is absent or too small */
    char tmp[256], shm[256];
    int lock;     /* of tmp, to be inherited by mpirun */
    int shm_lock; /* of shm, -1 when it lies inside tmp */
} bt_job_dirs;

/* removes folders nobody holds */
void bt_job_dirs_sweep(void);
bt_code bt_job_dirs_create(bt_job_dirs *s, int ranks, bt_err *err) BT_MUST_CHECK;
/* accepts an all-zero struct */
void bt_job_dirs_remove(bt_job_dirs *s);
/* Folders for attempt N: tmp/N, and shm/N for the segments of `ranks` ranks, or tmp/shm/N where /dev/shm has no room
 * for them any more. They are created before the attempt and removed with their contents after it. */
bt_code bt_job_dirs_attempt(const bt_job_dirs *s, int ranks, int attempt, char tmp[280],
                            char shm[280], bt_err *err) BT_MUST_CHECK;
void bt_job_dirs_attempt_end(const bt_job_dirs *s, int attempt);

#endif

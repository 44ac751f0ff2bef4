/* job_dirs.h - folders with the life of a job: its sockets, mpirun's files, the shared-memory
 * segments of the ranks.
 *
 * Each folder has a file `lock`, which names the job's folder in TMPDIR, with a file lock shared
 * by the supervisor and mpirun; after the end of both the lock is free, and the next supervisor
 * of the same user removes the folder, so killed jobs leave nothing behind. */
#ifndef BT_MONITOR_JOB_LAUNCH_JOB_DIRS_H
#define BT_MONITOR_JOB_LAUNCH_JOB_DIRS_H

#include "engine/base/status.h"

typedef struct bt_job_dirs {
    /* shm may be a folder inside tmp when /dev/shm is absent or too small */
    char tmp[256], shm[256];
    int lock;     /* lock of tmp, inherited by mpirun */
    int shm_lock; /* lock of shm, -1 if it is inside tmp */
} bt_job_dirs;

/* removes folders without an owner */
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

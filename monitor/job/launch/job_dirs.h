/* job_dirs.h - folders that exist as long as a job: its sockets, mpirun's files, shared-memory segments of the ranks.
 *
 * Each folder has a file `lock`, which contains the job's folder in TMPDIR. The supervisor and mpirun share a file lock
 * on it. After both have ended, the next supervisor of the same user removes the folder, so killed jobs leave nothing
 * behind. */
#ifndef BT_MONITOR_JOB_LAUNCH_JOB_DIRS_H
#define BT_MONITOR_JOB_LAUNCH_JOB_DIRS_H

#include "engine/base/status.h"

typedef struct bt_job_dirs {
    /* shm is a folder inside tmp if /dev/shm is absent or too small */
    char tmp[256], shm[256];
    int lock;     /* lock of tmp, inherited by mpirun */
    int shm_lock; /* lock of shm, -1 if it is inside tmp */
} bt_job_dirs;

/* Removes folders without an owner. */
void bt_job_dirs_sweep(void);
bt_code bt_job_dirs_create(bt_job_dirs *s, int ranks, bt_err *err) BT_MUST_CHECK;
/* accepts an all-zero struct */
void bt_job_dirs_remove(bt_job_dirs *s);
/* Creates the folders of attempt N: tmp/N, and shm/N for the segments of `ranks` ranks, or tmp/shm/N if /dev/shm is
 * full. The caller removes them with their contents after the attempt. */
bt_code bt_job_dirs_attempt(const bt_job_dirs *s, int ranks, int attempt, char tmp[280],
                            char shm[280], bt_err *err) BT_MUST_CHECK;
void bt_job_dirs_attempt_end(const bt_job_dirs *s, int attempt);

#endif

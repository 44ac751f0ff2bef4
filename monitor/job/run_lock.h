/* run_lock.h - one job a run: OUT/run.lock is held by the supervisor and by its mpirun, whichever
 * lives longer.
 *
 * So a job that outlived its supervisor (its ranks save and leave) is waited for, and a run that is
 * alive is refused at once. */
#ifndef BT_MONITOR_JOB_RUN_LOCK_H
#define BT_MONITOR_JOB_RUN_LOCK_H

#include "engine/base/status.h"

/* out_dir exists. *fd is closed by the caller; -1 where the file system knows no locks. Waits at
 * most wait_s for ranks that are leaving; BT_BUSY names who holds it. */
bt_code bt_run_lock(int *fd, const char *out_dir, const char *run, double wait_s, bt_err *err)
    BT_MUST_CHECK;

#endif

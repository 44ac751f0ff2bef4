/* run_lock.h - one job per run: the supervisor and its mpirun hold OUT/run.lock until both have ended.
 *
 * A new start waits for ranks that outlived their supervisor (they save and exit), and is refused at once while the run
 * is alive. */
#ifndef BT_MONITOR_JOB_RUN_LOCK_H
#define BT_MONITOR_JOB_RUN_LOCK_H

#include "engine/base/status.h"

/* out_dir exists. The caller closes *fd; -1 if the file system has no locks. Waits at most wait_s for ranks that are
 * about to exit; BT_BUSY names the holder. */
bt_code bt_run_lock(int *fd, const char *out_dir, const char *run, double wait_s, bt_err *err)
    BT_MUST_CHECK;

#endif

/* remote_cleanup.h - removes leftovers of killed ranks on several hosts: shared-memory segments
 * in /dev/shm and folders of states in memory, which survive their processes.
 *
 * The cleanup logs in with the agent that starts ranks (bt_launch_agent, otherwise ssh). It removes
 * segments of this user that no process has mapped at two checks a second apart, and folders that
 * are older than ten minutes. It runs in the background for at most 20 s and skips unreachable
 * hosts. */
#ifndef BT_MONITOR_JOB_LAUNCH_REMOTE_CLEANUP_H
#define BT_MONITOR_JOB_LAUNCH_REMOTE_CLEANUP_H

#include <stdbool.h>

/* hosts: host file of mpirun; "": nothing to do. folder: this run's states in /dev/shm ("": none), kept unless the
 * run is `over`. Returns immediately. */
void bt_remote_sweep(const char *hosts, const char *folder, bool over);

#endif

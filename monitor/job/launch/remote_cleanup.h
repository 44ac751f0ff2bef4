/* remote_cleanup.h - what killed ranks of a job on several hosts leave there: shared-memory segments in
 * /dev/shm and folders of states in memory, which die with no process.
 *
 * Removed through the agent that starts the ranks there (OMPI_MCA_plm_rsh_agent, else ssh): those
 * of this user that no process has mapped, at two looks a second apart (folders: ten minutes old). In
 * the background, 20 s at most; a host that cannot be reached is left alone. */
#ifndef BT_MONITOR_JOB_LAUNCH_REMOTE_CLEANUP_H
#define BT_MONITOR_JOB_LAUNCH_REMOTE_CLEANUP_H

#include <stdbool.h>

/* hosts: host file of mpirun; "": nothing to do. folder: of this run's states in /dev/shm ("": none), which stays;
 * over: the run is, and it goes. Returns at once */
void bt_remote_sweep(const char *hosts, const char *folder, bool over);

#endif

/* remote_cleanup.h - what killed ranks leave on other hosts: shared-memory segments in /dev/shm,
 * which die with no process.
 *
 * Removed through the agent that starts the ranks there (OMPI_MCA_plm_rsh_agent, else ssh): those
 * of this user that no process has mapped, at two looks a second apart. In the background, 20 s at
 * most; a host that cannot be reached is left alone. */
#ifndef BT_MONITOR_JOB_LAUNCH_REMOTE_CLEANUP_H
#define BT_MONITOR_JOB_LAUNCH_REMOTE_CLEANUP_H

/* hosts: host file of mpirun; "": nothing to do. Returns at once */
void bt_remote_sweep(const char *hosts);

#endif

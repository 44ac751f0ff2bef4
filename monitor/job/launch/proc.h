/* proc.h - lists and ends the processes of a session. */
#ifndef BT_MONITOR_JOB_LAUNCH_PROC_H
#define BT_MONITOR_JOB_LAUNCH_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* state: R S D T t Z ... */
typedef struct bt_proc {
    pid_t pid;
    char state;
    char name[32];
} bt_proc;

/* Reads one process; returns false if it has ended. */
bool bt_proc_read(pid_t pid, bt_proc *out);
/* Finds the processes of the session that are not zombies. */
size_t bt_proc_session(pid_t session, bt_proc *out, size_t max);
/* Sends SIGKILL to all processes of the session until none is left, for at most wait_s; returns the number left. */
size_t bt_proc_kill_session(pid_t session, double wait_s);
/* True if a batch system (Slurm) started this process: it repeats its notices to leave, and sends SIGKILL when the
 * time has expired. */
bool bt_proc_batch_job(void);

#endif

/* proc.h - what /proc says about the processes of a session. */
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

/* processes of it that are not zombies */
/* one process; false: it is gone */
bool bt_proc_look(pid_t pid, bt_proc *out);
size_t bt_proc_session(pid_t session, bt_proc *out, size_t max);
/* SIGKILL to all of them until none is left, at most wait_s; returns how many are left */
size_t bt_proc_kill_session(pid_t session, double wait_s);
/* a batch system (Slurm) started this process: it repeats its notices to leave, and sends SIGKILL by
 * itself when the time is over */
bool bt_proc_batch_job(void);

#endif

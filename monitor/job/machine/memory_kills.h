/* memory_kills.h - tests whether the kernel's out-of-memory killer ended a process of this job.
 *
 * The machine's counter (/proc/vmstat) includes all programs and containers. Two sources identify this job: process ids
 * in the kernel's log, and the counter of the memory group (cgroup) of this process and its ranks. The log decides if
 * it is readable and its ids belong to this pid namespace; otherwise the counter decides.
 * Threads: any. */
#ifndef BT_MONITOR_JOB_MACHINE_MEMORY_KILLS_H
#define BT_MONITOR_JOB_MACHINE_MEMORY_KILLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BT_KERNEL_LINE = 256 };

/* Copies the newest `max` lines of the kernel's log about killing a process of the list since since_ns (bt_now_ns),
 * oldest first. Returns their number, or -1 if the log is unreadable or belongs to another pid namespace. */
int bt_memory_kill_lines(const int *pids, size_t n, int64_t since_ns, char (*lines)[BT_KERNEL_LINE],
                         int max);

/* True if a process of the list was killed since since_ns, when bt_group_memory_kills returned `before`. */
bool bt_memory_killed(const int *pids, size_t n, int64_t since_ns, int64_t before);

/* Parses a record of /dev/kmsg; public for tests. */
bool bt_memory_kill_names(const char *record, const int *pids, size_t n, int64_t since_ns);

#endif

/* memory_kills.h - processes that the kernel killed for want of memory: was one of them ours?
 *
 * The machine's own counter (/proc/vmstat) includes every other program and container, so it proves nothing. Two
 * sources name this job: the kernel's log, which holds process ids, and the counter of the memory group (cgroup)
 * that this process and its ranks belong to. The log decides where it can be read and its ids are those of this
 * process's pid namespace; otherwise the counter decides; without either there is no evidence.
 * Threads: any. */
#ifndef BT_MONITOR_JOB_MACHINE_MEMORY_KILLS_H
#define BT_MONITOR_JOB_MACHINE_MEMORY_KILLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BT_KERNEL_LINE = 256 };

/* kills that the kernel counts in this process's memory group; -1: the group has no counter */
int64_t bt_memory_kills_of_group(void);

/* Lines of the kernel's log about the killing of a process of the list at or after since_ns (bt_now_ns), oldest
 * first, the newest `max` of them. Returns their number, or -1 where the log cannot be read or holds ids of another
 * pid namespace. */
int bt_memory_kill_lines(const int *pids, size_t n, int64_t since_ns, char (*lines)[BT_KERNEL_LINE],
                         int max);

/* Whether a process of the list was killed since since_ns, when bt_memory_kills_of_group returned `before`. */
bool bt_memory_killed(const int *pids, size_t n, int64_t since_ns, int64_t before);

/* The parsers, for tests: a record of /dev/kmsg; the counter's file by the text of /proc/self/cgroup. */
bool bt_memory_kill_names(const char *record, const int *pids, size_t n, int64_t since_ns);
bool bt_memory_group_file(const char *cgroups, const char *root, char *path, size_t size);

#endif

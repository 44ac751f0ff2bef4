/* memory_kills.c - reads /dev/kmsg and the counters of the memory group. */
#include "monitor/job/machine/memory_kills.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/os/control_group.h"
#include "engine/base/os/own_process.h"
#include "engine/base/text.h"

/* Record: priority, number, microseconds since boot, flags; text: "6,4711,98765432,-;Out of memory: Killed process
 * 4711 (bitrain) ...". Other texts: "Memory cgroup out of memory: Killed process 4711 ...", and
 * "oom-kill:constraint=...,task=bitrain,pid=4711,uid=0". */
bool bt_memory_kill_names(const char *record, const int *pids, size_t n, int64_t since_ns) {
    /* maximum difference between the clock of the log and CLOCK_MONOTONIC after weeks */
    static const int64_t DRIFT_US = 30000000;
    const char *at = strstr(record, "Killed process "), *oom = strstr(record, ";oom-kill:");
    int64_t us = -1;
    int pid = 0;
    if (at)
        pid = atoi(at + strlen("Killed process "));
    else if (oom && (at = strstr(oom, ",pid=")))
        pid = atoi(at + strlen(",pid="));
    if (pid <= 0 || sscanf(record, "%*d,%*d,%" SCNd64, &us) != 1 || us < since_ns / 1000 - DRIFT_US)
        return false;
    for (size_t i = 0; i < n; i++)
        if (pids[i] == pid) return true;
    return false;
}

int bt_memory_kill_lines(const int *pids, size_t n, int64_t since_ns, char (*lines)[BT_KERNEL_LINE],
                         int max) {
    char record[2048];
    int found = 0;
    const int fd = bt_sees_all_processes() ? open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC)
                                           : -1;
    if (fd < 0) return -1;
    for (;;) {
        const ssize_t got = read(fd, record, sizeof record - 1);
        if (got < 0 && errno == EPIPE) continue; /* the kernel overwrote the record meanwhile */
        if (got <= 0) break;
        record[got] = '\0';
        char *text = strchr(record, ';');
        if (!text || max < 1 || !bt_memory_kill_names(record, pids, n, since_ns)) continue;
        if (found == max) memmove(lines[0], lines[1], (size_t)--found * sizeof *lines);
        text[strcspn(text, "\n")] = '\0';
        bt_text_plain(lines[found++], sizeof *lines, text + 1);
    }
    close(fd);
    return found;
}

bool bt_memory_killed(const int *pids, size_t n, int64_t since_ns, int64_t before) {
    char line[1][BT_KERNEL_LINE];
    const int found = bt_memory_kill_lines(pids, n, since_ns, line, 1);
    return found >= 0 ? found > 0 : before >= 0 && bt_group_memory_kills() > before;
}

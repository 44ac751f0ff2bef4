/* procs.h - rates of processes and of this machine; nothing is stored.
 *
 * Only processes of this host are sampled. Rates need two samples and are NaN until then. A sample costs some 50 us per
 * process; take at most one per second. Threads: one caller per bt_procs. */
#ifndef BT_MONITOR_WATCH_PROCS_H
#define BT_MONITOR_WATCH_PROCS_H

#include <stdbool.h>
#include <stdint.h>

enum { BT_PROCS_MAX = 128 };

typedef struct bt_proc_now {
    int pid;
    /* totals so far: faults, switches, bytes read and written */
    double counter[3];
    double faults_per_s, switches_per_s, disk_per_s;
} bt_proc_now;

typedef struct bt_procs {
    bt_proc_now proc[BT_PROCS_MAX];
    int n;
    int64_t sampled_ns; /* 0: never */
    double net_bytes;   /* counted so far */
    /* machine-wide values; NaN: not readable */
    int cpus;
    double load, mem_used_mib, mem_mib, net_per_s, celsius;
} bt_procs;

/* pids: processes of this host; the previous sample of the same pids gives the rates */
void bt_procs_sample(bt_procs *p, const int *pids, int n, int64_t now_ns);
const bt_proc_now *bt_procs_of(const bt_procs *p,
                               int pid); /* NULL: not sampled, or the process has ended */

#endif

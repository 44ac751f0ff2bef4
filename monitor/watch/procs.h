/* procs.h - what this machine says about processes and itself right now: /proc and /sys, nothing
 * stored.
 *
 * Only processes of this host can be asked. Rates need two samples: NaN until then. A sample costs
 * some 50 us a process; take one a second at most. Threads: one caller per bt_procs. */
#ifndef BT_MONITOR_WATCH_PROCS_H
#define BT_MONITOR_WATCH_PROCS_H

#include <stdbool.h>
#include <stdint.h>

enum { BT_PROCS_MAX = 128 };

typedef struct bt_proc_now {
    int pid;
    /* faults, switches, bytes read and written, as counted so far */
    double counter[3];
    double faults_per_s, switches_per_s, disk_per_s;
} bt_proc_now;

typedef struct bt_procs {
    bt_proc_now proc[BT_PROCS_MAX];
    int n;
    int64_t sampled_ns; /* 0: never */
    double net_bytes;   /* counted so far */
    /* of the machine; NaN: not readable */
    int cpus;
    double load, mem_used_mib, mem_mib, net_per_s, celsius;
} bt_procs;

/* pids: those of this host; what was sampled of the same pids before gives the rates */
void bt_procs_sample(bt_procs *p, const int *pids, int n, int64_t now_ns);
const bt_proc_now *bt_procs_of(const bt_procs *p, int pid); /* NULL: not sampled, or gone */

#endif

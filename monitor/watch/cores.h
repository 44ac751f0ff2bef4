/* cores.h - load of this machine's cores, the busiest other processes, and the disks' read and
 * write rates; nothing is stored.
 *
 * Rates need two samples and are NaN until then. Frequency and temperature are NaN if the
 * system lacks them, as in most virtual machines. A sample costs some 20 us and 10 us per core; the scan for
 * other processes costs some 10 us per process and is limited to 1/300 of a core (after the
 * first two scans).
 * Threads:  one caller per bt_cores. */
#ifndef BT_MONITOR_WATCH_CORES_H
#define BT_MONITOR_WATCH_CORES_H

#include <stdint.h>

enum { BT_CORES_MAX = 1024, BT_OTHERS_MAX = 4, BT_SEEN_MAX = 4096 };

typedef struct bt_core {
    int id;           /* number used by the system: cores that are off leave gaps */
    double busy_frac; /* 0 to 1 */
    double mhz, celsius;
    double busy, all; /* ticks counted so far */
} bt_core;

typedef struct bt_other { /* a process outside the run */
    int pid;
    double cores; /* processor time over time: 1.5 is one and a half cores */
    char name[24];
} bt_other;

typedef struct bt_cores {
    int n;
    bt_core core[BT_CORES_MAX];
    double read_per_s, written_per_s; /* bytes, of all disks */
    int n_others;                     /* the busiest first, none below a twentieth of a core */
    bt_other other[BT_OTHERS_MAX];
    /* totals so far */
    int64_t sampled_ns, looked_ns, look_cost_ns; /* 0: never */
    double read, written;
    int n_seen;
    struct {
        int pid;
        double cpu_s;
    } seen[BT_SEEN_MAX];
} bt_cores;

/* ours: processes of the run; the list of other processes omits these and the calling process. */
void bt_cores_sample(bt_cores *c, const int *ours, int n, int64_t now_ns);

#endif

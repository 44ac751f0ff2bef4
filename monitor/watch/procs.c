/* procs.c - computes rates from two readings of the system's counters. */
#include "monitor/watch/procs.h"

#include <math.h>
#include <string.h>

#include "engine/base/os/machine_info.h"
#include "engine/base/os/process_info.h"
#include "engine/base/os/process_usage.h"
#include "engine/base/os/processors.h"

enum { FAULTS, SWITCHES, DISK };

static bool sample_process(int pid, double *out) {
    bt_process_info info;
    bt_process_io io;
    if (!bt_process_info_read(pid, &info)) return false;
    out[FAULTS] = info.page_faults;
    out[SWITCHES] = bt_process_switches(pid);
    out[DISK] = bt_process_io_read(pid, &io) ? (double)io.disk_read + (double)io.disk_written : NAN;
    return true;
}

static void sample_machine(bt_procs *p, double seconds) {
    const bt_machine_memory memory = bt_machine_memory_read();
    p->cpus = bt_processors_online();
    p->load = bt_machine_load_read().average;
    p->mem_mib = memory.total / 1048576;
    p->mem_used_mib = (memory.total - memory.available) / 1048576;
    p->celsius = bt_machine_celsius();
    const double net = bt_machine_network_bytes();
    p->net_per_s = seconds > 0 ? (net - p->net_bytes) / seconds : NAN;
    p->net_bytes = net;
}

void bt_procs_sample(bt_procs *p, const int *pids, int n, int64_t now_ns) {
    static const bt_proc_now none = {.faults_per_s = NAN, .switches_per_s = NAN, .disk_per_s = NAN};
    double seconds = p->sampled_ns > 0 ? (double)(now_ns - p->sampled_ns) / 1e9 : 0;
    bt_proc_now old[BT_PROCS_MAX];
    int n_old = p->n;
    memcpy(old, p->proc, (size_t)n_old * sizeof *old);
    p->n = 0;
    for (int i = 0; i < n && p->n < BT_PROCS_MAX; i++) {
        bt_proc_now x = none;
        x.pid = pids[i];
        if (x.pid <= 0 || !sample_process(x.pid, x.counter)) continue;
        for (int k = 0; k < n_old && seconds > 0; k++) {
            if (old[k].pid != x.pid) continue;
            x.faults_per_s = (x.counter[FAULTS] - old[k].counter[FAULTS]) / seconds;
            x.switches_per_s = (x.counter[SWITCHES] - old[k].counter[SWITCHES]) / seconds;
            x.disk_per_s = (x.counter[DISK] - old[k].counter[DISK]) / seconds;
        }
        p->proc[p->n++] = x;
    }
    sample_machine(p, seconds);
    p->sampled_ns = now_ns;
}

const bt_proc_now *bt_procs_of(const bt_procs *p, int pid) {
    for (int i = 0; i < p->n; i++)
        if (p->proc[i].pid == pid) return &p->proc[i];
    return NULL;
}

/* cores.c - computes rates from two readings of the counters of processors, disks and processes. */
#include "monitor/watch/cores.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/os/machine_info.h"
#include "engine/base/os/process_info.h"
#include "engine/base/os/processors.h"
#include "engine/base/text.h"

static const double LEAST_CORES = 0.05;
static const int64_t LOOK_NS = 2000000000; /* minimum interval between two scans of all processes */
enum { COST_SHARE = 300 };

static void read_core_times(bt_cores *c, bool rates) {
    static bt_processor_times times[BT_CORES_MAX];
    c->n = (int)bt_machine_times_each(times, BT_CORES_MAX);
    for (int i = 0; i < c->n; i++) {
        bt_core *x = &c->core[i];
        const double busy = (double)(times[i].worked + times[i].stolen),
                     all = busy + (double)times[i].idle;
        x->busy_frac = rates && all > x->all ? (busy - x->busy) / (all - x->all) : NAN;
        x->id = times[i].cpu;
        x->busy = busy;
        x->all = all;
    }
}

static void set_temperature(void *ctx, int core, double celsius) {
    bt_cores *c = ctx;
    if (core < c->n) c->core[core].celsius = celsius;
}

static void read_frequencies(bt_cores *c) {
    for (int i = 0; i < c->n; i++) {
        c->core[i].mhz = bt_processor_mhz(c->core[i].id);
        c->core[i].celsius = NAN;
        if (i == 0 && isnan(c->core[0].mhz)) { /* the system has no frequencies */
            for (int k = 1; k < c->n; k++) c->core[k].mhz = c->core[k].celsius = NAN;
            break;
        }
    }
}

static void read_disks(bt_cores *c, double seconds) {
    double read, written;
    c->read_per_s = c->written_per_s = NAN;
    if (!bt_machine_disk_bytes(&read, &written)) return;
    if (seconds > 0) {
        c->read_per_s = fmax(0, (read - c->read) / seconds);
        c->written_per_s = fmax(0, (written - c->written) / seconds);
    }
    c->read = read;
    c->written = written;
}

static void insert_busiest_process(bt_cores *c, const bt_other *x) {
    int at = c->n_others < BT_OTHERS_MAX ? c->n_others++ : BT_OTHERS_MAX;
    while (at > 0 && x->cores > c->other[at - 1].cores) {
        if (at < BT_OTHERS_MAX) c->other[at] = c->other[at - 1];
        at--;
    }
    if (at < BT_OTHERS_MAX) c->other[at] = *x;
}

static bool is_own_pid(int pid, const int *ours, int n) {
    bool found = pid == (int)getpid();
    for (int i = 0; i < n && !found; i++) found = ours[i] == pid;
    return found;
}

/* Finds the processor time of a process in the previous scan; *at continues from call to call, because pids ascend. */
static double previous_cpu_s(const bt_cores *old, int n_old, int pid, int *at) {
    while (*at < n_old && old->seen[*at].pid < pid) ++*at;
    return *at < n_old && old->seen[*at].pid == pid ? old->seen[*at].cpu_s : NAN;
}

static void measure_other_processes(bt_cores *c, const int *ours, int n, int64_t now_ns) {
    static bt_cores old; /* its list alone */
    const double seconds = c->looked_ns ? (double)(now_ns - c->looked_ns) / 1e9 : 0;
    const int n_old = c->n_seen;
    const int64_t began = bt_now_ns();
    bt_process_scan scan = {NULL};
    bt_process_info info;
    memcpy(old.seen, c->seen, (size_t)n_old * sizeof *c->seen);
    c->n_seen = c->n_others = 0;
    int at = 0;
    for (pid_t pid; c->n_seen < BT_SEEN_MAX && (pid = bt_process_scan_next(&scan)) > 0;) {
        bt_other x = {.pid = pid};
        if (is_own_pid(pid, ours, n) || !bt_process_info_read(pid, &info)) continue;
        bt_text_plain(x.name, sizeof x.name, info.name);
        const double before = previous_cpu_s(&old, n_old, pid, &at);
        c->seen[c->n_seen].pid = pid;
        c->seen[c->n_seen++].cpu_s = info.cpu_s;
        x.cores = seconds > 0 ? (info.cpu_s - before) / seconds : NAN;
        if (x.cores >= LEAST_CORES) insert_busiest_process(c, &x);
    }
    bt_process_scan_end(&scan);
    c->looked_ns = now_ns;
    c->look_cost_ns = bt_now_ns() - began;
}

void bt_cores_sample(bt_cores *c, const int *ours, int n, int64_t now_ns) {
    const double seconds = c->sampled_ns ? (double)(now_ns - c->sampled_ns) / 1e9 : 0;
    const int64_t wait = COST_SHARE * c->look_cost_ns;
    read_core_times(c, seconds > 0);
    read_frequencies(c);
    if (c->n && !isnan(c->core[0].mhz)) bt_machine_core_celsius(set_temperature, c);
    read_disks(c, seconds);
    c->sampled_ns = now_ns;
    if (!c->looked_ns || now_ns - c->looked_ns >= (wait > LOOK_NS ? wait : LOOK_NS))
        measure_other_processes(c, ours, n, now_ns);
}

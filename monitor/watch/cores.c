/* cores.c - differences between two readings of /proc/stat, /proc/diskstats and the processes. */
#include "monitor/watch/cores.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/os/process_info.h"
#include "engine/base/text.h"

static const double LEAST_CORES = 0.05;
static const int64_t LOOK_NS = 2000000000; /* minimum interval between two scans of all processes */
enum { COST_SHARE = 300 };

static double read_number_file(const char *path) {
    char buf[64];
    FILE *f = fopen(path, "re");
    if (!f) return NAN;
    const size_t n = fread(buf, 1, sizeof buf - 1, f);
    fclose(f);
    buf[n] = 0;
    char *end;
    const double v = strtod(buf, &end);
    return end == buf ? NAN : v;
}

static void read_ticks(bt_cores *c, bool rates) {
    char line[512];
    FILE *f = fopen("/proc/stat", "re");
    int n = 0;
    while (f && fgets(line, sizeof line, f)) {
        double t[8] = {0};
        int id;
        if (strncmp(line, "cpu", 3) != 0) break;
        /* "cpu  3237 ..." is the sum of all cores */
        if (line[3] < '0' || line[3] > '9') continue;
        if (sscanf(line, "cpu%d %lf %lf %lf %lf %lf %lf %lf %lf", &id, &t[0], &t[1], &t[2], &t[3],
                   &t[4], &t[5], &t[6], &t[7]) < 5 ||
            n == BT_CORES_MAX)
            continue;
        bt_core *x = &c->core[n++];
        double all = 0;
        for (int k = 0; k < 8; k++) all += t[k];
        const double busy = all - t[3] - t[4]; /* busy: without idle and I/O wait */
        x->busy_frac = rates && all > x->all ? (busy - x->busy) / (all - x->all) : NAN;
        x->id = id;
        x->busy = busy;
        x->all = all;
    }
    if (f) fclose(f);
    c->n = n;
}

/* "Core N" of coretemp and similar drivers; on other machines the cores have no temperature of their own */
static void read_temperatures(bt_cores *c) {
    for (int chip = 0; chip < 16; chip++) {
        for (int t = 1; t <= 64; t++) {
            char path[96], label[32] = "";
            int core;
            snprintf(path, sizeof path, "/sys/class/hwmon/hwmon%d/temp%d_label", chip, t);
            FILE *f = fopen(path, "re");
            if (!f && t > 1) break;
            if (!f) continue;
            if (!fgets(label, sizeof label, f)) label[0] = 0;
            fclose(f);
            if (sscanf(label, "Core %d", &core) != 1 || core < 0 || core >= c->n) continue;
            snprintf(path, sizeof path, "/sys/class/hwmon/hwmon%d/temp%d_input", chip, t);
            c->core[core].celsius = read_number_file(path) / 1e3;
        }
    }
}

static void read_frequencies(bt_cores *c) {
    char path[96];
    for (int i = 0; i < c->n; i++) {
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cpufreq/scaling_cur_freq",
                 c->core[i].id);
        c->core[i].mhz = read_number_file(path) / 1e3;
        c->core[i].celsius = NAN;
        if (i == 0 && isnan(c->core[0].mhz)) { /* the kernel has no cpufreq: no core has */
            for (int k = 1; k < c->n; k++) c->core[k].mhz = c->core[k].celsius = NAN;
            break;
        }
    }
}

/* whole disks: a partition's bytes are its disk's, and those of loop, dm and md devices another one's */
static bool is_disk(const char *name) {
    char path[80];
    if (strncmp(name, "loop", 4) == 0 || strncmp(name, "ram", 3) == 0 ||
        strncmp(name, "dm-", 3) == 0 || strncmp(name, "md", 2) == 0 ||
        strncmp(name, "zram", 4) == 0)
        return false;
    snprintf(path, sizeof path, "/sys/block/%.40s", name);
    return access(path, F_OK) == 0;
}

static void read_disks(bt_cores *c, double seconds) {
    char line[512], name[48];
    double read = 0, written = 0;
    enum { SECTOR = 512 }; /* limit of this file, not of the disk */
    FILE *f = fopen("/proc/diskstats", "re");
    c->read_per_s = c->written_per_s = NAN;
    if (!f) return;
    while (fgets(line, sizeof line, f)) {
        double in, out;
        if (sscanf(line, " %*d %*d %47s %*f %*f %lf %*f %*f %*f %lf", name, &in, &out) != 3 ||
            (in <= 0 && out <= 0) || !is_disk(name))
            continue;
        read += in * SECTOR;
        written += out * SECTOR;
    }
    fclose(f);
    if (seconds > 0) {
        c->read_per_s = fmax(0, (read - c->read) / seconds);
        c->written_per_s = fmax(0, (written - c->written) / seconds);
    }
    c->read = read;
    c->written = written;
}

static void keep_busiest(bt_cores *c, const bt_other *x) {
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

/* both lists are in the order of the numbers */
static double cpu_s_before(const bt_cores *old, int n_old, int pid, int *at) {
    while (*at < n_old && old->seen[*at].pid < pid) ++*at;
    return *at < n_old && old->seen[*at].pid == pid ? old->seen[*at].cpu_s : NAN;
}

static void measure_other_processes(bt_cores *c, const int *ours, int n, int64_t now_ns) {
    static bt_cores old; /* its list alone */
    const double seconds = c->looked_ns ? (double)(now_ns - c->looked_ns) / 1e9 : 0;
    const int n_old = c->n_seen;
    const int64_t began = bt_now_ns();
    bt_process_scan scan;
    bt_process_info info;
    bt_process_scan_begin(&scan);
    memcpy(old.seen, c->seen, (size_t)n_old * sizeof *c->seen);
    c->n_seen = c->n_others = 0;
    int at = 0;
    for (pid_t pid; c->n_seen < BT_SEEN_MAX && (pid = bt_process_scan_next(&scan)) > 0;) {
        bt_other x = {.pid = pid};
        if (is_own_pid(pid, ours, n) || !bt_process_info_read(pid, &info)) continue;
        bt_text_plain(x.name, sizeof x.name, info.name);
        const double before = cpu_s_before(&old, n_old, pid, &at);
        c->seen[c->n_seen].pid = pid;
        c->seen[c->n_seen++].cpu_s = info.cpu_s;
        x.cores = seconds > 0 ? (info.cpu_s - before) / seconds : NAN;
        if (x.cores >= LEAST_CORES) keep_busiest(c, &x);
    }
    bt_process_scan_end(&scan);
    c->looked_ns = now_ns;
    c->look_cost_ns = bt_now_ns() - began;
}

void bt_cores_sample(bt_cores *c, const int *ours, int n, int64_t now_ns) {
    const double seconds = c->sampled_ns ? (double)(now_ns - c->sampled_ns) / 1e9 : 0;
    const int64_t wait = COST_SHARE * c->look_cost_ns;
    read_ticks(c, seconds > 0);
    read_frequencies(c);
    if (c->n && !isnan(c->core[0].mhz)) read_temperatures(c);
    read_disks(c, seconds);
    c->sampled_ns = now_ns;
    if (!c->looked_ns || now_ns - c->looked_ns >= (wait > LOOK_NS ? wait : LOOK_NS))
        measure_other_processes(c, ours, n, now_ns);
}

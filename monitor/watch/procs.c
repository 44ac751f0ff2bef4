/* procs.c - differences between two readings of /proc become rates. */
#include "monitor/watch/procs.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/os/process_info.h"
#include "engine/base/os/process_usage.h"
#include "engine/base/os/processors.h"

enum { FAULTS, SWITCHES, DISK };

static bool read_small_file(const char *path, char *buf, size_t size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t n = read(fd, buf, size - 1);
    close(fd);
    buf[n > 0 ? n : 0] = 0;
    return n > 0;
}

/* the number after a word; NaN where the word is not */
static double number_after(const char *text, const char *word) {
    const char *at = strstr(text, word);
    return at ? strtod(at + strlen(word), NULL) : NAN;
}

static bool sample_process(int pid, double *out) {
    bt_process_info info;
    bt_process_io io;
    if (!bt_process_info_read(pid, &info)) return false;
    out[FAULTS] = info.page_faults;
    out[SWITCHES] = bt_process_switches(pid);
    out[DISK] = bt_process_io_read(pid, &io) ? (double)io.disk_read + (double)io.disk_written : NAN;
    return true;
}

static double network_bytes(void) {
    char buf[8192];
    double sum = 0;
    if (!read_small_file("/proc/net/dev", buf, sizeof buf)) return NAN;
    for (char *line = strtok(buf, "\n"); line; line = strtok(NULL, "\n")) {
        char *colon = strchr(line, ':');
        double in, out;
        if (!colon || sscanf(colon + 1, "%lf %*f %*f %*f %*f %*f %*f %*f %lf", &in, &out) != 2)
            continue;
        *colon = 0;
        if (strcmp(line + strspn(line, " "), "lo") != 0) sum += in + out;
    }
    return sum;
}

static double hottest_sensor(void) {
    double most = NAN;
    for (int i = 0; i < 32; i++) {
        char path[64], buf[32];
        snprintf(path, sizeof path, "/sys/class/thermal/thermal_zone%d/temp", i);
        if (!read_small_file(path, buf, sizeof buf)) break;
        double c = strtod(buf, NULL) / 1e3;
        if (c > 0 && c < 150) most = fmax(most, c);
    }
    return most;
}

static void sample_machine(bt_procs *p, double seconds) {
    char buf[4096];
    p->cpus = bt_processors_online();
    p->load = read_small_file("/proc/loadavg", buf, sizeof buf) ? strtod(buf, NULL) : NAN;
    bool memory = read_small_file("/proc/meminfo", buf, sizeof buf);
    p->mem_mib = memory ? number_after(buf, "MemTotal:") / 1024 : NAN;
    p->mem_used_mib = memory ? p->mem_mib - number_after(buf, "MemAvailable:") / 1024 : NAN;
    p->celsius = hottest_sensor();
    double net = network_bytes();
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

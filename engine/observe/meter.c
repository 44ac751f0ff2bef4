/* meter.c - time of one rank in windows of a step; memory and load of the machine. */
#include "engine/observe/meter.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/span.h"
#include "engine/parallel/mpi/comm.h"

/* Uses read, because stdio would allocate memory inside a step. */
double bt_rss_mib(void) {
    char text[128];
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return NAN;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0) return NAN;
    text[n] = '\0';
    const char *resident = strchr(text, ' ');
    return resident ? strtod(resident, NULL) * (double)sysconf(_SC_PAGESIZE) / 1048576.0 : NAN;
}

double bt_machine_load(void) {
    static long processors; /* cached, because sysconf takes longer than reading the load */
    char text[96];
    int fd = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return NAN;
    const ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    /* "0.20 0.18 0.12 1/80 11206": the fourth field is the number of runnable tasks / all tasks */
    const char *slash = strchr(text, '/');
    while (slash && slash > text && slash[-1] != ' ') slash--;
    const long running = slash ? strtol(slash, NULL, 10) : 0;
    if (processors == 0) processors = sysconf(_SC_NPROCESSORS_ONLN);
    return running > 0 && processors > 0 ? (double)running / (double)processors : NAN;
}

double bt_machine_load_of_others(void) {
    enum { SAMPLES = 10, EVERY_MS = 5 };
    double sum = 0;
    for (int i = 0; i < SAMPLES; i++) {
        sum += bt_machine_load();
        bt_sleep_ns((int64_t)EVERY_MS * 1000000);
    }
    /* each sample includes the task that reads it; fmax(NaN, 0) would hide an unknown load */
    const double others = sum / SAMPLES - 1.0 / (double)sysconf(_SC_NPROCESSORS_ONLN);
    return others < 0 ? 0 : others;
}

/* Returns the value of a line "KEY:   123 kB"; NaN: there is none. */
static double kib_in(const char *path, const char *key) {
    char line[256];
    double kib = NAN;
    FILE *f = fopen(path, "r");
    const size_t n = strlen(key);
    while (f && isnan(kib) && fgets(line, sizeof line, f))
        if (strncmp(line, key, n) == 0 && line[n] == ':') kib = strtod(line + n + 1, NULL);
    if (f) fclose(f);
    return kib;
}

double bt_memory_peak_mib(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    const double peak = (double)u.ru_maxrss,
                 others = kib_in("/proc/self/status", "RssShmem") -
                          kib_in("/proc/self/smaps_rollup", "Pss_Shmem");
    return (others > 0 ? peak - others : peak) / 1024.0;
}

static void begin_window(bt_meter *m) {
    memset(m, 0, sizeof *m);
    m->cpu_ns = bt_cpu_ns();
    m->bytes_logical = bt_comm_bytes_logical();
    m->bytes_wire = bt_comm_bytes_wire();
    for (int i = 0; i < BT_MR_COUNT; i++) m->values[i] = NAN;
}

void bt_meter_open(bt_meter *m) {
    begin_window(m);
    bt_span_reset();
}

void bt_meter_busy(bt_meter *m, int64_t ns) { m->busy_ns += ns; }
void bt_meter_set(bt_meter *m, bt_rank_metric metric, double value) { m->values[metric] = value; }

void bt_meter_close(bt_meter *m, double out[BT_MR_COUNT]) {
    int64_t spans[BT_SPANS], step_ns = 0;
    m->values[BT_MR_RSS] = bt_rss_mib();
    m->values[BT_MR_LOAD] = bt_machine_load();
    m->values[BT_MR_CPU] = (double)(bt_cpu_ns() - m->cpu_ns) / 1e6;
    m->values[BT_MR_BYTES_LOGICAL] = (double)(bt_comm_bytes_logical() - m->bytes_logical);
    m->values[BT_MR_BYTES_WIRE] = (double)(bt_comm_bytes_wire() - m->bytes_wire);
    bt_span_cut(spans);
    for (int p = 0; p < BT_PHASE_COUNT; p++) {
        bt_rank_metric metric = bt_phases[p].metric;
        step_ns += spans[metric];
        m->values[metric] = (double)spans[metric] / 1e6;
    }
    m->values[BT_MR_STEP_TIME] = (double)step_ns / 1e6;
    /* Exposed time is also transfer time, and not all exchanges are counted in busy_ns (losses, norms, a hub).
     * Concurrent transfers count at most as long as the step. */
    m->values[BT_MR_COMM_BUSY] = fmin(fmax((double)m->busy_ns / 1e6, m->values[BT_MR_COMM_EXPOSED]),
                                      m->values[BT_MR_STEP_TIME]);
    memcpy(out, m->values, sizeof m->values);
    begin_window(m);
}

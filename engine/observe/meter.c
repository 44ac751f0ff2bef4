/* meter.c - measures the time of one rank between two steps, and memory and load of the machine. */
#include "engine/observe/meter.h"

#include <math.h>
#include <string.h>
#include <sys/resource.h>

#include "engine/base/clock.h"
#include "engine/base/os/machine_info.h"
#include "engine/base/os/process_usage.h"
#include "engine/base/os/processors.h"
#include "engine/base/span.h"
#include "engine/parallel/mpi/comm.h"

double bt_rss_mib(void) {
    size_t all, resident;
    return bt_process_memory(0, &all, &resident) ? (double)resident / 1048576.0 : NAN;
}

double bt_machine_load(void) {
    static int processors; /* cached, because counting takes longer than reading the load */
    if (processors == 0) processors = bt_processors_online();
    return bt_machine_load_read().runnable / processors;
}

double bt_machine_load_of_others(void) {
    enum { SAMPLES = 10, EVERY_MS = 5 };
    double sum = 0;
    for (int i = 0; i < SAMPLES; i++) {
        sum += bt_machine_load();
        bt_sleep_ns((int64_t)EVERY_MS * 1000000);
    }
    /* the calling task counts in each sample; fmax(NaN, 0) would hide an unknown load */
    const double others = sum / SAMPLES - 1.0 / bt_processors_online();
    return others < 0 ? 0 : others;
}

double bt_memory_peak_mib(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    const double peak = (double)u.ru_maxrss, others = bt_process_memory_of_others() / 1024;
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
    /* Exposed time is also transfer time, and busy_ns does not include all exchanges (losses, norms, a hub). Concurrent
     * transfers count at most as long as the step. */
    m->values[BT_MR_COMM_BUSY] = fmin(fmax((double)m->busy_ns / 1e6, m->values[BT_MR_COMM_EXPOSED]),
                                      m->values[BT_MR_STEP_TIME]);
    memcpy(out, m->values, sizeof m->values);
    begin_window(m);
}

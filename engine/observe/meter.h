/* meter.h - the time of a step by phase, on this rank: a conservation law.
 *
 *     step = the sum of its phases (base/tables/phases.def)
 *
 * The phases are the spans of the training thread (base/span.h); a window is a cut of them. Windows follow one
 * another without a gap: work after `close` (recording) is charged to the next window, except excluded time (a
 * pause, an evaluation), which belongs to no step.
 * Order:    open -> { add*, set* -> close }*. Threads: the training thread. */
#ifndef BT_ENGINE_OBSERVE_METER_H
#define BT_ENGINE_OBSERVE_METER_H

#include <stdint.h>

#include "engine/base/tables/metric.h"

typedef struct bt_meter {
    int64_t cpu_ns;
    uint64_t bytes_logical, bytes_wire; /* counters at the window's beginning */
    int64_t busy_ns;                    /* transfers in flight, hidden or not */
    double values[BT_MR_COUNT];         /* values set explicitly, in the metric's unit */
} bt_meter;

/* the first window begins now */
void bt_meter_open(bt_meter *m);
void bt_meter_busy(bt_meter *m, int64_t ns); /* a transfer was in flight for so long */
void bt_meter_set(bt_meter *m, bt_rank_metric metric, double value);
/* and the next window begins */
void bt_meter_close(bt_meter *m, double out[BT_MR_COUNT]);
double bt_rss_mib(void); /* resident now */
/* Peak resident memory, where a page shared by n processes counts 1/n in each of them: the sum over the ranks of a
 * host is their total. Reads the page tables: milliseconds */
double bt_memory_peak_mib(void);
/* runnable tasks of this machine per processor; NaN: unknown */
double bt_machine_load(void);
/* the same without the calling task: the mean of samples over 50 ms, in which this thread sleeps; NaN: unknown */
double bt_machine_load_of_others(void);

#endif

/* meter.h - measures the time of each step by phase, on this rank, without a gap:
 *
 *     step = the sum of its phases (base/tables/phases.def)
 *
 * The phases are the spans of the training thread (base/span.h). A measuring window ends when `close` reads and clears
 * the spans, and the next window begins there, so work after `close` (recording) counts for the next step. Excluded
 * time (a pause, an evaluation) belongs to no step.
 * Order:    open -> { add*, set* -> close }*. Threads: the training thread. */
#ifndef BT_ENGINE_OBSERVE_METER_H
#define BT_ENGINE_OBSERVE_METER_H

#include <stdint.h>

#include "engine/base/tables/metric.h"

typedef struct bt_meter {
    int64_t cpu_ns;
    uint64_t bytes_logical, bytes_wire; /* counters at the beginning of the window */
    int64_t busy_ns;                    /* duration of transfers, hidden or not */
    double values[BT_MR_COUNT]; /* values that callers have set, in the unit of the metric */
} bt_meter;

/* Begins the first window. */
void bt_meter_open(bt_meter *m);
void bt_meter_busy(bt_meter *m, int64_t ns); /* adds the duration of a transfer */
void bt_meter_set(bt_meter *m, bt_rank_metric metric, double value);
/* Computes all values of the window, and begins the next one. */
void bt_meter_close(bt_meter *m, double out[BT_MR_COUNT]);
double bt_rss_mib(void); /* resident memory now */
/* Returns the peak resident memory, in which a page that n processes share counts 1/n, so that the sum over the ranks
 * of a host is their total. Takes milliseconds, because it reads the page tables. */
double bt_memory_peak_mib(void);
/* Returns the runnable tasks of this machine per processor; NaN: unknown. */
double bt_machine_load(void);
/* Returns the runnable tasks per processor without the caller, from samples over 50 ms of sleep; NaN: unknown. */
double bt_machine_load_of_others(void);

#endif

/* profile.h - measures the time of a step by operation (train.profile), on rank 0, and compares operations with the
 * peak of its cores.
 *
 * Order:    step after every step, hold around work that belongs to no step, close once at the end. The first two steps
 *           of an attempt are warm-up (one if there are only two). Cost: two readings of the clock per operation and
 *           two of the processor time per phase.
 * Threads:  the training thread. */
#ifndef BT_ENGINE_OBSERVE_PROFILE_H
#define BT_ENGINE_OBSERVE_PROFILE_H

#include <stddef.h>
#include <stdint.h>

#include "engine/base/tables/metric.h"
#include "engine/kernels/table/kernels.h"

/* Largest number of rows: operations and "other". */
enum { BT_PROFILE_ROWS = 41 };

typedef struct bt_profile_row {
    const char *name;
    double ms, frac; /* per step */
    double calls;    /* per step */
    /* rate in G/s; bound: measured peak; 0: operations or bytes are not counted. */
    double rate, bound;
    const char *unit, *bound_name; /* such as "GOP/s" and "bf16 peak", or "GB/s" and "triad" */
} bt_profile_row;

typedef struct bt_profile {
    double step_ms; /* mean duration of the profiled steps */
    int64_t steps;
    /* Processor time of the training thread in each phase, without waits, in the step with the smallest sum, in which
     * other programs have evicted least from the caches. */
    double processor_ms[BT_PHASE_COUNT];
    double processor_before_ms[BT_PHASE_COUNT]; /* mean over all steps so far */
    size_t n;
    /* In descending order of time; the last row is "other". */
    bt_profile_row rows[BT_PROFILE_ROWS];
} bt_profile;

/* Called after each of the attempt's `total` steps, when `done` are complete. */
void bt_profile_step(bt_profile *p, int64_t done, int64_t total, double step_ms);
/* true excludes time from here on, such as evaluations and checkpoints, which are not part of a step. */
void bt_profile_hold(bool hold);
/* Measures the peaks (0.4 s) and fills the rows. */
void bt_profile_close(bt_profile *p, bt_prec prec);
/* writes one line; returns its length like snprintf */
int bt_profile_text(char *out, size_t size, const bt_profile_row *r);

#endif

/* profile.h - time of a step by operation (train.profile): rank 0's operations compared with the peak of its
 * cores.
 *
 * Order:    step after every step, hold around work that belongs to no step, close once at the end. The first two steps
 *           of an attempt are warm-up (one, if there are only two). Cost: two clock readings per operation, and two of
 *           the processor time per phase.
 * Threads:  the training thread. */
#ifndef BT_ENGINE_OBSERVE_PROFILE_H
#define BT_ENGINE_OBSERVE_PROFILE_H

#include <stddef.h>
#include <stdint.h>

#include "engine/base/tables/metric.h"
#include "engine/kernels/table/kernels.h"

/* largest number of rows: operations and others */
enum { BT_PROFILE_ROWS = 41 };

typedef struct bt_profile_row {
    const char *name;
    double ms, frac; /* per step */
    double calls;    /* per step */
    /* rate in G/s; bound: measured peak, 0 if operations or bytes are not counted */
    double rate, bound;
    const char *unit, *bound_name; /* "GOP/s" for "bf16 peak", "GB/s" for "triad" */
} bt_profile_row;

typedef struct bt_profile {
    double step_ms; /* mean duration of the profiled steps */
    int64_t steps;
    /* processor time of the training thread in each phase, in the step with the smallest sum (without waits), in which
     * other programs evicted least from the caches */
    double processor_ms[BT_PHASE_COUNT];
    double processor_before_ms[BT_PHASE_COUNT]; /* mean over all steps so far */
    size_t n;
    /* in descending order of time; "other" is the last */
    bt_profile_row rows[BT_PROFILE_ROWS];
} bt_profile;

/* Called when `done` of the attempt's `total` steps are done. */
void bt_profile_step(bt_profile *p, int64_t done, int64_t total, double step_ms);
/* true: excludes evaluations and checkpoints, which are not part of a step. */
void bt_profile_hold(bool hold);
/* Measures the peaks (0.4 s) and fills the rows. */
void bt_profile_close(bt_profile *p, bt_prec prec);
int bt_profile_text(
    char *out, size_t size,
    const bt_profile_row *r); /* writes one line; returns its length like snprintf */

#endif

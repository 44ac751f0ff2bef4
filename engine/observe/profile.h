/* profile.h - time of a step by operation (train.profile): rank 0's operations compared with the peak of its
 * cores.
 *
 * Order:    step after every step, hold around work that belongs to no step, tell once at the end. The first two
 *           steps of an attempt are warm-up (one, if there are only two). Cost: two clock readings per operation,
 *           two of the processor's clock per phase.
 * Threads:  the training thread. */
#ifndef BT_ENGINE_OBSERVE_PROFILE_H
#define BT_ENGINE_OBSERVE_PROFILE_H

#include <stddef.h>
#include <stdint.h>

#include "engine/base/tables/metric.h"
#include "engine/kernels/table/kernels.h"

/* number of operations, and of other rows */
enum { BT_PROFILE_ROWS = 41 };

typedef struct bt_profile_row {
    const char *name;
    double ms, frac; /* per step */
    double calls;    /* a step */
    /* G/s; bound: the measured peak; 0 if there is no count */
    double rate, bound;
    const char *unit, *bound_name; /* "GOP/s" of "bf16 peak", "GB/s" of "triad" */
} bt_profile_row;

typedef struct bt_profile {
    double step_ms; /* mean duration of the profiled steps */
    int64_t steps;
    /* processor time of the training thread in each phase, of the step that took least of it (waits
     * apart): of that from which other programs took least of the caches */
    double processor_ms[BT_PHASE_COUNT];
    double processor_before_ms[BT_PHASE_COUNT]; /* mean over all steps so far */
    size_t n;
    /* sorted by time, the largest first; "other" is the last */
    bt_profile_row rows[BT_PROFILE_ROWS];
} bt_profile;

/* `done` of the attempt's `total` steps are done */
void bt_profile_step(bt_profile *p, int64_t done, int64_t total, double step_ms);
/* evaluations and checkpoints are not part of a step */
void bt_profile_hold(bool hold);
/* measures the peaks (0.4 s), fills the rows */
void bt_profile_close(bt_profile *p, bt_prec prec);
int bt_profile_text(char *out, size_t size, const bt_profile_row *r); /* one line; as snprintf */

#endif

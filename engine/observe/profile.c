/* profile.c - profiles operations (ops.h) over whole steps, and compares them with measured peaks. */
#include "engine/observe/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/span.h"
#include "engine/base/threads.h"
#include "engine/bench/peak.h"
#include "engine/kernels/ops/ops.h"

_Static_assert((int)BT_PROFILE_ROWS == (int)BT_OPS_MAX + 1,
               "a row for each operation, and one for the rest");

enum { WARMUP = 2, TRIAD_MIB = 192 };

static double sum_without_waits(const double ms[BT_PHASE_COUNT]) {
    double sum = 0;
    for (int i = 0; i < BT_PHASE_COUNT; i++) sum += i == BT_PH_WAIT ? 0 : ms[i];
    return sum;
}

static void take_processor_time(bt_profile *p) {
    double step[BT_PHASE_COUNT];
    for (int i = 0; i < BT_PHASE_COUNT; i++) {
        double all = (double)bt_span_processor_ns((int)bt_phases[i].metric) / 1e6;
        step[i] = all - p->processor_before_ms[i];
        p->processor_before_ms[i] = all;
    }
    if (p->steps == 1 || sum_without_waits(step) < sum_without_waits(p->processor_ms))
        memcpy(p->processor_ms, step, sizeof step);
}

void bt_profile_step(bt_profile *p, int64_t done, int64_t total, double step_ms) {
    int64_t warmup = total > WARMUP ? WARMUP : total - 1;
    if (done == warmup) {
        bt_ops_profile(true);
        bt_span_processor(true);
    } else if (done > warmup) {
        p->steps++;
        p->step_ms += step_ms;
        take_processor_time(p);
    }
}

void bt_profile_hold(bool hold) { bt_ops_profile_hold(hold); }

static int compare_op_time(const void *a, const void *b) {
    double x = ((const bt_profile_row *)a)->ms, y = ((const bt_profile_row *)b)->ms;
    return (x < y) - (x > y);
}

static bool is_integer_op(const char *op) {
    static const char *const ops[] = {"tern_fwd", "tern_dx8", "tern_dw8", "w8_dx8", "w8_fwd"};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (strcmp(op, ops[i]) == 0) return true;
    return false;
}

void bt_profile_close(bt_profile *p, bt_prec prec) {
    static const char *const peaks[] = {"fp32 peak", "bf16 peak", "int8 peak"};
    bt_op_profile ops[BT_OPS_MAX];
    bt_ops_profile(false);
    bt_span_processor(false);
    p->n = 0;
    if (p->steps == 0) return;
    size_t n = bt_ops_profile_rows(ops, BT_OPS_MAX);
    double rate[3], triad = bt_peak_triad(TRIAD_MIB) / 1e9, steps = (double)p->steps,
                    rest = p->step_ms / steps;
    for (int k = 0; k < 3; k++) rate[k] = bt_peak_rate((bt_peak)k, bt_threads_count()) / 1e9;
    for (size_t i = 0; i < n; i++) {
        const bt_op_profile *o = &ops[i];
        bt_profile_row *r = &p->rows[p->n++];
        *r = (bt_profile_row){.name = o->name,
                              .ms = (double)o->ns / 1e6 / steps,
                              .calls = (double)o->calls / steps,
                              .unit = "",
                              .bound_name = ""};
        bt_peak kind = is_integer_op(o->name) ? BT_PEAK_INT8
                       : prec == BT_PREC_BF16 ? BT_PEAK_BF16
                                              : BT_PEAK_FP32;
        if (rate[kind] == 0) kind = BT_PEAK_FP32;
        r->frac = r->ms * steps / p->step_ms;
        rest -= r->ms;
        if (o->ns == 0) continue;
        if (o->ops > 0)
            r->rate = o->ops / (double)o->ns, r->bound = rate[kind], r->unit = "GOP/s",
            r->bound_name = peaks[kind];
        else if (o->bytes > 0)
            r->rate = o->bytes / (double)o->ns, r->bound = triad, r->unit = "GB/s",
            r->bound_name = "triad";
    }
    qsort(p->rows, p->n, sizeof *p->rows, compare_op_time);
    p->rows[p->n++] = (bt_profile_row){.name = "other",
                                       .ms = rest,
                                       .frac = rest * steps / p->step_ms,
                                       .unit = "",
                                       .bound_name = ""};
}

int bt_profile_text(char *out, size_t size, const bt_profile_row *r) {
    if (r->bound > 0) {
        return snprintf(out, size,
                        "%-14s %9.3f ms %5.1f %% of a step, %6.0f calls, %7.1f %s, %.0f %% of %s",
                        r->name, r->ms, 100 * r->frac, r->calls, r->rate, r->unit,
                        100 * r->rate / r->bound, r->bound_name);
    }
    return snprintf(out, size, "%-14s %9.3f ms %5.1f %% of a step", r->name, r->ms, 100 * r->frac);
}

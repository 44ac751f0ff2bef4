/* outer_step.c - element-wise update rules, and conditions on clocks and norms. */
#include "engine/islands/rules/outer_step.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/small.h"
#include "engine/kernels/ops/ops.h"

void bt_vector_scale(float *x, float by, size_t n) {
    for (size_t i = 0; i < n; i++) x[i] *= by;
}

void bt_vector_add(float *into, const float *x, size_t n) {
    for (size_t i = 0; i < n; i++) into[i] += x[i];
}

void bt_vector_subtract(float *into, const float *a, const float *b, size_t n) {
    for (size_t i = 0; i < n; i++) into[i] = a[i] - b[i];
}

bool bt_vector_finite(const float *x, size_t n) {
    uint32_t worst = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bits &= 0x7fffffffu;
        worst = bits > worst ? bits : worst;
    }
    return worst < 0x7f800000u;
}

double bt_vector_norm(const float *x, size_t n) { return sqrt(bt_op_sum_squares(x, n)); }

void bt_outer_nesterov(float *theta, float *buf, const float *delta, size_t n, float eta,
                       float mu) {
    for (size_t i = 0; i < n; i++) {
        buf[i] = mu * buf[i] + delta[i];
        theta[i] -= eta * (delta[i] + mu * buf[i]);
    }
}

double bt_outer_momentum(double islands) { return islands > 2 ? 1 - sqrt(2 / islands) : 0; }

void bt_outer_average(float *theta, const float *delta, size_t n, float eta) {
    for (size_t i = 0; i < n; i++) theta[i] -= eta * delta[i];
}

double bt_staleness_factor(int64_t staleness) {
    return 1 / (1 + (double)(staleness > 0 ? staleness : 0));
}

bool bt_poisoned(double norm, const double *norms, size_t n, double limit) {
    double sorted[BT_POISON_NORMS];
    if (!isfinite(norm)) return true;
    n = bt_min_size(n, BT_POISON_NORMS);
    if (n < BT_POISON_LEAST || limit <= 0) return false;
    memcpy(sorted, norms, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, bt_compare_doubles);
    return norm > limit * sorted[n / 2];
}

bool bt_clock_may_begin(int64_t clock, int64_t slowest, int64_t bound) {
    return bound < 0 || clock - slowest <= bound;
}

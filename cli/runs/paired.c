/* paired.c - Student's t-test of paired differences. */
#include "cli/runs/paired.h"

#include <math.h>

double bt_student_within(double t, size_t freedom) {
    const double angle = atan(fabs(t) / sqrt((double)freedom)), s = sin(angle), c = cos(angle);
    const size_t odd = freedom % 2;
    double term = odd ? c : 1, sum = freedom > 1 ? term : 0;
    for (size_t k = odd ? 3 : 2; k < freedom; k += 2) {
        term *= c * c * (double)(k - 1) / (double)k;
        sum += term;
    }
    return odd ? M_2_PI * (angle + s * sum) : s * sum;
}

bt_paired bt_paired_of(const double *differences, size_t n) {
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) sum += differences[i];
    bt_paired p = {.n = n, .mean = n ? sum / (double)n : NAN, .error = NAN, .confidence = NAN};
    if (n < 2) return p;
    for (size_t i = 0; i < n; i++) squares += (differences[i] - p.mean) * (differences[i] - p.mean);
    p.error = sqrt(squares / (double)(n - 1) / (double)n);
    p.confidence = p.error > 0 ? bt_student_within(p.mean / p.error, n - 1) : p.mean != 0;
    return p;
}

/* paired.h - the confidence that paired differences have the sign of their mean. */
#ifndef BT_CLI_RUNS_PAIRED_H
#define BT_CLI_RUNS_PAIRED_H

#include <stddef.h>

typedef struct bt_paired {
    size_t n;
    double mean;
    double error;      /* standard error of the mean; NaN for less than two differences */
    double confidence; /* 1 - p of Student's two-sided t-test; NaN for less than two differences */
} bt_paired;

bt_paired bt_paired_of(const double *differences, size_t n);
/* Probability that |T| < t for Student's t with `freedom` degrees of freedom (Abramowitz and Stegun, 26.7.3 and
 * 26.7.4). */
double bt_student_within(double t, size_t freedom);

#endif

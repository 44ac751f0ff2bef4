/* outer_step.h - update rules between islands, as arithmetic on flat arrays. Threads: one caller; no allocation. */
#ifndef BT_ENGINE_ISLANDS_RULES_OUTER_STEP_H
#define BT_ENGINE_ISLANDS_RULES_OUTER_STEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* scale: x *= by. add: into += x */
void bt_vector_scale(float *x, float by, size_t n);
void bt_vector_add(float *into, const float *x, size_t n);
/* into = a - b */
void bt_vector_subtract(float *into, const float *a, const float *b, size_t n);
bool bt_vector_finite(const float *x, size_t n);
double bt_vector_norm(const float *x, size_t n); /* L2 */

/* DiLoCo (arXiv:2311.08105, algorithm 1; SGD of OpenDiLoCo): delta is the mean over islands of (start - end).
 * buf = mu buf + delta; theta -= eta (delta + mu buf), Nesterov's form of momentum. mu = 0: plain steps, which with eta
 * = 1 average the weights. */
void bt_outer_nesterov(float *theta, float *buf, const float *delta, size_t n, float eta, float mu);

/* Default of islands.outer_momentum for n islands: 1 - sqrt(2 / n), which is 0, 0.29 and 0.5 for 2, 4 and 8 islands and
 * makes the outer step sqrt(n / 2) times as long in the limit. It is an empirical rule that fits measurements with two
 * and four islands (modes.md): with 0.5, two islands of `small` ended 11 % above one job, with 0 1.3 % above it. */
double bt_outer_momentum(double islands);

/* Applies the delta of one island without momentum: theta -= eta delta. With eta = 1/N for N islands this is plain
 * averaging. Momentum would accumulate with every arriving delta, so that asynchronous islands diverge (Liu et al.,
 * arXiv:2401.09135). */
void bt_outer_average(float *theta, const float *delta, size_t n, float eta);

/* Returns the learning-rate factor for an update that is `staleness` versions old: 1 / (1 + staleness) (Zhang et al.,
 * arXiv:1511.05950). It reduces the learning rate, because AdamW does not depend on the scale of the gradient. */
double bt_staleness_factor(int64_t staleness);

/* An update is poisoned if its norm exceeds `limit` times the median of the given norms, those of the newest accepted
 * updates. At least BT_POISON_LEAST norms are needed. limit 0: no update is poisoned. */
enum { BT_POISON_LEAST = 4, BT_POISON_NORMS = 32, BT_POISON_TIMES = 10 };
bool bt_poisoned(double norm, const double *norms, size_t n, double limit);

/* Stale synchronous parallel (Ho et al. 2013): an island that has done `clock` steps may begin the next one if the
 * slowest island has done at least clock - bound. bound < 0: always (asynchronous). */
bool bt_clock_may_begin(int64_t clock, int64_t slowest, int64_t bound);

#endif

/* trial_race.h - which of a few things is the fastest, by running them in turn until that is known well enough.
 *
 *     round 1   A B C      round 2   C B A      round 3   A B ...     the machine's drift meets all alike
 *
 * A racer comes with a prediction, whose error is BT_RACE_PRIOR: the standard deviation of its logarithm, but for a
 * factor that all predictions share. The logarithms of what the runs took are split into a part of the round and a
 * part of the racer by medians (median polish; Tukey 1977, Exploratory Data Analysis), because other programs
 * make single runs much too slow. What is left over is the noise: the median of what the split could not absorb,
 * and BT_RACE_NOISE with the weight of two runs, for as long as there are few.
 * The racer's part, whose standard error is 1.2533 noise / sqrt(runs), and its prediction make its probable time,
 * a normal distribution of the logarithm. With d, how much longer than the best one's, and the width s of this
 * difference, choosing the best loses
 *     s phi(d/s) - d Phi(-d/s)
 * on average because this racer may be faster after all (expected opportunity cost; Chick, Inoue 2001, Operations
 * Research 49). The race ends when these losses together are less than BT_RACE_LOSS, after BT_RACE_ROUNDS_LEAST
 * rounds at least, or when the next round would take more time than is left; a racer whose own is less than a
 * quarter of that is not run again.
 * Every rank of a job may run the same race: what it does follows from the times that it is given alone.
 * Threads: one. Owns nothing. */
#ifndef BT_ENGINE_PLAN_TRIAL_RACE_H
#define BT_ENGINE_PLAN_TRIAL_RACE_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/base/status.h"

#define BT_RACE_PRIOR 0.06
#define BT_RACE_NOISE 0.03
#define BT_RACE_LOSS 0.01
enum { BT_RACE_MOST = 8, BT_RACE_ROUNDS_LEAST = 2, BT_RACE_ROUNDS_MOST = 32 };

typedef struct bt_racer {
    double predicted_s;                 /* given; 0: nothing is predicted of any */
    double took_s[BT_RACE_ROUNDS_MOST]; /* (runs) what it took in the first rounds */
    size_t runs;
    bool out; /* it is not run again: it is slower, or hardly faster */
    /* its probable time; the share of it that choosing the best may lose to this one, 0 of the best */
    double time_s, loss_frac;
} bt_racer;

typedef struct bt_race {
    size_t n; /* 2 .. BT_RACE_MOST */
    double budget_s;
    /* one run of racer i: what is compared, and by the caller's clock how long trying it took */
    bt_code (*run)(void *ctx, size_t i, double *took_s, double *spent_s, bt_err *err);
    void *ctx;
    bt_racer racer[BT_RACE_MOST]; /* predicted_s is given, the rest are results */
    size_t rounds, best;
    double spent_s, loss_frac; /* loss_frac: all racers' together */
    bool settled;              /* that is less than BT_RACE_LOSS; otherwise the budget ended it */
} bt_race;

/* At least one round is run, however small the budget. An error is that of a run; what was run before it stays */
bt_code bt_race_run(bt_race *r, bt_err *err) BT_MUST_CHECK;

#endif

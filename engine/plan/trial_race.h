/* trial_race.h - runs candidates in turn until one is the fastest with enough certainty.
 *
 *     round 1   A B C      round 2   C B A      round 3   A B ...     drift of the machine affects all alike
 *
 * Each candidate has a predicted time. The logarithm of a prediction has the standard error BT_RACE_PRIOR, apart from a
 * factor common to all predictions. Median polish (Tukey 1977, Exploratory Data Analysis) splits the logarithms of the
 * run times into a round effect and a candidate effect. It uses medians because other programs make single runs much
 * slower. The noise is the median of the remaining residuals, combined with BT_RACE_NOISE, which has the weight of two
 * runs.
 * The candidate effect, with standard error 1.2533 noise / sqrt(runs), and the prediction determine a normal
 * distribution of the logarithm of the candidate's time. If its mean is d larger than that of the best candidate, and s
 * is the standard deviation of the difference, choosing the best has the expected loss
 *     s phi(d/s) - d Phi(-d/s)
 * because this candidate may be faster in fact (expected opportunity cost; Chick, Inoue 2001, Operations Research
 * 49). The race ends when the sum of these losses is less than BT_RACE_LOSS, after BT_RACE_ROUNDS_LEAST rounds at
 * least, or when the next round would exceed the budget. A candidate whose loss is less than a quarter of BT_RACE_LOSS
 * is not run again. Every rank of a job may run the same race: the decisions depend only on the measured times.
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
    double predicted_s;                 /* input; 0: not predicted */
    double took_s[BT_RACE_ROUNDS_MOST]; /* (runs) time in each of the first rounds */
    size_t runs;
    bool out; /* dropped: it is slower, or hardly faster, and is not run again */
    /* Results: estimated time; expected loss of choosing the best candidate instead, as a share; 0 for the best. */
    double time_s, loss_frac;
} bt_racer;

typedef struct bt_race {
    size_t n; /* 2 .. BT_RACE_MOST */
    double budget_s;
    /* Runs candidate i once. *took_s: time to compare; *spent_s: time that the run cost. */
    bt_code (*run)(void *ctx, size_t i, double *took_s, double *spent_s, bt_err *err);
    void *ctx;
    bt_racer racer[BT_RACE_MOST]; /* predicted_s is an input, all other members are results */
    size_t rounds, best;
    double spent_s, loss_frac; /* loss_frac: sum over all candidates */
    bool settled; /* true: loss_frac is less than BT_RACE_LOSS; false: the budget ended the race */
} bt_race;

/* Runs at least one round, even if the budget is smaller. Returns a run's error; earlier results are kept. */
bt_code bt_race_run(bt_race *r, bt_err *err) BT_MUST_CHECK;

#endif

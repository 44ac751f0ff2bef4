/* trial_race.h - which of a few things is the fastest, by running them in turn until that is known.
 *
 *     round 1   A B C      round 2   C B A      round 3   A B C ...     the machine's drift meets all alike
 *
 * What one run of a round took is divided by what the best one's run of the same round took. Of these n
 * ratios the median q and its standard error e (1.2533 x 1.4826 x median absolute deviation / sqrt(n))
 * say, with k = 2 (n+1) / (n-1) because the deviation of few is itself not well known:
 *     q - k e > 1                       slower than the best: told apart, and not run again
 *     q - k e > 1 - BT_RACE_NEAR        choosing the best costs at most that share, whatever the truth is
 * The race ends when one of the two holds for all but the best, after BT_RACE_ROUNDS_LEAST rounds at
 * least; or when the next round would take more time than is left.
 * Medians instead of means, because other programs on a machine make single runs much too slow.
 * Threads: one. Owns nothing. */
#ifndef BT_ENGINE_PLAN_TRIAL_RACE_H
#define BT_ENGINE_PLAN_TRIAL_RACE_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/base/status.h"

#define BT_RACE_NEAR 0.05
enum { BT_RACE_MOST = 8, BT_RACE_ROUNDS_LEAST = 3, BT_RACE_ROUNDS_MOST = 32 };

typedef struct bt_racer {
    double took_s[BT_RACE_ROUNDS_MOST]; /* (runs) what it took in each round */
    size_t runs;
    bool slower;     /* told apart from the best */
    double median_s; /* of its runs */
    /* of its runs over the best one's of the same rounds: median and standard error. 1 and 0 of the best */
    double ratio, error;
} bt_racer;

typedef struct bt_race {
    size_t n; /* 2 .. BT_RACE_MOST */
    double budget_s;
    /* one run of racer i: what is compared, and by the caller's clock how long trying it took */
    bt_code (*run)(void *ctx, size_t i, double *took_s, double *spent_s, bt_err *err);
    void *ctx;
    /* results */
    bt_racer racer[BT_RACE_MOST];
    size_t rounds, best;
    double spent_s;
    bool settled; /* all others are slower, or within BT_RACE_NEAR; otherwise the budget ended it */
} bt_race;

/* At least one round is run, however small the budget. An error is that of a run; what was run before it stays */
bt_code bt_race_run(bt_race *r, bt_err *err) BT_MUST_CHECK;

#endif

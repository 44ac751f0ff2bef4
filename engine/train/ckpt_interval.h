/* ckpt_interval.h - how long to train between two checkpoints: what a checkpoint costs against what a
 * failure without one loses.
 *
 *     t = sqrt(2 C M) - C
 * C is what a checkpoint costs training, M the mean time between failures (J. W. Young, "A first order
 * approximation to the optimum checkpoint interval", CACM 17(9), 1974; J. T. Daly, "A higher order
 * estimate of the optimum checkpoint interval for restart dumps", FGCS 22(3), 2006, equation 8).
 * C is measured: the time for which training stood still and the processor time of rank 0's writer, as
 * a moving average; before the first checkpoint it is estimated from the bytes. M is (24 h + time trained) /
 * (1 + failures): one failure a day until the run knows better. The interval is at least 10 s and ten
 * times as long as a checkpoint takes to be written, and at most `most_s`.
 * A failure is counted when training goes on from a checkpoint that was not its last act.
 * Threads: the training thread. */
#ifndef BT_ENGINE_TRAIN_CKPT_INTERVAL_H
#define BT_ENGINE_TRAIN_CKPT_INTERVAL_H

#include "engine/ckpt/state.h"

typedef struct bt_ckpt_interval {
    double most_s;    /* 0: never by the clock */
    double cost_s;    /* C */
    double written_s; /* from the copy to the commit, of the newest */
    bool measured;
    double before_s;  /* trained in the attempts before */
    int64_t failures; /* of all attempts */
    int64_t began_ns; /* of this attempt; 0: not yet */
    bool closing;     /* what is saved now is the attempt's last act */
} bt_ckpt_interval;

/* before the first checkpoint. bytes: that this rank writes; beside: while training goes on */
void bt_ckpt_interval_estimate(bt_ckpt_interval *i, size_t bytes, bool beside);
/* one was committed */
void bt_ckpt_interval_measured(bt_ckpt_interval *i, double cost_s, double written_s);
double bt_ckpt_interval_mtbf_s(const bt_ckpt_interval *i, int64_t now_ns);
double bt_ckpt_interval_s(const bt_ckpt_interval *i, int64_t now_ns);

/* row "failures" */
void bt_ckpt_interval_add_state(bt_ckpt_interval *i, bt_state *s);

#endif

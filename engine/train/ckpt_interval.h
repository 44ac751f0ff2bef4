/* ckpt_interval.h - time between two checkpoints, from the cost of a checkpoint and the loss from a failure.
 *
 *     t = sqrt(2 C M) - C
 * C is the cost of a checkpoint for training, M the mean time between failures (J. W. Young, "A first order
 * approximation to the optimum checkpoint interval", CACM 17(9), 1974; J. T. Daly, "A higher order estimate of the
 * optimum checkpoint interval for restart dumps", FGCS 22(3), 2006, equation 8).
 * C is a moving average of the time for which training waited plus the processor time of rank 0's writer; before the
 * first checkpoint it is estimated from the bytes. M is (24 h + time trained) / (1 + failures), which assumes one
 * failure a day at first. The interval is at least 10 s and ten times the time to write a checkpoint, and at most
 * `most_s`. A failure is counted when training resumes from a checkpoint that was not the last action of its attempt.
 * Threads: the training thread. */
#ifndef BT_ENGINE_TRAIN_CKPT_INTERVAL_H
#define BT_ENGINE_TRAIN_CKPT_INTERVAL_H

#include "engine/ckpt/state.h"

typedef struct bt_ckpt_interval {
    double most_s;    /* 0: checkpoints are not due by time */
    double cost_s;    /* C */
    double written_s; /* time from the copy to the commit of the newest checkpoint */
    bool measured;
    double before_s;  /* training time of earlier attempts */
    int64_t failures; /* failures of all attempts */
    int64_t began_ns; /* start of this attempt; 0 before the start */
    bool closing;
} bt_ckpt_interval;

/* Estimates the cost before the first checkpoint. bytes: written by this rank; beside: training continues during the
 * write. */
void bt_ckpt_interval_estimate(bt_ckpt_interval *i, size_t bytes, bool beside);
void bt_ckpt_interval_measured(bt_ckpt_interval *i, double cost_s, double written_s);
double bt_ckpt_interval_mtbf_s(const bt_ckpt_interval *i, int64_t now_ns);
double bt_ckpt_interval_s(const bt_ckpt_interval *i, int64_t now_ns);

/* adds the row "failures" to the checkpoint */
void bt_ckpt_interval_add_state(bt_ckpt_interval *i, bt_state *s);

#endif

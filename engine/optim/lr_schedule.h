/* lr_schedule.h - learning-rate and decay curves: pure functions of the step. Any thread. */
#ifndef BT_ENGINE_OPTIM_LR_SCHEDULE_H
#define BT_ENGINE_OPTIM_LR_SCHEDULE_H

#include <stdint.h>

typedef enum {
    BT_SCHED_CONSTANT,
    BT_SCHED_COSINE,
    BT_SCHED_LINEAR,
    BT_SCHED_WSD,
    BT_SCHED_BITNET,
    BT_SCHED_RANGE
} bt_sched_kind;

typedef struct bt_lr_schedule {
    bt_sched_kind kind;
    int64_t steps, warmup;
    double lr, lr_min_frac, lr2, decay_frac, weight_decay;
} bt_lr_schedule;

/* Return learning rate and weight decay of a step (0-based). */
double bt_schedule_lr(const bt_lr_schedule *s, int64_t step);
/* bitnet: weight_decay in stage 1, 0 in stage 2 */
double bt_schedule_decay(const bt_lr_schedule *s, int64_t step);

#endif

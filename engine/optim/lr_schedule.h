/* lr_schedule.h - schedules of learning rate and weight decay, as pure functions of the step. Any thread. */
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

/* step: from 0. */
double bt_schedule_lr(const bt_lr_schedule *s, int64_t step);
/* For `bitnet` weight_decay in stage 1 and 0 in stage 2. */
double bt_schedule_decay(const bt_lr_schedule *s, int64_t step);

#endif

/* optim.h - optimizers and schedules. They work on slices of flat arrays and do not know the model.
 *
 * Order:    create (plans and commits the moments for [begin, end) of the flat array) -> step* -> destroy.
 * Threads:  the training thread; kernels split over the pool. */
#ifndef BT_ENGINE_OPTIM_OPTIM_H
#define BT_ENGINE_OPTIM_OPTIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"

typedef struct bt_optim bt_optim;

typedef struct bt_optim_cfg {
    double beta1, beta2, eps;
} bt_optim_cfg;

/* of the flat array, ascending, not overlapping */
typedef struct bt_optim_span {
    size_t begin, end;
    bool decay;
} bt_optim_span;

/* moments for elements begin..end of the flat arrays */
bt_code bt_optim_create(bt_optim **out, const bt_optim_cfg *cfg, size_t begin, size_t end,
                        bt_err *err) BT_MUST_CHECK;
void bt_optim_destroy(bt_optim *o);
/* for the memory plan */
size_t bt_optim_bytes(size_t begin, size_t end);
/* update number t (1-based, for bias correction) of w from g * grad_scale on every span clipped to
 * [begin, end); w and g are the flat arrays' beginnings */
void bt_optim_step(bt_optim *o, float *w, const float *g, const bt_optim_span *spans, size_t n,
                   int64_t t, float grad_scale, float lr, float decay);
/* what update number t, just made with this lr and decay, did to elements [begin, end) of the flat
 * array, which are inside this optimizer's: adds the squares of the change and those of the weights
 * before it. From the moments: nothing is kept for it */
void bt_optim_change(const bt_optim *o, const float *w, size_t begin, size_t end, int64_t t,
                     float lr, float decay, double *change, double *before);
/* state by name for checkpoints: names "exp_avg", "exp_avg_sq"; each begin..end long */
size_t bt_optim_states(const bt_optim *o);
const char *bt_optim_state_name(const bt_optim *o, size_t i);
float *bt_optim_state(bt_optim *o, size_t i);

/* ---- schedules: pure functions of the step --------------------------------------------------- */
typedef enum {
    BT_SCHED_CONSTANT,
    BT_SCHED_COSINE,
    BT_SCHED_LINEAR,
    BT_SCHED_WSD,
    BT_SCHED_BITNET
} bt_sched_kind;

typedef struct bt_schedule {
    bt_sched_kind kind;
    int64_t steps, warmup;
    double lr, lr_min_frac, lr2, decay_frac, weight_decay;
} bt_schedule;

/* learning rate and weight decay of step (0-based) */
double bt_schedule_lr(const bt_schedule *s, int64_t step);
/* bitnet: weight_decay in stage 1, 0 in stage 2 */
double bt_schedule_decay(const bt_schedule *s, int64_t step);

#endif

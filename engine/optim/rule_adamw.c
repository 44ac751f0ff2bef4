/* rule_adamw.c - AdamW: Adam with decoupled weight decay (Loshchilov and Hutter, arXiv:1711.05101). */
#include <math.h>

#include "engine/kernels/ops/ops.h"
#include "engine/optim/optim.h"

typedef struct correction {
    float c1, c2; /* 1 - beta^t */
} correction;

static correction bias_correction(const bt_optim_cfg *cfg, const bt_optim_update *u) {
    return (correction){(float)(1.0 - pow(cfg->beta1, (double)u->t)),
                        (float)(1.0 - pow(cfg->beta2, (double)(u->held_at ? u->held_at : u->t)))};
}

static void adamw_step(const bt_optim_elems *e, const bt_optim_cfg *cfg, const bt_optim_update *u) {
    correction c = bias_correction(cfg, u);
    const float beta2 = u->held_at ? 1.0f : (float)cfg->beta2;
    bt_op_adamw(e->w, e->g, e->state[0], e->state[1], u->grad_scale, u->lr, (float)cfg->beta1,
                beta2, (float)cfg->eps, u->decay, c.c1, c.c2, e->n);
}

static void adamw_step_few(const bt_optim_elems *e, const bt_optim_cfg *cfg,
                           const bt_optim_update *u) {
    const correction c = bias_correction(cfg, u);
    bt_active_kernels()->adamw_even(e->w, e->g, e->state[0], e->state[1],
                                    &(bt_adamw){.grad_scale = u->grad_scale,
                                                .lr = u->lr,
                                                .b1 = (float)cfg->beta1,
                                                .b2 = u->held_at ? 1.0f : (float)cfg->beta2,
                                                .eps = (float)cfg->eps,
                                                .decay = u->decay,
                                                .c1 = c.c1,
                                                .c2 = c.c2},
                                    e->n);
}

static void adamw_undo_update(float *change, float *before, const bt_optim_elems *e,
                              const bt_optim_cfg *cfg, const bt_optim_update *u) {
    correction c = bias_correction(cfg, u);
    bt_active_kernels()->adamw_undo(change, before, e->w, e->state[0], e->state[1], e->n,
                                    1.0f - u->lr * u->decay, u->lr / c.c1, 1.0f / sqrtf(c.c2),
                                    (float)cfg->eps);
}

const bt_optim_rule bt_rule_adamw = {.name = "adamw",
                                     .n_states = 2,
                                     .state_names = {"exp_avg", "exp_avg_sq"},
                                     .never_negative = {false, true},
                                     .step = adamw_step,
                                     .step_few = adamw_step_few,
                                     .undo = adamw_undo_update};

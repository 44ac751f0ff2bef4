/* rule_lion.c - Lion: the sign of an interpolated momentum (Chen et al., arXiv:2302.06675, program
 * p): one state, half the memory of AdamW.
 *
 *     w -= lr * (sign(beta1 m + (1 - beta1) g) + decay w);    m = beta2 m + (1 - beta2) g */
#include "engine/kernels/ops/ops.h"
#include "engine/optim/optim.h"

static bt_lion lion_settings(const bt_optim_cfg *cfg, const bt_optim_update *u) {
    return (bt_lion){.grad_scale = u->grad_scale,
                     .lr = u->lr,
                     .b1 = (float)cfg->beta1,
                     .b2 = (float)cfg->beta2,
                     .decay = u->decay};
}

static void lion_step(const bt_optim_elems *e, const bt_optim_cfg *cfg, const bt_optim_update *u) {
    const bt_lion how = lion_settings(cfg, u);
    bt_op_lion(e->w, e->g, e->state[0], &how, e->n);
}

static void lion_step_few(const bt_optim_elems *e, const bt_optim_cfg *cfg,
                          const bt_optim_update *u) {
    const bt_lion how = lion_settings(cfg, u);
    bt_active_kernels()->lion(e->w, e->g, e->state[0], &how, e->n);
}

/* The previous momentum is m_old = (m - (1 - beta2) g) / beta2. If beta2 = 0, the direction is the gradient's. */
static void lion_undo(float *change, float *before, const bt_optim_elems *e,
                      const bt_optim_cfg *cfg, const bt_optim_update *u) {
    const float b1 = (float)cfg->beta1, b2 = (float)cfg->beta2, keep = 1.0f - u->lr * u->decay;
    for (size_t i = 0; i < e->n; i++) {
        float g = e->g[i] * u->grad_scale,
              old = b2 > 0 ? (e->state[0][i] - (1.0f - b2) * g) / b2 : 0.0f,
              c = b1 * old + (1.0f - b1) * g, sign = (float)((c > 0) - (c < 0));
        before[i] = (e->w[i] + u->lr * sign) / keep;
        change[i] = u->lr * sign + (1.0f - keep) * before[i];
    }
}

const bt_optim_rule bt_rule_lion = {.name = "lion",
                                    .n_states = 1,
                                    .state_names = {"momentum"},
                                    .step = lion_step,
                                    .step_few = lion_step_few,
                                    .undo = lion_undo};

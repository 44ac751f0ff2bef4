/* rule_muon.c - the elementwise part of Muon: Nesterov momentum. Whole matrices: muon.h, matrix_update.h. */
#include "engine/base/threads.h"
#include "engine/optim/optim.h"

typedef struct step_job {
    const bt_optim_elems *e;
    float mu, grad;
} step_job;

static void muon_step_range(void *ctx, int thread, size_t a, size_t b) {
    const step_job *j = ctx;
    float *m = j->e->state[0];
    (void)thread;
    for (size_t i = a; i < b; i++) m[i] = j->mu * m[i] + j->grad * j->e->g[i];
}

static step_job muon_step_job(const bt_optim_elems *e, const bt_optim_cfg *cfg,
                              const bt_optim_update *u) {
    const float mu = (float)cfg->momentum;
    return (step_job){e, mu, (1.0f - mu) * u->grad_scale};
}

static void muon_step(const bt_optim_elems *e, const bt_optim_cfg *cfg, const bt_optim_update *u) {
    step_job j = muon_step_job(e, cfg, u);
    bt_parallel_for(e->n, 16384, muon_step_range, &j);
}

static void muon_step_few(const bt_optim_elems *e, const bt_optim_cfg *cfg,
                          const bt_optim_update *u) {
    step_job j = muon_step_job(e, cfg, u);
    muon_step_range(&j, 0, 0, e->n);
}

const bt_optim_rule bt_rule_muon = {.name = "muon",
                                    .n_states = 1,
                                    .state_names = {"momentum"},
                                    .whole_matrix = true,
                                    .step = muon_step,
                                    .step_few = muon_step_few};

/* preferences_part.c - the reference point z0 of KTO (arXiv:2402.01306): an estimate of the divergence from the base,
 * max(0, mean of the log-ratios of answers to other examples' prompts).
 *
 * The mean is over all examples of the previous step, on all ranks, so a layout does not change it; it is 0 in the
 * first step, where adapters that begin as the identity have no divergence. Checkpoints store it. */
#include <math.h>
#include <stdlib.h>

#include "engine/config/tune_cfg.h"
#include "engine/train/trainer_impl.h"

typedef struct reference_point {
    double z0;
} reference_point;

static bt_code create_reference_point(bt_trainer *t, const bt_trainer_setup *s, void **self,
                                      bt_err *err) {
    const bt_dpo how = bt_tune_dpo(&t->cfg);
    (void)s;
    if (!how.on || how.loss != BT_PREFER_KTO) return BT_OK;
    return bt_part_new(self, sizeof(reference_point), "the reference point", err);
}

static void save_reference_point(void *ctx, bt_json *j) {
    bt_json_rounded(j, "z0", ((const reference_point *)ctx)->z0, 17);
}

static void load_reference_point(void *ctx, const bt_state_values *v) {
    ((reference_point *)ctx)->z0 = bt_state_real(v, "z0", 0);
}

static void add_reference_point_state(void *self, bt_trainer *t, bt_state *s) {
    (void)t;
    bt_state_add(s, &(bt_state_row){.name = "preferences",
                                    .ctx = self,
                                    .save = save_reference_point,
                                    .load = load_reference_point});
}

static void use_reference_point(const reference_point *p, bt_trainer *t) {
    bt_dpo how = bt_tune_dpo(&t->cfg);
    how.z0 = p->z0;
    bt_model_dpo(t->model, how);
}

static bt_code ready_reference_point(void *self, bt_trainer *t, bt_err *err) {
    (void)err;
    use_reference_point(self, t);
    return BT_OK;
}

static bt_code update_reference_point(void *self, bt_trainer *t, bt_step_outcome *o, bt_err *err) {
    reference_point *p = self;
    (void)err;
    if (!o->applied && !o->elsewhere) return BT_OK;
    p->z0 = o->score.n > 0 ? fmax(0, o->score.ratios / o->score.n) : 0;
    use_reference_point(p, t);
    return BT_OK;
}

const bt_part bt_part_preferences = {.name = "preferences",
                                     .create = create_reference_point,
                                     .release = free,
                                     .add_state = add_reference_point_state,
                                     .ready = ready_reference_point,
                                     .after_update = update_reference_point};

/* dense_start_part.c - trains linear layers in full precision for the first train.dense_steps (arXiv:2502.11895),
 * then recreates the model with ternary layers and the same weights and optimizer states. A run that is resumed
 * after the switch starts dense and switches before its first step. With train.lambda_steps the layers are ternary
 * ones from the start whose share of ternary values, lambda, rises from 0 to 1: a function of the step number. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/config/run_property.h"
#include "engine/train/trainer_impl.h"

typedef struct dense_start {
    bool fades;    /* train.lambda_steps; false: the model is recreated */
    double lambda; /* of the next step */
} dense_start;

typedef struct kept_state {
    bt_state rows; /* rows of weights and optimizer states */
    bt_slices at;
    char *bytes; /* copy of their values */
    size_t n_bytes;
} kept_state;

static size_t kept_slice_bytes(const bt_ckpt_slice *s) {
    return (size_t)s->count * bt_ckpt_type_bytes(s->type);
}

static void move_values(const kept_state *k, bool back) {
    char *at = k->bytes;
    for (size_t i = 0; i < k->at.n; i++) {
        const bt_ckpt_slice *s = &k->at.at[i];
        const size_t n = kept_slice_bytes(s);
        if (back)
            memcpy(s->data, at, n);
        else
            memcpy(at, s->data, n);
        at += n;
    }
}

static bt_code find_kept_slices(kept_state *k, bt_err *err) {
    BT_TRY(bt_state_slices(&k->rows, BT_STATE_RESUME, &k->at, err));
    k->n_bytes = 0;
    for (size_t i = 0; i < k->at.n; i++) k->n_bytes += kept_slice_bytes(&k->at.at[i]);
    return BT_OK;
}

static bt_code copy_state(kept_state *k, bt_trainer *t, bt_err *err) {
    bt_update_add_state(&t->update, &k->rows);
    BT_TRY(find_kept_slices(k, err));
    k->bytes = malloc(k->n_bytes + 1);
    if (!k->bytes)
        return bt_fail(err, BT_NOMEM,
                       "cannot take %zu bytes for the weights at the switch of train.dense_steps",
                       k->n_bytes);
    move_values(k, false);
    bt_slices_release(&k->at);
    return BT_OK;
}

static bt_code restore_state(kept_state *k, bt_err *err) {
    const size_t before = k->n_bytes;
    BT_TRY(find_kept_slices(k, err));
    if (k->n_bytes != before)
        return bt_fail(err, BT_FORMAT, "dense and ternary layers keep %zu and %zu bytes of state",
                       before, k->n_bytes);
    move_values(k, true);
    return BT_OK;
}

static bt_code switch_to_ternary(bt_trainer *t, kept_state *k, bt_err *err) {
    bt_comm *world = t->mesh.world;
    BT_TRY(bt_agree(world, copy_state(k, t, err), err));
    BT_TRY(bt_trainer_remake_model(t, err));
    BT_TRY(bt_agree(world, restore_state(k, err), err));
    BT_TRY(bt_trainer_make_reducer(t, err));
    BT_TRY(bt_trainer_ready(t, err));
    bt_observer_begin(t->observer, t->at.step - 1);
    return BT_OK;
}

static bt_code dense_start_before_step(void *self, bt_trainer *t, bt_err *err) {
    const dense_start *d = self;
    if (d->fades || t->now.model.linear == t->cfg.model.linear ||
        bt_run_has(&t->cfg, BT_RUN_DENSE, t->at.step))
        return BT_OK;
    kept_state k = {0};
    BT_TRY(bt_saver_finish(&t->saver, err));
    bt_code code = switch_to_ternary(t, &k, err);
    bt_slices_release(&k.at);
    free(k.bytes);
    BT_TRY(code);
    bt_parts_new_level(t); /* the loss level changes */
    bt_telemetry_event(&t->telemetry, BT_EVENT_RAMP, t->at.step - 1, NULL,
                       "from step %" PRId64 " on linear layers are %s", t->at.step + 1,
                       t->cfg.model.linear == BT_LIN_BITNET1 ? "binary" : "ternary");
    return BT_OK;
}

static bt_code dense_start_create(bt_trainer *t, const bt_trainer_setup *s, void **self,
                                  bt_err *err) {
    const bool dense = bt_run_has(s->cfg, BT_RUN_DENSE, 0),
               fades = bt_run_has(s->cfg, BT_RUN_FADES, 0);
    if (!dense && !fades) return BT_OK;
    BT_TRY(bt_part_new(self, sizeof(dense_start), "train.dense_steps", err));
    *(dense_start *)*self = (dense_start){.fades = fades};
    if (dense) bt_run_cfg_make_dense(&t->now);
    return BT_OK;
}

static bt_code dense_start_load(void *self, bt_trainer *t, bt_load_stage stage, bt_err *err) {
    dense_start *d = self;
    (void)err;
    if (stage == BT_LOAD_BEFORE || !d->fades) return BT_OK;
    d->lambda = bt_run_lambda(&t->cfg, t->at.step);
    bt_model_lambda(t->model, d->lambda);
    return BT_OK;
}

static bool dense_start_due(void *self, const bt_trainer *t, const bt_step_outcome *o) {
    (void)t, (void)o;
    return ((const dense_start *)self)->fades;
}

static bt_code dense_start_after_step(void *self, bt_trainer *t, bt_step_outcome *o, bt_err *err) {
    const double before = ((const dense_start *)self)->lambda;
    (void)o;
    BT_TRY(dense_start_load(self, t, BT_LOAD_RESUMED, err));
    if (((const dense_start *)self)->lambda != before) bt_parts_new_level(t);
    return BT_OK;
}

static size_t switch_copy_bytes(const bt_rank_setup *s, size_t saved) {
    if (!bt_run_has(s->cfg, BT_RUN_DENSE, 0)) return 0;
    return bt_weights_latent_bytes(s) + bt_update_bytes(s).optimizer + saved;
}

const bt_part bt_part_dense_start = {.name = "dense_start",
                                     .memory = {"switch",
                                                "copy of the state at the end of train.dense_steps",
                                                switch_copy_bytes, false},
                                     .create = dense_start_create,
                                     .release = free,
                                     .load = dense_start_load,
                                     .before_step = dense_start_before_step,
                                     .due = dense_start_due,
                                     .after_step = dense_start_after_step,
                                     .phase = BT_MR_OPTIM};

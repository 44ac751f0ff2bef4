/* schedule_plain.c - one micro-batch after the other, each forward and backward; and the choice of
 * the schedule. */
#include <stdlib.h>

#include "engine/micro/micro_schedule.h"

static bt_code train_micro_batch(bt_micro *m, int64_t i, double grad_scale, bt_err *err) {
    bt_batch batch;
    BT_TRY(bt_micro_tokens(m, i, &batch, err));
    BT_TRY(bt_micro_look_up(m, &batch, err));
    bt_grad_ready_fn ready = bt_micro_begin_backward(m, 0, i);
    bt_micro_point(m, i, batch.positions);
    bt_micro_pass_begin(m);
    *bt_micro_loss(m, i) = bt_model_train_micro(m->model, batch.inputs, batch.targets, grad_scale,
                                                ready, m->reducer);
    BT_TRY(bt_micro_pass_end(m, err));
    return bt_micro_end(m, 0, i, err);
}

static bt_code run_plain_schedule(bt_micro_schedule *s, bt_micro *m, double grad_scale,
                                  bt_err *err) {
    (void)s;
    for (int64_t i = 0; i < m->plan->n; i++) BT_TRY(train_micro_batch(m, i, grad_scale, err));
    return BT_OK;
}

/* embedding and head are on this stage: nothing to send */
static bt_code tie_plain_gradients(bt_micro_schedule *s, bt_model *model, bt_err *err) {
    (void)s, (void)model, (void)err;
    return BT_OK;
}

static void destroy_plain_schedule(bt_micro_schedule *s) { free(s); }

bt_code bt_schedule_plain_create(bt_micro_schedule **out, bt_err *err) {
    bt_micro_schedule *s = *out = calloc(1, sizeof *s);
    if (!s) return bt_fail(err, BT_NOMEM, "cannot take memory for a schedule");
    *s = (bt_micro_schedule){
        .run = run_plain_schedule, .tie = tie_plain_gradients, .destroy = destroy_plain_schedule};
    return BT_OK;
}

bt_code bt_micro_schedule_create(bt_micro_schedule **out, const bt_model_setup *model,
                                 const bt_mesh *mesh, bt_err *err) {
    *out = NULL;
    return mesh->shape.pp > 1 ? bt_schedule_pipeline_create(out, model, mesh, err)
                              : bt_schedule_plain_create(out, err);
}

void bt_micro_schedule_destroy(bt_micro_schedule *s) {
    if (s) s->destroy(s);
}

size_t bt_micro_schedule_bytes(const bt_model_setup *model, const bt_mesh_shape *shape) {
    return shape->pp > 1 ? bt_schedule_pipeline_bytes(model, shape) : 0;
}

/* micro_schedule.h - the order of the passes of a step's micro-batches.
 *
 *     plain     forward and backward of one micro-batch after the other
 *     pipeline  a stage: one forward and one backward in turn, of one chunk of layers or several
 *             (schedule_pipeline.c)
 *
 * Order:    create -> { run -> (update of the weights) -> tie }* -> destroy. All are collective over the
 *           stages of a pipeline.
 * Threads:  the training thread. No allocation after create. */
#ifndef BT_ENGINE_MICRO_MICRO_SCHEDULE_H
#define BT_ENGINE_MICRO_MICRO_SCHEDULE_H

#include "engine/micro/micro.h"
#include "engine/parallel/pp/pipe.h"

typedef struct bt_micro_schedule bt_micro_schedule;
struct bt_micro_schedule {
    /* computes all of this rank's micro-batches of a step: gradients into the model's arrays times
     * grad_scale, losses of every micro-batch into m->losses on every stage */
    bt_code (*run)(bt_micro_schedule *s, bt_micro *m, double grad_scale, bt_err *err);
    /* the weights have changed: sends a tied embedding's new values to the last stage's head */
    bt_code (*tie)(bt_micro_schedule *s, bt_model *model, bt_err *err);
    void (*destroy)(bt_micro_schedule *s);
    bt_pipe *pipe; /* to the neighbouring stages; NULL: one stage */
};

/* one stage: plain; several: pipeline */
bt_code bt_micro_schedule_create(bt_micro_schedule **out, const bt_model_setup *model,
                                 const bt_mesh *mesh, bt_err *err) BT_MUST_CHECK;
void bt_micro_schedule_destroy(bt_micro_schedule *s); /* accepts NULL */
/* memory used by create */
size_t bt_micro_schedule_bytes(const bt_model_setup *model, const bt_mesh_shape *shape);

/* Preferences: a chunk's part of a micro-batch's pass through the base, whose messages precede those of its own
 *              pass. Does nothing without preferences, or if one stage makes this pass itself. documents, chunk
 *              and slot are set by the caller. messages: number that a micro-batch sends down */
bt_code bt_micro_reference(bt_pipe *pipe, bt_model *model, const int32_t *inputs,
                           const int32_t *targets, bt_err *err) BT_MUST_CHECK;
int64_t bt_micro_messages(const bt_model *model);

/* ---- its two implementations ----------------------------------------------------------------- */
bt_code bt_schedule_plain_create(bt_micro_schedule **out, bt_err *err) BT_MUST_CHECK;
bt_code bt_schedule_pipeline_create(bt_micro_schedule **out, const bt_model_setup *model,
                                    const bt_mesh *mesh, bt_err *err) BT_MUST_CHECK;
size_t bt_schedule_pipeline_bytes(const bt_model_setup *model, const bt_mesh_shape *shape);

#endif

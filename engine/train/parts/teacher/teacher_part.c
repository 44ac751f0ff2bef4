/* teacher_part.c - distillation: the model also learns from the probabilities of another model (tune.teacher) or
 * from a file of its logits (tune.logits). */
#include <stdlib.h>

#include "engine/base/log.h"
#include "engine/config/tune_cfg.h"
#include "engine/plan/plan.h"
#include "engine/train/trainer_impl.h"
#include "engine/tune/teacher.h"

static bt_code teacher_create(bt_trainer *t, const bt_trainer_setup *s, void **self, bt_err *err) {
    (void)t;
    if (!s->cfg->tune.teacher[0] && !s->cfg->tune.logits[0]) return BT_OK;
    return bt_part_new(self, sizeof(bt_teacher), "the teacher",
                       err); /* stages without a head have no teacher */
}

static void teacher_release(void *self) {
    bt_teacher_release(self);
    free(self);
}

static bt_code teacher_model_made(void *self, bt_trainer *t, bt_err *err) {
    const bt_teacher *teacher = self;
    (void)err;
    if (teacher->logits) {
        t->micro.look_up = bt_logit_file_batch;
        t->micro.look_up_ctx = teacher->logits;
    }
    if (teacher->logits || teacher->model)
        bt_model_distil(t->model, bt_teacher_distil(teacher, &t->cfg.tune));
    return BT_OK;
}

static bt_code teacher_load(void *self, bt_trainer *t, bt_load_stage stage, bt_err *err) {
    bt_text notes = {0};
    bt_model_setup student = t->setup.model;
    if (stage != BT_LOAD_BEFORE) return BT_OK;
    student.tp_group = t->tp_group;
    bt_code code = bt_teacher_find(self, &t->cfg, &student, t->mesh.world, &notes, err);
    if (code == BT_OK && notes.len && bt_comm_rank(t->mesh.world) == 0)
        bt_log(BT_LOG_WARN, "%.*s", (int)(notes.len - 1), notes.data);
    bt_text_release(&notes);
    return code == BT_OK ? teacher_model_made(self, t, err) : code;
}

static size_t teacher_bytes(const bt_rank_setup *s, size_t saved) {
    (void)saved;
    bt_model_cfg shape;
    bt_arena_row rows[BT_PLAN_MAX];
    size_t bytes = 0;
    if (!bt_slice_is_last_stage(s->model.slice)) return 0;
    for (int k = 0; k < bt_tune_teachers(s->cfg); k++) {
        if (bt_tune_teacher_read(s->cfg, k, &shape, NULL) != BT_OK) return 0;
        const bt_model_setup teacher = bt_tune_teacher_setup(&shape, &s->model);
        const size_t n = bt_model_plan(&teacher, rows, BT_PLAN_MAX);
        for (size_t i = 0; i < n; i++) bytes += rows[i].bytes;
    }
    return bytes;
}

const bt_part bt_part_teacher = {
    .name = "teacher",
    .memory = {"teacher", "distillation: packed weights of the teacher, and one forward pass",
               teacher_bytes, false},
    .create = teacher_create,
    .release = teacher_release,
    .model_made = teacher_model_made,
    .load = teacher_load};

/* teacher.c - reads a teacher as the base of adapters is read, and never asks for its gradients. */
#include "engine/tune/teacher.h"

#include "engine/config/tune_cfg.h"
#include "engine/tune/base_weights.h"

static bt_code check(const bt_model_file *f, const bt_model_setup *student, const bt_tokenizer *own,
                     bt_err *err) {
    if (f->cfg.V != student->cfg.V)
        return bt_fail(err, BT_ARG,
                       "tune.teacher: '%.200s' has %d tokens, this model %d: a student learns from "
                       "a teacher of the same vocabulary",
                       f->path, f->cfg.V, student->cfg.V);
    if (f->tokenizer && bt_tokenizer_hash(f->tokenizer) != bt_tokenizer_hash(own))
        return bt_fail(err, BT_ARG,
                       "tune.teacher: '%.200s' has another tokenizer than this run: its "
                       "probabilities are of other tokens (use a teacher with the same tokenizer)",
                       f->path);
    return BT_OK;
}

bt_code bt_teacher_load(bt_teacher *t, const char *path, const bt_model_setup *student,
                        const bt_tokenizer *tokenizer, bt_text *told, bt_err *err) {
    bt_model_file *file = NULL;
    bt_base_weights weights = {0};
    bt_model_cfg shape;
    bt_code code = bt_model_file_open(&file, path, err);
    if (code == BT_OK) code = check(file, student, tokenizer, err);
    if (code == BT_OK) shape = file->cfg;
    bt_model_file_close(file);
    BT_TRY(code);
    if (shape.lora.rank)
        return bt_fail(err, BT_ARG,
                       "tune.teacher: '%.200s' holds adapters alone (merge them first: bitrain "
                       "convert --merge)",
                       path);
    const bt_model_setup s = bt_tune_teacher_setup(&shape, student);
    BT_TRY(bt_model_create(&t->model, &s, err));
    BT_TRY(bt_base_weights_load(&weights, t->model, path, told, err));
    t->hash = weights.hash;
    return BT_OK;
}

void bt_teacher_release(bt_teacher *t) {
    bt_model_destroy(t->model);
    t->model = NULL;
}

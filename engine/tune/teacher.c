/* teacher.c - reads a teacher in the same way as the base of adapters; it has no gradients. */
#include "engine/tune/teacher.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "engine/config/tune_cfg.h"
#include "engine/tune/base_weights.h"

static bt_code check_teacher_model(const bt_model_file *f, const bt_model_setup *student,
                                   const bt_tokenizer *own, bt_err *err) {
    if (f->cfg.V != student->cfg.V)
        return bt_fail(err, BT_ARG,
                       "tune.teacher: '%.200s' has %d tokens, but this model %d: a student can "
                       "learn only from a teacher with the same vocabulary",
                       f->path, f->cfg.V, student->cfg.V);
    if (f->tokenizer && bt_tokenizer_hash(f->tokenizer) != bt_tokenizer_hash(own))
        return bt_fail(
            err, BT_ARG,
            "tune.teacher: '%.200s' has another tokenizer than this run, so its probabilities are "
            "those of other tokens (use a teacher with the same tokenizer)",
            f->path);
    return BT_OK;
}

static bt_code load_teacher(bt_teacher *t, const char *path, const bt_run_cfg *c,
                            const bt_model_setup *student, const bt_tokenizer *tokenizer,
                            bt_text *notes, bt_err *err) {
    bt_model_file *file = NULL;
    bt_base_weights weights = {0};
    bt_model_cfg shape;
    const size_t widest =
        bt_tune_widest(c); /* the width for which the tensor-parallel group was prepared */
    bt_code code = bt_model_file_open(&file, path, err);
    if (code == BT_OK) code = check_teacher_model(file, student, tokenizer, err);
    if (code == BT_OK) shape = file->cfg;
    bt_model_file_close(file);
    BT_TRY(code);
    if (shape.lora.rank)
        return bt_fail(err, BT_ARG,
                       "tune.teacher: '%.200s' contains only adapters (merge them first: bitrain "
                       "convert --merge)",
                       path);
    BT_TRY(bt_tune_relation_check(&c->tune, &shape, "the teacher", err));
    const bt_model_setup s = bt_tune_teacher_setup(&shape, student);
    if (s.tp_group && (size_t)shape.C > widest)
        return bt_fail(err, BT_ARG,
                       "tune.teacher: the width of '%.160s' is %d, for which --tp was not prepared "
                       "(set tune.teacher_shape, which could not be read from the teacher)",
                       path, shape.C);
    bt_model *model;
    BT_TRY(bt_model_create(&model, &s, err));
    if (t->model)
        bt_model_add_member(t->model, model);
    else
        t->model = model;
    BT_TRY(bt_base_weights_load(&weights, model, path, notes, err));
    /* 53 bits, as for a single teacher */
    t->hash = (int64_t)(((uint64_t)t->hash * 31 + (uint64_t)weights.hash) & ((1ULL << 53) - 1));
    return BT_OK;
}

/* A text that is not a path is a list of paths with commas between them. */
static bt_code load_teachers(bt_teacher *t, const bt_run_cfg *c, const bt_model_setup *student,
                             const bt_tokenizer *tokenizer, bt_text *notes, bt_err *err) {
    char list[sizeof c->tune.teacher];
    if (access(c->tune.teacher, F_OK) == 0 || !strchr(c->tune.teacher, ','))
        return load_teacher(t, c->tune.teacher, c, student, tokenizer, notes, err);
    memcpy(list, c->tune.teacher, sizeof list);
    for (char *rest = list, *path; (path = strsep(&rest, ",")) != NULL;)
        BT_TRY(load_teacher(t, path, c, student, tokenizer, notes, err));
    return BT_OK;
}

static bt_code open_logits(bt_teacher *t, const bt_tune_settings *tune,
                           const bt_model_setup *student, const bt_tokenizer *tokenizer,
                           bt_err *err) {
    const bt_logit_shape s = {.k = (int)tune->top_k,
                              .V = student->cfg.V,
                              .B = student->B,
                              .T = student->cfg.T,
                              .tokenizer = bt_tokenizer_hash(tokenizer)};
    BT_TRY(bt_logit_file_open(&t->logits, tune->logits, &s, err));
    t->hash = (int64_t)(bt_logit_file_hash(t->logits) >> 11);
    return BT_OK;
}

static bt_code load_on_this_rank(bt_teacher *t, const bt_run_cfg *c, const bt_model_setup *student,
                                 bt_text *notes, bt_err *err) {
    bt_tokenizer *own;
    if (!bt_slice_is_last_stage(student->slice)) return BT_OK;
    BT_TRY(bt_tokenizer_load(&own, c->data.tokenizer, err));
    bt_code code = c->tune.logits[0] ? open_logits(t, &c->tune, student, own, err)
                                     : load_teachers(t, c, student, own, notes, err);
    bt_tokenizer_free(own);
    return code;
}

bt_code bt_teacher_find(bt_teacher *t, const bt_run_cfg *c, const bt_model_setup *student,
                        bt_comm *world, bt_text *notes, bt_err *err) {
    if (!c->tune.teacher[0] && !c->tune.logits[0]) return BT_OK;
    BT_TRY(bt_agree(world, load_on_this_rank(t, c, student, notes, err), err));
    double hash[2] = {(double)t->hash, -(double)t->hash};
    for (int i = 0; i < 2 && !t->model && !t->logits; i++) hash[i] = -INFINITY;
    BT_TRY(bt_all_reduce_f64(world, hash, 2, BT_MAX, err));
    if (hash[0] == -hash[1]) return BT_OK;
    return bt_fail(err, BT_ARG, "%s on some ranks than on the others (give the same to all)",
                   c->tune.logits[0] ? "tune.logits contains other logits"
                                     : "tune.teacher contains other weights");
}

bt_distil bt_teacher_distil(const bt_teacher *t, const bt_tune_settings *tune) {
    bt_distil how = {.teacher = t->model, .mix = tune->mix, .tau = tune->temperature};
    how.relation = tune->relation;
    how.relation_heads = (int)tune->relation_heads;
    if (t->logits) how.rows = bt_logit_file_rows(t->logits, &how.k);
    return how;
}

void bt_teacher_release(bt_teacher *t) {
    bt_model_destroy(t->model);
    bt_logit_file_close(t->logits);
    *t = (bt_teacher){0};
}

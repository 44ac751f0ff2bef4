/* trainer_teacher.c - the teacher of a distillation, or the file of its logits, found before the first step. */
#include <math.h>

#include "engine/base/log.h"
#include "engine/parallel/mpi/comm.h"
#include "engine/train/trainer_impl.h"

static bt_code read_teacher(bt_trainer *t, bt_text *told, bt_err *err) {
    bt_tokenizer *own;
    if (!bt_slice_is_last_stage(t->setup.model.slice)) return BT_OK;
    BT_TRY(bt_tokenizer_load(&own, t->cfg.tokenizer, err));
    const bt_logit_shape s = {.k = (int)t->cfg.top_k,
                              .V = t->setup.model.cfg.V,
                              .B = (int)t->cfg.micro_batch,
                              .T = (int)t->cfg.seq_len,
                              .tokenizer = bt_tokenizer_hash(own)};
    bt_code code = t->cfg.logits[0] ? bt_logit_file_open(&t->logits, t->cfg.logits, &s, err)
                                    : bt_teacher_load(&t->teacher, t->cfg.teacher, &t->setup.model,
                                                      own, told, err);
    bt_tokenizer_free(own);
    return code;
}

/* the model of this step's settings learns from what bt_trainer_load_teacher has found */
void bt_trainer_meet_teacher(bt_trainer *t) {
    bt_distil how = {
        .teacher = t->teacher.model, .mix = t->cfg.distil_mix, .tau = t->cfg.distil_tau};
    if (t->logits) how.rows = bt_logit_file_rows(t->logits, &how.k);
    if (t->logits) t->micro.look_up = bt_logit_file_batch, t->micro.look_up_ctx = t->logits;
    bt_model_distil(t->model, how);
}

/* the model that this one learns from, on the ranks that have the head; the same on all */
bt_code bt_trainer_load_teacher(bt_trainer *t, bt_err *err) {
    bt_text told = {0};
    if (!t->cfg.teacher[0] && !t->cfg.logits[0]) return BT_OK;
    bt_code code = bt_agree(t->mesh.world, read_teacher(t, &told, err), err);
    if (code == BT_OK && told.len && bt_comm_rank(t->mesh.world) == 0)
        bt_log(BT_LOG_WARN, "%.*s", (int)(told.len - 1), told.data);
    bt_text_release(&told);
    BT_TRY(code);
    const double own = t->logits ? (double)(bt_logit_file_hash(t->logits) >> 11)
                                 : (double)t->teacher.hash;
    double hash[2] = {own, -own};
    for (int i = 0; i < 2 && !t->teacher.model && !t->logits; i++) hash[i] = -INFINITY;
    BT_TRY(bt_all_reduce_f64(t->mesh.world, hash, 2, BT_MAX, err));
    if (hash[0] != -hash[1])
        return bt_fail(err, BT_ARG, "%s for some ranks than for others (give all of them the same)",
                       t->cfg.logits[0] ? "tune.logits holds other logits"
                                        : "tune.teacher holds other weights");
    bt_trainer_meet_teacher(t);
    return BT_OK;
}

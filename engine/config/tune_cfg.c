/* tune_cfg.c - interprets the settings of preferences and teachers. */
#include "engine/config/tune_cfg.h"

#include "engine/base/small.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bt_dpo bt_tune_dpo(const bt_run_cfg *c) {
    return (bt_dpo){.on = c->data.form == BT_FORMED_PREFERENCE,
                    .loss = (bt_preference)c->tune.preference,
                    .beta = c->tune.beta,
                    .gamma = c->tune.gamma,
                    .sft_share = c->tune.sft_share,
                    .smoothing = c->tune.label_smoothing,
                    .desirable = c->tune.desirable_weight,
                    .undesirable = c->tune.undesirable_weight,
                    .centre = c->tune.center_rewards};
}

bool bt_tune_has_reference(const bt_run_cfg *c) {
    return c->data.form == BT_FORMED_PREFERENCE &&
           bt_prefer_has_reference((bt_preference)c->tune.preference);
}

/* Settings of earlier versions lack the last number, that of model.scale. */
enum { SHAPE_NUMBERS = 13, SHAPE_LEAST = 12 };

void bt_tune_teacher_write(const bt_model_cfg *m, char *out, size_t size) {
    const size_t n = strlen(out);
    if (n + 1 < size && n) strcat(out, ";");
    out += strlen(out);
    size -= n + (n > 0);
    (void)snprintf(out, size, "%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d", m->L, m->C, m->H, m->KV,
                   m->D, m->F, m->V, (int)m->norm, (int)m->act, (int)m->linear, m->tied, m->qk_norm,
                   (int)m->scale);
}

int bt_tune_teachers(const bt_run_cfg *c) {
    int n = c->tune.teacher_shape[0] != '\0';
    for (const char *at = c->tune.teacher_shape; *at; at++) n += *at == ';';
    return n;
}

bt_code bt_tune_teacher_read(const bt_run_cfg *c, int k, bt_model_cfg *out, bt_err *err) {
    int n[SHAPE_NUMBERS] = {0};
    const char *at = c->tune.teacher_shape;
    for (; k > 0; k--) at += strcspn(at, ";") + 1;
    for (int i = 0; i < SHAPE_NUMBERS; i++) {
        char *end;
        const long v = strtol(at, &end, 10);
        const bool ends = *end == ';' || *end == '\0', last = i + 1 == SHAPE_NUMBERS || ends;
        if (end == at || v < 0 || v > INT32_MAX || (last && i + 1 < SHAPE_LEAST) ||
            (last ? !ends : *end != ','))
            return bt_fail(err, BT_ARG,
                           "tune.teacher_shape '%.64s' is not the shape of a model: omit it, "
                           "because it is read from the teacher's file",
                           c->tune.teacher_shape);
        n[i] = (int)v;
        if (last) break;
        at = end + 1;
    }
    *out = (bt_model_cfg){.L = n[0],
                          .C = n[1],
                          .H = n[2],
                          .KV = n[3],
                          .D = n[4],
                          .F = n[5],
                          .T = (int)c->model.seq_len,
                          .V = n[6],
                          .norm = (bt_norm_kind)n[7],
                          .act = (bt_act)n[8],
                          .linear = (bt_linear_kind)n[9],
                          .tied = n[10] != 0,
                          .qk_norm = n[11] != 0,
                          .scale = (bt_scale_kind)n[12],
                          .rope_theta = c->model.rope_theta,
                          .norm_eps = c->model.norm_eps,
                          .init_std = c->model.init_std};
    return bt_model_cfg_check(out, err);
}

bt_model_setup bt_tune_teacher_setup(const bt_model_cfg *teacher, const bt_model_setup *student) {
    bt_model_setup s = {.cfg = *teacher,
                        .B = student->B,
                        .prec = student->prec,
                        .train = true,
                        .recompute = BT_RECOMPUTE_FULL,
                        .n_threads = student->n_threads,
                        .slice = {.tp_rank = student->slice.tp_rank,
                                  .tp_size = student->slice.tp_size},
                        .sequence = student->sequence,
                        .tp_group = student->tp_group,
                        .documents = student->documents};
    /* if the teacher cannot be divided into the student's parts, one rank computes all of it */
    if (bt_leaves_fit(teacher, student->leaves)) s.leaves = student->leaves;
    s.cfg.T = student->cfg.T;
    if (student->relation_layer) {
        const int layer = teacher->L - student->cfg.L + student->relation_layer;
        s.relation_layer = layer > 1 ? layer : 1;
    }
    s.cfg.lora = (bt_lora){.rank = 1, .targets = BT_LORA_Q};
    return s;
}

bt_code bt_tune_relation_check(const bt_tune_settings *tune, const bt_model_cfg *of,
                               const char *whose, bt_err *err) {
    const int64_t n = tune->relation_heads;
    if (!(tune->relation > 0) || (of->H * of->D % n == 0 && of->KV * of->D % n == 0)) return BT_OK;
    return bt_fail(err, BT_ARG,
                   "tune.relation_heads=%" PRId64
                   " does not divide the queries (%d columns) and keys (%d) of %s",
                   n, of->H * of->D, of->KV * of->D, whose);
}

size_t bt_tune_widest(const bt_run_cfg *c) {
    bt_model_cfg teacher;
    size_t widest = (size_t)c->model.d_model;
    for (int k = 0; k < bt_tune_teachers(c); k++)
        if (bt_tune_teacher_read(c, k, &teacher, NULL) == BT_OK)
            widest = bt_max_size(widest, (size_t)teacher.C);
    return widest;
}

bt_model_counts bt_tune_count(const bt_run_cfg *c) {
    bt_model_cfg m, teacher;
    bt_run_cfg_model(c, &m);
    bt_model_counts n = bt_model_count(&m);
    if (bt_tune_has_reference(c)) {
        m.lora = (bt_lora){0};
        n.flop_token += bt_model_count(&m).flop_forward;
    }
    for (int k = 0; k < bt_tune_teachers(c); k++)
        if (bt_tune_teacher_read(c, k, &teacher, NULL) == BT_OK)
            n.flop_token += bt_model_count(&teacher).flop_forward;
    return n;
}

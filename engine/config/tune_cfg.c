/* tune_cfg.c - reads and checks the settings of fine-tuning. */
#include "engine/config/tune_cfg.h"

#include "engine/base/small.h"
#include "engine/config/rank_setup.h"
#include "engine/kernels/ops/ops.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct target {
    const char *name, *hf_name;
    unsigned bits;
} targets[] = {{"attn_q", "q_proj", BT_LORA_Q},         {"attn_k", "k_proj", BT_LORA_K},
               {"attn_v", "v_proj", BT_LORA_V},         {"attn_o", "o_proj", BT_LORA_O},
               {"ffn_gate", "gate_proj", BT_LORA_GATE}, {"ffn_up", "up_proj", BT_LORA_UP},
               {"ffn_down", "down_proj", BT_LORA_DOWN}, {"all", "all-linear", BT_LORA_ALL}};
enum { N_TARGETS = sizeof targets / sizeof *targets };

/* tune.targets as bits of bt_lora; BT_ARG names what is no layer. The names that the layers have in
 * Hugging Face's models (q_proj, ...) mean the same */
static bt_code read_targets(const char *text, unsigned *out, bt_err *err) {
    *out = 0;
    for (const char *w = text + strspn(text, ", "); *w; w += strspn(w, ", ")) {
        char word[32];
        size_t n = strcspn(w, ", "), i = 0;
        (void)snprintf(word, sizeof word, "%.*s", (int)n, w);
        while (i < N_TARGETS && strcmp(word, targets[i].name) != 0 &&
               strcmp(word, targets[i].hf_name) != 0)
            i++;
        if (i == N_TARGETS)
            return bt_fail(err, BT_ARG,
                           "tune.targets: there is no layer '%s' (all, attn_q, attn_k, attn_v, "
                           "attn_o, ffn_gate, ffn_up, ffn_down)",
                           word);
        *out |= targets[i].bits;
        w += n;
    }
    return *out ? BT_OK : bt_fail(err, BT_ARG, "tune.targets names no layer (use all)");
}

const char *bt_tune_hf_target(unsigned bit) {
    for (size_t i = 0; i < N_TARGETS; i++)
        if (targets[i].bits == bit) return targets[i].hf_name;
    return NULL;
}

void bt_tune_targets_write(unsigned bits, char *out, size_t size) {
    size_t at = 0;
    out[0] = '\0';
    if (bits == BT_LORA_ALL) {
        (void)snprintf(out, size, "all");
        return;
    }
    for (size_t i = 0; i < N_TARGETS && at < size; i++)
        if (targets[i].bits != BT_LORA_ALL && (bits & targets[i].bits))
            at += (size_t)snprintf(out + at, size - at, "%s%s", at ? "," : "", targets[i].name);
}

bt_lora bt_tune_lora(const bt_run_cfg *c) {
    const double r = (double)c->lora_rank;
    bt_lora l = {.rank = (int)c->lora_rank, .scale = c->lora_alpha / (c->rslora ? sqrt(r) : r)};
    if (c->tune != BT_TUNE_LORA || read_targets(c->lora_targets, &l.targets, NULL) != BT_OK)
        return (bt_lora){0};
    return l;
}

/* B A has the rank of the smaller side of a matrix at most */
static bt_code check_rank(const bt_run_cfg *c, unsigned bits, bt_err *err) {
    bt_model_cfg m;
    bt_run_cfg_model(c, &m);
    const int q = m.H * m.D, kv = m.KV * m.D;
    const int sides[][2] = {{q, m.C},   {kv, m.C},  {kv, m.C}, {m.C, q},
                            {m.F, m.C}, {m.F, m.C}, {m.C, m.F}};
    for (size_t i = 0; i < sizeof sides / sizeof *sides; i++) {
        const int least = sides[i][0] < sides[i][1] ? sides[i][0] : sides[i][1];
        if ((bits & targets[i].bits) && c->lora_rank > least)
            return bt_fail(err, BT_ARG,
                           "tune.rank=%" PRId64 " is larger than a side of %s, which is %d x %d "
                           "(use at most %d)",
                           c->lora_rank, targets[i].name, sides[i][0], sides[i][1], least);
    }
    return BT_OK;
}

bt_dpo bt_tune_dpo(const bt_run_cfg *c) {
    return (bt_dpo){.on = c->form == BT_FORMED_PREFERENCE,
                    .beta = c->dpo_beta,
                    .sft_share = c->dpo_sft,
                    .smoothing = c->dpo_smoothing};
}

/* ---- the teacher ------------------------------------------------------------------------------- */

enum { SHAPE_NUMBERS = 12 };

void bt_tune_teacher_write(const bt_model_cfg *m, char *out, size_t size) {
    (void)snprintf(out, size, "%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d", m->L, m->C, m->H, m->KV, m->D,
                   m->F, m->V, (int)m->norm, (int)m->act, (int)m->linear, m->tied, m->qk_norm);
}

bt_code bt_tune_teacher_read(const bt_run_cfg *c, bt_model_cfg *out, bt_err *err) {
    int n[SHAPE_NUMBERS];
    const char *at = c->teacher_shape;
    for (int i = 0; i < SHAPE_NUMBERS; i++) {
        char *end;
        const long v = strtol(at, &end, 10);
        if (end == at || v < 0 || v > INT32_MAX || *end != (i + 1 < SHAPE_NUMBERS ? ',' : '\0'))
            return bt_fail(err, BT_ARG,
                           "tune.teacher_shape '%.64s' is no shape: it is found in the teacher's "
                           "file (leave it out)",
                           c->teacher_shape);
        n[i] = (int)v;
        at = end + 1;
    }
    *out = (bt_model_cfg){.L = n[0],
                          .C = n[1],
                          .H = n[2],
                          .KV = n[3],
                          .D = n[4],
                          .F = n[5],
                          .T = (int)c->seq_len,
                          .V = n[6],
                          .norm = (bt_norm_kind)n[7],
                          .act = (bt_act)n[8],
                          .linear = (bt_linear_kind)n[9],
                          .tied = n[10] != 0,
                          .qk_norm = n[11] != 0,
                          .rope_theta = c->rope_theta,
                          .norm_eps = c->norm_eps,
                          .init_std = c->init_std};
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
    /* one rank computes with a teacher that has not these parts as it is */
    if (bt_leaves_fit(teacher, student->leaves)) s.leaves = student->leaves;
    s.cfg.T = student->cfg.T;
    s.cfg.lora = (bt_lora){.rank = 1, .targets = BT_LORA_Q};
    return s;
}

size_t bt_tune_widest(const bt_run_cfg *c) {
    bt_model_cfg teacher;
    const bool known = c->teacher_shape[0] && bt_tune_teacher_read(c, &teacher, NULL) == BT_OK;
    return bt_max_size((size_t)c->d_model, known ? (size_t)teacher.C : 0);
}

bt_model_counts bt_tune_count(const bt_run_cfg *c) {
    bt_model_cfg m, teacher;
    bt_run_cfg_model(c, &m);
    bt_model_counts n = bt_model_count(&m);
    if (c->form == BT_FORMED_PREFERENCE) {
        m.lora = (bt_lora){0};
        n.flop_token += bt_model_count(&m).flop_forward;
    }
    if (c->teacher_shape[0] && bt_tune_teacher_read(c, &teacher, NULL) == BT_OK)
        n.flop_token += bt_model_count(&teacher).flop_forward;
    return n;
}

/* ---- from 16 bits to 1.58 ---------------------------------------------------------------------- */

bool bt_tune_fades(const bt_run_cfg *c) { return c->lambda_steps > 0; }

double bt_tune_lambda(const bt_run_cfg *c, int64_t step) {
    const int64_t risen = step - c->dense_steps;
    if (risen < 0) return 0;
    return risen < c->lambda_steps ? (double)risen / (double)c->lambda_steps : 1;
}

bt_code bt_tune_check_lambda(const bt_run_cfg *c, bt_err *err) {
    const int64_t before = c->dense_steps + c->lambda_steps;
    if (!bt_tune_fades(c)) return BT_OK;
    if (c->linear == BT_LIN_DENSE)
        return bt_fail(err, BT_ARG,
                       "train.lambda_steps leads to ternary layers, and model.linear=dense has "
                       "none (set model.linear=bitnet158)");
    if (c->tune == BT_TUNE_LORA)
        return bt_fail(err, BT_ARG,
                       "train.lambda_steps changes the weights that tune.mode=lora leaves as they "
                       "are (use tune.mode=full)");
    if (bt_run_cfg_weight_source(c) == BT_WEIGHTS_GATHERED)
        return bt_fail(err, BT_UNSUPPORTED,
                       "train.lambda_steps makes the weights of one layer at a time: with --zero "
                       "%" PRId64 " it needs parallel.gather=layer%s",
                       c->zero,
                       c->pp > 1 && c->zero > 2 ? ", which --pp has not (use --zero 2)" : "");
    if (before < c->steps) return BT_OK;
    return bt_fail(err, BT_ARG,
                   "train.dense_steps + train.lambda_steps = %" PRId64 " leave none of the %" PRId64
                   " steps to the ternary model (lower them, or raise --steps)",
                   before, c->steps);
}

/* the base without its adapters is what preferences are judged against */
static bt_code check_preference(const bt_run_cfg *c, bt_err *err) {
    if (c->form != BT_FORMED_PREFERENCE) return BT_OK;
    if (c->tune != BT_TUNE_LORA)
        return bt_fail(err, BT_ARG,
                       "data.form=preference trains adapters: the reference is the base without "
                       "them (set tune.mode=lora and model.init_from)");
    if (c->mixture[0])
        return bt_fail(err, BT_UNSUPPORTED,
                       "data.form=preference takes no data.mixture: give the files one after the "
                       "other in data.path");
    return BT_OK;
}

/* a rank of a tensor-parallel group has the same slice of student and teacher */
static bt_code check_teacher_slices(const bt_run_cfg *c, bt_err *err) {
    bt_model_cfg teacher, part;
    const bt_model_slice slice = {.tp_size = (int)c->tp};
    bt_err why = BT_ERR_INIT;
    if (!c->teacher_shape[0]) return BT_OK;
    BT_TRY(bt_tune_teacher_read(c, &teacher, err));
    if (c->tp == 1) return BT_OK;
    if (bt_slice_cfg(&part, &teacher, slice, &why) != BT_OK)
        return bt_fail(err, BT_ARG, "tune.teacher: %.180s", why.msg);
    if (c->parts <= 1 || bt_leaves_fit(&teacher, (int)c->parts)) return BT_OK;
    return bt_fail(err, BT_ARG,
                   "train.reproducible with --tp %" PRId64
                   ": the teacher cannot be divided into %" PRId64
                   " equal parts as this model can (its heads %d, kv heads %d, d_ff %d; set "
                   "train.parts)",
                   c->tp, c->parts, teacher.H, teacher.KV, teacher.F);
}

static bt_code check_teacher(bt_run_cfg *c, bt_err *err) {
    const char *key = c->logits[0] ? "tune.logits" : "tune.teacher";
    if (!c->teacher[0]) c->teacher_shape[0] = '\0';
    if (c->top_k && !c->logits[0])
        return bt_fail(err, BT_ARG, "tune.top_k goes with tune.logits, a file of logits");
    if (!c->teacher[0] && !c->logits[0]) return BT_OK;
    if (c->teacher[0] && c->logits[0])
        return bt_fail(err, BT_ARG,
                       "tune.teacher with tune.logits: a student learns from a teacher or from a "
                       "file of its logits (leave one out)");
    if (c->form == BT_FORMED_PREFERENCE)
        return bt_fail(err, BT_ARG,
                       "%s with data.form=preference: a run learns from preferences or from a "
                       "teacher (leave one out)",
                       key);
    return check_teacher_slices(c, err);
}

static bt_code check_labels(bt_run_cfg *c, bt_err *err) {
    if (c->form != BT_FORMED_LABEL)
        return c->labels[0] ? bt_fail(err, BT_ARG,
                                      "data.labels are the classes of data.form=label (set it, or "
                                      "leave them out)")
                            : BT_OK;
    if (c->teacher[0] || c->logits[0])
        return bt_fail(err, BT_ARG,
                       "%s teaches probabilities of tokens, and data.form=label has classes (leave "
                       "one out)",
                       c->logits[0] ? "tune.logits" : "tune.teacher");
    if (c->packing == BT_PACKED_STREAM)
        return bt_fail(err, BT_ARG,
                       "data.packing=stream runs texts together, and data.form=label judges each "
                       "at its end (use documents or pad)");
    c->sample_tokens = 0; /* it writes no text */
    return BT_OK;
}

static bt_code check_base_type(const bt_run_cfg *c, bt_err *err) {
    if (c->base_type != BT_BASE_Q8) return BT_OK;
    if (c->tune != BT_TUNE_LORA)
        return bt_fail(err, BT_ARG,
                       "tune.base_type=q8 is of the frozen base of adapters, and here every weight "
                       "trains (set tune.mode=lora, or leave it out)");
    if (c->linear != BT_LIN_DENSE)
        return bt_fail(
            err, BT_ARG,
            "tune.base_type=q8 is of dense layers: those of this base are ternary, which "
            "2 bits hold exactly (leave it out)");
    const bt_model_setup s = bt_run_cfg_setup(c, 0);
    if (bt_model_fits_q8(&s)) return BT_OK;
    return bt_fail(err, BT_UNSUPPORTED,
                   "tune.base_type=q8: the widths of this model's layers%s are no multiples of %d "
                   "(leave it out)",
                   c->tp > 1 || c->parts > 1 ? ", divided by --tp or train.parts," : "",
                   (int)BT_Q8_BLOCK);
}

bt_code bt_tune_resolve(bt_run_cfg *c, bt_err *err) {
    unsigned bits;
    BT_TRY(check_base_type(c, err));
    BT_TRY(check_labels(c, err));
    BT_TRY(check_preference(c, err));
    BT_TRY(check_teacher(c, err));
    if (c->tune != BT_TUNE_LORA && c->adapters[0])
        return bt_fail(err, BT_ARG, "tune.adapters goes with tune.mode=lora");
    if (c->tune != BT_TUNE_LORA) return BT_OK;
    BT_TRY(read_targets(c->lora_targets, &bits, err));
    BT_TRY(check_rank(c, bits, err));
    if (!c->base[0])
        return bt_fail(err, BT_ARG,
                       "tune.mode=lora needs a base whose weights stay as they are (--init-from "
                       "RUN or a model's path)");
    return BT_OK;
}

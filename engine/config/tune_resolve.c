/* tune_resolve.c - checks the settings of the data, and those of fine-tuning against model and layout. */
#include <inttypes.h>
#include <string.h>

#include "engine/base/small.h"
#include "engine/config/rank_setup.h"
#include "engine/config/resolve_impl.h"
#include "engine/config/tune_cfg.h"
#include "engine/data/shards/fold.h"
#include "engine/kernels/ops/ops.h"

/* The smaller side of a matrix limits the rank of its adapter B A. */
static bt_code check_rank(const bt_run_cfg *c, unsigned bits, bt_err *err) {
    bt_model_cfg m;
    bt_run_cfg_model(c, &m);
    const int q = m.H * m.D, kv = m.KV * m.D;
    const struct {
        unsigned bit;
        int rows, cols;
    } layers[] = {{BT_LORA_Q, q, m.C},     {BT_LORA_K, kv, m.C},     {BT_LORA_V, kv, m.C},
                  {BT_LORA_O, m.C, q},     {BT_LORA_GATE, m.F, m.C}, {BT_LORA_UP, m.F, m.C},
                  {BT_LORA_DOWN, m.C, m.F}};
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        char name[16];
        const int rows = layers[i].rows, cols = layers[i].cols, least = rows < cols ? rows : cols;
        bt_tune_targets_write(layers[i].bit, name, sizeof name);
        if ((bits & layers[i].bit) && c->tune.rank > least)
            return bt_fail(err, BT_ARG,
                           "tune.rank=%" PRId64 " is larger than a side of %s, which is %d x %d "
                           "(use at most %d)",
                           c->tune.rank, name, rows, cols, least);
    }
    return BT_OK;
}

static bt_code check_preference(const bt_run_cfg *c, bt_err *err) {
    const bool reward = bt_run_cfg_is_reward_model(c);
    if (c->tune.center_rewards > 0 && !reward)
        return bt_fail(err, BT_ARG,
                       "tune.center_rewards applies only to a reward model (set "
                       "data.form=preference and tune.preference=reward, or omit it)");
    if (c->data.form != BT_FORMED_PREFERENCE) return BT_OK;
    if (reward && c->tune.sft_share > 0)
        return bt_fail(err, BT_ARG,
                       "tune.sft_share applies to a model that predicts tokens, but with "
                       "tune.preference=reward the model scores answers (omit it)");
    if (c->tune.label_smoothing > 0 && bt_prefer_is_single((bt_preference)c->tune.preference))
        return bt_fail(err, BT_ARG,
                       "tune.label_smoothing applies to pairs of answers, but tune.preference=kto "
                       "learns from single answers (omit it)");
    if (c->tune.mode != BT_TUNE_LORA && bt_tune_has_reference(c))
        return bt_fail(err, BT_ARG,
                       "data.form=preference needs adapters, because the reference is the base "
                       "without them (set tune.mode=lora and model.init_from, or "
                       "tune.preference=orpo, simpo or reward, which have no reference)");
    if (c->tune.mode != BT_TUNE_LORA && c->mesh.tp > 1 && !reward)
        return bt_fail(err, BT_ARG,
                       "data.form=preference with --tp %" PRId64
                       " trains adapters only (set tune.mode=lora, or --tp 1)",
                       c->mesh.tp);
    if (c->data.mixture[0])
        return bt_fail(
            err, BT_UNSUPPORTED,
            "data.form=preference does not support data.mixture: list the files in data.path");
    return BT_OK;
}

/* A rank of a tensor-parallel group must have the same slice of student and teacher. */
static bt_code check_teacher_slice(const bt_run_cfg *c, int k, bt_err *err) {
    bt_model_cfg teacher, part;
    const bt_model_slice slice = {.tp_size = (int)c->mesh.tp};
    bt_err why = BT_ERR_INIT;
    BT_TRY(bt_tune_teacher_read(c, k, &teacher, err));
    if (c->mesh.tp == 1) return BT_OK;
    if (bt_slice_cfg(&part, &teacher, slice, &why) != BT_OK)
        return bt_fail(err, BT_ARG, "tune.teacher: %.180s", why.msg);
    if (c->train.parts <= 1 || bt_leaves_fit(&teacher, (int)c->train.parts)) return BT_OK;
    return bt_fail(err, BT_ARG,
                   "train.reproducible with --tp %" PRId64
                   ": the teacher cannot be divided into %" PRId64
                   " equal parts as this model can (its heads %d, kv heads %d, d_ff %d; set "
                   "train.parts)",
                   c->mesh.tp, c->train.parts, teacher.H, teacher.KV, teacher.F);
}

static bt_code check_teacher_slices(const bt_run_cfg *c, bt_err *err) {
    const int n = bt_tune_teachers(c);
    if (n > 1 && c->mesh.tp > 1)
        return bt_fail(err, BT_UNSUPPORTED,
                       "tune.teacher: with --tp %" PRId64
                       " a run can have only one teacher, not %d (use --tp 1, or "
                       "tune.logits)",
                       c->mesh.tp, n);
    for (int k = 0; k < n; k++) BT_TRY(check_teacher_slice(c, k, err));
    return BT_OK;
}

/* The last stage of a pipeline has the teacher, and runs backward through its last chunk of layers at once. */
static bt_code check_relation_stage(const bt_run_cfg *c, const bt_model_cfg *m, bt_err *err) {
    bt_mesh_shape shape;
    bt_run_cfg_mesh(c, &shape);
    if (shape.pp <= 1) return BT_OK;
    const bt_model_slice last = {.tp_size = shape.tp,
                                 .pp_stage = shape.pp - 1,
                                 .pp_size = shape.pp,
                                 .virtual_stages = (int)c->parallel.virtual_stages};
    const bt_layer_run run = bt_slice_chunk(m, last, bt_slice_chunks(last) - 1);
    if (c->tune.relation_layer > run.first) return BT_OK;
    return bt_fail(
        err, BT_ARG,
        "tune.relation_layer=%" PRId64
        " with --pp %d: the last stage, which has the teacher, begins with layer %d (use "
        "a layer from there on, or --pp 1)",
        c->tune.relation_layer, shape.pp, run.first + 1);
}

static bt_code check_relation(bt_run_cfg *c, bt_err *err) {
    bt_tune_settings *t = &c->tune;
    bt_model_cfg m;
    if (!(t->relation > 0))
        return t->relation_layer || t->relation_heads
                   ? bt_fail(err, BT_ARG,
                             "tune.%s has no effect without tune.relation, the weight of the "
                             "relations (set it, too)",
                             t->relation_layer ? "relation_layer" : "relation_heads")
                   : BT_OK;
    bt_run_cfg_model(c, &m);
    if (!t->teacher[0])
        return bt_fail(err, BT_ARG,
                       "tune.relation compares the attention of two models and needs tune.teacher");
    if (bt_tune_teachers(c) > 1)
        return bt_fail(err, BT_UNSUPPORTED,
                       "tune.relation supports only one teacher, not %d (omit it)",
                       bt_tune_teachers(c));
    if (c->mesh.tp > 1)
        return bt_fail(err, BT_UNSUPPORTED,
                       "tune.relation with --tp %" PRId64
                       ": it compares all heads of a layer on one rank (use --tp 1)",
                       c->mesh.tp);
    if (t->relation_layer > m.L)
        return bt_fail(err, BT_ARG, "tune.relation_layer=%" PRId64 ": this model has %d layers",
                       t->relation_layer, m.L);
    if (!t->relation_layer) t->relation_layer = m.L;
    if (!t->relation_heads) t->relation_heads = m.KV;
    BT_TRY(bt_tune_relation_check(t, &m, "this model", err));
    return check_relation_stage(c, &m, err);
}

static bt_code check_teacher(bt_run_cfg *c, bt_err *err) {
    const char *key = c->tune.logits[0] ? "tune.logits" : "tune.teacher";
    if (!c->tune.teacher[0]) c->tune.teacher_shape[0] = '\0';
    if (c->tune.top_k && !c->tune.logits[0])
        return bt_fail(err, BT_ARG,
                       "tune.top_k has no effect without tune.logits, a file of logits");
    if (!c->tune.teacher[0] && !c->tune.logits[0]) return BT_OK;
    if (c->tune.teacher[0] && c->tune.logits[0])
        return bt_fail(err, BT_ARG,
                       "tune.teacher with tune.logits: a student learns either from a teacher or "
                       "from a file of logits (omit one)");
    if (c->data.form == BT_FORMED_PREFERENCE)
        return bt_fail(err, BT_ARG,
                       "%s with data.form=preference: a run learns either from preferences or from "
                       "a teacher (omit one)",
                       key);
    return check_teacher_slices(c, err);
}

static bt_code check_labels(bt_run_cfg *c, bt_err *err) {
    if (c->data.form != BT_FORMED_LABEL)
        return c->data.labels[0] ? bt_fail(err, BT_ARG,
                                           "data.labels lists the classes for data.form=label (set "
                                           "that form, or omit data.labels)")
                                 : BT_OK;
    if (c->tune.teacher[0] || c->tune.logits[0])
        return bt_fail(
            err, BT_ARG,
            "%s supplies probabilities of tokens, but data.form=label has classes (omit one)",
            c->tune.logits[0] ? "tune.logits" : "tune.teacher");
    if (c->data.packing == BT_PACKED_STREAM)
        return bt_fail(err, BT_ARG,
                       "data.packing=stream concatenates texts, but data.form=label classifies "
                       "each text at its end (use documents or pad)");
    return BT_OK;
}

static bt_code check_base_type(const bt_run_cfg *c, bt_err *err) {
    if (c->tune.base_type != BT_BASE_Q8) return BT_OK;
    if (c->tune.mode != BT_TUNE_LORA)
        return bt_fail(err, BT_ARG,
                       "tune.base_type=q8 applies to the frozen base of adapters, but here all "
                       "weights are trained (set tune.mode=lora, or omit it)");
    if (c->model.linear != BT_LIN_DENSE)
        return bt_fail(err, BT_ARG,
                       "tune.base_type=q8 applies to dense layers, but the layers of this base are "
                       "ternary and stored exactly in 2 bits (omit it)");
    const bt_model_setup s = bt_run_cfg_setup(c, 0);
    if (bt_model_fits_q8(&s)) return BT_OK;
    return bt_fail(
        err, BT_UNSUPPORTED,
        "tune.base_type=q8: the widths of this model's layers%s are not multiples of %d (omit it)",
        c->mesh.tp > 1 || c->train.parts > 1 ? ", divided by --tp or train.parts," : "",
        (int)BT_Q8_BLOCK);
}

static bt_code check_adapters(bt_run_cfg *c, bt_err *err) {
    unsigned bits;
    if (c->tune.mode != BT_TUNE_LORA && (c->tune.adapters[0] || c->tune.dora))
        return bt_fail(err, BT_ARG, "tune.%s has no effect without tune.mode=lora",
                       c->tune.adapters[0] ? "adapters" : "dora");
    if (c->tune.dora && c->tune.dropout > 0 && c->mesh.tp > 1)
        return bt_fail(err, BT_UNSUPPORTED,
                       "tune.dora cannot be combined with tune.dropout=%g and --tp %" PRId64
                       " (use --tp 1, or set tune.dropout=0)",
                       c->tune.dropout, c->mesh.tp);
    if (c->tune.mode != BT_TUNE_LORA) return BT_OK;
    BT_TRY(bt_tune_targets_read(c->tune.targets, &bits, err));
    return check_rank(c, bits, err);
}

static bt_code check_base(const bt_run_cfg *c, bt_err *err) {
    if (c->tune.mode != BT_TUNE_LORA || c->tune.base[0]) return BT_OK;
    return bt_fail(err, BT_ARG,
                   "tune.mode=lora needs a base model, whose weights do not change (--init-from "
                   "RUN, or the path of a model)");
}

bt_code bt_tune_resolve(bt_run_cfg *c, bt_text *faults, bt_err *err) {
    BT_TRY(bt_collect_fault(faults, check_base_type(c, err), err));
    BT_TRY(bt_collect_fault(faults, check_labels(c, err), err));
    BT_TRY(bt_collect_fault(faults, check_preference(c, err), err));
    BT_TRY(bt_collect_fault(faults, check_teacher(c, err), err));
    BT_TRY(bt_collect_fault(faults, check_relation(c, err), err));
    BT_TRY(bt_collect_fault(faults, check_adapters(c, err), err));
    return bt_collect_fault(faults, check_base(c, err), err);
}

static bt_code resolve_packing(bt_run_cfg *c, bool synthetic, bt_err *err) {
    bool text = c->data.form == 0;
    if (c->data.packing == BT_PACKED_AUTO)
        c->data.packing = text ? BT_PACKED_STREAM : BT_PACKED_DOCUMENTS;
    if (c->data.packing == BT_PACKED_STREAM && !text)
        return bt_fail(err, BT_ARG,
                       "data.packing=stream concatenates documents, but this data.form needs "
                       "separate documents (use documents or pad)");
    if (c->data.packing != BT_PACKED_STREAM && synthetic)
        return bt_fail(err, BT_ARG, "'%.40s' has no documents (use data.packing=stream)",
                       c->data.path);
    return BT_OK;
}

static bt_code check_fold_has_text(const bt_run_cfg *c, bool synthetic, bt_err *err) {
    bt_fold fold;
    const char *without = synthetic ? "synthetic data" : c->data.val_path[0] ? "--val-data" : NULL;
    if (c->data.fold[0] && without)
        return bt_fail(err, BT_ARG,
                       "data.fold selects the held-out part of a text, but %s has none (omit it)",
                       without);
    return bt_fold_parse(&fold, c->data.fold, c->data.val_frac, err);
}

static bt_code check_byte_vocab(const bt_run_cfg *c, bool synthetic, bt_err *err) {
    if (!synthetic && strcmp(c->data.tokenizer, "bytes") == 0 && c->model.vocab < 256)
        return bt_fail(
            err, BT_ARG,
            "model.vocab %" PRId64
            " is too small for the byte tokenizer, which has 256 tokens (set model.vocab=256)",
            c->model.vocab);
    return BT_OK;
}

bt_code bt_resolve_data(bt_run_cfg *c, bt_text *faults, bt_err *err) {
    bool synthetic = strncmp(c->data.path, "synth:", 6) == 0;
    BT_TRY(bt_tune_resolve(c, faults, err));
    BT_TRY(bt_collect_fault(faults, resolve_packing(c, synthetic, err), err));
    BT_TRY(bt_collect_fault(faults, check_fold_has_text(c, synthetic, err), err));
    if (!c->data.path[0]) memcpy(c->data.path, "builtin", sizeof "builtin");
    /* `train` has replaced auto by the text; no other command trains a tokenizer */
    if (strcmp(c->data.tokenizer, "auto") == 0) memcpy(c->data.tokenizer, "bytes", sizeof "bytes");
    /* `train` has replaced auto by the tokenizer */
    if (strcmp(c->data.template, "auto") == 0) memcpy(c->data.template, "chatml", sizeof "chatml");
    return bt_collect_fault(faults, check_byte_vocab(c, synthetic, err), err);
}

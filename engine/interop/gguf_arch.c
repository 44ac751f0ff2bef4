/* gguf_arch.c - refuses models that llama.cpp would compute differently, by their architecture. */
#include "engine/interop/gguf_keys.h"

#include <string.h>

/* llama.cpp derives these values from the architecture and the sizes alone, or has no key for them. */
static bt_code check_gguf_attention(const bt_model_cfg *c, const bt_arch_row *row, bt_err *err) {
    if (!(row->query_scale > 0)) return BT_OK;
    const double computed = bt_arch_gguf_query_scale(row, c),
                 here = c->query_scale > 0 ? c->query_scale : (double)c->D;
    if (here != computed)
        return bt_fail(err, BT_UNSUPPORTED,
                       "llama.cpp divides queries of %s by the square root of %g, but this model "
                       "by that of %g (model.query_scale)",
                       row->gguf, computed, here);
    if ((c->attention_cap > 0) != (row->attention_cap > 0))
        return bt_fail(
            err, BT_UNSUPPORTED,
            "llama.cpp %s attention scores of %s, but this model has model.attention_cap=%g",
            row->attention_cap > 0 ? "limits" : "does not limit", row->gguf, c->attention_cap);
    if (row->logit_cap > 0 && !(c->logit_cap > 0))
        return bt_fail(err, BT_UNSUPPORTED,
                       "llama.cpp limits logits of %s, but this model has model.logit_cap=0",
                       row->gguf);
    if (!(row->local_theta > 0) && c->window_every != row->window_every)
        return bt_fail(err, BT_UNSUPPORTED,
                       "in llama.cpp every layer %d of %s is global, but in this model every layer "
                       "%d (model.window_every)",
                       row->window_every, row->gguf, c->window_every);
    return BT_OK;
}

const char *bt_gguf_word(bt_arch arch, bt_act act, bt_number number) {
    const bool b158 = number == BT_NUM_I2_S && arch == BT_ARCH_BITNET && act == BT_ACT_RELU2;
    return b158 ? BT_GGUF_B158 : bt_arch_at(arch)->gguf;
}

bt_act bt_gguf_act(bt_arch arch, const char *word) {
    return word && strcmp(word, BT_GGUF_B158) == 0 ? BT_ACT_RELU2
                                                   : bt_arch_gguf_act(bt_arch_at(arch));
}

/* The weights of each scale are whole blocks of the type. */
static bool fits_blocks(const bt_model_file *s, bt_number number) {
    const size_t block = bt_number_at(number)->block;
    for (size_t i = 0; i < s->params.n; i++)
        if (s->params.tensors[i].linear &&
            bt_scale_inputs(s->cfg.scale, s->params.tensors[i].cols) % block != 0)
            return false;
    return true;
}

bt_number bt_gguf_default_number(const bt_model_file *s) {
    if (s->cfg.linear != BT_LIN_BITNET158) return BT_NUM_F32;
    if (fits_blocks(s, BT_NUM_TQ2_0)) return BT_NUM_TQ2_0;
    return s->cfg.scale > BT_SCALE_ROW && fits_blocks(s, BT_NUM_Q2_0) ? BT_NUM_Q2_0 : BT_NUM_F32;
}

bt_code bt_gguf_scales_check(bt_arch arch, const bt_model_cfg *c, bt_number number,
                             bool scale_tensors, bt_err *err) {
    const bool i2_s = number == BT_NUM_I2_S;
    if (bt_number_at(number)->coded && c->linear != BT_LIN_BITNET158)
        return bt_fail(
            err, BT_ARG,
            "type '%s' is for ternary models, but this one is dense (choose f16 or bf16)",
            bt_number_at(number)->word);
    if (c->scale != BT_SCALE_TENSOR && (i2_s || scale_tensors))
        return bt_fail(err, BT_UNSUPPORTED,
                       "%s one scale for each tensor, but this model has one for each %s "
                       "(model.scale=%s): choose tq1_0, tq2_0, q2_0 or floats",
                       i2_s ? "type 'i2_s' has" : "--scale-tensors writes",
                       c->scale == BT_SCALE_ROW ? "row" : "group of inputs",
                       c->scale == BT_SCALE_ROW ? "row" : "group");
    const size_t block = bt_number_at(number)->block;
    if (c->scale > BT_SCALE_ROW && bt_scale_inputs(c->scale, 0) % block != 0)
        return bt_fail(err, BT_UNSUPPORTED,
                       "type '%s' has one scale for %zu weights, but this model has one for each "
                       "%zu inputs (model.scale): choose %s",
                       bt_number_at(number)->word, block, bt_scale_inputs(c->scale, 0),
                       c->scale > BT_SCALE_GROUP32 && block > 64 ? "q2_0 or floats" : "floats");
    if (!i2_s) return BT_OK;
    if (bt_arch_at(arch)->joined)
        return bt_fail(err, BT_UNSUPPORTED,
                       "files of %s join matrices, but a matrix of type 'i2_s' has only one scale "
                       "(choose another --type)",
                       bt_arch_at(arch)->gguf);
    if (scale_tensors)
        return bt_fail(
            err, BT_ARG,
            "type 'i2_s' stores the scale of a tensor after its codes (leave out --scale-tensors)");
    return BT_OK;
}

bt_code bt_gguf_arch_check(bt_arch arch, const bt_model_cfg *c, bool any_activation, bt_err *err) {
    const bt_arch_row *row = bt_arch_at(arch);
    if (!row->gguf)
        return bt_fail(err, BT_UNSUPPORTED,
                       "llama.cpp does not compute a sliding window in files of this architecture "
                       "(model.window=%d); with --context %d the window has no effect",
                       c->window, c->window);
    if (row->joined && c->window > 0 && c->window < c->T)
        return bt_fail(
            err, BT_UNSUPPORTED,
            "llama.cpp does not compute a sliding window in files of %s (model.window=%d)",
            row->gguf, c->window);
    if (row->joined && c->linear != BT_LIN_DENSE)
        return bt_fail(err, BT_UNSUPPORTED,
                       "files of %s join q, k and v in one tensor, which cannot contain ternary "
                       "layers with different scales (model.rotary_dim, model.rope_scaling)",
                       row->gguf);
    if (arch == BT_ARCH_BITNET && !c->tied)
        return bt_fail(err, BT_UNSUPPORTED,
                       "llama.cpp aborts when it reads a BitNet file whose head is not the "
                       "embedding (model.tied=false)");
    if (c->no_rope_every != row->no_rope)
        return bt_fail(err, BT_UNSUPPORTED,
                       "llama.cpp omits the rotary embedding in every layer %d of %s, not in every "
                       "layer %d (model.no_rope_every)",
                       row->no_rope, row->gguf, c->no_rope_every);
    if (c->rope.method == BT_ROPE_LLAMA3 && arch != BT_ARCH_LLAMA)
        return bt_fail(err, BT_UNSUPPORTED,
                       "llama.cpp scales rotary frequencies by llama3 only in files of the "
                       "architecture llama, but this is %s (model.rope_scaling)",
                       row->gguf);
    if (c->rope.method == BT_ROPE_LONGROPE && arch != BT_ARCH_PHI3)
        return bt_fail(err, BT_UNSUPPORTED,
                       "llama.cpp scales rotary frequencies by longrope only in files of the "
                       "architecture phi3, but this is %s (model.rope_scaling)",
                       row->gguf);
    const bt_act act = bt_arch_gguf_act(row);
    if (c->act != act && !any_activation)
        return bt_fail(
            err, BT_UNSUPPORTED,
            "llama.cpp computes %s in every file of %s; this model has %s and would generate "
            "other text (for GGUF train with --set model.act=%s; --to hf keeps %s; "
            "--any-activation writes the file for programs that read its "
            "hidden_activation)",
            bt_arch_act_word(act), row->gguf, bt_arch_act_word(c->act), bt_arch_act_word(act),
            bt_arch_act_word(c->act));
    return check_gguf_attention(c, row, err);
}

/* formats.c - the tables of formats.def, and the choice of the architecture for a model. */
#include "engine/interop/formats/formats.h"

#include <stdio.h>
#include <string.h>

/* A row may omit members, because it has a designator. */
#define BT_ARCH(id, ...) [BT_ARCH_##id] = {.hf_class = __VA_ARGS__},
#define BT_NUMBER(...)
#define BT_NAME(...)
static const bt_arch_row archs[BT_ARCH_COUNT] = {
#include "engine/interop/formats/formats.def"
};
#undef BT_ARCH
#undef BT_NUMBER
#define BT_ARCH(...)
#define BT_NUMBER(id, ...) [BT_NUM_##id] = {__VA_ARGS__},
static const bt_number_row numbers[BT_NUM_COUNT] = {
#include "engine/interop/formats/formats.def"
};
#undef BT_NUMBER
#undef BT_NAME
#define BT_NUMBER(...)
#define BT_NAME(id, hf, gguf) [BT_P_##id] = {hf, gguf},
static const struct {
    const char *hf, *gguf;
} names[BT_P_COUNT] = {
#include "engine/interop/formats/formats.def"
};
#undef BT_NAME
#define BT_NAME(...)
#define BT_POST_NORM_NAME(id, hf) [BT_P_##id] = hf,
static const char *const post_norm_names[BT_P_COUNT] = {
#include "engine/interop/formats/formats.def"
};
#define BT_JOINED_NAME(id, hf, gguf, part) [BT_P_##id] = {hf, gguf, part},
static const struct {
    const char *hf, *gguf;
    int part;
} joined_names[BT_P_COUNT] = {
#include "engine/interop/formats/formats.def"
};
#define BT_OTHER_NAME(id, hf) [BT_P_##id] = hf,
static const char *const other_names[BT_P_COUNT] = {
#include "engine/interop/formats/formats.def"
};
#undef BT_ARCH
#undef BT_NUMBER
#undef BT_NAME

const bt_arch_row *bt_arch_at(bt_arch a) { return &archs[a]; }
const bt_number_row *bt_number_at(bt_number n) { return &numbers[n]; }

bt_number bt_number_of_safetensors(const char *name) {
    for (int i = 0; name && i < BT_NUM_COUNT; i++)
        if (numbers[i].safetensors && strcmp(numbers[i].safetensors, name) == 0)
            return (bt_number)i;
    return BT_NUM_COUNT;
}

bt_number bt_number_of_ggml(uint32_t type) {
    for (int i = 0; i < BT_NUM_COUNT; i++)
        if (numbers[i].ggml >= 0 && (uint32_t)numbers[i].ggml == type) return (bt_number)i;
    return BT_NUM_COUNT;
}

size_t bt_number_bytes(bt_number t, size_t n) { return n / numbers[t].block * numbers[t].bytes; }

/* The name of a bias is complete: it has no ".weight", and no scale follows it. */
static void put_foreign_name(char out[BT_FOREIGN_NAME], const bt_tensor *t, const char *layers,
                             const char *name, const char *suffix) {
    const size_t n = strlen(name);
    const bool bias = n > 5 && strcmp(name + n - 5, ".bias") == 0;
    if (bias && strcmp(suffix, ".weight") == 0) suffix = "";
    if (t->layer < 0)
        snprintf(out, BT_FOREIGN_NAME, "%s%s", name, suffix);
    else
        snprintf(out, BT_FOREIGN_NAME, "%s.%d.%s%s", layers, t->layer, name, suffix);
}

void bt_name_hf(char out[BT_FOREIGN_NAME], bt_arch arch, const bt_tensor *t, const char *suffix) {
    const char *other = archs[arch].post_norm ? post_norm_names[t->id] : NULL;
    put_foreign_name(out, t, "model.layers", other ? other : names[t->id].hf, suffix);
}

int bt_arch_part(bt_arch arch, const bt_tensor *t) {
    return archs[arch].joined && joined_names[t->id].hf ? joined_names[t->id].part : -1;
}

void bt_name_hf_out(char out[BT_FOREIGN_NAME], bt_arch arch, const bt_tensor *t,
                    const char *suffix) {
    if (bt_arch_part(arch, t) >= 0)
        put_foreign_name(out, t, "model.layers", joined_names[t->id].hf, suffix);
    else
        bt_name_hf(out, arch, t, suffix);
}

void bt_name_gguf_out(char out[BT_FOREIGN_NAME], bt_arch arch, const bt_tensor *t,
                      const char *suffix) {
    if (bt_arch_part(arch, t) >= 0)
        put_foreign_name(out, t, "blk", joined_names[t->id].gguf, suffix);
    else
        bt_name_gguf(out, t, suffix);
}

static const char *const act_words[] = {
    [BT_ACT_RELU2] = "relu2", [BT_ACT_SILU] = "silu", [BT_ACT_GELU] = "gelu"};

const char *bt_arch_act_word(bt_act act) { return act_words[act]; }

int bt_arch_act_of(const char *word) {
    for (int a = 0; a < (int)(sizeof act_words / sizeof *act_words); a++)
        if (strcmp(word, act_words[a]) == 0) return a;
    return -1;
}

bt_act bt_arch_gguf_act(const bt_arch_row *r) {
    return strcmp(r->act, act_words[BT_ACT_GELU]) == 0 ? BT_ACT_GELU : BT_ACT_SILU;
}

double bt_arch_gguf_query_scale(const bt_arch_row *r, const bt_model_cfg *c) {
    return r->wide_layers == c->L ? (double)c->C / c->H : (double)c->D;
}

float bt_arch_gain_offset(bt_arch arch, const bt_tensor *t) {
    const bool gain = !t->decay && !t->linear && !t->zero && !t->adapter;
    return gain ? archs[arch].gain_offset : 0;
}

bool bt_name_hf_other(char out[BT_FOREIGN_NAME], const bt_tensor *t, const char *suffix) {
    if (!other_names[t->id]) return false;
    put_foreign_name(out, t, "model.layers", other_names[t->id], suffix);
    return true;
}

void bt_name_gguf(char out[BT_FOREIGN_NAME], const bt_tensor *t, const char *suffix) {
    put_foreign_name(out, t, "blk", names[t->id].gguf, suffix);
}

/* Returns true if the class supports the windows, rotary bases, factors and limits of the model. */
static bool class_has_attention(const bt_arch_row *r, const bt_model_cfg *c) {
    const bool window = c->window > 0 && c->window < c->T && c->window_every != 1,
               scaled = c->query_scale > 0 && c->query_scale != (double)c->D,
               capped = c->attention_cap > 0 || c->logit_cap > 0,
               partial = c->rotary_dim && c->rotary_dim != c->D,
               own = partial || c->rope.method == BT_ROPE_LONGROPE;
    if ((scaled || capped) && !(r->query_scale > 0)) return false;
    if ((r->local_theta > 0) != (c->rope_local_theta > 0)) return false;
    /* A class with joined tensors is chosen only for models that no other class computes. */
    if (r->joined ? !own : partial) return false;
    return r->window_every || ((r->joined || r->window == window) && !(window && c->window_every));
}

int bt_arch_longest_text(const bt_model_cfg *c) {
    const double scaled = c->rope.factor * c->rope.context;
    return c->rope.method == BT_ROPE_LONGROPE && scaled < 1 << 30 ? (int)(scaled + 0.5) : c->T;
}

bt_code bt_arch_of_model(bt_arch *out, const bt_model_cfg *c, bt_err *err) {
    if (c->classes == 1)
        return bt_fail(err, BT_UNSUPPORTED,
                       "it is a reward model, which these formats do not support (use its "
                       "checkpoint with 'bitrain generate' and 'bitrain eval')");
    if (c->classes)
        return bt_fail(err, BT_UNSUPPORTED,
                       "it is a classifier of %d labels, which these formats do not support (use "
                       "its checkpoint with 'bitrain generate' and 'bitrain eval')",
                       c->classes);
    if (c->linear == BT_LIN_BITNET1)
        return bt_fail(err, BT_UNSUPPORTED,
                       "no other program computes binary, centred weights (model.linear=bitnet1)");
    if (c->norm == BT_NORM_BITLINEAR)
        return bt_fail(err, BT_UNSUPPORTED,
                       "no other program computes norms without gain in front of every linear "
                       "layer (model.norm=bitlinear)");
    /* Only the code of Phi-3 computes a text again when it becomes longer than the length at which longrope changes. */
    const bool longrope = c->rope.method == BT_ROPE_LONGROPE && c->linear == BT_LIN_DENSE;
    const int first = longrope ? BT_ARCH_PHI3 : 0;
    for (int i = 0; i < BT_ARCH_COUNT; i++) {
        const int a = (first + i) % BT_ARCH_COUNT;
        if (archs[a].norm != c->norm || archs[a].qk_norm != c->qk_norm ||
            archs[a].qkv_bias != c->qkv_bias || archs[a].post_norm != c->post_norm ||
            archs[a].embed_scale != c->embed_scale || !class_has_attention(&archs[a], c) ||
            (archs[a].no_rope > 0) != (c->no_rope_every > 0))
            continue;
        if (a == BT_ARCH_BITNET && c->H * c->D != c->C)
            return bt_fail(err, BT_UNSUPPORTED,
                           "BitNetForCausalLM has no head_dim: heads x head_dim = %d x %d must be "
                           "d_model = %d",
                           c->H, c->D, c->C);
        *out = (bt_arch)a;
        return BT_OK;
    }
    return bt_fail(
        err, BT_UNSUPPORTED,
        "no other program computes this combination of sub-norms, QK-norm, biases, rotary "
        "embedding, windows and limits (model.norm=%s, qk_norm=%d, post_norm=%d, embed_scale=%d, "
        "qkv_bias=%d, no_rope_every=%d, rotary_dim=%d, rope_local_theta=%g, window=%d, "
        "window_every=%d, query_scale=%g, attention_cap=%g, logit_cap=%g)",
        c->norm == BT_NORM_SUBLN ? "subln" : "pre", c->qk_norm, c->post_norm, c->embed_scale,
        c->qkv_bias, c->no_rope_every, c->rotary_dim, c->rope_local_theta, c->window,
        c->window_every, c->query_scale, c->attention_cap, c->logit_cap);
}

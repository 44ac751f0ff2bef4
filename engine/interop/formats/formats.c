/* formats.c - the rows of formats.def, and which architecture a model is. */
#include "engine/interop/formats/formats.h"

#include <stdio.h>
#include <string.h>

#define BT_ARCH(id, ...) [BT_ARCH_##id] = {__VA_ARGS__},
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

/* the name of a bias is whole: it has no ".weight", and no scale beside it */
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

void bt_name_hf(char out[BT_FOREIGN_NAME], const bt_tensor *t, const char *suffix) {
    put_foreign_name(out, t, "model.layers", names[t->id].hf, suffix);
}

bool bt_name_hf_other(char out[BT_FOREIGN_NAME], const bt_tensor *t, const char *suffix) {
    if (!other_names[t->id]) return false;
    put_foreign_name(out, t, "model.layers", other_names[t->id], suffix);
    return true;
}

void bt_name_gguf(char out[BT_FOREIGN_NAME], const bt_tensor *t, const char *suffix) {
    put_foreign_name(out, t, "blk", names[t->id].gguf, suffix);
}

bt_code bt_arch_of_model(bt_arch *out, const bt_model_cfg *c, bt_err *err) {
    if (c->classes)
        return bt_fail(err, BT_UNSUPPORTED,
                       "it is a classifier of %d labels, which these formats do not support (use "
                       "it with 'bitrain generate' and 'bitrain eval')",
                       c->classes);
    if (c->linear == BT_LIN_BITNET1)
        return bt_fail(err, BT_UNSUPPORTED,
                       "no other program computes binary, centred weights (model.linear=bitnet1)");
    if (c->norm == BT_NORM_BITLINEAR)
        return bt_fail(err, BT_UNSUPPORTED,
                       "no other program computes norms without gain in front of every linear "
                       "layer (model.norm=bitlinear)");
    for (int a = 0; a < BT_ARCH_COUNT; a++) {
        if (archs[a].norm != c->norm || archs[a].qk_norm != c->qk_norm ||
            archs[a].qkv_bias != c->qkv_bias || archs[a].joined ||
            archs[a].window != (c->window > 0 && c->window < c->T) ||
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
    return bt_fail(err, BT_UNSUPPORTED,
                   "no other program computes this combination of sub-norms, QK-norm, biases and "
                   "layers without rotary embedding (model.norm=%s, model.qk_norm=%s, "
                   "model.qkv_bias=%s, model.no_rope_every=%d, model.window=%d)",
                   c->norm == BT_NORM_SUBLN ? "subln" : "pre", c->qk_norm ? "true" : "false",
                   c->qkv_bias ? "true" : "false", c->no_rope_every, c->window);
}

/* gguf_keys.c - the pre-tokenizers of llama.cpp that cut text like bitrain, and the keys that are used. */
#include "engine/interop/gguf_keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/data/io/unread_keys.h"
#include "engine/interop/gguf_reader.h"

const bt_gguf_pre bt_gguf_pres[] = {
    {"gpt-2", "gpt2", false},
    {"llama-bpe", "llama3", true},
    {"qwen2", "qwen2", false},
    {"llama3", "llama3", true},
    {"llama-v3", "llama3", true},
    {"gpt2", "gpt2", false},
    {"deepseek-r1-qwen", "qwen2", false},
};
const size_t bt_gguf_pres_n = sizeof bt_gguf_pres / sizeof *bt_gguf_pres;

/* Keys of the file and its origin. gguf_read.c reads the vocabulary. */
static const char *const known[] = {"general.architecture",
                                    "general.type",
                                    "general.alignment",
                                    "general.quantization_version",
                                    "general.file_type",
                                    "general.name",
                                    "general.author",
                                    "general.version",
                                    "general.organization",
                                    "general.finetune",
                                    "general.basename",
                                    "general.description",
                                    "general.quantized_by",
                                    "general.size_label",
                                    "general.license",
                                    "general.license.*",
                                    "general.url",
                                    "general.doi",
                                    "general.uuid",
                                    "general.repo_url",
                                    "general.source.*",
                                    "general.base_model.*",
                                    "general.dataset.*",
                                    "general.tags",
                                    "general.languages",
                                    "general.datasets",
                                    "split.*",
                                    "quantize.imatrix.*",
                                    "tokenizer.ggml.model",
                                    "tokenizer.ggml.pre",
                                    "tokenizer.ggml.tokens",
                                    "tokenizer.ggml.token_type",
                                    "tokenizer.ggml.token_type_count",
                                    "tokenizer.ggml.scores",
                                    "tokenizer.ggml.merges",
                                    "tokenizer.ggml.bos_token_id",
                                    "tokenizer.ggml.eos_token_id",
                                    "tokenizer.ggml.eot_token_id",
                                    "tokenizer.ggml.eom_token_id",
                                    "tokenizer.ggml.unknown_token_id",
                                    "tokenizer.ggml.seperator_token_id",
                                    "tokenizer.ggml.padding_token_id",
                                    "tokenizer.ggml.cls_token_id",
                                    "tokenizer.ggml.mask_token_id",
                                    "tokenizer.ggml.add_bos_token",
                                    "tokenizer.ggml.add_eos_token",
                                    "tokenizer.ggml.add_sep_token",
                                    "tokenizer.ggml.add_space_prefix",
                                    "tokenizer.ggml.remove_extra_whitespaces",
                                    "tokenizer.ggml.fim_*",
                                    "tokenizer.ggml.prefix_token_id",
                                    "tokenizer.ggml.suffix_token_id",
                                    "tokenizer.ggml.middle_token_id",
                                    "tokenizer.huggingface.json",
                                    "tokenizer.chat_template",
                                    "tokenizer.chat_template.*",
                                    "tokenizer.chat_templates",
                                    BT_KEY_LINEAR,
                                    BT_KEY_ACT,
                                    BT_KEY_NFC,
                                    NULL};

/* Keys of the model without their prefix, such as "llama.". numeric_keys are accepted as well. */
static const char *const known_of_model[] = {"vocab_size",
                                             "context_length",
                                             "embedding_length",
                                             "block_count",
                                             "feed_forward_length",
                                             "hidden_activation",
                                             "tensor_data_layout",
                                             "attention.head_count",
                                             "attention.head_count_kv",
                                             "attention.key_length",
                                             "attention.value_length",
                                             "attention.sliding_window",
                                             "attention.layer_norm_rms_epsilon",
                                             "rope.dimension_count",
                                             "rope.freq_base",
                                             "rope.scaling.type",
                                             "rope.scaling.factor",
                                             "rope.scaling.attn_factor",
                                             "rope.scaling.yarn_beta_fast",
                                             "rope.scaling.yarn_beta_slow",
                                             "rope.scaling.original_context_length",
                                             "rope.scaling.finetuned",
                                             NULL};

/* Such a key is accepted with the number with which it changes nothing in llama.cpp. A key that only another
 * architecture reads (logit_scale of command-r in a file of llama) is reported instead. */
static const struct {
    const char *key;
    double neutral, also;
} numeric_keys[] = {{"rope.scale_linear", 1, 0},
                    {"rope.scaling.alpha", 0, 0},
                    {"rope.scaling.yarn_log_multiplier", 0, 0},
                    {"rope.scaling.yarn_ext_factor", 0, -1},
                    {"rope.scaling.yarn_attn_factor", 1, 0},
                    {"attention.causal", 1, 1},
                    {"attention.max_alibi_bias", 0, 0},
                    {"attention.clamp_kqv", 0, 0},
                    {"use_parallel_residual", 0, 0},
                    {"expert_count", 0, 0},
                    {"expert_used_count", 0, 0},
                    {"nextn_predict_layers", 0, 0}};

static const char *key_of_model(const bt_gguf_kv *kv, const char *arch) {
    const size_t n = strlen(arch);
    return strncmp(kv->key, arch, n) == 0 && kv->key[n] == '.' ? kv->key + n + 1 : NULL;
}

static bool is_numeric(const char *name, double *neutral, double *also) {
    for (size_t i = 0; i < sizeof numeric_keys / sizeof *numeric_keys; i++) {
        if (strcmp(name, numeric_keys[i].key) != 0) continue;
        *neutral = numeric_keys[i].neutral;
        *also = numeric_keys[i].also;
        return true;
    }
    return false;
}

static bt_code check_numeric(const bt_gguf_kv *kv, const char *name, bt_err *err) {
    double neutral, also;
    const bool number = kv->type != BT_GGUF_TEXT && kv->type != BT_GGUF_ARRAY;
    if (!is_numeric(name, &neutral, &also)) return BT_OK;
    const double v = kv->type == BT_GGUF_F32 || kv->type == BT_GGUF_F64 ? kv->real
                                                                        : (double)kv->whole;
    if (number && (!(v < neutral || v > neutral) || !(v < also || v > also))) return BT_OK;
    char value[32] = "a list or a text";
    if (number) (void)snprintf(value, sizeof value, "%g", v);
    return bt_fail(err, BT_UNSUPPORTED,
                   "'%s' is %s, which changes what a model computes in a way that is not supported",
                   kv->key, value);
}

/* Checks that this one file contains a whole model. */
static bt_code check_gguf_kind(const bt_gguf_kv *kv, bt_err *err) {
    if (strcmp(kv->key, "general.type") == 0 && (!kv->text || strcmp(kv->text, "model") != 0))
        return bt_fail(err, BT_UNSUPPORTED,
                       "it does not contain a model but '%.40s' (general.type); adapters are read "
                       "from folders of PEFT",
                       kv->text ? kv->text : "?");
    return BT_OK;
}

bt_code bt_gguf_keys_check(const bt_gguf *g, const bt_arch_row *arch, bt_text *notes, bt_err *err) {
    bt_unread unread = {0};
    double neutral, also;
    for (size_t i = 0; i < g->n; i++) {
        const char *name = key_of_model(&g->kv[i], arch->gguf);
        BT_TRY(check_gguf_kind(&g->kv[i], err));
        if (name) BT_TRY(check_numeric(&g->kv[i], name, err));
        if (name ? !bt_key_in(known_of_model, name) && !bt_key_in(arch->own_keys, name) &&
                       !is_numeric(name, &neutral, &also)
                 : !bt_key_in(known, g->kv[i].key))
            bt_unread_add_key(&unread, NULL, g->kv[i].key);
    }
    if (!unread.n) return BT_OK;
    bt_text_put(notes, "the file has keys that are not used here: ");
    bt_unread_print(notes, &unread, 8, NULL);
    bt_text_put(notes, "\n");
    return BT_OK;
}

const bt_gguf_kv *bt_gguf_model_key(const bt_gguf_reader *r, const char *name) {
    char key[128];
    snprintf(key, sizeof key, "%s.%s", r->arch, name);
    return bt_gguf_find(&r->g, key);
}

bt_code bt_gguf_read_integer(const bt_gguf_reader *r, const char *name, int least, int most,
                             int *out, bt_err *err) {
    const bt_gguf_kv *kv = bt_gguf_model_key(r, name);
    if (!kv && least == 0) return BT_OK;
    if (!kv) return bt_fail(err, BT_FORMAT, "the key '%s.%s' is missing", r->arch, name);
    if (kv->type >= BT_GGUF_F32 && kv->type != BT_GGUF_U64 && kv->type != BT_GGUF_I64)
        return bt_fail(err, BT_UNSUPPORTED, "'%s' is not a whole number", kv->key);
    if (kv->whole < 1 || kv->whole > most)
        return bt_fail(err, BT_UNSUPPORTED, "'%s' is %lld, but must be 1 to %d", kv->key,
                       (long long)kv->whole, most);
    *out = (int)kv->whole;
    return BT_OK;
}

bt_code bt_gguf_read_real(const bt_gguf_reader *r, const char *name, bool needed, double *out,
                          bt_err *err) {
    const bt_gguf_kv *kv = bt_gguf_model_key(r, name);
    if (!kv && needed) return bt_fail(err, BT_FORMAT, "the key '%s.%s' is missing", r->arch, name);
    if (!kv) return BT_OK;
    if ((kv->type != BT_GGUF_F32 && kv->type != BT_GGUF_F64) || !(kv->real > 0))
        return bt_fail(err, BT_FORMAT, "'%s' is not a positive number", kv->key);
    /* The number is written as fp32: 1e-5, not 9.99999975e-06. */
    char shortest[32];
    snprintf(shortest, sizeof shortest, "%.8g", kv->real);
    for (int digits = 1; kv->type == BT_GGUF_F32 && digits < 9; digits++) {
        snprintf(shortest, sizeof shortest, "%.*g", digits, kv->real);
        if (strtof(shortest, NULL) == (float)kv->real) break;
    }
    *out = kv->type == BT_GGUF_F32 ? strtod(shortest, NULL) : kv->real;
    return BT_OK;
}

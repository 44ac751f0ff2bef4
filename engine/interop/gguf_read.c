/* gguf_read.c - a GGUF file as a source: the model's configuration from its keys, its tensors, its vocabulary. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/data/tokenizer/tokenizer_build.h"
#include "engine/interop/formats/gguf.h"
#include "engine/interop/gguf_keys.h"
#include "engine/interop/model_file.h"

/* ---- the model --------------------------------------------------------------------------------- */

typedef struct reader {
    bt_model_file *s;
    bt_gguf g;
    const char *arch; /* prefix of the model's keys */
} reader;

static const bt_gguf_kv *find_model_key(const reader *r, const char *name) {
    char key[128];
    snprintf(key, sizeof key, "%s.%s", r->arch, name);
    return bt_gguf_find(&r->g, key);
}

/* least 0: the key is optional, and *out is unchanged if it is missing */
static bt_code read_gguf_integer(const reader *r, const char *name, int least, int most, int *out,
                                 bt_err *err) {
    const bt_gguf_kv *kv = find_model_key(r, name);
    if (!kv && least == 0) return BT_OK;
    if (!kv) return bt_fail(err, BT_FORMAT, "the key '%s.%s' is missing", r->arch, name);
    if (kv->type >= BT_GGUF_F32 && kv->type != BT_GGUF_U64 && kv->type != BT_GGUF_I64)
        return bt_fail(err, BT_UNSUPPORTED, "'%s' is not one whole number", kv->key);
    if (kv->whole < 1 || kv->whole > most)
        return bt_fail(err, BT_UNSUPPORTED, "'%s' is %lld; 1 to %d is possible here", kv->key,
                       (long long)kv->whole, most);
    *out = (int)kv->whole;
    return BT_OK;
}

static bt_code real(const reader *r, const char *name, bool needed, double *out, bt_err *err) {
    const bt_gguf_kv *kv = find_model_key(r, name);
    if (!kv && needed) return bt_fail(err, BT_FORMAT, "the key '%s.%s' is missing", r->arch, name);
    if (!kv) return BT_OK;
    if ((kv->type != BT_GGUF_F32 && kv->type != BT_GGUF_F64) || !(kv->real > 0))
        return bt_fail(err, BT_FORMAT, "'%s' is not a positive number", kv->key);
    /* written as fp32: 1e-5, not 9.99999975e-06 */
    char shortest[32];
    snprintf(shortest, sizeof shortest, "%.8g", kv->real);
    for (int digits = 1; kv->type == BT_GGUF_F32 && digits < 9; digits++) {
        snprintf(shortest, sizeof shortest, "%.*g", digits, kv->real);
        if (strtof(shortest, NULL) == (float)kv->real) break;
    }
    *out = kv->type == BT_GGUF_F32 ? strtod(shortest, NULL) : kv->real;
    return BT_OK;
}

static bt_code find_arch(reader *r, bt_err *err) {
    const char *name = bt_gguf_text(&r->g, "general.architecture");
    bt_text known = {0};
    if (!name) return bt_fail(err, BT_FORMAT, "the key 'general.architecture' is missing");
    for (int a = 0; a < BT_ARCH_COUNT; a++) {
        r->arch = bt_arch_at((bt_arch)a)->gguf;
        r->s->arch = (bt_arch)a;
        if (strcmp(name, r->arch) == 0) {
            bt_text_release(&known);
            return BT_OK;
        }
        bt_text_printf(&known, "%s%s", a ? ", " : "", r->arch);
    }
    bt_code code = bt_fail(err, BT_UNSUPPORTED,
                           "the architecture '%.60s' is not known here (known: %s)", name,
                           bt_text_str(&known));
    bt_text_release(&known);
    return code;
}

static bt_code read_gguf_sizes(reader *r, bt_err *err) {
    bt_model_cfg *m = &r->s->cfg;
    int value = 0, rope = 0;
    BT_TRY(read_gguf_integer(r, "block_count", 1, 1024, &m->L, err));
    BT_TRY(read_gguf_integer(r, "embedding_length", 1, 65536, &m->C, err));
    BT_TRY(read_gguf_integer(r, "feed_forward_length", 1, 1048576, &m->F, err));
    BT_TRY(read_gguf_integer(r, "context_length", 1, 1 << 30, &m->T, err));
    BT_TRY(read_gguf_integer(r, "attention.head_count", 1, 1024, &m->H, err));
    m->KV = m->H;
    BT_TRY(read_gguf_integer(r, "attention.head_count_kv", 0, 1024, &m->KV, err));
    m->D = value = rope = m->C / m->H;
    BT_TRY(read_gguf_integer(r, "attention.key_length", 0, 1024, &m->D, err));
    BT_TRY(read_gguf_integer(r, "attention.value_length", 0, 1024, &value, err));
    BT_TRY(read_gguf_integer(r, "rope.dimension_count", 0, 1024, &rope, err));
    if (value != m->D || (find_model_key(r, "rope.dimension_count") && rope != m->D))
        return bt_fail(err, BT_UNSUPPORTED,
                       "keys of %d, values of %d, rotated %d: heads here have one size", m->D,
                       value, rope);
    const bt_stored *embed = bt_stored_find(&r->s->stored, "token_embd.weight");
    if (!embed || embed->rows < 2 || embed->rows > 1048576)
        return bt_fail(err, BT_FORMAT, "tensor 'token_embd.weight' is missing, or is no embedding");
    m->V = (int)embed->rows;
    return BT_OK;
}

/* llama.cpp always computes SiLU; our own key has the activation with which the model was trained */
static bt_code read_gguf_activation(reader *r, bt_err *err) {
    const char *word = bt_gguf_text(&r->g, BT_KEY_ACT);
    const bt_gguf_kv *theirs = find_model_key(r, "hidden_activation");
    if (!word && theirs) word = theirs->text;
    r->s->cfg.act = word && strcmp(word, "relu2") == 0 ? BT_ACT_RELU2 : BT_ACT_SILU;
    if (word && strcmp(word, "relu2") != 0 && strcmp(word, "silu") != 0)
        return bt_fail(err, BT_UNSUPPORTED, "the activation '%.40s' is not computed here", word);
    if (r->s->cfg.act == BT_ACT_RELU2)
        bt_text_put(&r->s->notes, "the model has the activation relu2, which llama.cpp computes as "
                                  "silu\n");
    return BT_OK;
}

static bt_code read_scaling(reader *r, bt_err *err) {
    bt_model_cfg *m = &r->s->cfg;
    const bt_gguf_kv *type = find_model_key(r, "rope.scaling.type");
    const char *word = type ? type->text : NULL;
    double attention = 1;
    bt_rope_scaling s = {.factor = 1, .low = 1, .high = 32};
    BT_TRY(real(r, "rope.scaling.factor", false, &s.factor, err));
    BT_TRY(real(r, "rope.scaling.attn_factor", false, &attention, err));
    if (type && !word) return bt_fail(err, BT_FORMAT, "'%s' is no text", type->key);
    const bool yarn = word && strcmp(word, "yarn") == 0;
    if (word && !yarn && strcmp(word, "none") != 0 && strcmp(word, "linear") != 0)
        return bt_fail(err, BT_UNSUPPORTED,
                       "it scales the rotary embedding by the method '%.40s', which is not "
                       "computed here (known: none, linear, yarn)",
                       word);
    if (!yarn && attention != 1)
        return bt_fail(err, BT_UNSUPPORTED,
                       "'%s.rope.scaling.attn_factor' is %g without yarn, which is not computed "
                       "here",
                       r->arch, attention);
    if (word && strcmp(word, "none") == 0) return BT_OK;
    if (!yarn) { /* llama.cpp takes a factor without a method as linear */
        if (s.factor != 1)
            m->rope = (bt_rope_scaling){.method = BT_ROPE_LINEAR, .factor = s.factor};
        return BT_OK;
    }
    s.method = BT_ROPE_YARN;
    s.context = m->T;
    BT_TRY(
        read_gguf_integer(r, "rope.scaling.original_context_length", 0, 1 << 30, &s.context, err));
    BT_TRY(real(r, "rope.scaling.yarn_beta_slow", false, &s.low, err));
    BT_TRY(real(r, "rope.scaling.yarn_beta_fast", false, &s.high, err));
    if (attention != 1) s.attention = attention * bt_rope_attention(&s);
    m->rope = s;
    return BT_OK;
}

/* A file of Llama 3 has a divisor for each frequency instead of the settings from which they were computed. The
 * published models share all settings but factor and context; other divisors are refused. */
static bt_code read_divisors(reader *r, bt_err *err) {
    static const int contexts[] = {8192, 2048, 4096, 16384, 32768, 65536, 131072};
    enum { MOST = 512 };
    bt_model_cfg *m = &r->s->cfg;
    bt_stored *t = bt_stored_find(&r->s->stored, "rope_freqs.weight");
    float by[MOST], top = 1;
    if (!t) return BT_OK;
    t->used = true;
    const int n = m->D / 2;
    if (t->number != BT_NUM_F32 || t->rows != 1 || n > MOST || t->cols != (uint64_t)n)
        return bt_fail(err, BT_FORMAT, "tensor '%s' is not %d numbers of type f32", t->name, n);
    BT_TRY(bt_foreign_read(&r->s->stored.files[t->file], by, (size_t)n * sizeof *by, t->at, err));
    for (int i = 0; i < n; i++) top = by[i] > top ? by[i] : top;
    char factor[32];
    (void)snprintf(factor, sizeof factor, "%.6g",
                   (double)top); /* without the error of a quotient */
    for (size_t k = 0; k < sizeof contexts / sizeof *contexts; k++) {
        const bt_rope_scaling s = {.method = BT_ROPE_LLAMA3,
                                   .factor = strtod(factor, NULL),
                                   .context = contexts[k],
                                   .low = 1,
                                   .high = 4};
        int equal = 0;
        while (equal < n &&
               fabsf(by[equal] / bt_rope_divisor(equal, m->rope_theta, &s, m->D) - 1) < 1e-5F)
            equal++;
        if (equal < n) continue;
        m->rope = s;
        return BT_OK;
    }
    return bt_fail(err, BT_UNSUPPORTED,
                   "tensor '%s' scales the rotary frequencies in another way than Llama 3, which "
                   "is not computed here",
                   t->name);
}

/* Ternary if the file's key states it; otherwise if its tensors are codes. */
static void find_linear(reader *r) {
    const char *word = bt_gguf_text(&r->g, BT_KEY_LINEAR);
    bool codes = r->s->arch == BT_ARCH_BITNET;
    for (size_t i = 0; i < r->s->stored.n; i++) {
        const bt_stored *t = &r->s->stored.at[i];
        const size_t n = strlen(t->name);
        codes |= bt_number_at(t->number)->coded ||
                 (n > 6 && strcmp(t->name + n - 6, ".scale") == 0);
    }
    if (word) codes = strcmp(word, "dense") != 0;
    r->s->cfg.linear = codes ? BT_LIN_BITNET158 : BT_LIN_DENSE;
}

/* A window that is at least as long as every text has no effect. */
static bt_code read_gguf_window(reader *r, bt_err *err) {
    int window = 0, *T = &r->s->cfg.T;
    if (!find_model_key(r, "attention.sliding_window")) return BT_OK;
    BT_TRY(read_gguf_integer(r, "attention.sliding_window", 0, 1 << 30, &window, err));
    if (!window || window >= *T) return BT_OK;
    bt_text_printf(&r->s->notes,
                   "attention of the model slides over %d tokens: texts are read up to that length "
                   "here, not up to %d\n",
                   window, *T);
    *T = window;
    return BT_OK;
}

static bt_code split_gguf_tensors(bt_model_file *s, bt_err *err) {
    const uint64_t D = (uint64_t)s->cfg.D, q = (uint64_t)s->cfg.H * D, kv = (uint64_t)s->cfg.KV * D,
                   F = (uint64_t)s->cfg.F;
    const bt_stored_part qkv[] = {{".attn_q.weight", q},
                                  {".attn_k.weight", kv},
                                  {".attn_v.weight", kv}},
                         gate_up[] = {{".ffn_gate.weight", F}, {".ffn_up.weight", F}};
    BT_TRY(bt_stored_split(&s->stored, ".attn_qkv.weight", qkv, 3, err));
    return bt_stored_split(&s->stored, ".ffn_up.weight", gate_up, 2, err);
}

static bt_code read_gguf_model(reader *r, bt_err *err) {
    BT_TRY(find_arch(r, err));
    BT_TRY(bt_gguf_keys_check(&r->g, r->arch, &r->s->notes, err));
    const bt_arch_row *row = bt_arch_at(r->s->arch);
    bt_model_cfg *m = &r->s->cfg;
    *m = (bt_model_cfg){.norm = row->norm,
                        .qk_norm = row->qk_norm,
                        .qkv_bias = row->qkv_bias,
                        .no_rope_every = row->no_rope,
                        .rope_theta = 10000, /* llama.cpp's default for a missing key */
                        .init_std = 0.02};
    BT_TRY(read_gguf_sizes(r, err));
    BT_TRY(read_gguf_window(r, err));
    if (row->joined) BT_TRY(split_gguf_tensors(r->s, err));
    BT_TRY(real(r, "attention.layer_norm_rms_epsilon", true, &m->norm_eps, err));
    BT_TRY(real(r, "rope.freq_base", false, &m->rope_theta, err));
    BT_TRY(read_scaling(r, err));
    BT_TRY(read_divisors(r, err));
    BT_TRY(read_gguf_activation(r, err));
    find_linear(r);
    m->tied = !bt_stored_find(&r->s->stored, "output.weight");
    return bt_model_cfg_check(m, err);
}

/* ---- tensors ----------------------------------------------------------------------------------- */

static bt_code find_stored_tensor(reader *r, size_t i, bt_err *err) {
    bt_model_file *s = r->s;
    const bt_tensor *t = &s->params.tensors[i];
    bt_stored_location *p = &s->places[i];
    char name[BT_FOREIGN_NAME];
    bt_name_gguf(name, t, ".weight");
    bt_stored *f = bt_stored_find(&s->stored, name);
    if (!f) return BT_OK;
    p->stored = f;
    f->used = true;
    p->coded = t->linear && s->cfg.linear == BT_LIN_BITNET158;
    if (bt_arch_at(s->arch)->turned && (t->id == BT_P_ATTN_Q || t->id == BT_P_ATTN_K))
        p->order = BT_ROWS_TURNED;
    bt_name_gguf(name, t, ".scale");
    bt_stored *scale = bt_stored_find(&s->stored, name);
    if (scale && p->coded) {
        if (scale->number != BT_NUM_F32 || scale->rows * scale->cols != 1)
            return bt_fail(err, BT_FORMAT, "tensor '%s' is not one number of type f32", name);
        scale->used = true;
        p->scale = scale;
    }
    if (t->linear) s->number = f->number;
    return bt_model_file_check_shape(t, f, p->order, err);
}

static bool is_ignored_gguf_tensor(const bt_model_file *s, const char *name) {
    (void)s;
    const char *end = strrchr(name, '.');
    return end && strcmp(end, ".input_scale") == 0;
}

/* ---- vocabulary --------------------------------------------------------------------------------- */

typedef struct vocab {
    json_t *vocab, *added, *merges;
    unsigned char *types;
    uint64_t n, n_types;
} vocab;

static bt_code take_type(void *ctx, uint64_t i, const char *text, size_t n, int64_t value,
                         bt_err *err) {
    vocab *v = ctx;
    (void)text;
    (void)n;
    if (value < 1 || value > 5)
        return bt_fail(err, BT_UNSUPPORTED, "token %llu has the type %lld", (unsigned long long)i,
                       (long long)value);
    v->types[i] = (unsigned char)value;
    return BT_OK;
}

static bt_code add_gguf_token(void *ctx, uint64_t i, const char *text, size_t n, int64_t value,
                              bt_err *err) {
    vocab *v = ctx;
    (void)value;
    const int type = i < v->n_types ? v->types[i] : BT_GGUF_NORMAL;
    if (type == BT_GGUF_UNUSED) return BT_OK; /* a hole */
    if (json_object_get(v->vocab, text))
        return bt_fail(err, BT_FORMAT, "token %llu, '%.40s', is there twice", (unsigned long long)i,
                       text);
    json_t *name = json_stringn(text, n);
    if (!name) return bt_fail(err, BT_FORMAT, "token %llu is not UTF-8", (unsigned long long)i);
    json_object_set_new(v->vocab, text, json_integer((json_int_t)i));
    if (type != BT_GGUF_NORMAL)
        json_array_append_new(v->added, json_pack("{s:I, s:O, s:b, s:b}", "id", (json_int_t)i,
                                                  "content", name, "special",
                                                  type != BT_GGUF_USER_DEFINED, "normalized", 0));
    json_decref(name);
    return BT_OK;
}

static bt_code take_merge(void *ctx, uint64_t i, const char *text, size_t n, int64_t value,
                          bt_err *err) {
    vocab *v = ctx;
    (void)value;
    if (json_array_append_new(v->merges, json_stringn(text, n)) == 0) return BT_OK;
    return bt_fail(err, BT_FORMAT, "merge %llu is not UTF-8", (unsigned long long)i);
}

static const bt_gguf_kv *array_of(const reader *r, const char *key, bool texts, bt_err *err) {
    const bt_gguf_kv *kv = bt_gguf_find(&r->g, key);
    if (kv && kv->type == BT_GGUF_ARRAY &&
        (texts ? kv->element == BT_GGUF_TEXT
               : kv->element == BT_GGUF_I32 || kv->element == BT_GGUF_U32) &&
        kv->count <= 4 * 1048576)
        return kv;
    bt_fail(err, BT_FORMAT, "'%s' is missing, or is no array of %s", key,
            texts ? "texts" : "whole numbers");
    return NULL;
}

static bt_code take_lists(reader *r, vocab *v, bt_err *err) {
    const bt_foreign_file *f = &r->s->stored.files[r->g.file];
    const bt_gguf_kv *tokens = array_of(r, "tokenizer.ggml.tokens", true, err),
                     *merges = array_of(r, "tokenizer.ggml.merges", true, err), *types = NULL;
    if (!tokens || !merges) return BT_FORMAT;
    if (bt_gguf_find(&r->g, "tokenizer.ggml.token_type")) {
        types = array_of(r, "tokenizer.ggml.token_type", false, err);
        if (!types) return BT_FORMAT;
    }
    if (tokens->count != (uint64_t)r->s->cfg.V || (types && types->count != tokens->count))
        return bt_fail(err, BT_FORMAT,
                       "%llu tokens, %llu types of tokens, %d rows of the embedding",
                       (unsigned long long)tokens->count,
                       (unsigned long long)(types ? types->count : tokens->count), r->s->cfg.V);
    v->n_types = types ? types->count : 0;
    v->types = calloc(v->n_types + 1, 1);
    if (!v->types) return bt_fail(err, BT_NOMEM, "cannot take memory for its tokens");
    if (types) BT_TRY(bt_gguf_walk(types, f, take_type, v, err));
    BT_TRY(bt_gguf_walk(tokens, f, add_gguf_token, v, err));
    return bt_gguf_walk(merges, f, take_merge, v, err);
}

/* Finds the word pattern, and whether words that are tokens are not split. */
static bt_code find_gguf_pattern(const reader *r, const char **pattern, bool *ignore_merges,
                                 bt_err *err) {
    const char *model = bt_gguf_text(&r->g, "tokenizer.ggml.model"),
               *pre = bt_gguf_text(&r->g, "tokenizer.ggml.pre");
    if (!model || strcmp(model, "gpt2") != 0)
        return bt_fail(err, BT_UNSUPPORTED,
                       "its tokenizer is of the kind '%.40s'; byte-level BPE ('gpt2') is known "
                       "here",
                       model ? model : "none");
    for (size_t i = 0; pre && i < bt_gguf_pres_n; i++) {
        if (strcmp(pre, bt_gguf_pres[i].pre) != 0) continue;
        *pattern = bt_gguf_pres[i].pattern;
        *ignore_merges = bt_gguf_pres[i].ignore_merges;
        return BT_OK;
    }
    return bt_fail(err, BT_UNSUPPORTED,
                   "its pre-tokeniser '%.40s' is not GPT-2's, Llama 3's or Qwen's",
                   pre ? pre : "none");
}

static int32_t gguf_token_id(const reader *r, const char *key) {
    const bt_gguf_kv *kv = bt_gguf_find(&r->g, key);
    const bool is = kv && kv->type != BT_GGUF_TEXT && kv->type != BT_GGUF_ARRAY;
    return is && kv->whole >= 0 && kv->whole < r->s->cfg.V ? (int32_t)kv->whole : -1;
}

static bool gguf_flag_or(const reader *r, const char *key, bool otherwise) {
    const bt_gguf_kv *kv = bt_gguf_find(&r->g, key);
    return kv && kv->type == BT_GGUF_BOOL ? kv->whole != 0 : otherwise;
}

static void read_gguf_roles(reader *r) {
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    bt_token_roles *roles = &r->s->roles;
    *roles = (bt_token_roles){.known = true,
                              .bos = gguf_token_id(r, "tokenizer.ggml.bos_token_id"),
                              .pad = gguf_token_id(r, "tokenizer.ggml.padding_token_id")};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const int32_t id = gguf_token_id(r, keys[i]);
        if (id >= 0) (void)bt_token_roles_add_end(roles, id);
    }
}

/* the member "post_processor". Without the key llama.cpp puts BOS in front for its 'llama-bpe' alone. */
static json_t *gguf_post_processor(const reader *r, bool llama_bpe) {
    const bt_token_roles *roles = &r->s->roles;
    const bool bos = gguf_flag_or(r, "tokenizer.ggml.add_bos_token", llama_bpe) && roles->bos >= 0,
               eos = gguf_flag_or(r, "tokenizer.ggml.add_eos_token", false) && roles->n_ends > 0;
    json_t *single = json_array();
    if (bos) json_array_append_new(single, json_pack("{s:{s:s}}", "SpecialToken", "id", "bos"));
    json_array_append_new(single, json_pack("{s:{s:s}}", "Sequence", "id", "A"));
    if (eos) json_array_append_new(single, json_pack("{s:{s:s}}", "SpecialToken", "id", "eos"));
    return json_pack("{s:s, s:o, s:{s:{s:[i]}, s:{s:[i]}}}", "type", "TemplateProcessing", "single",
                     single, "special_tokens", "bos", "ids", (int)roles->bos, "eos", "ids",
                     (int)(roles->n_ends ? roles->ends[0] : -1));
}

static bt_code build_gguf_tokenizer(reader *r, const vocab *v, bt_err *err) {
    const char *pattern = NULL;
    bool ignore_merges = false;
    BT_TRY(find_gguf_pattern(r, &pattern, &ignore_merges, err));
    read_gguf_roles(r);
    const bt_gguf_kv *nfc = bt_gguf_find(&r->g, BT_KEY_NFC);
    json_t *root = json_pack("{s:{s:s, s:b, s:O, s:O}, s:O, s:o, s:o, s:o}", "model", "type", "BPE",
                             "ignore_merges", (int)ignore_merges, "vocab", v->vocab, "merges",
                             v->merges, "added_tokens", v->added, "pre_tokenizer",
                             bt_tokenizer_pre_tokenizer(pattern), "normalizer",
                             nfc && nfc->whole ? json_pack("{s:s}", "type", "NFC") : json_null(),
                             "post_processor", gguf_post_processor(r, ignore_merges));
    bt_code code = root ? bt_tokenizer_build(&r->s->tokenizer, root, err)
                        : bt_fail(err, BT_NOMEM, "cannot take memory for its tokens");
    json_decref(root);
    return code;
}

static bt_code read_gguf_tokenizer(reader *r, bt_err *err) {
    vocab v = {.vocab = json_object(), .added = json_array(), .merges = json_array()};
    bt_code code = take_lists(r, &v, err);
    if (code == BT_OK) code = build_gguf_tokenizer(r, &v, err);
    json_decref(v.vocab);
    json_decref(v.added);
    json_decref(v.merges);
    free(v.types);
    BT_TRY(code);
    bt_model_file_give_roles(r->s);
    return bt_tokenizer_set_chat_template(r->s->tokenizer,
                                          bt_gguf_text(&r->g, "tokenizer.chat_template"), err);
}

/* ---- all of it ----------------------------------------------------------------------------------- */

static bt_code read_gguf_file(reader *r, bt_err *err) {
    BT_TRY(read_gguf_model(r, err));
    BT_TRY(bt_model_file_tables(r->s, err));
    for (size_t i = 0; i < r->s->params.n; i++) BT_TRY(find_stored_tensor(r, i, err));
    return bt_model_file_complete(r->s, is_ignored_gguf_tensor, err);
}

bt_code bt_model_file_open_gguf(bt_model_file *s, bt_err *err) {
    reader r = {.s = s};
    bt_err why = BT_ERR_INIT;
    bt_code code = bt_gguf_read(&r.g, &s->stored, s->path, err);
    if (code == BT_OK) {
        code = read_gguf_file(&r, &why);
        if (code != BT_OK)
            bt_fail(err, code == BT_ARG ? (code = BT_FORMAT) : code, "'%s': %s", s->path, why.msg);
    }
    if (code == BT_OK && read_gguf_tokenizer(&r, &s->no_tokenizer) == BT_NOMEM)
        code = bt_fail(err, BT_NOMEM, "%s", s->no_tokenizer.msg);
    bt_gguf_release(&r.g);
    return code;
}

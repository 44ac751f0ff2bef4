/* gguf_read.c - reads a GGUF file: the model's configuration from its keys, and its tensors. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/interop/formats/gguf.h"
#include "engine/interop/gguf_keys.h"
#include "engine/interop/gguf_reader.h"

static bt_code find_arch(bt_gguf_reader *r, bt_err *err) {
    const char *name = bt_gguf_text(&r->g, "general.architecture");
    bt_text known = {0};
    if (!name) return bt_fail(err, BT_FORMAT, "the key 'general.architecture' is missing");
    if (strcmp(name, BT_GGUF_B158) == 0) {
        r->arch = BT_GGUF_B158;
        r->s->arch = BT_ARCH_BITNET;
        return BT_OK;
    }
    for (int a = 0; a < BT_ARCH_COUNT; a++) {
        r->arch = bt_arch_at((bt_arch)a)->gguf;
        r->s->arch = (bt_arch)a;
        if (!r->arch) continue;
        if (strcmp(name, r->arch) == 0) {
            bt_text_release(&known);
            return BT_OK;
        }
        bt_text_printf(&known, "%s%s", a ? ", " : "", r->arch);
    }
    bt_code code = bt_fail(err, BT_UNSUPPORTED,
                           "the architecture '%.60s' is not supported (supported: %s)", name,
                           bt_text_str(&known));
    bt_text_release(&known);
    return code;
}

static bt_code read_gguf_sizes(bt_gguf_reader *r, bt_err *err) {
    bt_model_cfg *m = &r->s->cfg;
    int value = 0, rope = 0;
    BT_TRY(bt_gguf_read_integer(r, "block_count", 1, 1024, &m->L, err));
    BT_TRY(bt_gguf_read_integer(r, "embedding_length", 1, 65536, &m->C, err));
    BT_TRY(bt_gguf_read_integer(r, "feed_forward_length", 1, 1048576, &m->F, err));
    BT_TRY(bt_gguf_read_integer(r, "context_length", 1, 1 << 30, &m->T, err));
    BT_TRY(bt_gguf_read_integer(r, "attention.head_count", 1, 1024, &m->H, err));
    m->KV = m->H;
    BT_TRY(bt_gguf_read_integer(r, "attention.head_count_kv", 0, 1024, &m->KV, err));
    m->D = value = rope = m->C / m->H;
    BT_TRY(bt_gguf_read_integer(r, "attention.key_length", 0, 1024, &m->D, err));
    BT_TRY(bt_gguf_read_integer(r, "attention.value_length", 0, 1024, &value, err));
    BT_TRY(bt_gguf_read_integer(r, "rope.dimension_count", 0, 1024, &rope, err));
    const bool partial = bt_arch_at(r->s->arch)->partial && rope < m->D && rope % 2 == 0;
    if (partial && bt_gguf_model_key(r, "rope.dimension_count")) m->rotary_dim = rope;
    if (value != m->D ||
        (bt_gguf_model_key(r, "rope.dimension_count") && (size_t)rope != bt_model_rotary(m)))
        return bt_fail(err, BT_UNSUPPORTED,
                       "keys have %d elements, values %d, and %d rotate: only heads with one size "
                       "are supported",
                       m->D, value, rope);
    const bt_stored *embed = bt_stored_find(&r->s->stored, "token_embd.weight");
    if (!embed || embed->rows < 2 || embed->rows > 1048576)
        return bt_fail(err, BT_FORMAT,
                       "tensor 'token_embd.weight' is missing, or is not an embedding");
    m->V = (int)embed->rows;
    return BT_OK;
}

/* llama.cpp computes one activation in all files of an architecture, and bitnet.cpp relu2 for its own architecture.
 * Bitrain's own key contains the activation with which the model was trained. */
static bt_code read_gguf_activation(bt_gguf_reader *r, bt_err *err) {
    const char *word = bt_gguf_text(&r->g, BT_KEY_ACT);
    const bt_gguf_kv *theirs = bt_gguf_model_key(r, "hidden_activation");
    if (!word && theirs) word = theirs->text;
    const bt_act by_arch = bt_gguf_act(r->s->arch, r->arch);
    int act = (int)by_arch;
    if (word) act = bt_arch_act_of(word);
    if (act < 0)
        return bt_fail(err, BT_UNSUPPORTED, "the activation '%.40s' is not supported", word);
    r->s->cfg.act = (bt_act)act;
    if (r->s->cfg.act != by_arch)
        bt_text_printf(&r->s->notes,
                       "the model has the activation %s, which llama.cpp computes as %s\n",
                       bt_arch_act_word(r->s->cfg.act), bt_arch_act_word(by_arch));
    return BT_OK;
}

/* known: the file's key states that its matrices are ternary, even if they are stored as floats. */
static bt_code find_scales(bt_gguf_reader *r, bool known, bt_scales_seen *one, bt_err *err) {
    *one = bt_scales_all;
    for (size_t i = 0; i < r->s->stored.n && (one->row || one->groups); i++) {
        const bt_stored *t = &r->s->stored.at[i];
        const bool floats = t->number == BT_NUM_F32 || t->number == BT_NUM_F16 ||
                            t->number == BT_NUM_BF16 || t->number == BT_NUM_Q8_0,
                   coded = bt_number_at(t->number)->coded && t->number != BT_NUM_I2_S;
        if (strncmp(t->name, "blk.", 4) == 0 && (coded || (known && floats && t->rows > 1)))
            BT_TRY(bt_scales_sample(&r->s->stored, t, one, err));
    }
    return BT_OK;
}

/* Layers are ternary if the file's key states it; otherwise, if its tensors are codes. */
static bt_code find_linear(bt_gguf_reader *r, bt_err *err) {
    const char *word = bt_gguf_text(&r->g, BT_KEY_LINEAR);
    bool codes = r->s->arch == BT_ARCH_BITNET;
    for (size_t i = 0; i < r->s->stored.n; i++) {
        const bt_stored *t = &r->s->stored.at[i];
        const size_t n = strlen(t->name);
        codes |= bt_number_at(t->number)->coded ||
                 (n > 6 && strcmp(t->name + n - 6, ".scale") == 0);
    }
    if (word) codes = strcmp(word, "dense") != 0;
    bt_scales_seen one = bt_scales_all;
    if (codes) BT_TRY(find_scales(r, word != NULL, &one, err));
    const bt_scale_kind kind = bt_scales_kind(&one);
    const bool ternary = codes && (one.tensor || kind != BT_SCALE_TENSOR);
    if (codes && !ternary)
        bt_text_put(&r->s->notes,
                    "its weights are not ternary with one scale for each tensor, row or group of "
                    "inputs: they are computed as full-precision weights, and inputs of linear "
                    "layers are not rounded to int8\n");
    r->s->cfg.linear = ternary ? BT_LIN_BITNET158 : BT_LIN_DENSE;
    if (ternary && !one.tensor) r->s->cfg.scale = kind;
    return BT_OK;
}

/* A window that is at least as long as every text has no effect. */
static bt_code read_gguf_window(bt_gguf_reader *r, bt_err *err) {
    bt_model_cfg *m = &r->s->cfg;
    const bt_arch_row *row = bt_arch_at(r->s->arch);
    const bool named = bt_gguf_model_key(r, "attention.sliding_window"),
               local = row->local_theta >
                       0; /* llama.cpp has local layers if the file contains a window */
    int window = row->window_every && !local ? row->sliding_window : 0;
    m->window_every = local && !named ? 1 : row->window_every;
    BT_TRY(bt_gguf_read_integer(r, "attention.sliding_window", 0, 1 << 30, &window, err));
    m->window = window < m->T ? window : 0;
    if (!row->window_every || !named) return BT_OK;
    return bt_gguf_read_integer(r, "attention.sliding_window_pattern", 0, 1024, &m->window_every,
                                err);
}

/* Reads the factor of queries, the limits and the rotary base of local layers, as llama.cpp has them. */
static bt_code read_gguf_attention(bt_gguf_reader *r, const bt_arch_row *row, bt_err *err) {
    bt_model_cfg *m = &r->s->cfg;
    if (!(row->query_scale > 0)) return BT_OK;
    m->query_scale = bt_arch_gguf_query_scale(row, m);
    m->attention_cap = row->attention_cap;
    m->logit_cap = row->logit_cap;
    m->rope_local_theta = row->local_theta;
    if (row->attention_cap > 0)
        BT_TRY(bt_gguf_read_real(r, "attn_logit_softcapping", false, &m->attention_cap, err));
    BT_TRY(bt_gguf_read_real(r, "final_logit_softcapping", false, &m->logit_cap, err));
    if (row->local_theta > 0)
        BT_TRY(bt_gguf_read_real(r, "rope.freq_base_swa", false, &m->rope_local_theta, err));
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

static bt_code read_gguf_model(bt_gguf_reader *r, bt_err *err) {
    BT_TRY(find_arch(r, err));
    const bt_arch_row *row = bt_arch_at(r->s->arch);
    bt_arch_row named = *row; /* has the name in the file */
    named.gguf = r->arch;
    BT_TRY(bt_gguf_keys_check(&r->g, &named, &r->s->notes, err));
    bt_model_cfg *m = &r->s->cfg;
    *m = (bt_model_cfg){.norm = row->norm,
                        .qk_norm = row->qk_norm,
                        .qkv_bias = row->qkv_bias,
                        .post_norm = row->post_norm,
                        .embed_scale = row->embed_scale,
                        .no_rope_every = row->no_rope,
                        .rope_theta = 10000, /* llama.cpp's default for a missing key */
                        .init_std = 0.02};
    BT_TRY(read_gguf_sizes(r, err));
    BT_TRY(read_gguf_window(r, err));
    BT_TRY(read_gguf_attention(r, row, err));
    if (row->joined) BT_TRY(split_gguf_tensors(r->s, err));
    BT_TRY(bt_gguf_read_real(r, "attention.layer_norm_rms_epsilon", true, &m->norm_eps, err));
    BT_TRY(bt_gguf_read_real(r, "rope.freq_base", false, &m->rope_theta, err));
    BT_TRY(bt_gguf_rope_read(r, err));
    BT_TRY(read_gguf_activation(r, err));
    BT_TRY(find_linear(r, err));
    m->tied = !bt_stored_find(&r->s->stored, "output.weight");
    return bt_model_cfg_check(m, err);
}

static bt_code find_stored_tensor(bt_gguf_reader *r, size_t i, bt_err *err) {
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
    if (p->coded && s->cfg.scale != BT_SCALE_TENSOR)
        p->inputs = bt_scale_inputs(s->cfg.scale, t->cols);
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

static bt_code read_gguf_file(bt_gguf_reader *r, bt_err *err) {
    BT_TRY(read_gguf_model(r, err));
    BT_TRY(bt_model_file_tables(r->s, err));
    for (size_t i = 0; i < r->s->params.n; i++) BT_TRY(find_stored_tensor(r, i, err));
    BT_TRY(bt_model_file_complete(r->s, is_ignored_gguf_tensor, err));
    return bt_gguf_text(&r->g, BT_KEY_LINEAR) ? BT_OK : bt_model_file_recognise(r->s, err);
}

static int64_t split_number(const bt_gguf *g, const char *key) {
    const bt_gguf_kv *kv = bt_gguf_find(g, key);
    return kv && kv->type != BT_GGUF_TEXT && kv->type != BT_GGUF_ARRAY ? kv->whole : 0;
}

/* Writes the name of part i (from 1) of n, made from that of the first part: NAME-00001-of-00003.gguf. */
static bool part_name(char *out, size_t size, const char *first, int64_t i, int64_t n) {
    char tail[40], other[40];
    (void)snprintf(tail, sizeof tail, "-00001-of-%05lld.gguf", (long long)n);
    (void)snprintf(other, sizeof other, "-%05lld-of-%05lld.gguf", (long long)i, (long long)n);
    const size_t length = strlen(first), k = strlen(tail);
    if (length < k || strcmp(first + length - k, tail) != 0) return false;
    return snprintf(out, size, "%.*s%s", (int)(length - k), first, other) < (int)size;
}

/* Adds the tensors of the other parts of a split file, which do not have the keys of the model. */
static bt_code read_parts(bt_gguf_reader *r, bt_err *err) {
    const int64_t n = split_number(&r->g, "split.count"),
                  tensors = split_number(&r->g, "split.tensors.count");
    char path[sizeof r->s->path];
    if (n <= 1) return BT_OK;
    if (n > BT_FOREIGN_FILES || split_number(&r->g, "split.no") != 0)
        return bt_fail(err, BT_FORMAT,
                       "'%s' is part %lld of %lld of a split file: give the first part", r->s->path,
                       (long long)split_number(&r->g, "split.no") + 1, (long long)n);
    for (int64_t i = 2; i <= n; i++) {
        bt_gguf part = {0};
        if (!part_name(path, sizeof path, r->s->path, i, n))
            return bt_fail(err, BT_FORMAT,
                           "'%s' is part 1 of %lld of a split file, whose other parts are found by "
                           "its name: it must end in -00001-of-%05lld.gguf",
                           r->s->path, (long long)n, (long long)n);
        bt_code code = bt_gguf_read(&part, &r->s->stored, path, err);
        if (code == BT_OK &&
            (split_number(&part, "split.no") != i - 1 || split_number(&part, "split.count") != n))
            code = bt_fail(err, BT_FORMAT, "'%s' is not part %lld of %lld according to its keys",
                           path, (long long)i, (long long)n);
        bt_gguf_release(&part);
        BT_TRY(code);
    }
    if (tensors && (uint64_t)tensors != r->s->stored.n)
        return bt_fail(err, BT_FORMAT, "the parts of '%s' have %zu tensors, but should have %lld",
                       r->s->path, r->s->stored.n, (long long)tensors);
    return BT_OK;
}

bt_code bt_model_file_open_gguf(bt_model_file *s, bt_err *err) {
    bt_gguf_reader r = {.s = s};
    bt_err why = BT_ERR_INIT;
    bt_code code = bt_gguf_read(&r.g, &s->stored, s->path, err);
    if (code == BT_OK) code = read_parts(&r, err);
    if (code == BT_OK) {
        code = read_gguf_file(&r, &why);
        if (code != BT_OK)
            bt_fail(err, code == BT_ARG ? (code = BT_FORMAT) : code, "'%s': %s", s->path, why.msg);
    }
    if (code == BT_OK && bt_gguf_tokenizer_read(&r, &s->no_tokenizer) == BT_NOMEM)
        code = bt_fail(err, BT_NOMEM, "%s", s->no_tokenizer.msg);
    bt_gguf_release(&r.g);
    return code;
}

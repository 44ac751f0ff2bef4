/* gguf_write.c - writes a GGUF file that llama.cpp loads: keys with the required types, norms in fp32, contiguous
 * tensors.
 *
 * Models with which llama.cpp would abort, or which it would silently compute differently, are refused: tokens with the
 * same
 * text, an untied BitNet head, an activation that it does not have. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/data/io/file_io.h"
#include "engine/interop/convert.h"
#include "engine/interop/formats/gguf.h"
#include "engine/interop/gguf_keys.h"
#include "engine/interop/out_file.h"

enum { ALIGNMENT = 32, VERSION = 3, QUANTIZATION_VERSION = 2 };

typedef struct entry { /* one tensor of the file */
    char name[BT_FOREIGN_NAME];
    size_t tensor;
    bool is_scale;
    int part;                            /* index in a joined tensor; -1: it is a whole tensor */
    const bt_gguf_rope_tensor *divisors; /* NULL: it is a tensor of the model */
    bt_form form;
    uint64_t bytes, at; /* at: offset in the data */
} entry;

typedef struct gguf_out {
    bt_model_file *s;
    const bt_convert_job *job;
    bt_arch arch;
    const char *word; /* name of the architecture in the file */
    bt_number number;
    bool ternary;           /* linear layers become codes */
    const bt_gguf_pre *pre; /* NULL: the vocabulary has scores */
    bool same_merges;       /* the scores give the merges of the tokenizer */
    entry *e;
    size_t n;
    float *scales; /* [params.n] */
    bt_gguf_rope rope;
    bt_text head;
    uint64_t n_keys, data_bytes;
} gguf_out;

static bt_code check_rows(const gguf_out *g, bt_err *err) {
    const bt_number_row *row = bt_number_at(g->number);
    for (size_t i = 0; i < g->s->params.n; i++) {
        const bt_tensor *t = &g->s->params.tensors[i];
        const bool matrix = t->linear || (!row->coded && t->decay);
        if (matrix && t->cols % row->block != 0)
            return bt_fail(err, BT_UNSUPPORTED,
                           "'%s' has rows of %zu elements, but %s needs multiples of %zu (f32, f16 "
                           "and bf16 have no such limit)",
                           t->name, t->cols, row->word, row->block);
    }
    return BT_OK;
}

static bt_code choose_gguf_forms(gguf_out *g, bt_err *err) {
    const bt_model_cfg *c = &g->s->cfg;
    BT_TRY(bt_arch_of_model(&g->arch, c, err));
    g->word = bt_gguf_word(g->arch, c->act, g->job->number);
    BT_TRY(bt_gguf_arch_check(
        g->arch, c, g->job->any_activation || c->act == bt_gguf_act(g->arch, g->word), err));
    g->ternary = c->linear == BT_LIN_BITNET158;
    g->number = g->job->number;
    if (g->number == BT_NUM_COUNT) g->number = bt_gguf_default_number(g->s);
    const bt_number_row *row = bt_number_at(g->number);
    if (row->ggml < 0 || row->file_type < 0)
        return bt_fail(err, BT_ARG,
                       "GGUF files cannot have the type '%s' (possible: f32, f16, bf16, q8_0, "
                       "tq1_0, tq2_0, q2_0, i2_s)",
                       row->word);
    BT_TRY(bt_gguf_scales_check(g->arch, c, g->number, g->job->scale_tensors, err));
    return check_rows(g, err);
}

static void add_entry(gguf_out *g, entry *e, uint64_t bytes) {
    const bool continues = e > g->e &&
                           e->part > 0; /* it continues the joined tensor of the previous entry */
    e->bytes = bytes;
    e->at = continues ? e[-1].at + e[-1].bytes : g->data_bytes;
    g->data_bytes = (e->at + e->bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static void add_gguf_tensor(gguf_out *g, size_t i, const char *suffix, bool is_scale,
                            const bt_form *form) {
    entry *e = &g->e[g->n++];
    const bt_tensor *t = &g->s->params.tensors[i];
    bt_name_gguf_out(e->name, g->arch, t, suffix);
    e->tensor = i;
    e->part = bt_arch_part(g->arch, t);
    e->is_scale = is_scale;
    e->form = *form;
    add_entry(g, e, is_scale ? sizeof(float) : bt_form_bytes(t, form));
}

static void add_divisors(gguf_out *g) {
    bt_gguf_rope_write(&g->rope, &g->s->cfg);
    for (size_t i = 0; i < g->rope.n_tensors; i++) {
        const bt_gguf_rope_tensor *t = &g->rope.tensors[i];
        entry *e = &g->e[g->n++];
        snprintf(e->name, sizeof e->name, "%s", t->name);
        e->divisors = t;
        e->part = -1;
        e->form = (bt_form){.number = BT_NUM_F32};
        add_entry(g, e, t->n * sizeof(float));
    }
}

static bt_code plan_gguf_file(gguf_out *g, bt_err *err) {
    const bt_params *p = &g->s->params;
    const bool turned = bt_arch_at(g->arch)->turned;
    const bool coded = bt_number_at(g->number)->coded;
    g->e = calloc(2 * p->n + 2, sizeof *g->e);
    g->scales = calloc(p->n, sizeof *g->scales);
    if (!g->e || !g->scales) return bt_fail(err, BT_NOMEM, "cannot allocate memory for the plan");
    for (size_t i = 0; i < p->n; i++) {
        const bt_tensor *t = &p->tensors[i];
        bt_form form = {
            .number = BT_NUM_F32}; /* of norms, because llama.cpp aborts for other types */
        if (t->linear)
            form = (bt_form){.number = g->number,
                             .order = turned && (t->id == BT_P_ATTN_Q || t->id == BT_P_ATTN_K)
                                          ? BT_ROWS_TURNED
                                          : BT_ROWS_PLAIN,
                             .quantise = g->ternary,
                             .unit = g->job->scale_tensors};
        else if (t->decay)
            form.number = coded ? BT_NUM_F16 : g->number;
        add_gguf_tensor(g, i, ".weight", false, &form);
        if (t->linear && g->ternary && g->job->scale_tensors)
            add_gguf_tensor(g, i, ".scale", true, &(bt_form){.number = BT_NUM_F32});
    }
    add_divisors(g);
    return BT_OK;
}

static void put_number(bt_text *out, uint64_t v, int bytes) {
    for (int i = 0; i < bytes; i++) bt_text_putn(out, &(char){(char)(v >> 8 * i)}, 1);
}

static void put_gguf_text(bt_text *out, const char *s, size_t n) {
    put_number(out, n, 8);
    bt_text_putn(out, s, n);
}

static void put_gguf_key(gguf_out *g, const char *name, bt_gguf_type type) {
    put_gguf_text(&g->head, name, strlen(name));
    put_number(&g->head, type, 4);
    g->n_keys++;
}

static void put_model_key(gguf_out *g, const char *name, bt_gguf_type type) {
    char whole[128];
    snprintf(whole, sizeof whole, "%s.%s", g->word, name);
    put_gguf_key(g, whole, type);
}

static void put_text_key(gguf_out *g, const char *name, const char *value) {
    put_gguf_key(g, name, BT_GGUF_TEXT);
    put_gguf_text(&g->head, value, strlen(value));
}

static void u32_key(gguf_out *g, const char *name, int value) {
    put_model_key(g, name, BT_GGUF_U32);
    put_number(&g->head, (uint64_t)value, 4);
}

static void f32_key(gguf_out *g, const char *name, double value) {
    const float x = (float)value;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    put_model_key(g, name, BT_GGUF_F32);
    put_number(&g->head, bits, 4);
}

static void bool_key(gguf_out *g, const char *name, bool value) {
    put_gguf_key(g, name, BT_GGUF_BOOL);
    put_number(&g->head, value, 1);
}

static void put_scaling(gguf_out *g) {
    if (g->rope.type) {
        put_model_key(g, "rope.scaling.type", BT_GGUF_TEXT);
        put_gguf_text(&g->head, g->rope.type, strlen(g->rope.type));
    }
    for (size_t i = 0; i < g->rope.n_keys; i++) {
        const bt_gguf_rope_key *k = &g->rope.keys[i];
        if (k->real)
            f32_key(g, k->name, k->value);
        else
            u32_key(g, k->name, (int)k->value);
    }
}

/* A window without effect is longer than every text. All layers are local if the pattern is longer than their
 * number. */
static void put_attention_keys(gguf_out *g, const bt_arch_row *row) {
    const bt_model_cfg *c = &g->s->cfg;
    if (!row->window_every) return;
    u32_key(g, "attention.sliding_window", c->window > 0 ? c->window : c->T);
    if (row->local_theta > 0) {
        u32_key(g, "attention.sliding_window_pattern",
                c->window_every ? c->window_every : c->L + 1);
        f32_key(g, "rope.freq_base_swa", c->rope_local_theta);
    }
    if (c->attention_cap > 0) f32_key(g, "attn_logit_softcapping", c->attention_cap);
    if (c->logit_cap > 0) f32_key(g, "final_logit_softcapping", c->logit_cap);
}

static void put_model_keys(gguf_out *g, const char *name) {
    const bt_model_cfg *c = &g->s->cfg;
    const char *act = bt_arch_act_word(c->act);
    put_text_key(g, "general.architecture", g->word);
    put_text_key(g, "general.name", name);
    put_gguf_key(g, "general.file_type", BT_GGUF_U32);
    put_number(&g->head, (uint64_t)bt_number_at(g->number)->file_type, 4);
    put_gguf_key(g, "general.quantization_version", BT_GGUF_U32);
    put_number(&g->head, QUANTIZATION_VERSION, 4);
    u32_key(g, "context_length", bt_arch_longest_text(c));
    u32_key(g, "embedding_length", c->C);
    u32_key(g, "block_count", c->L);
    u32_key(g, "feed_forward_length", c->F);
    u32_key(g, "attention.head_count", c->H);
    u32_key(g, "attention.head_count_kv", c->KV);
    u32_key(g, "attention.key_length", c->D);
    u32_key(g, "attention.value_length", c->D);
    u32_key(g, "rope.dimension_count", (int)bt_model_rotary(c));
    u32_key(g, "vocab_size", c->V);
    f32_key(g, "attention.layer_norm_rms_epsilon", c->norm_eps);
    f32_key(g, "rope.freq_base", c->rope_theta);
    put_scaling(g);
    put_attention_keys(g, bt_arch_at(g->arch));
    if (g->arch == BT_ARCH_BITNET) {
        put_model_key(g, "hidden_activation", BT_GGUF_TEXT);
        put_gguf_text(&g->head, act, strlen(act));
    }
    put_text_key(g, BT_KEY_ACT, act);
    put_text_key(g, BT_KEY_LINEAR, g->ternary ? "bitnet158" : "dense");
}

static bt_code find_pre(gguf_out *g, bt_err *err) {
    bt_tokenizer_about about;
    const bt_tokenizer *t = g->s->tokenizer;
    if (!t)
        return bt_fail(err, g->s->no_tokenizer.code,
                       "llama.cpp cannot load a model without a vocabulary, and '%.200s' has none "
                       "that can be used (give one with --tokenizer FILE): %s",
                       g->s->path, g->s->no_tokenizer.msg);
    if (bt_tokenizer_is_unigram(t))
        return bt_fail(
            err, BT_UNSUPPORTED,
            "a Unigram tokenizer cannot be written to a GGUF file, because llama.cpp would merge "
            "by its scores and give other ids ('bitrain convert --to hf' keeps it)");
    if (bt_tokenizer_spaces(t)) return BT_OK;
    bt_tokenizer_summarise(t, &about);
    const char *rules = bt_tokenizer_rules(t), *pattern = rules ? rules
                                                          : strcmp(about.pattern, "none") == 0
                                                              ? "gpt2"
                                                              : about.pattern;
    for (size_t i = 0; i < bt_gguf_pres_n && !g->pre; i++)
        if (strcmp(bt_gguf_pres[i].pattern, pattern) == 0) g->pre = &bt_gguf_pres[i];
    if (!g->pre)
        return bt_fail(err, BT_UNSUPPORTED,
                       "llama.cpp's file format has no name for the word patterns of this "
                       "tokenizer ('bitrain convert --to hf' keeps them)");
    if (g->pre->ignore_merges != bt_tokenizer_ignores_merges(t))
        return bt_fail(err, BT_UNSUPPORTED,
                       "llama.cpp's '%s' %s words that are tokens unchanged, but this tokenizer "
                       "%s: texts would have other ids",
                       g->pre->pre, g->pre->ignore_merges ? "takes" : "does not take",
                       g->pre->ignore_merges ? "does not" : "does");
    return BT_OK;
}

/* Returns the text of token id, which differs from those of all previous tokens. */
static bt_code gguf_token_text(const gguf_out *g, json_t *seen, int id, bt_text *word,
                               bt_err *err) {
    bt_text_clear(word);
    if (bt_tokenizer_is_hole(g->s->tokenizer, id))
        bt_text_printf(word, "[PAD%d]", id);
    else
        bt_tokenizer_token_text(g->s->tokenizer, id, word);
    if (json_object_get(seen, bt_text_str(word)))
        return bt_fail(err, BT_UNSUPPORTED,
                       "two tokens would have the text '%.40s', with which llama.cpp aborts",
                       bt_text_str(word));
    if (json_object_set_new(seen, bt_text_str(word), json_true()) == 0) return BT_OK;
    return bt_fail(err, BT_UNSUPPORTED, "token %d is not UTF-8", id);
}

/* The score of a token decides when its parts are merged. */
static bt_code put_scores(gguf_out *g, bt_err *err) {
    const int V = g->s->cfg.V;
    float *scores = calloc((size_t)V, sizeof *scores);
    if (!scores) return bt_fail(err, BT_NOMEM, "cannot allocate memory for its tokens");
    const bt_code code = bt_tokenizer_scores(g->s->tokenizer, scores, (size_t)V, &g->same_merges,
                                             err);
    put_gguf_key(g, "tokenizer.ggml.scores", BT_GGUF_ARRAY);
    put_number(&g->head, BT_GGUF_F32, 4);
    put_number(&g->head, (uint64_t)V, 8);
    for (int id = 0; id < V; id++) {
        uint32_t bits;
        memcpy(&bits, &scores[id], sizeof bits);
        put_number(&g->head, bits, 4);
    }
    free(scores);
    return code;
}

static bt_code put_gguf_tokens(gguf_out *g, bt_err *err) {
    const bt_tokenizer *t = g->s->tokenizer;
    const int V = g->s->cfg.V;
    json_t *seen = json_object();
    bt_text word = {0};
    bt_code code = seen ? BT_OK : bt_fail(err, BT_NOMEM, "cannot allocate memory for its tokens");
    put_gguf_key(g, "tokenizer.ggml.tokens", BT_GGUF_ARRAY);
    put_number(&g->head, BT_GGUF_TEXT, 4);
    put_number(&g->head, (uint64_t)V, 8);
    for (int id = 0; id < V && code == BT_OK; id++) {
        code = gguf_token_text(g, seen, id, &word, err);
        put_gguf_text(&g->head, bt_text_str(&word), word.len);
    }
    if (bt_tokenizer_spaces(t) && code == BT_OK) code = put_scores(g, err);
    put_gguf_key(g, "tokenizer.ggml.token_type", BT_GGUF_ARRAY);
    put_number(&g->head, BT_GGUF_I32, 4);
    put_number(&g->head, (uint64_t)V, 8);
    /* llama.cpp finds user-defined tokens before it merges. Runs of spaces that are both are made by merges. */
    const bool marks = bt_tokenizer_spaces(t) != NULL;
    for (int id = 0; id < V; id++)
        put_number(&g->head,
                   bt_tokenizer_is_hole(t, id)              ? BT_GGUF_UNUSED
                   : marks && bt_tokenizer_is_merged(t, id) ? BT_GGUF_NORMAL
                   : bt_tokenizer_is_special(t, id)         ? BT_GGUF_CONTROL
                   : bt_tokenizer_is_added(t, id)           ? BT_GGUF_USER_DEFINED
                   : bt_tokenizer_is_byte(t, id)            ? BT_GGUF_BYTE
                                                            : BT_GGUF_NORMAL,
                   4);
    if (word.failed && code == BT_OK)
        code = bt_fail(err, BT_NOMEM, "cannot allocate memory for its tokens");
    bt_text_release(&word);
    json_decref(seen);
    return code;
}

static void put_merges(gguf_out *g) {
    const bt_tokenizer *t = g->s->tokenizer;
    bt_tokenizer_about about;
    bt_text word = {0};
    bt_tokenizer_summarise(t, &about);
    put_gguf_key(g, "tokenizer.ggml.merges", BT_GGUF_ARRAY);
    put_number(&g->head, BT_GGUF_TEXT, 4);
    put_number(&g->head, about.merges, 8);
    for (size_t i = 0; i < about.merges; i++) {
        int32_t left, right;
        bt_tokenizer_merge(t, i, &left, &right);
        bt_text_clear(&word);
        bt_tokenizer_token_text(t, left, &word);
        bt_text_put(&word, " ");
        bt_tokenizer_token_text(t, right, &word);
        put_gguf_text(&g->head, bt_text_str(&word), word.len);
    }
    g->head.failed |= word.failed;
    bt_text_release(&word);
}

static void token_key(gguf_out *g, const char *name, int32_t id) {
    if (id < 0) return;
    put_gguf_key(g, name, BT_GGUF_U32);
    put_number(&g->head, (uint64_t)id, 4);
}

/* Returns true if the tokenizer adds at most one token there, which llama.cpp can add itself. */
static bool is_single_affix(const bt_tokenizer *t, bool behind, int32_t *id) {
    size_t n;
    const int32_t *ids = bt_tokenizer_affix(t, behind, &n);
    if (n == 1) *id = ids[0];
    return n == 1;
}

/* The file can contain one token that ends a text, one that ends a turn and one that ends a message, and one token each
 * that
 * is added before and after a text. */
static void put_gguf_roles(gguf_out *g) {
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    const bt_tokenizer *t = g->s->tokenizer;
    const bt_token_roles *roles = bt_tokenizer_roles(t);
    int32_t bos = roles->known ? roles->bos : -1, behind = -1, ends[BT_ENDS_MAX];
    size_t n = bt_tokenizer_ends(t, ends);
    const bool add_bos = is_single_affix(t, false, &bos);
    bool add_eos = is_single_affix(t, true, &behind);
    if (n == 0 && add_eos) ends[n++] = behind;
    add_eos = add_eos && ends[0] == behind;
    token_key(g, "tokenizer.ggml.bos_token_id", bos);
    for (size_t i = 0; i < n && i < sizeof keys / sizeof *keys; i++) token_key(g, keys[i], ends[i]);
    token_key(g, "tokenizer.ggml.padding_token_id", roles->known ? roles->pad : -1);
    bool_key(g, "tokenizer.ggml.add_bos_token", add_bos);
    bool_key(g, "tokenizer.ggml.add_eos_token", add_eos);
}

static bt_code put_vocabulary(gguf_out *g, bt_err *err) {
    const bt_tokenizer *t = g->s->tokenizer;
    bt_tokenizer_about about;
    bt_tokenizer_summarise(t, &about);
    const char *spaces = bt_tokenizer_spaces(t);
    put_text_key(g, "tokenizer.ggml.model", spaces ? "llama" : "gpt2");
    put_text_key(g, "tokenizer.ggml.pre", spaces ? "default" : g->pre->pre);
    BT_TRY(put_gguf_tokens(g, err));
    if (spaces)
        bool_key(g, "tokenizer.ggml.add_space_prefix", bt_tokenizer_prefixes(t));
    else
        put_merges(g);
    put_gguf_roles(g);
    bool_key(g, BT_KEY_NFC, strcmp(about.normalizer, "nfc") == 0);
    if (bt_tokenizer_chat_template(t))
        put_text_key(g, "tokenizer.chat_template", bt_tokenizer_chat_template(t));
    return BT_OK;
}

static void put_infos(gguf_out *g) {
    for (size_t k = 0; k < g->n; k++) {
        const entry *e = &g->e[k];
        const bt_tensor *t = &g->s->params.tensors[e->tensor];
        const bool matrix = !e->is_scale && !e->divisors && (t->linear || t->decay);
        uint64_t rows = t->rows;
        if (e->part > 0) continue;
        for (size_t p = k + 1; p < g->n && g->e[p].part > 0; p++)
            rows += g->s->params.tensors[g->e[p].tensor].rows;
        put_gguf_text(&g->head, e->name, strlen(e->name));
        put_number(&g->head, matrix ? 2 : 1, 4);
        put_number(&g->head,
                   matrix        ? t->cols
                   : e->is_scale ? 1
                   : e->divisors ? e->divisors->n
                                 : t->count,
                   8);
        if (matrix) put_number(&g->head, rows, 8);
        put_number(&g->head, (uint64_t)bt_number_at(e->form.number)->ggml, 4);
        put_number(&g->head, e->at, 8);
    }
}

/* Returns the number of tensors in the file; a joined tensor has several entries. */
static uint64_t whole_tensors(const gguf_out *g) {
    uint64_t n = 0;
    for (size_t k = 0; k < g->n; k++) n += g->e[k].part <= 0;
    return n;
}

/* The keys are made first, because their number is written before them. */
static bt_code make_head(gguf_out *g, const char *name, bt_err *err) {
    put_model_keys(g, name);
    BT_TRY(put_vocabulary(g, err));
    bt_text keys = g->head;
    g->head = (bt_text){0};
    bt_text_put(&g->head, "GGUF");
    put_number(&g->head, VERSION, 4);
    put_number(&g->head, whole_tensors(g), 8);
    put_number(&g->head, g->n_keys, 8);
    bt_text_putn(&g->head, bt_text_str(&keys), keys.len);
    g->head.failed |= keys.failed;
    bt_text_release(&keys);
    put_infos(g);
    while (g->head.len % ALIGNMENT != 0 && !g->head.failed) bt_text_putn(&g->head, "", 1);
    return g->head.failed
               ? bt_fail(err, BT_NOMEM, "cannot allocate memory for the head of the file")
               : BT_OK;
}

static bt_code write_gguf_data(gguf_out *g, const bt_out_file *f, bt_err *err) {
    static const char zeros[ALIGNMENT];
    for (size_t k = 0; k < g->n; k++) {
        const entry *e = &g->e[k];
        const uint64_t at = g->head.len + e->at, end = at + e->bytes;
        if (e->is_scale) /* written with its tensor */
            BT_TRY(bt_out_put(f, &g->scales[e->tensor], sizeof(float), at, err));
        else if (e->divisors)
            BT_TRY(bt_out_put(f, e->divisors->by, (size_t)e->bytes, at, err));
        else
            BT_TRY(bt_tensor_write(g->s, e->tensor, &e->form, f, at,
                                   g->job->scale_tensors ? &g->scales[e->tensor] : NULL, err));
        BT_TRY(bt_out_put(f, zeros, (size_t)(-end % ALIGNMENT), end, err));
    }
    return BT_OK;
}

static bt_code write_gguf_file(gguf_out *g, const char *part, bt_err *err) {
    bt_out_file f = {.fd = -1};
    bt_code code = bt_out_open(&f, part, g->head.len + g->data_bytes, err);
    if (code == BT_OK) code = bt_out_put(&f, g->head.data, g->head.len, 0, err);
    if (code == BT_OK) code = write_gguf_data(g, &f, err);
    code = bt_out_close(&f, code, err);
    if (code == BT_OK && rename(part, g->job->dest) != 0)
        code = bt_fail(err, BT_IO, "cannot rename '%s' to '%s'", part, g->job->dest);
    if (code != BT_OK) unlink(part);
    return code;
}

/* Adds a note for each property of the tokenizer that the file cannot represent. */
static void add_tokenizer_notes(const bt_tokenizer *t, bt_text *notes) {
    int32_t ends[BT_ENDS_MAX], id = -1;
    size_t before, behind;
    const size_t n = bt_tokenizer_ends(t, ends);
    (void)bt_tokenizer_affix(t, false, &before);
    (void)bt_tokenizer_affix(t, true, &behind);
    if (n > 3)
        bt_text_printf(notes,
                       "a GGUF file names three tokens that end a text; this model has %zu\n", n);
    if (before > 1 || behind > 1 || (is_single_affix(t, true, &id) && n && ends[0] != id))
        bt_text_put(notes,
                    "a GGUF file puts at most BOS and EOS around a text, this tokenizer puts "
                    "other tokens there\n");
    if (bt_tokenizer_has_flags(t))
        bt_text_put(notes,
                    "llama.cpp finds added tokens by their text alone; this tokenizer has some "
                    "that include white space or must be separate words\n");
}

static void add_gguf_notes(const gguf_out *g, bt_text *notes) {
    bt_tokenizer_about about;
    bt_tokenizer_summarise(g->s->tokenizer, &about);
    const bool i2_s = g->number == BT_NUM_I2_S;
    if (i2_s)
        bt_text_printf(notes, "loads in bitnet.cpp as '%s', type i2_s, which llama.cpp lacks\n",
                       g->word);
    else
        bt_text_printf(notes, "loads in llama.cpp and what is built on it as '%s', type %s\n",
                       g->word, bt_number_at(g->number)->word);
    if (g->number == BT_NUM_Q2_0)
        bt_text_put(notes, "llama.cpp has the type q2_0 since July 2026\n");
    const bt_act act = g->s->cfg.act, computed = bt_gguf_act(g->arch, g->word);
    if (act != computed)
        bt_text_printf(notes,
                       "llama.cpp computes %s where this model has %s: the text that it generates "
                       "is not the model's\n",
                       bt_arch_act_word(computed), bt_arch_act_word(act));
    if (g->ternary && bt_number_at(g->number)->coded && !i2_s)
        bt_text_put(notes, "llama.cpp rounds the inputs of ternary layers to int8 by 256, here a "
                           "whole row has one scale: log probabilities differ by up to 0.25\n");
    else if (g->ternary && !i2_s)
        bt_text_put(notes, "llama.cpp does not round the inputs of these layers to int8, as the "
                           "model was trained: log probabilities differ by up to 0.15\n");
    if (g->s->cfg.rope.method == BT_ROPE_LONGROPE)
        bt_text_printf(notes,
                       "llama.cpp chooses the factors of longrope by the context size of the "
                       "process, not by the text: those for long texts above %d tokens\n",
                       g->s->cfg.rope.context);
    add_tokenizer_notes(g->s->tokenizer, notes);
    const char *spaces = bt_tokenizer_spaces(g->s->tokenizer);
    if (spaces && !g->same_merges)
        bt_text_put(notes,
                    "a GGUF file of this kind of tokenizer has scores instead of merges; the "
                    "merges of this one are not those of its tokens' scores, so llama.cpp "
                    "may give other ids\n");
    if (spaces && bt_tokenizer_prefixes(g->s->tokenizer) && strcmp(spaces, "prepend") != 0)
        bt_text_put(notes,
                    "llama.cpp puts a space in front of each text and behind each special token, "
                    "this tokenizer not in front of a text that begins with a space\n");
    if (strcmp(about.normalizer, "nfc") == 0)
        bt_text_put(notes, "llama.cpp does not normalise text to NFC, which this tokenizer does\n");
}

bt_code bt_gguf_write(bt_model_file *s, const bt_convert_job *job, bt_text *notes, int64_t *bytes,
                      bt_err *err) {
    char part[4200];
    gguf_out g = {.s = s, .job = job};
    const char *base = strrchr(job->dest, '/');
    BT_TRY(bt_out_prepare(job->dest, part, err));
    bt_code code = choose_gguf_forms(&g, err);
    if (code == BT_OK) code = find_pre(&g, err);
    if (code == BT_OK) code = plan_gguf_file(&g, err);
    if (code == BT_OK) code = make_head(&g, base ? base + 1 : job->dest, err);
    if (code == BT_OK) code = write_gguf_file(&g, part, err);
    if (code == BT_OK) {
        bt_file_sync_folder_of(job->dest);
        add_gguf_notes(&g, notes);
        *bytes = (int64_t)(g.head.len + g.data_bytes);
    }
    bt_text_release(&g.head);
    free(g.e);
    free(g.scales);
    return code;
}

/* hf_read.c - reads a folder of Hugging Face: config.json, safetensors, tokenizer.json and related files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/interop/hf_config.h"
#include "engine/interop/model_file.h"

static void hf_path(char out[4400], const bt_model_file *s, const char *name) {
    snprintf(out, 4400, "%.4000s/%s", s->path, name);
}

static bt_code find_hf_tensor(bt_model_file *s, const bt_hf_config *c, size_t i, bt_err *err) {
    const bt_tensor *t = &s->params.tensors[i];
    bt_stored_location *p = &s->places[i];
    char name[BT_FOREIGN_NAME];
    bt_name_hf(name, s->arch, t, ".weight");
    bt_stored *f = bt_stored_find(&s->stored, name), *scale;
    if (!f && bt_name_hf_other(name, t, ".weight")) f = bt_stored_find(&s->stored, name);
    if (!f) return BT_OK; /* reported by bt_model_file_complete */
    const bool coded = t->linear && (c->linear == BT_HF_CODES || c->linear == BT_HF_CODES_INVERSE);
    p->stored = f;
    p->add = bt_arch_gain_offset(s->arch, t);
    f->used = true;
    if ((f->number == BT_NUM_PACKED) != coded)
        return bt_fail(err, BT_FORMAT,
                       "tensor '%s' is %s, but according to config.json linear layers are %s", name,
                       coded ? "not packed" : "U8", coded ? "packed codes" : "floats");
    if (!coded) return bt_model_file_check_shape(t, f, BT_ROWS_PLAIN, err);
    bt_name_hf(name, s->arch, t, ".weight_scale");
    scale = bt_stored_find(&s->stored, name);
    if (!scale || scale->number == BT_NUM_PACKED)
        return bt_fail(err, BT_FORMAT, "tensor '%s' is missing, or is not a number", name);
    const uint64_t scales = scale->rows * scale->cols;
    if (scales != 1 && scales != t->rows)
        return bt_fail(
            err, BT_UNSUPPORTED,
            "tensor '%s' has %llu scales, but packed weights can have one scale for each tensor, "
            "or for each of its %zu rows (use a folder with unpacked weights, or a GGUF file)",
            name, (unsigned long long)scales, t->rows);
    if (scales != 1) s->cfg.scale = BT_SCALE_ROW;
    scale->used = true;
    p->scale = scale;
    p->coded = true;
    p->order = BT_ROWS_PACKED;
    p->inverse = c->linear == BT_HF_CODES_INVERSE;
    return bt_model_file_check_shape(t, f, BT_ROWS_PACKED, err);
}

/* transformers computes these tensors from rope_theta, too. */
static bool is_ignored_hf_tensor(const bt_model_file *s, const char *name) {
    const char *end = strrchr(name, '.');
    (void)s;
    return end && strcmp(end, ".inv_freq") == 0;
}

static bt_code equal_bytes(const bt_model_file *s, const bt_stored *a, const bt_stored *b,
                           bool *equal, bt_err *err) {
    enum { PIECE = 1 << 16 };
    unsigned char x[PIECE], y[PIECE];
    *equal = a->number == b->number && a->rows == b->rows && a->cols == b->cols;
    for (uint64_t at = 0, n; *equal && at < a->bytes; at += n) {
        n = a->bytes - at < PIECE ? a->bytes - at : PIECE;
        BT_TRY(bt_foreign_read(&s->stored.files[a->file], x, (size_t)n, a->at + at, err));
        BT_TRY(bt_foreign_read(&s->stored.files[b->file], y, (size_t)n, b->at + at, err));
        *equal = memcmp(x, y, (size_t)n) == 0;
    }
    return BT_OK;
}

/* If a head is stored although the configuration ties it to the embedding, its values are used, as in transformers 5. A
 * merge of adapters that trained the head makes such folders. */
static bt_code untie_own_head(bt_model_file *s, bt_err *err) {
    bt_stored *head = bt_stored_find(&s->stored, "lm_head.weight"),
              *embed = bt_stored_find(&s->stored, "model.embed_tokens.weight");
    bool equal = true;
    if (!s->cfg.tied || !head || !embed) return BT_OK;
    BT_TRY(equal_bytes(s, head, embed, &equal, err));
    head->used = equal; /* it is a copy of the embedding */
    if (equal) return BT_OK;
    s->cfg.tied = false;
    bt_text_put(&s->notes,
                "config.json ties the head to the embedding (tie_word_embeddings), but "
                "'lm_head.weight' holds other values: these are used, as transformers 5 does\n");
    return BT_OK;
}

static bt_code split_hf_tensors(bt_model_file *s, bt_err *err) {
    const uint64_t D = (uint64_t)s->cfg.D, q = (uint64_t)s->cfg.H * D, kv = (uint64_t)s->cfg.KV * D,
                   F = (uint64_t)s->cfg.F;
    const bt_stored_part qkv[] = {{".self_attn.q_proj.weight", q},
                                  {".self_attn.k_proj.weight", kv},
                                  {".self_attn.v_proj.weight", kv}},
                         gate_up[] = {{".mlp.gate_proj.weight", F}, {".mlp.up_proj.weight", F}};
    bt_err why = BT_ERR_INIT;
    bt_code code = bt_stored_split(&s->stored, ".self_attn.qkv_proj.weight", qkv, 3, &why);
    if (code == BT_OK)
        code = bt_stored_split(&s->stored, ".mlp.gate_up_proj.weight", gate_up, 2, &why);
    return code == BT_OK ? code : bt_fail(err, code, "'%s': %s", s->path, why.msg);
}

static bt_code read_tensors(bt_model_file *s, const bt_hf_config *c, bt_err *err) {
    bt_err why = BT_ERR_INIT;
    bt_code code = BT_OK;
    for (size_t i = 0; i < s->params.n && code == BT_OK; i++) code = find_hf_tensor(s, c, i, &why);
    if (code == BT_OK) code = bt_model_file_complete(s, is_ignored_hf_tensor, &why);
    if (code != BT_OK) return bt_fail(err, code, "'%s': %s", s->path, why.msg);
    for (size_t i = 0; i < s->params.n; i++) {
        if (s->places[i].coded && s->cfg.scale == BT_SCALE_ROW)
            s->places[i].inputs = s->params.tensors[i].cols;
        if (s->params.tensors[i].linear) s->number = s->places[i].stored->number;
    }
    BT_TRY(bt_model_file_recognise(s, err));
    if (s->arch == BT_ARCH_BITNET && s->cfg.linear == BT_LIN_DENSE)
        bt_text_put(&s->notes,
                    "config.json has no quantization_config: its linear layers are taken for "
                    "full-precision ones, as transformers does\n");
    return BT_OK;
}

static bt_code read_hf_tokenizer(bt_model_file *s, bt_err *err) {
    char path[4400];
    hf_path(path, s, "tokenizer.json");
    if (access(path, F_OK) != 0) {
        bt_fail(&s->no_tokenizer, BT_NOTFOUND, "the folder has no tokenizer.json");
        return BT_OK;
    }
    bt_code code = bt_hf_tokenizer_read(&s->tokenizer, path, &s->notes, &s->no_tokenizer);
    if (code == BT_NOMEM || code == BT_IO) return bt_fail(err, code, "%s", s->no_tokenizer.msg);
    if (code != BT_OK) return BT_OK; /* a caller that needs one reports s->no_tokenizer */
    bt_model_file_give_roles(s);
    return BT_OK;
}

bt_code bt_model_file_open_hf(bt_model_file *s, bt_err *err) {
    char path[4400];
    bt_hf_config c;
    hf_path(path, s, "config.json");
    BT_TRY(bt_hf_config_read(&c, path, &s->notes, err));
    s->arch = c.arch;
    s->cfg = c.model;
    BT_TRY(bt_safetensors_folder(&s->stored, s->path, err));
    if (bt_arch_at(s->arch)->joined) BT_TRY(split_hf_tensors(s, err));
    BT_TRY(untie_own_head(s, err));
    BT_TRY(bt_model_file_tables(s, err));
    BT_TRY(read_tensors(s, &c, err));
    s->roles = c.roles;
    hf_path(path, s, "generation_config.json");
    BT_TRY(bt_hf_generation_read(&s->roles, path, &s->notes, err));
    return read_hf_tokenizer(s, err);
}

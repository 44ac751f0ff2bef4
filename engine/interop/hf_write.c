/* hf_write.c - writes a folder of Hugging Face: config.json, safetensors in one or several files, tokenizer.json and
 * the files
 * beside it.
 *
 * The tensors of a file are sorted by the size of their type, then by name, as `safetensors` does; the header is padded
 * with
 * blanks to a multiple of 8. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/small.h"
#include "engine/data/io/file_io.h"
#include "engine/interop/convert.h"
#include "engine/interop/hf_config.h"
#include "engine/interop/out_file.h"

typedef struct entry { /* one tensor of the folder */
    char name[BT_FOREIGN_NAME];
    size_t tensor;
    bool is_scale; /* it is weight_scale of the tensor */
    int part; /* index in a joined tensor, which begins with part 0; -1: it is a whole tensor */
    bt_form form;
    uint64_t bytes, at; /* at: offset in the data of its file */
    int shard;
} entry;

typedef struct folder {
    bt_model_file *s;
    bt_hf_config config;
    bt_number number;
    uint64_t shard_bytes;
    const char *path;
    entry *e;
    size_t n;
    int shards;
    float *scales; /* [params.n][most_scales] */
    size_t most_scales;
    bool rows; /* ternary layers have a scale for each row or group */
    int64_t bytes;
} folder;

static bool keeps_file(const folder *f, const char *name) {
    return f->s->tokenizer && bt_tokenizer_keeps(f->s->tokenizer, name);
}

static bool writes_packed_codes(const folder *f) {
    return f->config.linear == BT_HF_CODES || f->config.linear == BT_HF_CODES_INVERSE;
}

static size_t type_bytes(const entry *e) {
    return e->form.order == BT_ROWS_PACKED ? 1 : bt_number_at(e->form.number)->bytes;
}

static int by_type_and_name(const void *a, const void *b) {
    const entry *x = a, *y = b;
    if (type_bytes(x) != type_bytes(y)) return type_bytes(x) > type_bytes(y) ? -1 : 1;
    const int order = strcmp(x->name, y->name);
    return order ? order : x->part - y->part;
}

static void add_hf_tensor(folder *f, size_t i, const char *suffix, bool is_scale,
                          const bt_form *form) {
    entry *e = &f->e[f->n++];
    bt_name_hf_out(e->name, f->config.arch, &f->s->params.tensors[i], suffix);
    e->tensor = i;
    e->part = bt_arch_part(f->config.arch, &f->s->params.tensors[i]);
    e->is_scale = is_scale;
    e->form = *form;
    e->bytes = is_scale ? bt_model_file_scales(f->s, i) * sizeof(float)
                        : bt_form_bytes(&f->s->params.tensors[i], form);
}

/* Returns the bytes of the tensor in the file that begins with entry k. */
static uint64_t joined_bytes(const folder *f, size_t k) {
    uint64_t bytes = f->e[k].bytes;
    while (++k < f->n && f->e[k].part > 0) bytes += f->e[k].bytes;
    return bytes;
}

static size_t joined_rows(const folder *f, size_t k) {
    size_t rows = f->s->params.tensors[f->e[k].tensor].rows;
    while (++k < f->n && f->e[k].part > 0) rows += f->s->params.tensors[f->e[k].tensor].rows;
    return rows;
}

static bt_code plan_hf_folder(folder *f, bt_err *err) {
    const bt_params *p = &f->s->params;
    const bt_form codes = {.number = BT_NUM_PACKED, .order = BT_ROWS_PACKED, .quantise = true};
    f->e = calloc(2 * p->n, sizeof *f->e);
    for (size_t i = 0; i < p->n; i++)
        f->most_scales = bt_max_size(f->most_scales, bt_model_file_scales(f->s, i));
    f->scales = calloc(p->n * f->most_scales, sizeof *f->scales);
    if (!f->e || !f->scales) return bt_fail(err, BT_NOMEM, "cannot allocate memory for the plan");
    for (size_t i = 0; i < p->n; i++) {
        const bt_tensor *t = &p->tensors[i];
        const bool coded = t->linear && writes_packed_codes(f);
        if (coded && t->rows % 4 != 0)
            return bt_fail(err, BT_UNSUPPORTED,
                           "'%s' has %zu rows, but packed weights need a multiple of 4, because a "
                           "byte contains four rows (choose another --type)",
                           t->name, t->rows);
        const bt_form gain = {.number = f->number,
                              .quantise = t->tern && f->rows,
                              .subtract = bt_arch_gain_offset(f->config.arch, t)};
        add_hf_tensor(f, i, ".weight", false, coded ? &codes : &gain);
        if (coded) add_hf_tensor(f, i, ".weight_scale", true, &(bt_form){.number = BT_NUM_F32});
    }
    qsort(f->e, f->n, sizeof *f->e, by_type_and_name);
    uint64_t at = 0;
    for (size_t k = 0; k < f->n; k++) {
        if (at > 0 && f->e[k].part <= 0 && at + joined_bytes(f, k) > f->shard_bytes) {
            f->shards++;
            at = 0;
        }
        f->e[k].shard = f->shards;
        f->e[k].at = at;
        at += f->e[k].bytes;
    }
    f->shards++;
    return BT_OK;
}

static void shard_name(const folder *f, int shard, char out[64]) {
    if (f->shards == 1)
        snprintf(out, 64, "model.safetensors");
    else
        snprintf(out, 64, "model-%05d-of-%05d.safetensors", shard + 1, f->shards);
}

static void put_hf_header(const folder *f, int shard, bt_text *out, uint64_t *data) {
    bt_json j;
    *data = 0;
    bt_json_begin(&j, out);
    bt_json_object(&j, NULL);
    bt_json_object(&j, "__metadata__");
    bt_json_str(&j, "format", "pt");
    bt_json_end(&j, '}');
    for (size_t k = 0; k < f->n; k++) {
        const entry *e = &f->e[k];
        const bt_tensor *t = &f->s->params.tensors[e->tensor];
        if (e->shard != shard || e->part > 0) continue;
        bt_json_object(&j, e->name);
        bt_json_str(&j, "dtype", bt_number_at(e->form.number)->safetensors);
        bt_json_array(&j, "shape");
        if (e->is_scale)
            bt_json_int(&j, NULL, (int64_t)bt_model_file_scales(f->s, e->tensor));
        else if (t->decay || t->linear) {
            bt_json_int(&j, NULL,
                        (int64_t)(e->form.order == BT_ROWS_PACKED ? t->rows / 4
                                                                  : joined_rows(f, k)));
            bt_json_int(&j, NULL, (int64_t)t->cols);
        } else
            bt_json_int(&j, NULL, (int64_t)t->count);
        bt_json_end(&j, ']');
        bt_json_array(&j, "data_offsets");
        bt_json_int(&j, NULL, (int64_t)e->at);
        bt_json_int(&j, NULL, (int64_t)(e->at + joined_bytes(f, k)));
        bt_json_end(&j, ']');
        bt_json_end(&j, '}');
        *data = e->at + joined_bytes(f, k);
    }
    bt_json_end(&j, '}');
    while (out->len % 8 != 0 && !out->failed) bt_text_put(out, " ");
}

static bt_code put_entry(folder *f, const entry *e, const bt_out_file *file, uint64_t at,
                         bt_err *err) {
    float *scales = f->scales + e->tensor * f->most_scales;
    if (!e->is_scale) return bt_tensor_write(f->s, e->tensor, &e->form, file, at, scales, err);
    for (uint64_t k = 0; k < e->bytes / sizeof *scales; k++) {
        if (scales[k] == 0) scales[k] = 1; /* a row of zeros */
        if (f->config.linear == BT_HF_CODES_INVERSE) scales[k] = 1 / scales[k];
    }
    return bt_out_put(file, scales, (size_t)e->bytes, at, err);
}

static bt_code write_shard(folder *f, int shard, bt_err *err) {
    char path[4400], name[64];
    bt_text header = {0};
    bt_out_file file = {.fd = -1};
    uint64_t data;
    unsigned char head[8];
    shard_name(f, shard, name);
    snprintf(path, sizeof path, "%s/%s", f->path, name);
    put_hf_header(f, shard, &header, &data);
    for (int i = 0; i < 8; i++) head[i] = (unsigned char)((uint64_t)header.len >> 8 * i);
    bt_code code = header.failed ? bt_fail(err, BT_NOMEM, "cannot allocate memory for a header")
                                 : bt_out_open(&file, path, 8 + header.len + data, err);
    if (code == BT_OK) code = bt_out_put(&file, head, 8, 0, err);
    if (code == BT_OK) code = bt_out_put(&file, header.data, header.len, 8, err);
    f->bytes += (int64_t)(8 + header.len + data);
    /* Codes are written before scales, because writing them computes the scales. */
    for (int scales = 0; scales < 2; scales++)
        for (size_t k = 0; code == BT_OK && k < f->n; k++)
            if (f->e[k].shard == shard && f->e[k].is_scale == (scales == 1))
                code = put_entry(f, &f->e[k], &file, 8 + header.len + f->e[k].at, err);
    bt_text_release(&header);
    return bt_out_close(&file, code, err);
}

static void put_index(const folder *f, bt_text *out) {
    bt_json j;
    uint64_t params = 0, bytes = 0;
    for (size_t k = 0; k < f->n; k++) {
        bytes += f->e[k].bytes;
        if (!f->e[k].is_scale) params += f->s->params.tensors[f->e[k].tensor].count;
    }
    bt_json_begin(&j, out);
    bt_json_object(&j, NULL);
    bt_json_object(&j, "metadata");
    bt_json_int(&j, "total_parameters", (int64_t)params);
    bt_json_int(&j, "total_size", (int64_t)bytes);
    bt_json_end(&j, '}');
    bt_json_object(&j, "weight_map");
    for (size_t k = 0; k < f->n; k++) {
        char name[64];
        if (f->e[k].part > 0) continue;
        shard_name(f, f->e[k].shard, name);
        bt_json_str(&j, f->e[k].name, name);
    }
    bt_json_end(&j, '}');
    bt_json_end(&j, '}');
    bt_text_put(out, "\n");
}

static bt_code put_file(folder *f, const char *name, bt_text *text, bt_err *err) {
    char path[4400];
    snprintf(path, sizeof path, "%s/%s", f->path, name);
    bt_code code = text->failed ? bt_fail(err, BT_NOMEM, "cannot allocate memory for '%s'", path)
                                : bt_file_replace(path, bt_text_str(text), text->len, err);
    f->bytes += (int64_t)text->len;
    bt_text_clear(text);
    return code;
}

static void put_generation_config(const folder *f, bt_text *out) {
    bt_json j;
    bt_json_begin(&j, out);
    bt_json_object(&j, NULL);
    bt_hf_roles_write(&j, &f->config.roles, true);
    bt_json_bool(&j, "_from_model_config", true);
    bt_json_end(&j, '}');
    bt_text_put(out, "\n");
}

static void put_named(const folder *f, bt_json *j, const char *key, int32_t id) {
    bt_text name = {0};
    if (id < 0) return;
    bt_tokenizer_token_text(f->s->tokenizer, id, &name);
    bt_json_str(j, key, bt_text_str(&name));
    bt_text_release(&name);
}

static void put_tokenizer_config(const folder *f, bt_text *out) {
    const char *chat = bt_tokenizer_chat_template(f->s->tokenizer);
    bt_json j;
    bt_json_begin(&j, out);
    bt_json_object(&j, NULL);
    /* transformers 4 and 5 both read this class. */
    bt_json_str(&j, "tokenizer_class", "PreTrainedTokenizerFast");
    bt_json_bool(&j, "clean_up_tokenization_spaces", false);
    bt_json_int(&j, "model_max_length", f->config.model.T);
    put_named(f, &j, "bos_token", f->config.roles.known ? f->config.roles.bos : -1);
    put_named(f, &j, "eos_token", bt_tokenizer_eot(f->s->tokenizer));
    if (chat) bt_json_str(&j, "chat_template", chat); /* transformers 4 */
    bt_json_end(&j, '}');
    bt_text_put(out, "\n");
}

static bt_code put_original_files(folder *f, bt_text *text, bt_err *err) {
    for (size_t i = 0; bt_kept_file_name(i); i++) {
        const char *name = bt_kept_file_name(i);
        bt_err why = BT_ERR_INIT;
        bt_text_clear(text);
        bt_code code = bt_tokenizer_kept_file(f->s->tokenizer, name, text, &why);
        if (code == BT_NOTFOUND) continue;
        if (code != BT_OK) return bt_fail(err, code, "'%s': %s", name, why.msg);
        BT_TRY(put_file(f, name, text, err));
    }
    return BT_OK;
}

/* Writes the files of a tokenizer that bitrain trained or read from another format, and files that are missing among
 * the
 * original ones. */
static bt_code put_own_files(folder *f, bt_text *text, bt_err *err) {
    const bt_tokenizer *t = f->s->tokenizer;
    if (!keeps_file(f, "generation_config.json")) {
        put_generation_config(f, text);
        BT_TRY(put_file(f, "generation_config.json", text, err));
    }
    if (!t) return BT_OK;
    if (!keeps_file(f, "tokenizer_config.json")) {
        put_tokenizer_config(f, text);
        BT_TRY(put_file(f, "tokenizer_config.json", text, err));
    }
    if (keeps_file(f, "tokenizer.json")) return BT_OK;
    BT_TRY(bt_tokenizer_export(t, text, err));
    BT_TRY(put_file(f, "tokenizer.json", text, err));
    if (!bt_tokenizer_chat_template(t)) return BT_OK;
    bt_text_put(text, bt_tokenizer_chat_template(t));
    return put_file(f, "chat_template.jinja", text, err);
}

static bt_code write_small_files(folder *f, bt_err *err) {
    bt_text text = {0};
    bt_hf_config_write(&text, &f->config, writes_packed_codes(f) ? BT_NUM_F32 : f->number);
    bt_code code = put_file(f, "config.json", &text, err);
    if (code == BT_OK) code = f->s->tokenizer ? put_original_files(f, &text, err) : BT_OK;
    if (code == BT_OK) code = put_own_files(f, &text, err);
    if (code == BT_OK && f->shards > 1) {
        put_index(f, &text);
        code = put_file(f, "model.safetensors.index.json", &text, err);
    }
    bt_text_release(&text);
    return code;
}

static void remove_hf_folder(const folder *f) {
    static const char *const small[] = {"config.json", "model.safetensors.index.json"};
    char path[4400], name[64];
    for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
        snprintf(path, sizeof path, "%s/%s", f->path, small[i]);
        unlink(path);
    }
    for (size_t i = 0; bt_kept_file_name(i); i++) {
        snprintf(path, sizeof path, "%s/%s", f->path, bt_kept_file_name(i));
        unlink(path);
    }
    for (int i = 0; i < f->shards; i++) {
        shard_name(f, i, name);
        snprintf(path, sizeof path, "%s/%s", f->path, name);
        unlink(path);
    }
    rmdir(f->path);
}

/* Returns the special tokens of the source. A tokenizer trained by bitrain begins and ends texts with its end token,
 * like that
 * of GPT-2. */
static bt_token_roles roles_of_source(const bt_model_file *s) {
    if (s->tokenizer && bt_tokenizer_roles(s->tokenizer)->known)
        return *bt_tokenizer_roles(s->tokenizer);
    if (s->roles.known && !s->tokenizer) return s->roles;
    const int32_t eot = s->tokenizer ? bt_tokenizer_eot(s->tokenizer) : -1;
    return (bt_token_roles){.bos = eot, .pad = -1, .ends = {eot}, .n_ends = eot >= 0};
}

/* Chooses the quantisation method of the class from the kind of linear layers. */
static bt_code choose_quantisation(folder *f, const bt_convert_job *job, bt_err *err) {
    const bool ternary = f->s->cfg.linear == BT_LIN_BITNET158;
    const bt_number_row *row = job->number < BT_NUM_COUNT ? bt_number_at(job->number) : NULL;
    BT_TRY(bt_arch_of_model(&f->config.arch, &f->s->cfg, err));
    f->config.model = f->s->cfg;
    f->config.roles = roles_of_source(f->s);
    f->rows = f->s->cfg.scale != BT_SCALE_TENSOR;
    f->config.linear = ternary && !f->rows ? BT_HF_LATENT : BT_HF_DENSE;
    f->number = row ? job->number : BT_NUM_F32;
    if (row && !row->safetensors)
        return bt_fail(
            err, BT_ARG,
            "safetensors files cannot have the type '%s' (possible: f32, f16, bf16, packed)",
            row->word);
    if (ternary && bt_arch_at(f->config.arch)->joined)
        return bt_fail(err, BT_UNSUPPORTED,
                       "%s joins q, k and v in one tensor, which cannot contain ternary layers "
                       "with different scales (model.rotary_dim)",
                       bt_arch_at(f->config.arch)->hf_class);
    if (f->number != BT_NUM_PACKED) return BT_OK;
    if (!ternary)
        return bt_fail(
            err, BT_ARG,
            "type 'packed' is for ternary models, but this one is dense (choose another --type)");
    if (f->s->cfg.scale > BT_SCALE_ROW)
        return bt_fail(err, BT_UNSUPPORTED,
                       "type 'packed' has one scale for each tensor or row, and this model has one "
                       "for each group of inputs (model.scale): choose f32, f16 or bf16, or GGUF");
    f->config.linear = job->inverse_scale ? BT_HF_CODES_INVERSE : BT_HF_CODES;
    f->number = BT_NUM_F32;
    return BT_OK;
}

static void add_hf_notes(const folder *f, bt_text *notes) {
    const bt_arch_row *row = bt_arch_at(f->config.arch);
    bt_text_printf(notes, "loads in transformers as %s%s\n", row->hf_class,
                   f->config.linear == BT_HF_DENSE ? "" : " (ternary layers need 'accelerate')");
    if (f->config.linear == BT_HF_LATENT && f->number != BT_NUM_F32)
        bt_text_printf(notes,
                       "latent weights are rounded to %s: a code at a tie may differ "
                       "(--type f32 keeps all)\n",
                       bt_number_at(f->number)->word);
    if (f->rows)
        bt_text_put(notes, writes_packed_codes(f)
                               ? "its ternary layers have a scale for each row ('weight_scale'), "
                                 "transformers has one for each tensor\n"
                               : "its ternary layers have a scale for each row or group of "
                                 "inputs, which transformers lacks: they are written as codes "
                                 "times scales, and it computes "
                                 "them as full-precision layers, without rounding their inputs to "
                                 "int8\n");
    if (f->config.arch == BT_ARCH_QWEN2 && f->s->tokenizer) {
        bt_tokenizer_about about;
        bt_tokenizer_summarise(f->s->tokenizer, &about);
        if (strcmp(about.pattern, "qwen2") != 0 || strcmp(about.normalizer, "nfc") != 0)
            bt_text_put(notes,
                        "transformers 5 splits and normalises (NFC) text for every Qwen2 model as "
                        "Qwen2 does, but this tokenizer does not: load it with "
                        "PreTrainedTokenizerFast, or the ids may differ\n");
    }
    if (keeps_file(f, "tokenizer.json"))
        bt_text_put(notes, "tokenizer files: the model's original ones, unchanged\n");
    if (!f->s->tokenizer) bt_text_put(notes, "no tokenizer files: the source has none\n");
}

bt_code bt_hf_write(bt_model_file *s, const bt_convert_job *job, bt_text *notes, int64_t *bytes,
                    bt_err *err) {
    char part[4200];
    folder f = {
        .s = s, .shard_bytes = job->shard_bytes ? job->shard_bytes : 5000000000u, .path = part};
    BT_TRY(bt_out_prepare(job->dest, part, err));
    BT_TRY(choose_quantisation(&f, job, err));
    bt_code code = plan_hf_folder(&f, err);
    if (code == BT_OK && mkdir(part, 0777) != 0)
        code = bt_fail_errno(err, BT_IO, errno, "cannot create the folder '%s'", part);
    else if (code == BT_OK) {
        code = write_small_files(&f, err);
        for (int i = 0; i < f.shards && code == BT_OK; i++) code = write_shard(&f, i, err);
        if (code == BT_OK && rename(part, job->dest) != 0)
            code = bt_fail_errno(err, BT_IO, errno, "cannot rename '%s' to '%s'", part, job->dest);
        if (code != BT_OK) remove_hf_folder(&f);
    }
    if (code == BT_OK) {
        bt_file_sync_folder_of(job->dest);
        add_hf_notes(&f, notes);
        *bytes = f.bytes;
    }
    free(f.e);
    free(f.scales);
    return code;
}

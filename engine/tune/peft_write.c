/* peft_write.c - writes adapter_config.json and adapter_model.safetensors. */
#include "engine/tune/peft_write.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/config/tune_cfg.h"
#include "engine/data/io/file_io.h"
#include "engine/interop/native.h"
#include "engine/interop/out_file.h"
#include "engine/tune/peft_config.h"

void bt_peft_name(char out[BT_PEFT_NAME], const bt_tensor *t) {
    char base[BT_FOREIGN_NAME];
    bt_tensor layer = *t;
    layer.id = bt_adapter_layer(t->id);
    bt_name_hf(base, BT_ARCH_LLAMA, &layer,
               t->id == bt_adapter_a(layer.id)   ? ".lora_A.weight"
               : t->id == bt_adapter_b(layer.id) ? ".lora_B.weight"
                                                 : BT_PEFT_MAGNITUDES);
    (void)snprintf(out, BT_PEFT_NAME, "base_model.model.%s", base);
}

static int by_peft_name(const void *a, const void *b, void *ctx) {
    const bt_params *p = ctx;
    char x[BT_PEFT_NAME], y[BT_PEFT_NAME];
    bt_peft_name(x, &p->tensors[*(const size_t *)a]);
    bt_peft_name(y, &p->tensors[*(const size_t *)b]);
    return strcmp(x, y);
}

/* Reads the dropout of the training, with which PEFT continues; 0 for adapters that are not those of one training. */
static bt_code read_dropout(const bt_model_file *s, double *dropout, bt_err *err) {
    static bt_run_cfg cfg;
    *dropout = 0;
    if (!s->meta.config.len) return BT_OK;
    BT_TRY(bt_native_settings(&cfg, &s->meta, s->path, err));
    *dropout = cfg.tune.dropout;
    return BT_OK;
}

static void put_peft_config(const bt_model_file *s, const char *base, double dropout,
                            bt_text *out) {
    const bt_lora *l = &s->cfg.lora;
    bt_json j;
    bt_json_begin(&j, out);
    bt_json_object(&j, NULL);
    bt_json_str(&j, "peft_type", "LORA");
    bt_json_str(&j, "task_type", "CAUSAL_LM");
    bt_json_str(&j, "base_model_name_or_path", base);
    bt_json_int(&j, "r", l->rank);
    bt_json_num(&j, "lora_alpha", l->scale * l->rank); /* contains the factor of rsLoRA */
    bt_json_num(&j, "lora_dropout", dropout);
    bt_json_str(&j, "bias", "none");
    bt_json_bool(&j, "use_rslora", false);
    bt_json_bool(&j, "use_dora", l->dora);
    bt_json_bool(&j, "inference_mode", true);
    bt_json_array(&j, "target_modules");
    for (unsigned bit = 1; bit <= BT_LORA_DOWN; bit <<= 1)
        if (l->targets & bit) bt_json_str(&j, NULL, bt_tune_hf_target(bit));
    bt_json_end(&j, ']');
    bt_json_end(&j, '}');
    bt_text_put(out, "\n");
}

static void put_peft_header(const bt_params *p, const size_t *order, bt_text *out) {
    bt_json j;
    uint64_t at = 0;
    bt_json_begin(&j, out);
    bt_json_object(&j, NULL);
    bt_json_object(&j, "__metadata__");
    bt_json_str(&j, "format", "pt");
    bt_json_end(&j, '}');
    for (size_t k = 0; k < p->n; k++) {
        const bt_tensor *t = &p->tensors[order[k]];
        char name[BT_PEFT_NAME];
        bt_peft_name(name, t);
        bt_json_object(&j, name);
        bt_json_str(&j, "dtype", "F32");
        bt_json_array(&j, "shape");
        bt_json_int(&j, NULL, (int64_t)t->rows);
        if (!t->row_norms) bt_json_int(&j, NULL, (int64_t)t->cols);
        bt_json_end(&j, ']');
        bt_json_array(&j, "data_offsets");
        bt_json_int(&j, NULL, (int64_t)at);
        at += t->count * sizeof(float);
        bt_json_int(&j, NULL, (int64_t)at);
        bt_json_end(&j, ']');
        bt_json_end(&j, '}');
    }
    bt_json_end(&j, '}');
    while (out->len % 8 != 0 && !out->failed) bt_text_put(out, " ");
}

static bt_code put_tensors(bt_model_file *s, const size_t *order, const bt_out_file *f, uint64_t at,
                           bt_err *err) {
    for (size_t k = 0; k < s->params.n; k++) {
        const size_t count = s->params.tensors[order[k]].count;
        float *x = malloc(count * sizeof *x);
        if (!x) return bt_fail(err, BT_NOMEM, "cannot allocate memory to write '%s'", f->path);
        bt_code code = bt_model_file_read(s, order[k], 0, count, x, err);
        if (code == BT_OK) code = bt_out_put(f, x, count * sizeof *x, at, err);
        free(x);
        BT_TRY(code);
        at += count * sizeof *x;
    }
    return BT_OK;
}

static bt_code write_weights(bt_model_file *s, const char *path, int64_t *bytes, bt_err *err) {
    const bt_params *p = &s->params;
    bt_text header = {0};
    bt_out_file f = {.fd = -1};
    unsigned char head[8];
    uint64_t data = 0;
    size_t *order = malloc(p->n * sizeof *order);
    for (size_t i = 0; order && i < p->n; i++) order[i] = i, data += p->tensors[i].count * 4;
    if (order) {
        qsort_r(order, p->n, sizeof *order, by_peft_name, (void *)(uintptr_t)p);
        put_peft_header(p, order, &header);
    }
    for (int i = 0; i < 8; i++) head[i] = (unsigned char)((uint64_t)header.len >> 8 * i);
    bt_code code = !order || header.failed
                       ? bt_fail(err, BT_NOMEM, "cannot allocate memory for a header")
                       : bt_out_open(&f, path, 8 + header.len + data, err);
    if (code == BT_OK) code = bt_out_put(&f, head, 8, 0, err);
    if (code == BT_OK) code = bt_out_put(&f, header.data, header.len, 8, err);
    if (code == BT_OK) code = put_tensors(s, order, &f, 8 + header.len, err);
    *bytes += (int64_t)(8 + header.len + data);
    bt_text_release(&header);
    free(order);
    return bt_out_close(&f, code, err);
}

static bt_code write_folder(bt_model_file *s, const char *folder, const char *base, int64_t *bytes,
                            bt_err *err) {
    char path[4400];
    double dropout;
    bt_text text = {0};
    BT_TRY(read_dropout(s, &dropout, err));
    put_peft_config(s, base, dropout, &text);
    (void)snprintf(path, sizeof path, "%s/%s", folder, BT_PEFT_CONFIG);
    bt_code code = text.failed ? bt_fail(err, BT_NOMEM, "cannot allocate memory for '%s'", path)
                               : bt_file_replace(path, bt_text_str(&text), text.len, err);
    *bytes = (int64_t)text.len;
    bt_text_release(&text);
    (void)snprintf(path, sizeof path, "%s/%s", folder, BT_PEFT_WEIGHTS);
    return code == BT_OK ? write_weights(s, path, bytes, err) : code;
}

static void remove_peft_folder(const char *folder) {
    char path[4400];
    (void)snprintf(path, sizeof path, "%s/%s", folder, BT_PEFT_CONFIG);
    unlink(path);
    (void)snprintf(path, sizeof path, "%s/%s", folder, BT_PEFT_WEIGHTS);
    unlink(path);
    rmdir(folder);
}

bt_code bt_peft_write(bt_model_file *s, const char *dest, const char *base, bt_text *notes,
                      int64_t *bytes, bt_err *err) {
    char part[4200];
    bt_arch arch;
    bt_model_cfg plain = s->cfg;
    plain.lora = (bt_lora){0};
    BT_TRY(bt_arch_of_model(&arch, &plain, err));
    if (bt_arch_at(arch)->joined)
        return bt_fail(err, BT_UNSUPPORTED,
                       "%s joins q, k and v in one layer, for which PEFT has other adapters (merge "
                       "the adapters into their base: --merge dense)",
                       bt_arch_at(arch)->hf_class);
    BT_TRY(bt_out_prepare(dest, part, err));
    if (mkdir(part, 0777) != 0)
        return bt_fail_errno(err, BT_IO, errno, "cannot create the folder '%s'", part);
    bt_code code = write_folder(s, part, base, bytes, err);
    if (code == BT_OK && rename(part, dest) != 0)
        code = bt_fail_errno(err, BT_IO, errno, "cannot rename '%s' to '%s'", part, dest);
    if (code != BT_OK) {
        remove_peft_folder(part);
        return code;
    }
    bt_text_printf(notes, "adapters of rank %d%s in the form of PEFT, for %s\n", s->cfg.lora.rank,
                   s->cfg.lora.dora ? " with magnitudes (DoRA)" : "", bt_arch_at(arch)->hf_class);
    if (s->cfg.linear != BT_LIN_DENSE)
        bt_text_put(notes, "they were trained beside ternary layers: PEFT adds them to what the "
                           "float weights of its base compute\n");
    return BT_OK;
}

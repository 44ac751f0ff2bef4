/* adapters_read.c - opens adapters and checks that they fit a model. */
#include "engine/tune/adapters_read.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/interop/init_from.h"
#include "engine/tune/base_weights.h"
#include "engine/tune/peft_config.h"
#include "engine/tune/peft_write.h"

static bt_code check_scale(const char *path, double scale, const bt_model_cfg *model, bt_err *err) {
    if (fabs(scale - model->lora.scale) <= 1e-6 * fabs(model->lora.scale)) return BT_OK;
    return bt_fail(err, BT_ARG,
                   "the adapters of '%.200s' are scaled by %g, but those of this run by %g (give "
                   "the same tune.alpha, tune.rank and tune.rslora, or leave them out)",
                   path, scale, model->lora.scale);
}

static bt_code check_dora(const char *path, bool dora, const bt_model_cfg *model, bt_err *err) {
    if (dora == model->lora.dora) return BT_OK;
    return bt_fail(
        err, BT_ARG,
        "the adapters of '%.200s' have %s magnitudes (DoRA), but those of this run %s (leave "
        "out tune.dora, or give the same)",
        path, dora ? "some" : "no", dora ? "none" : "some");
}

/* For alpha_pattern: each B is multiplied by the ratio of its own scale to that of the model. */
typedef struct scaled {
    float *ratio; /* [params.n] */
} scaled;

static void release_scaled(void *ctx) {
    scaled *x = ctx;
    free(x->ratio);
    free(x);
}

static bt_code read_scaled_tensor(void *ctx, bt_model_file *s, size_t i, uint64_t first,
                                  uint64_t count, float *out, bt_err *err) {
    const float ratio = ((const scaled *)ctx)->ratio[i];
    BT_TRY(bt_model_file_read_own(s, i, first, count, out, err));
    for (uint64_t k = 0; k < count; k++) out[k] *= ratio;
    return BT_OK;
}

/* Writes the name of the module of an adapter's tensor, for example "model.layers.3.self_attn.q_proj". */
static void module_name(char out[BT_PEFT_NAME], const bt_tensor *t) {
    static const char before[] = "base_model.model.";
    char name[BT_PEFT_NAME];
    bt_peft_name(name, t);
    char *end = strstr(name, ".lora_");
    if (end) *end = '\0';
    (void)snprintf(out, BT_PEFT_NAME, "%s", name + sizeof before - 1);
}

static bt_code scale_modules(bt_model_file *s, const bt_peft *p, bt_err *err) {
    const double all = bt_peft_scale(p);
    if (!p->n_patterns) return BT_OK;
    if (!(all > 0))
        return bt_fail(
            err, BT_UNSUPPORTED,
            "'alpha_pattern' cannot be used with a 'lora_alpha' of %g, which is not positive",
            p->alpha);
    scaled *x = calloc(1, sizeof *x);
    float *ratio = malloc(s->params.n * sizeof *ratio);
    if (!x || !ratio) {
        free(x);
        free(ratio);
        return bt_fail(err, BT_NOMEM, "cannot allocate memory to read '%s'", s->path);
    }
    x->ratio = ratio;
    size_t n = 0;
    for (size_t i = 0; i < s->params.n; i++) {
        const bt_tensor *t = &s->params.tensors[i];
        char module[BT_PEFT_NAME];
        module_name(module, t);
        const bool b = t->id == bt_adapter_b(bt_adapter_layer(t->id));
        ratio[i] = b ? (float)(bt_peft_scale_of(p, module) / all) : 1.0f;
        n += ratio[i] < 1 || ratio[i] > 1;
    }
    s->view = (bt_model_view){.ctx = x, .read = read_scaled_tensor, .release = release_scaled};
    bt_text_printf(&s->notes,
                   "alpha_pattern: the scales of %zu layers are part of their lora_B here\n", n);
    return BT_OK;
}

static bool refuse_tensor(const bt_model_file *s, const char *name) {
    (void)s;
    (void)name;
    return false;
}

static bt_stored *find_stored(bt_model_file *s, const bt_tensor *t) {
    char name[BT_PEFT_NAME + sizeof ".weight"];
    bt_peft_name(name, t);
    bt_stored *f = bt_stored_find(&s->stored, name);
    if (f || !t->row_norms) return f;
    memcpy(name + strlen(name), ".weight", sizeof ".weight");
    return bt_stored_find(&s->stored, name);
}

static bt_code find_tensors(bt_model_file *s, const bt_peft *p, bt_err *err) {
    char path[4400];
    bt_err why = BT_ERR_INIT;
    (void)snprintf(path, sizeof path, "%.4000s/%s", s->path, BT_PEFT_WEIGHTS);
    BT_TRY(bt_model_file_tables(s, err));
    BT_TRY(bt_safetensors_read(&s->stored, path, err));
    BT_TRY(bt_stored_sort(&s->stored, err));
    for (size_t i = 0; i < s->params.n; i++) {
        bt_stored *f = find_stored(s, &s->params.tensors[i]);
        if (!f) continue;
        BT_TRY(bt_model_file_check_shape(&s->params.tensors[i], f, BT_ROWS_PLAIN, err));
        f->used = true;
        s->places[i].stored = f;
    }
    bt_code code = bt_model_file_complete(s, refuse_tensor, &why);
    if (code == BT_OK) return scale_modules(s, p, err);
    if (p->some_layers)
        return bt_fail(err, BT_UNSUPPORTED,
                       "'%.200s/" BT_PEFT_CONFIG
                       "': 'layers_to_transform' names only some of the %d layers, but adapters "
                       "must be beside every layer (" BT_PEFT_MERGE ")",
                       s->path, s->cfg.L);
    return bt_fail(err, code, "'%.200s': %s", s->path, why.msg);
}

static bt_code open_for_model(bt_model_file **out, const char *folder, const bt_peft *p,
                              const bt_model_cfg *model, bt_text *notes, bt_err *err) {
    bt_model_file *s = calloc(1, sizeof *s);
    if (!s) return bt_fail(err, BT_NOMEM, "cannot allocate memory to read '%s'", folder);
    s->arch = BT_ARCH_COUNT;
    s->container = BT_IN_HF;
    s->cfg = *model;
    (void)snprintf(s->path, sizeof s->path, "%s", folder);
    bt_text_put(&s->notes, bt_text_str(notes));
    bt_code code = find_tensors(s, p, err);
    if (code != BT_OK)
        bt_model_file_close(s);
    else
        *out = s;
    return code;
}

static bt_code check_peft(const char *folder, const bt_peft *p, const bt_model_cfg *model,
                          bt_err *err) {
    if (p->rank != model->lora.rank)
        return bt_fail(err, BT_ARG,
                       "the adapters of '%.200s' have the rank %d, but those of this run %d (leave "
                       "out tune.rank, or give the same)",
                       folder, p->rank, model->lora.rank);
    if (p->targets != model->lora.targets)
        return bt_fail(err, BT_ARG,
                       "the adapters of '%.200s' belong to other layers than those of this run "
                       "(leave out tune.targets, or give the same)",
                       folder);
    BT_TRY(check_dora(folder, p->dora, model, err));
    return check_scale(folder, bt_peft_scale(p), model, err);
}

/* model: the model whose adapters the folder must contain, or NULL. */
static bt_code open_peft_folder(bt_model_file **out, const char *folder, const bt_model_cfg *model,
                                const bt_model_cfg *expected, const char *base, bt_err *err) {
    bt_text notes = {0};
    bt_model_cfg with = *model;
    bt_peft *p = malloc(sizeof *p);
    bt_code code = p ? bt_peft_read(p, folder, &notes, err)
                     : bt_fail(err, BT_NOMEM, "cannot allocate memory to read '%s'", folder);
    if (code == BT_OK && expected) code = check_peft(folder, p, expected, err);
    if (code == BT_OK && base) bt_peft_compare_base(p, base, &notes);
    if (code == BT_OK && !expected)
        with.lora = (bt_lora){
            .rank = p->rank, .scale = bt_peft_scale(p), .targets = p->targets, .dora = p->dora};
    if (code == BT_OK) code = open_for_model(out, folder, p, &with, &notes, err);
    free(p);
    bt_text_release(&notes);
    return code;
}

bt_code bt_adapters_open_peft(bt_model_file **out, const char *folder, const bt_model_cfg *model,
                              const char *base, bt_err *err) {
    *out = NULL;
    return open_peft_folder(out, folder, model, NULL, base, err);
}

static bt_code check_adapter_model(bt_model_file *s, const bt_model_cfg *model, int64_t base_hash,
                                   bt_err *err) {
    bt_text differences = {0};
    if (!s->cfg.lora.rank)
        return bt_fail(err, BT_ARG, "tune.adapters: '%.200s' contains no adapters", s->path);
    if (s->cfg.lora.rank != model->lora.rank || s->cfg.lora.targets != model->lora.targets)
        return bt_fail(
            err, BT_ARG,
            "the adapters of '%.200s' have the rank %d and those of this run %d, or they belong to "
            "other layers (give the same tune.rank and tune.targets, or leave them out)",
            s->path, s->cfg.lora.rank, model->lora.rank);
    BT_TRY(check_dora(s->path, s->cfg.lora.dora, model, err));
    bt_code code = bt_init_from_check(s, model, &differences, err);
    bt_text_release(&differences);
    BT_TRY(code);
    BT_TRY(check_scale(s->path, s->cfg.lora.scale, model, err));
    const bt_base_weights base = {.hash = base_hash, .trained_on = bt_base_weights_of(&s->meta)};
    return bt_base_weights_check(&base, "the base of this run", err);
}

bt_code bt_adapters_open(bt_model_file **out, const char *path, const bt_model_cfg *model,
                         const bt_adapter_base *base, bt_err *err) {
    *out = NULL;
    if (bt_peft_is(path)) return open_peft_folder(out, path, model, model, base->path, err);
    BT_TRY(bt_model_file_open(out, path, err));
    bt_code code = check_adapter_model(*out, model, base->hash, err);
    if (code == BT_OK) return BT_OK;
    bt_model_file_close(*out);
    *out = NULL;
    return code;
}

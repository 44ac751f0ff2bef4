/* adapters_read.c - opens adapters, and compares them with those of a model. */
#include "engine/tune/adapters_read.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "engine/interop/init_from.h"
#include "engine/tune/base_weights.h"
#include "engine/tune/peft_write.h"

static bt_code check_scale(const char *path, double scale, const bt_model_cfg *model, bt_err *err) {
    if (fabs(scale - model->lora.scale) <= 1e-6 * fabs(model->lora.scale)) return BT_OK;
    return bt_fail(
        err, BT_ARG,
        "the adapters of '%.200s' are scaled by %g, those of this run by %g (give the same "
        "tune.alpha, tune.rank and tune.rslora)",
        path, scale, model->lora.scale);
}

/* ---- PEFT -------------------------------------------------------------------------------------- */

static bt_code read_config(const char *folder, const bt_model_cfg *model, bt_err *err) {
    char path[4400];
    json_error_t why;
    (void)snprintf(path, sizeof path, "%.4000s/%s", folder, BT_PEFT_CONFIG);
    json_t *c = json_load_file(path, 0, &why);
    if (!c) return bt_fail(err, BT_FORMAT, "'%s', line %d: %s", path, why.line, why.text);
    const double r = json_number_value(json_object_get(c, "r")),
                 alpha = json_number_value(json_object_get(c, "lora_alpha"));
    const bool rslora = json_is_true(json_object_get(c, "use_rslora")),
               dora = json_is_true(json_object_get(c, "use_dora"));
    json_decref(c);
    if (!(r >= 1)) return bt_fail(err, BT_FORMAT, "'%s' names no rank (r)", path);
    if (dora) return bt_fail(err, BT_UNSUPPORTED, "'%s': DoRA is not there (use_dora)", path);
    if ((int)r != model->lora.rank)
        return bt_fail(err, BT_ARG,
                       "the adapters of '%.200s' have the rank %g, those of this run %d "
                       "(give the same tune.rank)",
                       folder, r, model->lora.rank);
    return check_scale(folder, alpha / (rslora ? sqrt(r) : r), model, err);
}

static bool none(const bt_model_file *s, const char *name) {
    (void)s;
    (void)name;
    return false;
}

static bt_code find_tensors(bt_model_file *s, bt_err *err) {
    char path[4400], name[BT_PEFT_NAME];
    (void)snprintf(path, sizeof path, "%.4000s/%s", s->path, BT_PEFT_WEIGHTS);
    BT_TRY(bt_model_file_tables(s, err));
    BT_TRY(bt_safetensors_read(&s->stored, path, err));
    BT_TRY(bt_stored_sort(&s->stored, err));
    for (size_t i = 0; i < s->params.n; i++) {
        bt_peft_name(name, &s->params.tensors[i]);
        bt_stored *f = bt_stored_find(&s->stored, name);
        if (!f) continue;
        BT_TRY(bt_model_file_check_shape(&s->params.tensors[i], f, BT_ROWS_PLAIN, err));
        f->used = true;
        s->places[i].stored = f;
    }
    return bt_model_file_complete(s, none, err);
}

static bt_code open_peft(bt_model_file **out, const char *folder, const bt_model_cfg *model,
                         bt_err *err) {
    BT_TRY(read_config(folder, model, err));
    bt_model_file *s = calloc(1, sizeof *s);
    if (!s) return bt_fail(err, BT_NOMEM, "cannot take memory to read '%s'", folder);
    s->arch = BT_ARCH_COUNT;
    s->container = BT_IN_HF;
    s->cfg = *model;
    (void)snprintf(s->path, sizeof s->path, "%s", folder);
    bt_code code = find_tensors(s, err);
    if (code != BT_OK)
        bt_model_file_close(s);
    else
        *out = s;
    return code;
}

/* ---- ours -------------------------------------------------------------------------------------- */

static bt_code check(const bt_model_file *s, const bt_model_cfg *model, int64_t base_hash,
                     bt_err *err) {
    bt_text told = {0};
    if (!s->cfg.lora.rank)
        return bt_fail(err, BT_ARG, "tune.adapters: '%.200s' holds no adapters", s->path);
    if (s->cfg.lora.rank != model->lora.rank || s->cfg.lora.targets != model->lora.targets)
        return bt_fail(
            err, BT_ARG,
            "the adapters of '%.200s' have the rank %d, those of this run %d, or are beside "
            "other layers (give the same tune.rank and tune.targets)",
            s->path, s->cfg.lora.rank, model->lora.rank);
    bt_code code = bt_init_from_check(s, model, &told, err);
    bt_text_release(&told);
    BT_TRY(code);
    BT_TRY(check_scale(s->path, s->cfg.lora.scale, model, err));
    const bt_base_weights base = {.hash = base_hash, .trained_on = bt_base_weights_of(&s->meta)};
    return bt_base_weights_check(&base, "the base of this run", err);
}

bt_code bt_adapters_open(bt_model_file **out, const char *path, const bt_model_cfg *model,
                         int64_t base_hash, bt_err *err) {
    char config[4400];
    *out = NULL;
    (void)snprintf(config, sizeof config, "%.4000s/%s", path, BT_PEFT_CONFIG);
    if (access(config, F_OK) == 0) return open_peft(out, path, model, err);
    BT_TRY(bt_model_file_open(out, path, err));
    bt_code code = check(*out, model, base_hash, err);
    if (code == BT_OK) return BT_OK;
    bt_model_file_close(*out);
    *out = NULL;
    return code;
}

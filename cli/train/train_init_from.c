/* train_init_from.c - finds the folder of the checkpoint that a run starts from, and adopts its shape and tokenizer
 * unless they were given. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/common/given_path.h"
#include "cli/model/checkpoint_folder.h"
#include "cli/model/members.h"
#include "cli/train/train_parts.h"
#include "engine/ckpt/ckpt.h"
#include "engine/config/tune_cfg.h"
#include "engine/interop/model_file.h"
#include "engine/interop/native.h"
#include "engine/tune/peft_config.h"

/* True for settings that the weights determine, and for their tokenizer. */
static bool is_fixed_by_weights(const bt_run_cfg *c, const char *key) {
    /* A classifier keeps its labels, because each is a row of its head. */
    if (strcmp(key, "data.labels") == 0) return c->data.form == BT_FORMED_LABEL;
    if (strcmp(key, "data.tokenizer") == 0) return true;
    return strncmp(key, "model.", 6) == 0 && strcmp(key, "model.init_from") != 0 &&
           strcmp(key, "model.preset") != 0;
}

/* True if the model was tuned with a chat template, which it keeps. */
static bool has_chat_template(const json_t *config) {
    static const char *const forms[] = {"alpaca", "messages", "sharegpt", "preference"};
    const char *form = json_string_value(json_object_get(config, "data.form"));
    for (size_t i = 0; form && i < sizeof forms / sizeof *forms; i++)
        if (strcmp(form, forms[i]) == 0) return true;
    return false;
}

/* A preset that was given keeps its settings of training alone. */
static void note_other_preset(const bt_train_plan *p, const json_t *config) {
    const char *stored = json_string_value(json_object_get(config, "model.preset"));
    const bt_run_cfg *c = &p->cfg;
    if (c->run.quiet || c->run.json || !stored || !bt_opts_given(&p->opts, "model.preset") ||
        strcmp(stored, c->model.preset) == 0)
        return;
    fprintf(stderr,
            "note: the model keeps the shape of '%.80s' (preset %.40s): --preset %s gives only the "
            "settings of training\n",
            c->model.init_from, stored, c->model.preset);
}

static bt_code adopt_checkpoint_shape(bt_train_plan *p, const json_t *config, bt_err *err) {
    note_other_preset(p, config);
    for (size_t i = 0; i < p->opts.n; i++) {
        const char *key = p->opts.table[i].key,
                   *stored = json_string_value(json_object_get(config, key));
        const bool template = strcmp(key, "data.template") == 0 && has_chat_template(config);
        const bool scale = strcmp(key, "model.scale") == 0; /* only ternary layers have scales */
        if (scale && p->cfg.model.linear != BT_LIN_BITNET158) continue;
        if (!(template || is_fixed_by_weights(&p->cfg, key)) || !stored ||
            p->opts.origin[i] > BT_FROM_PRESET)
            continue;
        bt_text value = {0};
        bt_text_put_bytes(&value, stored);
        const bt_code code = bt_opts_set(&p->opts, key, bt_text_str(&value), BT_FROM_PRESET,
                                         "as model.init_from", err);
        bt_text_release(&value);
        BT_TRY(code);
    }
    return BT_OK;
}

static bt_code init_from_checkpoint(bt_train_plan *p, const char *folder, bt_err *err) {
    char path[PATH_MAX];
    bt_ckpt_meta meta;
    static bt_run_cfg known; /* reading these settings refuses a model of another version */
    /* The ranks search again and report skipped checkpoints. */
    BT_TRY(bt_ckpt_find(NULL, folder, path, sizeof path, &meta, NULL, err));
    bt_code code = bt_native_settings(&known, &meta, path, err);
    json_t *config = json_loads(bt_text_str(&meta.config), 0, NULL);
    if (code == BT_OK) code = adopt_checkpoint_shape(p, config, err);
    bt_text_put(&p->tokenizer_of, bt_text_str(&meta.tokenizer));
    json_decref(config);
    bt_ckpt_meta_release(&meta);
    return code;
}

/* The error names the setting, not the database in which its run was searched for. */
static bt_code find_initial_folder(const bt_train_plan *p, const char *key, const char *given,
                                   char folder[PATH_MAX], bt_err *err) {
    char found[PATH_MAX];
    bt_err why = BT_ERR_INIT;
    bt_code code = bt_trained_folder(given, p->store, found, &why);
    if (code != BT_OK)
        return bt_fail(err, code, "%s: '%.80s' is neither a path nor a run: %s", key, given,
                       why.msg);
    return bt_absolute_path(found, folder, err);
}

static bt_code set_path_keeping_origin(bt_train_plan *p, const char *key, const char *path,
                                       bt_err *err) {
    const size_t i = bt_opt_find(p->opts.table, p->opts.n, key);
    char where[sizeof p->opts.where[0]];
    memcpy(where, p->opts.where[i], sizeof where);
    return bt_opts_set(&p->opts, key, path, p->opts.origin[i], where, err);
}

/* Replaces a run or a path by an absolute path, which every rank can find. */
static bt_code make_model_path_absolute(bt_train_plan *p, const char *key, const char *given,
                                        bt_err *err) {
    char folder[PATH_MAX];
    if (!given[0]) return BT_OK;
    BT_TRY(find_initial_folder(p, key, given, folder, err));
    return set_path_keeping_origin(p, key, folder, err);
}

/* Adds the path of one of n teachers to `paths` and its shape to `shape`. An unreadable file makes the shape
 * unknown; the ranks refuse it later. */
static bt_code add_teacher(const bt_train_plan *p, const char *word, size_t n, bt_text *paths,
                           char *shape, bool *known, bt_err *err) {
    char folder[PATH_MAX];
    bt_model_file *file = NULL;
    bt_err why = BT_ERR_INIT;
    BT_TRY(find_initial_folder(p, "tune.teacher", word, folder, err));
    if (n > 1 && strchr(folder, ','))
        return bt_fail(err, BT_ARG,
                       "tune.teacher: '%.200s' has a comma in its path, which separates several "
                       "teachers (move it, or link to it)",
                       folder);
    bt_text_printf(paths, "%s%s", paths->len ? "," : "", folder);
    *known = *known && bt_model_file_open(&file, folder, &why) == BT_OK;
    if (!*known) return BT_OK;
    bt_tune_teacher_write(&file->cfg, shape, sizeof p->cfg.tune.teacher_shape);
    bt_model_file_close(file);
    return BT_OK;
}

/* Replaces tune.teacher by paths, and sets tune.teacher_shape for the memory plan. */
static bt_code find_teacher(bt_train_plan *p, bt_err *err) {
    char shape[sizeof p->cfg.tune.teacher_shape] = "";
    bt_members m;
    bt_text paths = {0};
    bt_err why = BT_ERR_INIT;
    bool known = true;
    if (!p->cfg.tune.teacher[0]) return BT_OK;
    bt_code code = bt_members_find(&m, p->cfg.tune.teacher, p->store, &why);
    if (code == BT_NOTFOUND)
        bt_fail(err, code, "tune.teacher: '%.80s' is no path, run or group: %s",
                p->cfg.tune.teacher, why.msg);
    else if (code != BT_OK)
        bt_fail(err, code, "tune.teacher: %s", why.msg);
    for (size_t i = 0; i < m.n && code == BT_OK; i++)
        code = add_teacher(p, m.words[i], m.n, &paths, shape, &known, err);
    if (code == BT_OK) code = set_path_keeping_origin(p, "tune.teacher", bt_text_str(&paths), err);
    bt_text_release(&paths);
    bt_members_release(&m);
    if (code != BT_OK || !known) return code;
    return bt_opts_set(&p->opts, "tune.teacher_shape", shape, BT_FROM_PRESET, "as tune.teacher",
                       err);
}

static bt_code adopt_one_checkpoint(bt_train_plan *p, const char *key, const char *value,
                                    bt_err *err) {
    if (!value || bt_opts_given(&p->opts, key)) return BT_OK;
    return bt_opts_set(&p->opts, key, value, BT_FROM_PRESET, "as tune.adapters", err);
}

static bt_code adopt_peft_folder(bt_train_plan *p, const char *folder, bt_err *err) {
    bt_peft *peft = malloc(sizeof *peft);
    char rank[16], alpha[40], dropout[40], targets[96];
    bt_code code = peft ? bt_peft_read(peft, folder, NULL, err)
                        : bt_fail(err, BT_NOMEM, "cannot take memory to read '%s'", folder);
    if (code == BT_OK) {
        (void)snprintf(rank, sizeof rank, "%d", peft->rank);
        (void)snprintf(alpha, sizeof alpha, "%.17g", peft->alpha);
        (void)snprintf(dropout, sizeof dropout, "%.17g", peft->dropout);
        bt_tune_targets_write(peft->targets, targets, sizeof targets);
        code = adopt_one_checkpoint(p, "tune.rank", rank, err);
    }
    if (code == BT_OK) code = adopt_one_checkpoint(p, "tune.alpha", alpha, err);
    if (code == BT_OK)
        code = adopt_one_checkpoint(p, "tune.rslora", peft->rslora ? "true" : "false", err);
    if (code == BT_OK)
        code = adopt_one_checkpoint(p, "tune.dora", peft->dora ? "true" : "false", err);
    if (code == BT_OK) code = adopt_one_checkpoint(p, "tune.targets", targets, err);
    if (code == BT_OK) code = adopt_one_checkpoint(p, "tune.dropout", dropout, err);
    free(peft);
    return code;
}

/* Adopts rank, scale, layers and dropout of the adapters that the training starts from, unless they were given. */
static bt_code adopt_adapter_settings(bt_train_plan *p, const char *folder, bt_err *err) {
    static const char *const keys[] = {"tune.rank",    "tune.alpha",   "tune.rslora",
                                       "tune.targets", "tune.dropout", "tune.dora"};
    char path[PATH_MAX];
    bt_ckpt_meta meta;
    bt_text why = {0};
    if (!folder[0] || p->cfg.tune.mode != BT_TUNE_LORA) return BT_OK;
    if (bt_peft_is(folder)) return adopt_peft_folder(p, folder, err);
    bt_code code = bt_ckpt_find(NULL, folder, path, sizeof path, &meta, &why, err);
    bt_text_release(&why);
    BT_TRY(code);
    json_t *config = json_loads(bt_text_str(&meta.config), 0, NULL);
    const char *mode = json_string_value(json_object_get(config, "tune.mode"));
    for (size_t i = 0; mode && strcmp(mode, "lora") == 0 && i < sizeof keys / sizeof *keys; i++)
        if (code == BT_OK)
            code = adopt_one_checkpoint(p, keys[i],
                                        json_string_value(json_object_get(config, keys[i])), err);
    json_decref(config);
    bt_ckpt_meta_release(&meta);
    return code;
}

bt_code bt_train_init_from(bt_train_plan *p, bt_err *err) {
    char folder[PATH_MAX];
    BT_TRY(find_teacher(p, err));
    if (!p->cfg.model.init_from[0]) return BT_OK;
    BT_TRY(find_initial_folder(p, "model.init_from", p->cfg.model.init_from, folder, err));
    if (bt_peft_is(folder))
        return bt_fail(
            err, BT_ARG,
            "model.init_from: '%.200s' contains only adapters of PEFT: name their base here "
            "and them with tune.adapters (--tune lora)",
            folder);
    BT_TRY(bt_model_file_kind(folder) == BT_IN_NATIVE ? init_from_checkpoint(p, folder, err)
                                                      : bt_train_init_foreign(p, folder, err));
    if (p->cfg.tune.mode == BT_TUNE_LORA && !p->cfg.tune.base[0])
        BT_TRY(
            bt_opts_set(&p->opts, "tune.base", folder, BT_FROM_PRESET, "as model.init_from", err));
    BT_TRY(make_model_path_absolute(p, "tune.adapters", p->cfg.tune.adapters, err));
    BT_TRY(adopt_adapter_settings(p, p->cfg.tune.adapters, err));
    return set_path_keeping_origin(p, "model.init_from", folder, err);
}

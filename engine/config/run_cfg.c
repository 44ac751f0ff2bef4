/* run_cfg.c - reads the settings of a run from all sources and applies presets. run_resolve.c checks settings against
 * each other and computes automatic values. */
#include "engine/config/run_cfg.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/log.h"
#include "engine/config/foreign/foreign_data.h"
#include "engine/config/ramp.h"
#include "engine/config/resolve_impl.h"
#include "engine/config/tune_cfg.h"
#include "engine/optim/optim.h"
#include "engine/parallel/grad/codec.h"
#include "engine/parallel/mpi/comm.h"

/* Names in a table with a bar before each, "|adamw|lion|..."; the first bar is skipped. */
static const char optimizers[] =
#define BT_OPTIM(id, name, matrices, rest, lr_factor, help) "|" name
#include "engine/optim/optim.def"
#undef BT_OPTIM
    ;
static const char codecs[] =
#define BT_CODEC(id, name) "|" #name
#include "engine/parallel/grad/codec.def"
#undef BT_CODEC
    ;
#define BT_OPTIMIZERS (optimizers + 1)
#define BT_CODECS (codecs + 1)

#define FIELD(f) offsetof(bt_run_cfg, GROUP.f), sizeof(((bt_run_cfg *)0)->GROUP.f)
#define BT_INT(f, key, flag, def, min, max, unit, help) \
    {key, flag, BT_OPT_INT, FIELD(f), #def, min, max, NULL, unit, help},
#define BT_REAL(f, key, flag, def, min, max, unit, help) \
    {key, flag, BT_OPT_REAL, FIELD(f), #def, min, max, NULL, unit, help},
#define BT_BOOL(f, key, flag, def, help) \
    {key, flag, BT_OPT_BOOL, FIELD(f), def, 0, 0, NULL, NULL, help},
#define BT_ENUM(f, key, flag, def, choices, help) \
    {key, flag, BT_OPT_ENUM, FIELD(f), def, 0, 0, choices, NULL, help},
#define BT_TEXT(f, key, flag, bytes, def, help) \
    {key, flag, BT_OPT_TEXT, FIELD(f), def, 0, 0, NULL, NULL, help},
#define BT_LIST(f, key, flag, bytes, def, help) \
    {key, flag, BT_OPT_LIST, FIELD(f), def, 0, 0, NULL, NULL, help},
#define BT_SCOPE(key, resumes, ranks, why)
#define BT_REFUSE(when, ...)
#define BT_FORCE(purpose, key, value)
#define BT_CHECK(code)
#define BT_WARN(key, when, ...)
#define BT_AUTO(when, assignment)
#define BT_RECIPE(key, fits, ...)
#define BT_PROPERTY(property, when)
#define BT_LAMBDA(value)
const bt_opt bt_run_opts[] = {
#define GROUP run
#include "engine/config/settings/run_settings.def"
#undef GROUP
#include <part_rows_run.def>
#define GROUP alert
#include "engine/config/settings/alert_settings.def"
#undef GROUP
#include <part_rows_alert.def>
#define GROUP launch
#include "engine/config/settings/launch_settings.def"
#undef GROUP
#include <part_rows_launch.def>
#define GROUP model
#include "engine/model/shape/model_settings.def"
#undef GROUP
#include <part_rows_model.def>
#define GROUP tune
#include "engine/config/settings/tune_settings.def"
#undef GROUP
#include <part_rows_tune.def>
#define GROUP data
#include "engine/data/shards/data_settings.def"
#undef GROUP
#include <part_rows_data.def>
#define GROUP train
#include "engine/config/settings/train_settings.def"
#undef GROUP
#include <part_rows_train.def>
#define GROUP parallel
#include "engine/config/settings/parallel_settings.def"
#undef GROUP
#include <part_rows_parallel.def>
#define GROUP comm
#include "engine/config/settings/comm_settings.def"
#undef GROUP
#include <part_rows_comm.def>
#define GROUP islands
#include "engine/config/settings/islands_settings.def"
#undef GROUP
#include <part_rows_islands.def>
#define GROUP optim
#include "engine/optim/optim_settings.def"
#undef GROUP
#include <part_rows_optim.def>
#define GROUP ckpt
#include "engine/config/settings/ckpt_settings.def"
#undef GROUP
#include <part_rows_ckpt.def>
#define GROUP mesh
#include "engine/parallel/mpi/mesh_settings.def"
#undef GROUP
#include <part_rows_mesh.def>
};
#undef BT_INT
#undef BT_REAL
#undef BT_BOOL
#undef BT_ENUM
#undef BT_TEXT
#undef BT_LIST
#undef BT_SCOPE
#undef BT_REFUSE
#undef BT_FORCE
#undef BT_CHECK
#undef BT_WARN
#undef BT_AUTO
#undef BT_RECIPE
#undef BT_PROPERTY
#undef BT_LAMBDA
const size_t bt_run_opts_n = sizeof bt_run_opts / sizeof bt_run_opts[0];

#define BT_FOREIGN(key, ours, values, why) {key, ours, values, why},
static const bt_opt_alias foreign[] = {
#include "engine/config/foreign/foreign_keys.def"
};
#undef BT_FOREIGN

#define BT_REMOVED(key, def, remedy) {key, def, remedy},
const bt_opt_removed bt_run_removed[] = {
#include "engine/config/removed.def"
};
#undef BT_REMOVED
const size_t bt_run_removed_n = sizeof bt_run_removed / sizeof *bt_run_removed;

static bool has_suffix(const char *s, const char *end) {
    const size_t n = strlen(s), k = strlen(end);
    return n > k && strcmp(s + n - k, end) == 0;
}

/* Handles the path of a configuration file. If it is a preset or a text, the error suggests the right option. */
static bt_code read_config_word(bt_opts *o, const char *word, bt_err *err) {
    static const char *const data[] = {".txt", ".jsonl", ".ndjson", ".bts"};
    if (bt_preset_find(word) && access(word, F_OK) != 0)
        return bt_fail(err, BT_ARG,
                       "'%s' is a preset, not a configuration file (did you mean '--preset %s'?)",
                       word, word);
    for (size_t i = 0; i < sizeof data / sizeof data[0]; i++)
        if (has_suffix(word, data[i]))
            return bt_fail(err, BT_ARG,
                           "'%.120s' is data, not a configuration file (did you mean '--data "
                           "%.60s'?)",
                           word, word);
    if (strcmp(word, "help") == 0)
        return bt_fail(err, BT_ARG, "'help' is not a configuration file (did you mean '--help'?)");
    const bt_code code = bt_opts_yaml(o, word, err);
    if (code != BT_NOTFOUND) return code;
    return bt_fail(err, code,
                   "the configuration file '%.140s' does not exist ('bitrain train --print-config' "
                   "prints one to start with)",
                   word);
}

static bt_code read_all_settings(bt_opts *o, bt_run_cfg *cfg, int argc, char *const *argv,
                                 bool *help, bt_err *err) {
    const char *file = NULL;
    size_t n_files = 0;
    BT_TRY(bt_opts_argv(o, argc, argv, &file, 1, &n_files, help, err));
    if (*help) return BT_OK;
    if (n_files) BT_TRY(read_config_word(o, file, err));
    BT_TRY(bt_foreign_data_resolve(o, err));
    BT_TRY(bt_opts_env(o, err));
    return bt_run_cfg_preset(o, cfg, err);
}

bt_code bt_collect_fault(bt_text *faults, bt_code code, bt_err *err) {
    if (code != BT_ARG || !faults || !err) return code;
    bt_text_printf(faults, "%s\n", err->msg);
    return BT_OK;
}

bt_code bt_report_faults(const bt_text *faults, bt_code code, bt_err *err) {
    size_t n = code != BT_OK;
    const char *s = bt_text_str(faults);
    if (!*s) return code;
    for (const char *c = s; *c; c++) n += *c == '\n';
    if (n == 1) return bt_fail(err, BT_ARG, "%.*s", (int)strcspn(s, "\n"), s);
    for (size_t k; *s && bt_comm_rank(bt_comm_world()) == 0; s += k + 1) {
        k = strcspn(s, "\n");
        bt_log(BT_LOG_ERROR, "%.*s", (int)k, s);
        if (!s[k]) break;
    }
    if (code != BT_OK) return code; /* the error that ended reading */
    return bt_fail(err, BT_ARG, "%zu settings are wrong; each line above names one", n);
}

/* Logs a list of items separated by ", ", on several lines if it is long. */
static void log_list(bt_log_level level, const char *title, const bt_text *list) {
    enum { LINE = 800 };
    for (const char *s = bt_text_str(list); *s;) {
        size_t n = strlen(s);
        if (n > LINE)
            for (n = LINE; n && strncmp(s + n, ", ", 2) != 0;) n--;
        if (!n) n = strlen(s);
        bt_log(level, "%s: %.*s", title, (int)n, s);
        s += n;
        s += strspn(s, ", ");
    }
}

/* Reports the keys of another program's file in three lists: used, ignored, and replaced by an option. */
static bt_code report_file(const bt_opts *o, bt_code code, bt_err *err) {
    const bool first = bt_comm_rank(bt_comm_world()) == 0, wrong = o->faults->len > 0;
    if (first && o->taken->len && (code == BT_OK || wrong))
        log_list(wrong ? BT_LOG_ERROR : BT_LOG_INFO, "taken", o->taken);
    if (first && o->ignored->len && (code == BT_OK || wrong))
        log_list(wrong ? BT_LOG_ERROR : BT_LOG_WARN,
                 "ignored, because they have no value or change nothing here", o->ignored);
    if (first && wrong && o->taken->len)
        bt_log(BT_LOG_ERROR, "to be answered: change or remove these keys, or give the option that "
                             "is named on the command line");
    return bt_report_faults(o->faults, code, err);
}

bt_code bt_run_cfg_read(bt_opts *o, bt_run_cfg *cfg, int argc, char *const *argv, bool *help,
                        bt_err *err) {
    bt_text faults = {0}, ignored = {0}, taken = {0};
    memset(cfg, 0, sizeof *cfg);
    BT_TRY(bt_opts_init(o, bt_run_opts, bt_run_opts_n, cfg, err));
    o->aliases = foreign;
    o->n_aliases = sizeof foreign / sizeof *foreign;
    o->removed = bt_run_removed;
    o->n_removed = bt_run_removed_n;
    o->faults = &faults;
    o->ignored = &ignored;
    o->taken = &taken;
    const bt_code code = report_file(o, read_all_settings(o, cfg, argc, argv, help, err), err);
    o->faults = o->ignored = o->taken = NULL;
    bt_text_release(&faults);
    bt_text_release(&ignored);
    bt_text_release(&taken);
    return code;
}

static bool is_set(const bt_opts *o, const char *key) {
    size_t i = bt_opt_find(o->table, o->n, key);
    return i < o->n && o->origin[i] > BT_FROM_PRESET;
}

static void choice_text(const bt_opts *o, const char *key, int index, char *buf, size_t size) {
    const char *c = o->table[bt_opt_find(o->table, o->n, key)].choices;
    for (; index > 0; index--) c += strcspn(c, "|") + 1;
    snprintf(buf, size, "%.*s", (int)strcspn(c, "|"), c);
}

/* Returns a factor for the preset's learning rate. For a smaller model than the preset's, AdamW's rate grows in inverse
 * proportion to width times layers, at most twofold; larger models keep the rate (engine/config/recipe.md). Runs with
 * existing weights, with adapters, or with the token stream for comparisons with other trainers keep it, too. */
static double rate_factor(const bt_run_cfg *cfg, const bt_preset *p) {
    const double most = 2, factor = (double)p->model.C / (double)cfg->model.d_model *
                                    ((double)p->model.L / (double)cfg->model.layers);
    if (cfg->optim.name != BT_OPTIM_ADAMW || cfg->model.init_from[0] ||
        cfg->tune.mode == BT_TUNE_LORA || strncmp(cfg->data.path, "synth:", 6) == 0)
        return 1;
    return factor < 1 ? 1 : factor > most ? most : factor;
}

static bt_code preset_rate(bt_opts *o, const bt_run_cfg *cfg, const bt_preset *p, bt_err *err) {
    const double factor = rate_factor(cfg, p);
    char text[64], where[64];
    snprintf(text, sizeof text, "%.17g",
             p->lr * bt_optim_info_of((bt_optim_id)cfg->optim.name)->lr_factor * factor);
    snprintf(where, sizeof where, "preset %s%s", p->name,
             factor > 1 ? ", for a smaller model" : "");
    return bt_opts_set(o, "optim.lr", text, BT_FROM_PRESET, where, err);
}

bt_code bt_run_cfg_preset_rate(bt_opts *o, const bt_run_cfg *cfg, bt_err *err) {
    const bt_preset *p = bt_preset_find(cfg->model.preset);
    return p ? preset_rate(o, cfg, p, err) : BT_OK;
}

bt_code bt_run_cfg_preset(bt_opts *o, bt_run_cfg *cfg, bt_err *err) {
    const bt_preset *p = bt_preset_find(cfg->model.preset);
    if (!p) {
        const char *names[32];
        size_t n = bt_preset_count() < 32 ? bt_preset_count() : 32;
        char list[160] = "";
        for (size_t i = 0; i < n; i++) {
            size_t used = strlen(list);
            names[i] = bt_preset_at(i)->name;
            snprintf(list + used, sizeof list - used, "%s%s", i ? " " : "", names[i]);
        }
        const char *near = bt_nearest(cfg->model.preset, names, n);
        if (near)
            return bt_fail(err, BT_ARG, "unknown preset '%s' (did you mean '%s'? known: %s)",
                           cfg->model.preset, near, list);
        return bt_fail(err, BT_ARG, "unknown preset '%s' (known: %s)", cfg->model.preset, list);
    }
    const bt_model_cfg *m = &p->model;
    char where[48];
    snprintf(where, sizeof where, "preset %s", p->name);
    const struct {
        const char *key;
        int64_t value;
    } whole[] = {
        {"model.layers", m->L}, {"model.d_model", m->C},
        {"model.heads", m->H},  {"model.kv_heads", m->KV},
        {"model.d_ff", m->F},   {"model.seq_len", m->T},
        {"model.vocab", m->V},  {"train.batch_tokens", p->batch_tokens},
    };
    bool synth = strncmp(cfg->data.path, "synth:", 6) == 0,
         subln = is_set(o, "model.norm") ? cfg->model.norm == (int)BT_NORM_SUBLN
                                         : m->norm == BT_NORM_SUBLN;
    double std = p->text_std > 0 && subln && !synth ? p->text_std : m->init_std;
    const struct {
        const char *key;
        double value;
    } real[] = {
        {"model.rope_theta", m->rope_theta},
        {"model.norm_eps", m->norm_eps},
        {"model.init_std", std},
    };
    const struct {
        const char *key;
        int value;
    } word[] = {
        {"model.norm", (int)m->norm},
        {"model.act", (int)m->act},
        {"model.linear", (int)m->linear},
    };
    const struct {
        const char *key;
        bool value;
    } yes[] = {{"model.tied", m->tied}, {"model.qk_norm", m->qk_norm}};
    char text[64];
    for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++) {
        snprintf(text, sizeof text, "%lld", (long long)whole[i].value);
        BT_TRY(bt_opts_set(o, whole[i].key, text, BT_FROM_PRESET, where, err));
    }
    for (size_t i = 0; i < sizeof real / sizeof real[0]; i++) {
        snprintf(text, sizeof text, "%.17g", real[i].value);
        BT_TRY(bt_opts_set(o, real[i].key, text, BT_FROM_PRESET, where, err));
    }
    BT_TRY(preset_rate(o, cfg, p, err));
    for (size_t i = 0; i < sizeof word / sizeof word[0]; i++) {
        choice_text(o, word[i].key, word[i].value, text, sizeof text);
        BT_TRY(bt_opts_set(o, word[i].key, text, BT_FROM_PRESET, where, err));
    }
    for (size_t i = 0; i < sizeof yes / sizeof yes[0]; i++)
        BT_TRY(bt_opts_set(o, yes[i].key, yes[i].value ? "true" : "false", BT_FROM_PRESET, where,
                           err));
    /* otherwise head_dim is d_model / heads */
    if (m->D * m->H != m->C) {
        snprintf(text, sizeof text, "%d", m->D);
        BT_TRY(bt_opts_set(o, "model.head_dim", text, BT_FROM_PRESET, where, err));
    }
    /* settings that depend on a setting of the user follow it */
    if (m->KV == m->H && is_set(o, "model.heads")) {
        snprintf(text, sizeof text, "%lld", (long long)cfg->model.heads);
        BT_TRY(bt_opts_set(o, "model.kv_heads", text, BT_FROM_PRESET, "as model.heads", err));
    }
    if (cfg->train.micro_batch && cfg->train.accum && !is_set(o, "train.batch_tokens"))
        BT_TRY(bt_opts_set(o, "train.batch_tokens", "0", BT_FROM_PRESET, "auto", err));
    /* the token stream for comparisons: other trainers use a constant rate */
    if (synth) {
        BT_TRY(bt_opts_set(o, "optim.schedule", "constant", BT_FROM_PRESET, "as the data is synth",
                           err));
        BT_TRY(bt_opts_set(o, "optim.warmup", "0", BT_FROM_PRESET, "as the data is synth", err));
    }
    return BT_OK;
}

int64_t bt_run_cfg_tokens(const bt_run_cfg *cfg) {
    return cfg->train.steps * cfg->train.batch_tokens;
}

const char *bt_run_cfg_not_from_text(const bt_run_cfg *cfg) {
    return cfg->model.init_from[0]            ? "--init-from"
           : cfg->tune.teacher[0]             ? "--teacher"
           : cfg->tune.logits[0]              ? "tune.logits"
           : cfg->islands.hub[0]              ? "--hub"
           : cfg->data.form != BT_FORMED_TEXT ? "a data.form other than text"
                                              : NULL;
}

void bt_run_cfg_make_dense(bt_run_cfg *cfg) {
    cfg->model.linear = BT_LIN_DENSE;
    cfg->model.scale = BT_SCALE_TENSOR;
    cfg->train.grad = BT_GRAD_FLOAT;
}

bool bt_run_cfg_is_reward_model(const bt_run_cfg *cfg) {
    return cfg->data.form == BT_FORMED_PREFERENCE && cfg->tune.preference == BT_PREFER_REWARD;
}

int bt_run_cfg_classes(const bt_run_cfg *cfg) {
    if (bt_run_cfg_is_reward_model(cfg)) return 1;
    int n = cfg->data.labels[0] != '\0';
    for (const char *c = cfg->data.labels; *c; c++) n += *c == '\n';
    return n;
}

void bt_run_cfg_model(const bt_run_cfg *cfg, bt_model_cfg *out) {
    *out = (bt_model_cfg){
        .L = (int)cfg->model.layers,
        .C = (int)cfg->model.d_model,
        .H = (int)cfg->model.heads,
        .KV = (int)cfg->model.kv_heads,
        .D = (int)(cfg->model.head_dim ? cfg->model.head_dim
                                       : cfg->model.d_model / cfg->model.heads),
        .F = (int)cfg->model.d_ff,
        .T = (int)cfg->model.seq_len,
        .V = (int)cfg->model.vocab,
        .norm = (bt_norm_kind)cfg->model.norm,
        .act = (bt_act)cfg->model.act,
        .linear = (bt_linear_kind)cfg->model.linear,
        .scale = (bt_scale_kind)cfg->model.scale,
        .tied = cfg->model.tied ||
                bt_run_cfg_classes(cfg) >
                    0, /* a classifier or reward model has no head for the vocabulary */
        .qk_norm = cfg->model.qk_norm,
        .qkv_bias = cfg->model.qkv_bias,
        .rope_theta = cfg->model.rope_theta,
        .no_rope_every = (int)cfg->model.no_rope_every,
        .window = (int)cfg->model.window,
        .window_every = (int)cfg->model.window_every,
        .rope_local_theta = cfg->model.rope_local_theta,
        .post_norm = cfg->model.post_norm,
        .embed_scale = cfg->model.embed_scale,
        .query_scale = cfg->model.query_scale,
        .attention_cap = cfg->model.attention_cap,
        .rotary_dim = (int)cfg->model.rotary_dim,
        .rope = {.method = (bt_rope_method)cfg->model.rope_scaling,
                 .factor = cfg->model.rope_factor,
                 .context = (int)cfg->model.rope_context,
                 .low = cfg->model.rope_low,
                 .high = cfg->model.rope_high,
                 .attention = cfg->model.rope_attention},
        .norm_eps = cfg->model.norm_eps,
        .init_std = cfg->model.init_std,
        .init_embed = cfg->model.init_embed,
        .init_out = (bt_init_out)cfg->model.init_out,
        .logit_cap = cfg->model.logit_cap,
        .lora = bt_tune_lora(cfg),
        .classes = bt_run_cfg_classes(cfg),
    };
    bt_rope_divisors_read(&out->rope.shorter, cfg->model.rope_short);
    bt_rope_divisors_read(&out->rope.longer, cfg->model.rope_long);
}

void bt_run_cfg_mesh(const bt_run_cfg *cfg, bt_mesh_shape *out) {
    *out = (bt_mesh_shape){.pp = (int)cfg->mesh.pp,
                           .dp_replicate = (int)cfg->mesh.dp_replicate,
                           .dp_shard = (int)cfg->mesh.dp_shard,
                           .tp = (int)cfg->mesh.tp};
}

void bt_run_cfg_json(const bt_opts *o, bt_text *out) {
    bt_json j;
    bt_text value;
    bt_text_init(&value);
    bt_json_begin(&j, out);
    bt_json_object(&j, NULL);
    for (size_t i = 0; i < o->n; i++) {
        const void *field = (const char *)o->values + o->table[i].offset;
        bt_text_clear(&value);
        bt_opt_value(o, i, &value);
        bt_json_object(&j, o->table[i].key);
        switch (o->table[i].type) {
        case BT_OPT_INT:
        case BT_OPT_BOOL: bt_json_raw(&j, "value", bt_text_str(&value)); break;
        case BT_OPT_REAL: bt_json_num(&j, "value", *(const double *)field); break;
        case BT_OPT_ENUM:
        case BT_OPT_TEXT: bt_json_bytes(&j, "value", bt_text_str(&value)); break;
        case BT_OPT_LIST: {
            bt_json_array(&j, "value");
            for (char *item = value.len ? value.data : NULL, *end; item; item = end) {
                end = strchr(item, '\n');
                if (end) *end++ = '\0';
                bt_json_bytes(&j, NULL, item);
            }
            bt_json_end(&j, ']');
            break;
        }
        }
        bt_json_str(&j, "origin", bt_origin_name(o->origin[i]));
        bt_json_str(&j, "where", o->where[i]);
        bt_json_end(&j, '}');
    }
    bt_json_end(&j, '}');
    if (value.failed) out->failed = true;
    bt_text_release(&value);
}

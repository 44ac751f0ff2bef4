/* train_init_foreign.c - settings that a training adopts from another program's model: the shape and the tokenizer,
 * unless they were given. */
#include <stdio.h>
#include <string.h>

#include "cli/train/train_parts.h"
#include "engine/base/log.h"
#include "engine/interop/native.h"

/* Adopts the model's settings except the sequence length. */
static bt_code adopt_foreign_shape(bt_train_plan *p, bt_run_cfg *of, bt_err *err) {
    static const char *const keys[] = {
        "model.layers",           "model.d_model",       "model.heads",       "model.kv_heads",
        "model.head_dim",         "model.d_ff",          "model.norm",        "model.act",
        "model.linear",           "model.tied",          "model.vocab",       "model.qk_norm",
        "model.rope_theta",       "model.norm_eps",      "model.qkv_bias",    "model.rope_scaling",
        "model.rope_factor",      "model.rope_context",  "model.rope_low",    "model.rope_high",
        "model.rope_attention",   "model.no_rope_every", "model.window",      "model.window_every",
        "model.rope_local_theta", "model.post_norm",     "model.embed_scale", "model.query_scale",
        "model.attention_cap",    "model.rotary_dim",    "model.logit_cap",   "model.rope_short",
        "model.rope_long",        "model.scale"};
    const bt_opts from = {.table = bt_run_opts, .n = bt_run_opts_n, .values = of};
    bt_text value = {0};
    bt_code code = BT_OK;
    for (size_t i = 0; i < sizeof keys / sizeof *keys && code == BT_OK; i++) {
        const bool scale = strcmp(keys[i], "model.scale") ==
                           0; /* only ternary layers have scales */
        if (bt_opts_given(&p->opts, keys[i])) continue;
        if (scale && p->cfg.model.linear != BT_LIN_BITNET158) continue;
        if (bt_opts_given(&p->opts, "model.preset") && strcmp(keys[i], "model.vocab") != 0)
            continue;
        bt_text_clear(&value);
        bt_opt_value(&from, bt_opt_find(from.table, from.n, keys[i]), &value);
        code = bt_opts_set(&p->opts, keys[i], bt_text_str(&value), BT_FROM_PRESET,
                           "as model.init_from", err);
    }
    bt_text_release(&value);
    return code;
}

static bt_code adopt_tokenizer(bt_train_plan *p, const bt_model_file *s, bt_err *err) {
    char path[sizeof p->cfg.data.tokenizer];
    if (!s->tokenizer) {
        if (bt_opts_given(&p->opts, "data.tokenizer")) return BT_OK;
        return bt_fail(err, s->no_tokenizer.code,
                       "model.init_from: '%.200s' has no tokenizer that can be used (give one with "
                       "--tokenizer): %s",
                       s->path, s->no_tokenizer.msg);
    }
    bt_tokenizer_save(s->tokenizer, &p->tokenizer_of);
    if (bt_opts_given(&p->opts, "data.tokenizer") ||
        strcmp(bt_tokenizer_kind(s->tokenizer), "bytes") == 0)
        return BT_OK;
    BT_TRY(bt_train_keep_tokenizer(p, s->tokenizer, bt_tokenizer_hash(s->tokenizer), path,
                                   sizeof path, err));
    return bt_opts_set(&p->opts, "data.tokenizer", path, BT_FROM_PRESET, "as model.init_from", err);
}

/* Prints the notes only for a plan; in a training the ranks report them when they read the weights. */
static void print_notes(const bt_train_plan *p, const bt_model_file *s) {
    const char *line = bt_text_str(&s->notes);
    for (size_t n; (p->cfg.run.dry_run || p->cfg.run.print_config) && *line;
         line += n + (line[n] != 0)) {
        n = strcspn(line, "\n");
        bt_log(BT_LOG_WARN, "%s: %.*s", s->path, (int)n, line);
    }
}

bt_code bt_train_init_foreign(bt_train_plan *p, const char *path, bt_err *err) {
    static bt_run_cfg of;
    bt_model_file *s = NULL;
    BT_TRY(bt_model_file_open(&s, path, err));
    bt_model_cfg model = s->cfg;
    if (model.T > BT_CONTEXT_MOST) model.T = BT_CONTEXT_MOST;
    bt_code code = bt_native_settings_of(&of, &model, "", err);
    if (code == BT_OK) code = adopt_foreign_shape(p, &of, err);
    if (code == BT_OK && strncmp(p->cfg.data.path, "synth:", 6) != 0)
        code = adopt_tokenizer(p, s, err);
    if (code == BT_OK) print_notes(p, s);
    bt_model_file_close(s);
    return code;
}

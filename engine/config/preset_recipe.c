/* preset_recipe.c - values of a preset for a run whose tokenizer was trained on its text. */
#include <inttypes.h>
#include <stdio.h>

#include "engine/config/part_rules.h"
#include "engine/optim/optim.h"

static bool is_set(const bt_opts *o, const char *key) {
    size_t i = bt_opt_find(o->table, o->n, key);
    return i < o->n && o->origin[i] > BT_FROM_PRESET;
}

static bool is_any_set(const bt_opts *o, const char *const *keys) {
    for (; *keys; keys++)
        if (is_set(o, *keys)) return true;
    return false;
}

/* Sets values for long texts, which were measured with AdamW and tied weights. With them a model would memorise a short
 * text, and existing weights would change too fast. */
static bt_code set_long_text_values(bt_opts *o, const bt_run_cfg *cfg, const bt_preset *p,
                                    int64_t step_tokens, bt_err *err) {
    char embed_lr[32], init_embed[32], beta1[32], where[64];
    snprintf(where, sizeof where, "preset %s, for tokens learned from long text", p->name);
    snprintf(embed_lr, sizeof embed_lr, "%g", p->word_embed_lr);
    snprintf(init_embed, sizeof init_embed, "%g", p->word_init_embed);
    snprintf(beta1, sizeof beta1, "%g", p->word_beta1);
    const struct {
        const char *key, *value;
    } better[] = {
        {"optim.embed_lr", embed_lr}, {"model.init_embed", init_embed}, {"optim.beta1", beta1}};
    if (cfg->model.init_from[0] || cfg->optim.name != BT_OPTIM_ADAMW || !cfg->model.tied)
        return BT_OK;
    for (size_t i = 0; i < sizeof better / sizeof better[0]; i++)
        if (!is_set(o, better[i].key))
            BT_TRY(bt_opts_set(o, better[i].key, better[i].value, BT_FROM_PRESET, where, err));
    const char *key;
    char value[64];
    for (size_t i = 0; bt_part_recipe(cfg, p, step_tokens, i, &key, value, sizeof value); i++)
        if (value[0] && !is_set(o, key))
            BT_TRY(bt_opts_set(o, key, value, BT_FROM_PRESET, where, err));
    return BT_OK;
}

/* Returns the number of data-parallel ranks. */
static int64_t replicas(const bt_run_cfg *cfg, int ranks) {
    const int64_t inner = cfg->mesh.pp * cfg->mesh.tp;
    return inner > 0 && ranks > inner ? ranks / inner : 1;
}

/* Returns the preset's tokens per step for a trained tokenizer; 0 if the user has chosen another size of steps. */
static int64_t preset_step_tokens(const bt_opts *o, const bt_run_cfg *cfg, const bt_preset *p,
                                  int ranks) {
    static const char *const sizes[] = {"train.steps",
                                        "train.tokens",
                                        "train.epochs",
                                        "train.batch_tokens",
                                        "train.micro_batch",
                                        "train.accum",
                                        NULL};
    if (is_any_set(o, sizes) || cfg->mesh.pp > 1) return 0;
    return p->word_batch_tokens % (cfg->model.seq_len * replicas(cfg, ranks))
               ? 0
               : p->word_batch_tokens;
}

/* Returns the tokens per step of a run whose step size is not that of preset_step_tokens. */
static int64_t step_tokens(const bt_run_cfg *cfg, const bt_preset *p, int ranks) {
    const int64_t parts = cfg->train.micro_batch * cfg->train.accum * cfg->model.seq_len *
                          replicas(cfg, ranks);
    if (cfg->train.batch_tokens) return cfg->train.batch_tokens;
    return parts ? parts : p->batch_tokens;
}

bt_code bt_run_cfg_words(bt_opts *o, const bt_run_cfg *cfg, int ranks, bool learned, bt_err *err) {
    const bt_preset *p = bt_preset_find(cfg->model.preset);
    char text[32], where[64];
    if (!p || p->word_embed_lr == 0) return BT_OK;
    const int64_t small = preset_step_tokens(o, cfg, p, ranks);
    snprintf(where, sizeof where, "preset %s, for learned tokens", p->name);
    if (!is_set(o, "model.init_out"))
        BT_TRY(bt_opts_set(o, "model.init_out", "zero", BT_FROM_PRESET, where, err));
    if (learned)
        BT_TRY(set_long_text_values(o, cfg, p, small ? small : step_tokens(cfg, p, ranks), err));
    if (!small) return BT_OK;
    snprintf(text, sizeof text, "%" PRId64, small);
    BT_TRY(bt_opts_set(o, "train.batch_tokens", text, BT_FROM_PRESET, where, err));
    snprintf(text, sizeof text, "%" PRId64, p->word_steps);
    return bt_opts_set(o, "train.steps", text, BT_FROM_PRESET, where, err);
}

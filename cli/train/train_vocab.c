/* train_vocab.c - the vocabulary of a model whose model.vocab nobody gave: as many tokens as its
 * tokenizer has. A row of the embedding for a token that the tokenizer never makes is a parameter
 * that is never trained. Synthetic data has no tokenizer: the preset's vocabulary stays. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "cli/train/train_parts.h"
#include "engine/ckpt/ckpt.h"
#include "engine/data/tokenizer/tokenizer.h"
#include "engine/interop/model_file.h"

static bt_code of_tokenizer(const bt_run_cfg *c, long long *vocab, bt_err *err) {
    bt_tokenizer *t;
    if (sscanf(c->tokenizer, "bpe:%lld", vocab) == 1) return BT_OK; /* of a plan that is printed */
    BT_TRY(bt_tokenizer_load(&t, c->tokenizer[0] ? c->tokenizer : "bytes", err));
    *vocab = bt_tokenizer_vocab(t);
    bt_tokenizer_free(t);
    return BT_OK;
}

/* of the weights that training starts from; 0: the checkpoint does not say */
static bt_code of_checkpoint(const bt_run_cfg *c, long long *vocab, bt_err *err) {
    char path[PATH_MAX];
    bt_ckpt_meta meta;
    bt_text why = {0};
    bt_code code = bt_ckpt_find(NULL, c->init_from, path, sizeof path, &meta, &why, err);
    bt_text_release(&why);
    BT_TRY(code);
    json_t *config = json_loads(bt_text_str(&meta.config), 0, NULL);
    const char *text = json_string_value(json_object_get(config, "model.vocab"));
    *vocab = 0;
    if (text) sscanf(text, "%lld", vocab);
    json_decref(config);
    bt_ckpt_meta_release(&meta);
    return BT_OK;
}

bt_code bt_train_vocab(bt_train_plan *p, bt_err *err) {
    const size_t i = bt_opt_find(p->opts.table, p->opts.n, "model.vocab");
    const bool weights = p->cfg.init_from[0] != '\0';
    long long vocab = 0;
    char text[24];
    if (p->opts.origin[i] > BT_FROM_PRESET || strncmp(p->cfg.data, "synth:", 6) == 0) return BT_OK;
    /* of another program: bt_train_init_foreign has set it */
    if (weights && bt_model_file_kind(p->cfg.init_from) != BT_IN_NATIVE) return BT_OK;
    BT_TRY(weights ? of_checkpoint(&p->cfg, &vocab, err) : of_tokenizer(&p->cfg, &vocab, err));
    if (!vocab || vocab == p->cfg.vocab) return BT_OK;
    snprintf(text, sizeof text, "%lld", vocab);
    return bt_opts_set(&p->opts, "model.vocab", text, BT_FROM_PRESET,
                       weights ? "as model.init_from" : "as data.tokenizer", err);
}

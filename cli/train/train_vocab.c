/* train_vocab.c - settings that the tokenizer determines.
 *
 * model.vocab, unless given, is the number of tokens of the tokenizer, because embedding rows of tokens that never
 * occur are not trained. Synthetic data has no tokenizer and uses the preset's vocabulary.
 *
 * data.template of conversations, unless given, is the template with which the base model was tuned. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/train/train_parts.h"
#include "engine/ckpt/ckpt.h"
#include "engine/data/chat/instruct.h"
#include "engine/data/chat/labels.h"
#include "engine/data/io/sources.h"
#include "engine/data/tokenizer/tokenizer.h"
#include "engine/interop/model_file.h"

static bt_code vocab_of_tokenizer(const bt_run_cfg *c, long long *vocab, bt_err *err) {
    bt_tokenizer *t;
    if (sscanf(c->data.tokenizer, "bpe:%lld", vocab) == 1)
        return BT_OK; /* a plan is only printed */
    BT_TRY(bt_tokenizer_load(&t, c->data.tokenizer[0] ? c->data.tokenizer : "bytes", err));
    *vocab = bt_tokenizer_vocab(t);
    bt_tokenizer_free(t);
    return BT_OK;
}

/* Reads the vocabulary size of the initial weights; 0: the checkpoint does not contain it. */
static bt_code vocab_of_checkpoint(const bt_run_cfg *c, long long *vocab, bt_err *err) {
    char path[PATH_MAX];
    bt_ckpt_meta meta;
    bt_text why = {0};
    bt_code code = bt_ckpt_find(NULL, c->model.init_from, path, sizeof path, &meta, &why, err);
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
    const bool weights = p->cfg.model.init_from[0] != '\0';
    long long vocab = 0;
    char text[24];
    if (p->opts.origin[i] > BT_FROM_PRESET || strncmp(p->cfg.data.path, "synth:", 6) == 0)
        return BT_OK;
    /* bt_train_init_foreign has set it for another program's model. */
    if (weights && bt_model_file_kind(p->cfg.model.init_from) != BT_IN_NATIVE) return BT_OK;
    BT_TRY(weights ? vocab_of_checkpoint(&p->cfg, &vocab, err)
                   : vocab_of_tokenizer(&p->cfg, &vocab, err));
    if (!vocab || vocab == p->cfg.model.vocab) return BT_OK;
    snprintf(text, sizeof text, "%lld", vocab);
    return bt_opts_set(&p->opts, "model.vocab", text, BT_FROM_PRESET,
                       weights ? "as model.init_from" : "as data.tokenizer", err);
}

static bool is_conversation(const bt_run_cfg *c) {
    return c->data.form == BT_FORM_ALPACA || c->data.form == BT_FORM_MESSAGES ||
           c->data.form == BT_FORM_SHAREGPT || c->data.form == BT_FORM_PREFERENCE;
}

/* Returns the template of the tokenizer, or the one to which its special tokens belong. */
static bt_code find_template(const bt_tokenizer *t, const bt_chat_template **out, const char **how,
                             bt_err *err) {
    const char *jinja = bt_tokenizer_chat_template(t);
    bt_err why = BT_ERR_INIT;
    if (!jinja) {
        *out = bt_chat_of_tokenizer(t);
        *how = "by the tokenizer's special tokens";
        if (!(*out)->marks) *out = NULL;
        return BT_OK;
    }
    if (bt_chat_of_jinja(out, jinja, how, &why) == BT_OK) return BT_OK;
    return bt_fail(err, why.code, "%s: name the one that is like it with --set data.template=NAME",
                   why.msg);
}

bt_code bt_train_template(bt_train_plan *p, bt_err *err) {
    const bt_chat_template *row = NULL;
    const char *how = "";
    bt_tokenizer *t = NULL;
    if (strcmp(p->cfg.data.template, "auto") != 0 || !is_conversation(&p->cfg)) return BT_OK;
    if (strncmp(p->cfg.data.tokenizer, "bpe:", 4) == 0) return BT_OK; /* a plan is only printed */
    BT_TRY(bt_tokenizer_load(&t, p->cfg.data.tokenizer[0] ? p->cfg.data.tokenizer : "bytes", err));
    bt_code code = find_template(t, &row, &how, err);
    if (code == BT_OK && row)
        code = bt_opts_set(&p->opts, "data.template", row->name, BT_FROM_PRESET, how, err);
    bt_tokenizer_free(t);
    return code;
}

static bt_code scan_data_labels(const bt_run_cfg *c, bt_text *list, bt_err *err) {
    bt_sources files = {0};
    BT_TRY(bt_sources_list_glob(&files, c->data.path, c->data.glob, c->data.cache, err));
    bt_code code = bt_labels_scan(files.items, files.n, c->data.bad_rows == BT_BAD_ROWS_SKIP, list,
                                  err);
    bt_sources_release(&files);
    return code;
}

bt_code bt_train_labels(bt_train_plan *p, bt_err *err) {
    bt_text list = {0};
    if (p->cfg.data.form != BT_FORMED_LABEL) return BT_OK;
    if (p->cfg.data.labels[0]) return bt_labels_check(p->cfg.data.labels, err);
    bt_code code = scan_data_labels(&p->cfg, &list, err);
    if (code == BT_OK && list.len >= sizeof p->cfg.data.labels)
        code = bt_fail(err, BT_ARG, "the names of %zu labels are longer than %zu bytes",
                       bt_labels_count(bt_text_str(&list)), sizeof p->cfg.data.labels - 1);
    if (code == BT_OK)
        code = bt_opts_set(&p->opts, "data.labels", bt_text_str(&list), BT_FROM_PRESET,
                           "as data.path has them", err);
    bt_text_release(&list);
    return code;
}

/* Larger texts have room for every preset's sequences, so their tokens are not counted. */
static const uint64_t LITTLE_BYTES = 1 << 18;
/* Minimum number of sequences in a text, and minimum length of a sequence. */
enum { SEQUENCES = 8, LEAST_T = 16 };
static bool is_given_by_the_user(const bt_train_plan *p, const char *key) {
    return p->opts.origin[bt_opt_find(p->opts.table, p->opts.n, key)] > BT_FROM_PRESET;
}

/* True for a new run on little plain text of this machine. Errors of the data are reported where it is opened. */
static bool is_little_text(const bt_train_plan *p) {
    const bt_run_cfg *c = &p->cfg;
    char cache[PATH_MAX];
    bt_sources found = {0};
    bt_err ignored = BT_ERR_INIT;
    uint64_t bytes = 0;
    if (p->resume || p->from.dir[0] || c->data.form != BT_FORMED_TEXT || c->model.init_from[0] ||
        c->launch.hosts[0] || !c->data.path[0] || strncmp(c->data.path, "synth:", 6) == 0 ||
        c->data.packing > BT_PACKED_STREAM || !(c->data.val_frac > 0) || c->data.val_path[0] ||
        bt_train_cache(p, cache, &ignored) != BT_OK ||
        bt_sources_list_glob(&found, c->data.path, c->data.glob, cache, &ignored) != BT_OK)
        return false;
    for (size_t i = 0; i < found.n; i++) bytes += found.items[i].bytes;
    bt_sources_release(&found);
    return bytes < LITTLE_BYTES;
}

static bt_code set_for_little_text(bt_train_plan *p, const char *key, const char *value,
                                   bt_err *err) {
    return bt_opts_set(&p->opts, key, value, BT_FROM_PRESET, "for little text", err);
}

bt_code bt_train_fit_little_text(bt_train_plan *p, bt_err *err) {
    int64_t tokens, T = p->cfg.model.seq_len;
    char text[32];
    bt_err ignored = BT_ERR_INIT;
    if (!is_little_text(p) || bt_train_tokens(p, &tokens, &ignored) != BT_OK) return BT_OK;
    if (tokens < SEQUENCES * LEAST_T) return BT_OK; /* opening the data will fail and report this */
    if (!is_given_by_the_user(p, "model.seq_len")) {
        while (T > LEAST_T && T * SEQUENCES > tokens) T /= 2;
        snprintf(text, sizeof text, "%" PRId64, T);
        if (T < p->cfg.model.seq_len) BT_TRY(set_for_little_text(p, "model.seq_len", text, err));
    }
    /* one more sequence than needed, because the validation part ends at a character boundary */
    const double least = (double)(T + 8) / (double)tokens;
    if (is_given_by_the_user(p, "data.val_frac") || !(least > p->cfg.data.val_frac) || least > 0.5)
        return BT_OK;
    snprintf(text, sizeof text, "%.3f", ceil(1000 * least) / 1000);
    return set_for_little_text(p, "data.val_frac", text, err);
}

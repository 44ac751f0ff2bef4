/* train_tokenizer.c - chooses the tokenizer of a run that was not given one. With tokens that are words or parts of
 * words, a step reads two to four times as much text as with bytes; recipe_defaults.md has the losses.
 *
 * The learned tokenizer is a pure function of the text, so every process obtains the same one. A cache stores it. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "cli/common/progress.h"
#include "cli/model/tokenizer_file.h"
#include "cli/train/train_parts.h"
#include "engine/base/log.h"
#include "engine/base/system/folders.h"
#include "engine/data/io/file_io.h"
#include "engine/data/io/sources.h"
#include "engine/data/shards/fold.h"
#include "engine/kernels/table/cpu.h"
#include "engine/plan/recipe/text_recipe.h"

/* increase it when the same text gives other tokens than before */
enum { KEY_VERSION = 1 };

/* Returns the vocabulary size that `auto` learns from this many bytes of text; 0: tokens are bytes. Doubling the
 * vocabulary shortens text by about an eighth and halves how often each token occurs. */
static int choose_vocab_size(uint64_t bytes) {
    static const struct {
        uint64_t mib;
        int tokens;
    } rows[] = {{64, 8192}, {16, 4096}, {2, 2048}, {1, 1024}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (bytes >= rows[i].mib << 20) return rows[i].tokens;
    return 0;
}

static bt_code compose_cached_path(const bt_train_plan *p, uint64_t key, char *path, size_t size,
                                   bt_err *err) {
    char folder[PATH_MAX];
    BT_TRY(bt_train_cache(p, folder, err));
    if (snprintf(path, size, "%s/tokenizer-%016" PRIx64 ".json", folder, key) < (int)size)
        return BT_OK;
    return bt_fail(err, BT_ARG, "the path '%.200s' is too long", folder);
}

bt_code bt_train_keep_tokenizer(const bt_train_plan *p, const bt_tokenizer *t, uint64_t key,
                                char *path, size_t size, bt_err *err) {
    char folder[PATH_MAX];
    bt_text json = {0};
    BT_TRY(compose_cached_path(p, key, path, size, err));
    BT_TRY(bt_train_cache(p, folder, err));
    BT_TRY(bt_make_folders(folder, err));
    bt_tokenizer_save(t, &json);
    bt_code code = json.failed ? bt_fail(err, BT_NOMEM, "cannot take memory for the tokenizer")
                               : bt_file_replace(path, json.data, json.len, err);
    bt_text_release(&json);
    return code;
}

static const char LEARNED[] = "learned from data.path";

bool bt_train_learned_tokenizer(const bt_train_plan *p) {
    return strcmp(p->opts.where[bt_opt_find(p->opts.table, p->opts.n, "data.tokenizer")],
                  LEARNED) == 0;
}

/* Replaces `auto`; a setting bpe:N keeps its origin. */
static bt_code set_tokenizer_setting(bt_train_plan *p, const char *value, const char *where,
                                     bt_err *err) {
    const size_t i = bt_opt_find(p->opts.table, p->opts.n, "data.tokenizer");
    const bt_opt_origin from = p->opts.origin[i] > BT_FROM_PRESET ? p->opts.origin[i]
                                                                  : BT_FROM_PRESET;
    return bt_opts_set(&p->opts, "data.tokenizer", value, from, where, err);
}

static void show_bpe_training(void *ctx, double done, const char *what) {
    bt_progress_show(ctx, what, done, "");
}

/* Returns the tokenizer with `vocab` tokens of these files from the cache; learns and stores it if it is not there. */
static bt_code find_or_learn_bpe(const bt_train_plan *p, const bt_sources *found, int vocab,
                                 char *path, size_t size, bt_err *err) {
    const bt_run_cfg *c = &p->cfg;
    char folder[PATH_MAX];
    bt_progress bar;
    bt_tokenizer *t = NULL;
    bt_err ignored = BT_ERR_INIT;
    bt_held_out held = {0};
    bt_fold fold;
    BT_TRY(bt_fold_parse(&fold, c->data.fold, c->data.val_frac, err));
    if (!c->data.val_path[0]) held = bt_fold_held_out(&fold, c->data.val_frac);
    const double facts[4] = {KEY_VERSION, vocab, held.from, held.to};
    uint64_t key = XXH3_64bits(facts, sizeof facts);
    key = bt_sources_hash(found->items, found->n, c->data.field, key);
    BT_TRY(bt_train_cache(p, folder, err));
    BT_TRY(compose_cached_path(p, key, path, size, err));
    if (bt_tokenizer_load(&t, path, &ignored) == BT_OK) {
        bt_tokenizer_free(t);
        return BT_OK;
    }
    bt_progress_begin(&bar, c->run.quiet || c->run.json);
    const bt_tok_train_cfg how = {.paths = c->data.path,
                                  .glob = c->data.glob,
                                  .field = c->data.field,
                                  .skip_bad_rows = c->data.bad_rows == BT_BAD_ROWS_SKIP,
                                  .cache_dir = folder,
                                  .vocab = vocab,
                                  .held_out = held,
                                  .progress = show_bpe_training,
                                  .ctx = &bar};
    bt_code code = bt_tokenizer_train(&t, &how, err);
    bt_progress_end(&bar);
    BT_TRY(code);
    code = bt_train_keep_tokenizer(p, t, key, path, size, err);
    bt_tokenizer_free(t);
    return code;
}

/* Parses "bpe:N". */
static bt_code parse_bpe_size(const char *word, int *vocab, bt_err *err) {
    char *end;
    errno = 0;
    const long n = strtol(word, &end, 10);
    if (!*word || *end || errno || n < 257 || n > 1048576)
        return bt_fail(err, BT_ARG,
                       "data.tokenizer=bpe:%.40s: a vocabulary has 257 to 1048576 tokens "
                       "(--tokenizer bpe:2048)",
                       word);
    *vocab = (int)n;
    return BT_OK;
}

static bool is_text_corpus(const bt_sources *s, uint64_t *bytes) {
    *bytes = 0;
    for (size_t i = 0; i < s->n; i++) {
        if (s->items[i].kind != BT_SOURCE_TEXT && s->items[i].kind != BT_SOURCE_JSONL) return false;
        *bytes += s->items[i].bytes;
    }
    return true;
}

/* Returns the reason for which no tokenizer can be learned from the data, or NULL. */
static const char *reason_not_to_learn(const bt_train_plan *p) {
    const bt_run_cfg *c = &p->cfg;
    if (strncmp(c->data.path, "synth:", 6) == 0) return "synthetic data consists of tokens";
    if (c->launch.hosts[0] && !p->world) return "the data is on other hosts";
    if (c->data.form != 0) return "data.form declares that it is not plain text";
    if (c->data.mixture[0]) return "data.mixture has sources of several kinds";
    return NULL;
}

/* A model without initial weights uses the preset's values for tokens that are words or parts of words. */
static bt_code use_subword_defaults(bt_train_plan *p, bool learned, bt_err *err) {
    if (p->resume || p->from.dir[0] || p->cfg.model.init_from[0]) return BT_OK;
    const int ranks = p->world   ? p->world
                      : p->ranks ? p->ranks
                                 : bt_run_cfg_ranks(&p->cfg, bt_cpu_get()->cores);
    return bt_run_cfg_words(&p->opts, &p->cfg, ranks, learned, err);
}

/* Learns a BPE with N tokens ("bpe:N"); 0: as many as suit the text. */
static bt_code train_bpe(bt_train_plan *p, int requested, bt_err *err) {
    char path[sizeof p->cfg.data.tokenizer], folder[PATH_MAX];
    uint64_t bytes;
    bt_sources found = {0};
    bt_err why = BT_ERR_INIT;
    BT_TRY(bt_train_cache(p, folder, err));
    bt_code code = bt_train_corpus(p, &why);
    if (code == BT_OK)
        code = bt_sources_list_glob(&found, p->cfg.data.path, p->cfg.data.glob, folder, &why);
    /* An error is reported when the data is opened; a plan for another machine needs no data. */
    if (code != BT_OK) {
        if (!requested) return set_tokenizer_setting(p, "bytes", "as data.path", err);
        return bt_fail(err, code, "%s", why.msg);
    }
    const bool text = is_text_corpus(&found, &bytes);
    const int of_bytes = p->began_ns ? bt_recipe_vocab(bytes, bt_train_minutes_of_one(p))
                                     : choose_vocab_size(bytes);
    const int vocab = requested ? requested : text ? of_bytes : 0;
    if (vocab) code = find_or_learn_bpe(p, &found, vocab, path, sizeof path, &why);
    bt_sources_release(&found);
    if (!vocab) return set_tokenizer_setting(p, "bytes", "as data.path", err);
    if (code == BT_OK) {
        BT_TRY(set_tokenizer_setting(p, path, LEARNED, err));
        return use_subword_defaults(p, !requested || (text && choose_vocab_size(bytes) > 0), err);
    }
    if (requested) return bt_fail(err, code, "%s", why.msg);
    /* a text with few different words */
    return set_tokenizer_setting(p, "bytes", "as data.path", err);
}

/* Restores the file from the checkpoint, because the cache may be empty, and the checkpoint may come from another
 * machine. */
static bt_code restore_tokenizer_file(bt_train_plan *p, bt_err *err) {
    char path[sizeof p->cfg.data.tokenizer], where[sizeof p->opts.where[0]];
    const size_t i = bt_opt_find(p->opts.table, p->opts.n, "data.tokenizer");
    bt_tokenizer *t = NULL;
    bt_err why = BT_ERR_INIT;
    if (!p->tokenizer_of.len || access(p->cfg.data.tokenizer, F_OK) == 0) return BT_OK;
    /* A tokenizer that cannot be parsed is reported where the checkpoint is opened. */
    if (bt_tokenizer_parse(&t, bt_text_str(&p->tokenizer_of), p->tokenizer_of.len, &why) != BT_OK ||
        strcmp(bt_tokenizer_kind(t), "bytes") == 0) {
        bt_tokenizer_free(t);
        return BT_OK;
    }
    bt_code code = bt_train_keep_tokenizer(p, t, bt_tokenizer_hash(t), path, sizeof path, err);
    bt_tokenizer_free(t);
    BT_TRY(code);
    memcpy(where, p->opts.where[i], sizeof where);
    return bt_opts_set(&p->opts, "data.tokenizer", path, p->opts.origin[i], where, err);
}

/* Replaces a tokenizer.json in the settings by a file of bitrain in the cache, because ranks load only such files. */
static bt_code import_tokenizer_json(bt_train_plan *p, bt_err *err) {
    char from[PATH_MAX], path[sizeof p->cfg.data.tokenizer];
    bt_tokenizer *t = NULL;
    if (!bt_tokenizer_is_foreign(p->cfg.data.tokenizer, from)) return BT_OK;
    BT_TRY(bt_tokenizer_of_json(&t, from, err));
    bt_code code = bt_train_keep_tokenizer(p, t, bt_tokenizer_hash(t), path, sizeof path, err);
    bt_tokenizer_free(t);
    BT_TRY(code);
    return set_tokenizer_setting(p, path, "imported from tokenizer.json", err);
}

static bt_code choose_tokenizer(bt_train_plan *p, bt_err *err) {
    const char *word = p->cfg.data.tokenizer;
    const size_t vocab = bt_opt_find(p->opts.table, p->opts.n, "model.vocab");
    const bool is_auto = strcmp(word, "auto") == 0;
    int requested = 0;
    if (strcmp(word, "bytes") == 0) return BT_OK;
    if (!is_auto && strncmp(word, "bpe:", 4) != 0) {
        BT_TRY(import_tokenizer_json(p, err));
        BT_TRY(restore_tokenizer_file(p, err));
        return use_subword_defaults(p, false, err);
    }
    if (!is_auto) BT_TRY(parse_bpe_size(word + 4, &requested, err));
    const char *reason = reason_not_to_learn(p);
    if (requested && reason)
        return bt_fail(err, BT_ARG,
                       "data.tokenizer=%s cannot be learned: %s (give a tokenizer file, or bytes)",
                       word, reason);
    /* A given vocabulary or initial weights determine the tokens, so `auto` means bytes there. */
    if (is_auto && (reason || p->cfg.model.init_from[0] || p->from.dir[0] ||
                    p->opts.origin[vocab] > BT_FROM_PRESET))
        return set_tokenizer_setting(p, "bytes", "as data.path", err);
    if (requested && p->cfg.run.print_config) return BT_OK; /* printed as given */
    return train_bpe(p, requested, err);
}

/* With another tokenizer, each row of the embedding would represent another text. */
static bt_code check_weights_tokenizer(const bt_train_plan *p, bt_err *err) {
    const char *where = p->opts.where[bt_opt_find(p->opts.table, p->opts.n, "data.tokenizer")];
    bool same;
    if (!p->tokenizer_of.len) return BT_OK;
    BT_TRY(bt_tokenizer_compare(p->cfg.data.tokenizer, bt_text_str(&p->tokenizer_of),
                                p->tokenizer_of.len, &same, err));
    if (same) return BT_OK;
    if (p->cfg.data.other_tokenizer) {
        bt_log(BT_LOG_WARN,
               "the tokenizer '%s' is not that of the weights: their ids have another meaning, as "
               "--other-tokenizer allows",
               p->cfg.data.tokenizer);
        return BT_OK;
    }
    if (!p->from.dir[0])
        return bt_fail(
            err, BT_ARG,
            "the tokenizer '%.200s' is not that of model.init_from: its ids have another meaning "
            "(leave --tokenizer out, or allow it with --other-tokenizer)",
            p->cfg.data.tokenizer);
    return bt_fail(
        err, BT_ARG,
        "the tokenizer '%.200s' is not that of the checkpoint: its ids have another meaning "
        "(%s; --other-tokenizer allows another)",
        p->cfg.data.tokenizer,
        bt_opts_given(&p->opts, "data.tokenizer") && strcmp(where, "the run's record") != 0
            ? "leave --tokenizer out"
            : "the file was changed: restore it, or remove it, and the checkpoint's own "
              "is used");
}

bt_code bt_train_tokenizer(bt_train_plan *p, bt_err *err) {
    BT_TRY(choose_tokenizer(p, err));
    /* Synthetic data need no tokenizer; "bpe:" is a tokenizer that is still to be trained. */
    if (strncmp(p->cfg.data.path, "synth:", 6) == 0 ||
        strncmp(p->cfg.data.tokenizer, "bpe:", 4) == 0)
        return BT_OK;
    return check_weights_tokenizer(p, err);
}

/* cmd_tokenizer.c - `bitrain tokenizer`: trains, imports and inspects tokenizers; encodes and decodes text. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/common/command.h"
#include "cli/common/database.h"
#include "cli/common/printout/printout.h"
#include "cli/common/printout/table.h"
#include "cli/common/progress.h"
#include "cli/common/skipped.h"
#include "cli/common/verbs.h"
#include "cli/model/tokenizer_file.h"
#include "engine/base/tables/metric.h"
#include "engine/config/run_cfg.h"
#include "engine/data/io/file_io.h"
#include "engine/data/io/utf8.h"
#include "engine/data/tokenizer/tokenizer.h"

typedef struct tokenizer_cfg {
    char data[4096], glob[128], out[1024], field[64], text[4096];
    int64_t vocab, top;
    double val_frac;
    int bad_rows; /* BT_BAD_ROWS_... */
    bool json, quiet, force, prompt;
} tokenizer_cfg;

static const bt_opt tokenizer_opts[] = {
    BT_ROW_LIST(tokenizer_cfg, data, "--data", "",
                "text, .jsonl, folders, or builtin (same as the arguments after 'train')"),
    BT_ROW_TEXT(tokenizer_cfg, glob, "--glob", "",
                "in folders, read only files whose names match this pattern, such as "
                "'*.txt'"),
    BT_ROW_INT(tokenizer_cfg, vocab, "--vocab", "8192", 257, 1048576, "tokens",
               "size of the vocabulary: 256 bytes, end of text, merges"),
    BT_ROW_REAL(tokenizer_cfg, val_frac, "--val-frac", "0.05", 0, 0.9, NULL,
                "share at the end of each file that training holds out, and that is not read "
                "(data.val_frac; 0: none)"),
    BT_ROW_TEXT(tokenizer_cfg, out, "--out", "", "tokenizer file to write"),
    BT_ROW_FLAG(tokenizer_cfg, force, "--force", "replace the file"),
    BT_ROW_TEXT(tokenizer_cfg, field, "--field", "text",
                "field of a JSONL object that holds the text"),
    BT_ROW_ENUM(tokenizer_cfg, bad_rows, "--bad-rows", "refuse", "refuse|skip",
                "unreadable rows of JSON: stop, or omit and count them"),
    BT_ROW_TEXT(tokenizer_cfg, text, "--text", "", "text to show as tokens (inspect) or to encode"),
    BT_ROW_FLAG(tokenizer_cfg, prompt, "--prompt",
                "encode as a prompt: names of special tokens become these tokens, with BOS and EOS "
                "as the tokenizer defines"),
    BT_ROW_INT(tokenizer_cfg, top, "--top", "12", 0, 1048576, "tokens",
               "number of longest tokens that inspect shows"),
    BT_ROW_JSON(tokenizer_cfg),
    BT_ROW_QUIET(tokenizer_cfg),
};
/* ---- shared ---- */

static void put_id_array(bt_json *j, const char *key, const int32_t *ids, size_t n) {
    bt_json_array(j, key);
    for (size_t i = 0; i < n; i++) bt_json_int(j, NULL, ids[i]);
    bt_json_end(j, ']');
}

/* Appends a token for people: newlines, and bytes that are not text, are made visible. */
static void put_visible_token(const bt_tokenizer *t, int32_t id, bt_text *out) {
    size_t n, k;
    const char *s = bt_tokenizer_bytes(t, id, &n);
    for (size_t i = 0; i < n; i += k ? k : 1) {
        unsigned char c = (unsigned char)s[i];
        k = bt_utf8_char(s + i, n - i);
        if (c == '\n')
            bt_text_put(out, "\\n");
        else if (c == '\t')
            bt_text_put(out, "\\t");
        else if (c == '\r')
            bt_text_put(out, "\\r");
        else if (!k || c < 0x20 || c == 0x7F || (k == 2 && bt_utf8_decode(s + i, 2) < 0xA0))
            bt_text_printf(out, "\\x%02x", c), k = 1;
        else
            bt_text_putn(out, s + i, k);
    }
}

static void put_tokenizer_properties(bt_printout *o, const char *path, const bt_tokenizer *t) {
    char hash[20];
    bt_tokenizer_about about;
    bt_text eot = {0}, around = {0};
    bt_tokenizer_summarise(t, &about);
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)bt_tokenizer_hash(t));
    bt_printout_version(o);
    bt_printout_str(o, "path", NULL, path);
    bt_printout_str(o, "kind", NULL, about.kind);
    bt_printout_int(o, "vocab", NULL, bt_tokenizer_vocab(t));
    bt_printout_int(o, "merges", NULL, (int64_t)about.merges);
    bt_printout_int(o, "specials", NULL, about.specials);
    bt_printout_int(o, "added", NULL, about.added);
    bt_printout_int(o, "holes", NULL, about.holes);
    for (int behind = 0; behind < 2 && o->json; behind++) {
        size_t n;
        const int32_t *ids = bt_tokenizer_affix(t, behind, &n);
        put_id_array(&o->j, behind ? "suffix" : "prefix", ids, n);
    }
    bt_printout_int(o, "eot", NULL, bt_tokenizer_eot(t));
    bt_printout_int(o, "unknown", NULL, bt_tokenizer_unknown(t));
    bt_printout_str(o, "pattern", NULL, about.pattern);
    bt_printout_str(o, "normalizer", NULL, about.normalizer);
    bt_printout_str(o, "hash", NULL, hash);
    bt_printout_line(o, "%-12s %s\n%-12s %s\n%-12s %d tokens: %zu merges, %d special", "tokenizer",
                     path, "kind", about.kind, "vocabulary", bt_tokenizer_vocab(t), about.merges,
                     about.specials);
    if (about.added) bt_printout_line(o, ", %d added", about.added);
    if (about.holes) bt_printout_line(o, ", %d unused ids", about.holes);
    bt_printout_line(o, "\n%-12s %s\n%-12s %s\n", "words", about.pattern, "normalizer",
                     about.normalizer);
    if (bt_tokenizer_eot(t) >= 0) put_visible_token(t, bt_tokenizer_eot(t), &eot);
    if (eot.len)
        bt_printout_line(o, "%-12s %d %s\n", "end of text", bt_tokenizer_eot(t), bt_text_str(&eot));
    bt_tokenizer_describe_affixes(t, &around);
    if (around.len) bt_printout_line(o, "%-12s %s\n", "each text", bt_text_str(&around));
    if (bt_tokenizer_unknown(t) >= 0)
        bt_printout_line(o, "%-12s %d: replaces characters without a token, which are lost\n",
                         "unknown", bt_tokenizer_unknown(t));
    bt_printout_line(o, "%-12s %s\n", "hash", hash);
    bt_text_release(&around);
    bt_text_release(&eot);
}

static bt_code write_tokenizer_file(const tokenizer_cfg *cfg, const bt_tokenizer *t, bt_err *err) {
    bt_text json = {0};
    bt_tokenizer_save(t, &json);
    bt_code code = json.failed ? bt_fail(err, BT_NOMEM, "cannot take memory for the tokenizer file")
                               : bt_file_replace(cfg->out, bt_text_str(&json), json.len, err);
    bt_text_release(&json);
    return code;
}

/* paths: files of text on which the tokenizer was trained, one per line; NULL: none. */
static bt_code report_written(const tokenizer_cfg *cfg, const bt_tokenizer *t, const char *paths,
                              double seconds, bt_err *err) {
    bt_printout o;
    bt_printout_begin(&o, cfg->json);
    put_tokenizer_properties(&o, cfg->out, t);
    if (paths) {
        bt_printout_numf(&o, "val_frac", NULL, cfg->val_frac, 1, "%.6g");
        bt_printout_line(&o, "%-12s %g %% at the end of each file, as training does (--val-frac)\n",
                         "left out", 100 * cfg->val_frac);
    }
    bt_printout_num(&o, "seconds", NULL, seconds, BT_UNIT_NONE);
    bt_printout_line(
        &o, paths ? "\nbitrain train --tokenizer %s --data" : "\nbitrain tokenizer inspect %s",
        cfg->out);
    for (const char *p = paths ? paths : ""; *p; p += strcspn(p, "\n"), p += *p == '\n') {
        char word[PATH_MAX];
        snprintf(word, sizeof word, "%.*s", (int)strcspn(p, "\n"), p);
        const char *quote = strpbrk(word, " \t'\"\\$&;()<>|*?") ? "'" : "";
        bt_printout_line(&o, " %s%s%s", quote, word, quote);
    }
    bt_printout_line(&o, "\n");
    return bt_printout_print(&o, err);
}

static bt_code read_input_text(const char *path, char **data, size_t *n, bt_err *err) {
    if (path && strcmp(path, "-") != 0) return bt_file_slurp(path, (size_t)1 << 32, data, n, err);
    bt_text all = {0};
    char part[65536];
    for (size_t k; (k = fread(part, 1, sizeof part, stdin)) > 0;) bt_text_putn(&all, part, k);
    if (ferror(stdin) || all.failed) {
        bt_text_release(&all);
        return bt_fail(err, BT_IO, "cannot read standard input");
    }
    if (!all.data) bt_text_putn(&all, "", 0);
    *data = all.data;
    *n = all.len;
    return all.data ? BT_OK : bt_fail(err, BT_NOMEM, "cannot take memory for standard input");
}

/* ---- verbs ---- */

static void show_tokenizer_training(void *ctx, double done, const char *what) {
    bt_progress_show(ctx, what, done, "");
}

static bt_code tokenizer_train(void *ctx, const char *const *words, size_t n, bt_err *err) {
    const tokenizer_cfg *cfg = ctx;
    bt_text paths, notes = {0};
    bt_progress bar;
    bt_tokenizer *t;
    char cache[PATH_MAX];
    BT_TRY(bt_verbs_may_write(cfg->out, cfg->force, err));
    BT_TRY(bt_verbs_paths(&paths, cfg->data, words, n, err));
    bt_progress_begin(&bar, cfg->quiet);
    bt_code code = bt_verbs_corpus(bt_text_str(&paths), cache, sizeof cache, err);
    bt_tok_train_cfg c = {.paths = bt_text_str(&paths),
                          .glob = cfg->glob,
                          .field = cfg->field,
                          .skip_bad_rows = cfg->bad_rows == BT_BAD_ROWS_SKIP,
                          .cache_dir = cache,
                          .vocab = (int)cfg->vocab,
                          .held_out = {1 - cfg->val_frac, 1},
                          .notes = &notes,
                          .progress = show_tokenizer_training,
                          .ctx = &bar};
    bt_sources found = {0};
    if (code == BT_OK) code = bt_sources_list_glob(&found, c.paths, c.glob, cache, err);
    if (code == BT_OK) bt_cli_report_skipped(&found);
    bt_sources_release(&found);
    if (code == BT_OK) code = bt_tokenizer_train(&t, &c, err);
    bt_progress_end(&bar);
    if (code == BT_OK) bt_cli_print_data_notes(bt_text_str(&notes));
    bt_text_release(&notes);
    if (code != BT_OK) {
        bt_text_release(&paths);
        return code;
    }
    // cppcheck-suppress legacyUninitvar ; t is set where the code is BT_OK
    code = write_tokenizer_file(cfg, t, err);
    if (code == BT_OK)
        code = report_written(cfg, t, bt_text_str(&paths), bt_progress_seconds(&bar), err);
    bt_text_release(&paths);
    bt_tokenizer_free(t);
    return code;
}

static bt_code import_tokenizer(void *ctx, const char *const *words, size_t n, bt_err *err) {
    const tokenizer_cfg *cfg = ctx;
    bt_progress clock;
    bt_tokenizer *t;
    (void)n;
    BT_TRY(bt_verbs_may_write(cfg->out, cfg->force, err));
    bt_progress_begin(&clock, true);
    BT_TRY(bt_tokenizer_of_json(&t, words[0], err));
    bt_code code = write_tokenizer_file(cfg, t, err);
    if (code == BT_OK) code = report_written(cfg, t, NULL, bt_progress_seconds(&clock), err);
    bt_tokenizer_free(t);
    return code;
}

static void put_ids_with_text(bt_json *j, const bt_tokenizer *t, const int32_t *ids, size_t n) {
    put_id_array(j, "ids", ids, n);
    bt_json_array(j, "tokens");
    for (size_t i = 0; i < n; i++) {
        bt_text word = {0};
        put_visible_token(t, ids[i], &word);
        bt_json_str(j, NULL, bt_text_str(&word));
        bt_text_release(&word);
    }
    bt_json_end(j, ']');
}

static void put_tokens_with_bars(bt_printout *o, const bt_tokenizer *t, const int32_t *ids,
                                 size_t n) {
    for (size_t i = 0; i < n && !o->json; i++) {
        bt_text_put(&o->out, "|");
        put_visible_token(t, ids[i], &o->out);
    }
    bt_printout_line(o, "|\n");
}

static const bt_tokenizer *by_length_of;
static int compare_token_lengths(const void *a, const void *b) {
    size_t n, m;
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    bt_tokenizer_bytes(by_length_of, x, &n);
    bt_tokenizer_bytes(by_length_of, y, &m);
    return n != m ? (n > m ? -1 : 1) : (x > y) - (x < y);
}

static int32_t *longest_tokens(const bt_tokenizer *t, size_t *n) {
    int V = bt_tokenizer_vocab(t);
    int32_t *ids = malloc((size_t)V * sizeof *ids);
    size_t k = 0;
    for (int32_t i = 0; ids && i < V; i++)
        if (!bt_tokenizer_is_special(t, i)) ids[k++] = i;
    by_length_of = t;
    if (ids) qsort(ids, k, sizeof *ids, compare_token_lengths);
    if (*n > k) *n = k;
    return ids;
}

static bt_code inspect_loaded(const tokenizer_cfg *cfg, const char *path, const bt_tokenizer *t,
                              bt_err *err) {
    size_t top = (size_t)cfg->top, count = 0, cap = 0;
    int32_t *ids = NULL, *big = longest_tokens(t, &top);
    bt_printout o;
    bt_code code = big ? BT_OK : bt_fail(err, BT_NOMEM, "cannot take memory to sort the tokens");
    if (code == BT_OK && *cfg->text)
        code = bt_tokenizer_encode(t, cfg->text, strlen(cfg->text), &ids, &count, &cap, err);
    bt_printout_begin(&o, cfg->json);
    put_tokenizer_properties(&o, path, t);
    bt_printout_object(&o, "longest");
    if (o.json) put_ids_with_text(&o.j, t, big, top);
    bt_printout_end(&o);
    if (top) bt_printout_line(&o, "%-12s ", "longest");
    if (top) put_tokens_with_bars(&o, t, big, top);
    if (*cfg->text) {
        bt_printout_object(&o, "text");
        if (o.json) put_ids_with_text(&o.j, t, ids, count);
        bt_printout_end(&o);
        bt_printout_line(&o, "%-12s %zu tokens, %.2f bytes each: ", "text", count,
                         (double)strlen(cfg->text) / (double)(count ? count : 1));
        put_tokens_with_bars(&o, t, ids, count);
    }
    code = bt_printout_finish(&o, code, err);
    free(big);
    free(ids);
    return code;
}

static bt_code tokenizer_inspect(void *ctx, const char *const *words, size_t n, bt_err *err) {
    bt_tokenizer *t;
    (void)n;
    BT_TRY(bt_tokenizer_open(&t, words[0], err));
    bt_code code = inspect_loaded(ctx, words[0], t, err);
    bt_tokenizer_free(t);
    return code;
}

static bt_code print_ids(const tokenizer_cfg *cfg, const bt_tokenizer *t, const int32_t *ids,
                         size_t count, size_t bytes, bt_err *err) {
    if (!cfg->json) {
        for (size_t i = 0; i < count; i++) printf("%s%d", i ? " " : "", ids[i]);
        putchar('\n');
        return BT_OK;
    }
    bt_printout o;
    bt_printout_begin(&o, true);
    bt_printout_version(&o);
    bt_json_int(&o.j, "bytes", (int64_t)bytes);
    bt_json_int(&o.j, "count", (int64_t)count);
    put_ids_with_text(&o.j, t, ids, count);
    return bt_printout_print(&o, err);
}

static bt_code tokenizer_encode(void *ctx, const char *const *words, size_t n, bt_err *err) {
    const tokenizer_cfg *cfg = ctx;
    bt_tokenizer *t;
    char *data = NULL;
    int32_t *ids = NULL;
    size_t bytes = strlen(cfg->text), count = 0, cap = 0;
    if (*cfg->text && n > 1)
        return bt_fail(err, BT_ARG, "both --text and the file '%s' given", words[1]);
    BT_TRY(bt_tokenizer_open(&t, words[0], err));
    bt_code code = *cfg->text ? BT_OK
                              : read_input_text(n > 1 ? words[1] : NULL, &data, &bytes, err);
    if (code == BT_OK)
        code = bt_tokenizer_encode_as(t, cfg->prompt ? BT_ENCODE_SPECIAL | BT_ENCODE_WHOLE : 0,
                                      data ? data : cfg->text, bytes, &ids, &count, &cap, err);
    if (code == BT_OK) code = print_ids(cfg, t, ids, count, bytes, err);
    free(data);
    free(ids);
    bt_tokenizer_free(t);
    return code;
}

/* Appends the ids of a text to (*ids)[*n..]. */
static bt_code read_id_text(const bt_tokenizer *t, const char *s, int32_t **ids, size_t *n,
                            bt_err *err) {
    for (;;) {
        s += strspn(s, " \t\r\n,[]");
        if (!*s) return BT_OK;
        char *end;
        errno = 0;
        long id = strtol(s, &end, 10);
        if (end == s || (*end && !strchr(" \t\r\n,[]", *end)))
            return bt_fail(err, BT_ARG, "'%.20s' is not a token id", s);
        if (errno || id < 0 || id >= bt_tokenizer_vocab(t))
            return bt_fail(err, BT_ARG, "token id %.*s is outside 0..%d", (int)(end - s), s,
                           bt_tokenizer_vocab(t) - 1);
        if ((*n & (*n - 1)) == 0) { /* room for 1, 2, 4, ... */
            int32_t *more = realloc(*ids, (*n ? 2 * *n : 1) * sizeof *more);
            if (!more) return bt_fail(err, BT_NOMEM, "cannot take memory for %zu token ids", *n);
            *ids = more;
        }
        (*ids)[(*n)++] = (int32_t)id;
        s = end;
    }
}

static bt_code tokenizer_decode(void *ctx, const char *const *words, size_t n, bt_err *err) {
    bt_tokenizer *t;
    bt_text out = {0};
    char *data = NULL;
    int32_t *ids = NULL;
    size_t bytes, n_ids = 0;
    (void)ctx;
    BT_TRY(bt_tokenizer_open(&t, words[0], err));
    bt_code code = n > 1 ? BT_OK : read_input_text(NULL, &data, &bytes, err);
    if (code == BT_OK && data) code = read_id_text(t, data, &ids, &n_ids, err);
    for (size_t i = 1; code == BT_OK && i < n; i++)
        code = read_id_text(t, words[i], &ids, &n_ids, err);
    if (code == BT_OK) bt_tokenizer_decode(t, ids, n_ids, &out);
    if (code == BT_OK && out.failed)
        code = bt_fail(err, BT_NOMEM, "cannot take memory for the text");
    if (code == BT_OK && out.len) fwrite(out.data, 1, out.len, stdout);
    free(data);
    free(ids);
    bt_text_release(&out);
    bt_tokenizer_free(t);
    return code;
}

static const bt_cli_verb verbs[] = {
    {"train", " data glob vocab val_frac out force field bad_rows json quiet ", 0, 1000,
     "[PATH...]", "train a tokenizer on text", tokenizer_train},
    {"inspect", " text top json ", 1, 1, "FILE",
     "show the content of a tokenizer, and a text as tokens", tokenizer_inspect},
    {"encode", " text prompt json ", 1, 2, "FILE [TEXTFILE]", "text to token ids",
     tokenizer_encode},
    {"decode", " ", 1, 1000, "FILE [ID...]", "token ids to text", tokenizer_decode},
    {"import", " out force json ", 1, 1, "tokenizer.json", "convert a tokenizer of Hugging Face",
     import_tokenizer},
};

const bt_command bt_cmd_tokenizer = {
    .name = "tokenizer",
    .summary = "train, import and inspect tokenizers; text to token ids and back",
    .args = "train|inspect|encode|decode|import",
    .examples =
        "bitrain tokenizer train books/ --vocab 8192 --out books.json\n"
        "bitrain tokenizer inspect books.json --text 'It is a truth universally acknowledged'\n"
        "bitrain tokenizer encode books.json < a.txt | bitrain tokenizer decode books.json\n"
        "bitrain tokenizer import tokenizer.json --out llama3.json # Hugging Face, byte-level "
        "BPE\n",
    .options = BT_OPTION_SET(tokenizer_opts, tokenizer_cfg),
    .verbs = verbs,
    .n_verbs = sizeof verbs / sizeof *verbs,
};

/* tokenizer.h - converts text to token ids and back: bytes, byte-level BPE, or an imported tokenizer. bpe_file.c
 * describes bitrain's tokenizer files.
 * Threads: constant after load; encode writes only the caller's output. */
#ifndef BT_ENGINE_DATA_TOKENIZER_TOKENIZER_H
#define BT_ENGINE_DATA_TOKENIZER_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"
#include "engine/base/text.h"

typedef struct bt_tokenizer bt_tokenizer;

/* name: "bytes" or the path of a file. */
bt_code bt_tokenizer_load(bt_tokenizer **out, const char *name, bt_err *err) BT_MUST_CHECK;
void bt_tokenizer_free(bt_tokenizer *t);
int bt_tokenizer_vocab(const bt_tokenizer *t);
uint64_t bt_tokenizer_hash(const bt_tokenizer *t);
int32_t bt_tokenizer_eot(const bt_tokenizer *t);
/* Returns true for a control token or an unused id, which represent no text and are not shown. Added tokens that are
 * not special (<think>, <tool_call>) are shown. */
bool bt_tokenizer_is_special(const bt_tokenizer *t, int32_t id);
/* Returns true for a token that is shown and is created by its name in a text, not by merges. */
bool bt_tokenizer_is_added(const bt_tokenizer *t, int32_t id);
/* Returns the added token, special or not, whose name is name[0..n); -1: none. */
int32_t bt_tokenizer_named(const bt_tokenizer *t, const char *name, size_t n);
/* Encodes n bytes. Names of added tokens that are not special become these tokens; names of special tokens are plain
 * text. *ids is grown with realloc, and the caller frees it; *count is set. */
bt_code bt_tokenizer_encode(const bt_tokenizer *t, const char *text, size_t n, int32_t **ids,
                            size_t *count, size_t *cap, bt_err *err) BT_MUST_CHECK;
/* SPECIAL: names of special tokens become these tokens. WHOLE: the text is a whole document or prompt, and receives the
 * tokens that the tokenizer adds around one (BOS, EOS). MORE: the text continues an earlier text, so no mark of a space
 * is added before it. */
enum { BT_ENCODE_TEXT = 0, BT_ENCODE_SPECIAL = 1, BT_ENCODE_WHOLE = 2, BT_ENCODE_MORE = 4 };
bt_code bt_tokenizer_encode_as(const bt_tokenizer *t, unsigned how, const char *text, size_t n,
                               int32_t **ids, size_t *count, size_t *cap, bt_err *err)
    BT_MUST_CHECK;
/* Returns the tokens that the tokenizer adds before (false) or after (true) a whole text. */
const int32_t *bt_tokenizer_affix(const bt_tokenizer *t, bool behind, size_t *n);
/* Appends a text such as "begins with '<|begin_of_text|>' (token 0)"; nothing if no tokens are added. */
void bt_tokenizer_describe_affixes(const bt_tokenizer *t, bt_text *out);
/* bt_tokenizer_cut returns the largest position, 0 <= cut < n, at which a text that continues can be cut without
 * changing a token; 0: none. If bt_tokenizer_spans_space is false, bt_text_cut is sufficient; if true, an added token
 * that is not special may include white space. */
bool bt_tokenizer_has_flags(const bt_tokenizer *t); /* lstrip, rstrip or single_word */
bool bt_tokenizer_spans_space(const bt_tokenizer *t);
size_t bt_tokenizer_cut(const bt_tokenizer *t, const char *text, size_t n);
bool bt_tokenizer_ends_texts(const bt_tokenizer *t);
/* Returns the bytes of one token, not NUL-terminated; t owns them. */
const char *bt_tokenizer_bytes(const bt_tokenizer *t, int32_t id, size_t *n);
/* Returns BT_ENCODE_MORE if a text after token `last` (-1: none) gets no mark of a space in front, otherwise 0. */
unsigned bt_tokenizer_continues(const bt_tokenizer *t, int32_t last);
/* Returns how spaces are marked by U+2581: "prepend", "first", ... (marked_spaces.h). NULL: they are not marked. */
const char *bt_tokenizer_spaces(const bt_tokenizer *t);
/* Returns true if scores of tokens, not merges, divide a word (unigram.h). */
bool bt_tokenizer_is_unigram(const bt_tokenizer *t);
/* Returns the token that replaces characters without a token; -1: none, so decoding restores each text. */
int32_t bt_tokenizer_unknown(const bt_tokenizer *t);
/* true: a mark of a space is added before a text */
bool bt_tokenizer_prefixes(const bt_tokenizer *t);
/* Sets scores of n tokens, so that merging the pair with the highest score first, as SentencePiece does, follows the
 * ranks of merges. *same: these scores result in exactly the merges of this tokenizer. */
bt_code bt_tokenizer_scores(const bt_tokenizer *t, float *scores, size_t n, bool *same, bt_err *err)
    BT_MUST_CHECK;
/* Returns true for a token that merges create, even if its name in a text can create it, too. */
bool bt_tokenizer_is_merged(const bt_tokenizer *t, int32_t id);
/* Returns true for a token such as <0x0A> that represents a single byte in a tokenizer that marks spaces. */
bool bt_tokenizer_is_byte(const bt_tokenizer *t, int32_t id);
/* Appends the text of ids. If the tokenizer adds a mark before texts, one space at the beginning of `out` is removed.
 * decode(encode(x)) == x for any bytes x, with these exceptions: U+2581 becomes a space in a tokenizer that marks
 * spaces; characters that became an unknown token; and in a Unigram model the text of a byte token (<0x41>) becomes the
 * byte, as in Hugging Face's library. */
void bt_tokenizer_decode(const bt_tokenizer *t, const int32_t *ids, size_t n, bt_text *out);
/* Returns the name of a tokenizer for messages: "bytes" or "bpe 8192". */
const char *bt_tokenizer_kind(const bt_tokenizer *t);
typedef struct bt_tokenizer_about {
    /* kind: "bpe 8192"; pattern: "gpt2"; normalizer: "nfc". "none": the tokenizer has none. */
    const char *kind, *pattern, *normalizer;
    size_t merges;
    int specials, added, holes; /* added: created by name in a text, not special */
} bt_tokenizer_about;
void bt_tokenizer_summarise(const bt_tokenizer *t, bt_tokenizer_about *out);

/* Returns the original Jinja chat template; NULL: none. The hash does not include it, because it does not affect
 * ids. */
const char *bt_tokenizer_chat_template(const bt_tokenizer *t);
bt_code bt_tokenizer_set_chat_template(bt_tokenizer *t, const char *text, bt_err *err)
    BT_MUST_CHECK;
/* Roles that the model's files name: the first token of texts, the padding, and all tokens that end a text. -1: none.
 * The hash of the tokenizer does not include them, because they do not affect ids. */
enum { BT_ENDS_MAX = 16 };
typedef struct bt_token_roles {
    bool known; /* false: no model file defined the roles */
    int32_t bos, pad, ends[BT_ENDS_MAX];
    size_t n_ends;
} bt_token_roles;
const bt_token_roles *bt_tokenizer_roles(const bt_tokenizer *t);
/* Ignores and counts tokens outside the vocabulary. The first special end becomes the end-of-text token. */
size_t bt_tokenizer_set_roles(bt_tokenizer *t, const bt_token_roles *roles);
/* Adds a token that ends a text, unless it was added before. Returns false if there are BT_ENDS_MAX already. */
bool bt_token_roles_add_end(bt_token_roles *roles, int32_t id);
/* Returns true for the end-of-text token and for all other tokens that end a text. */
bool bt_tokenizer_is_end(const bt_tokenizer *t, int32_t id);
/* Returns the number of tokens that end a text: those that the model's files name, or else the end-of-text token. */
size_t bt_tokenizer_ends(const bt_tokenizer *t, int32_t ends[BT_ENDS_MAX]);

/* Original files of the tokenizer are stored byte for byte, also in checkpoints. */
enum { BT_KEPT_FILES = 7 };
/* Returns "tokenizer.json", "tokenizer_config.json", ...; NULL after the last. */
const char *bt_kept_file_name(size_t i);
bt_code bt_tokenizer_keep_file(bt_tokenizer *t, const char *name, const char *data, size_t n,
                               bt_err *err) BT_MUST_CHECK;
/* Appends the file. BT_NOTFOUND: the tokenizer has no such file. */
bt_code bt_tokenizer_kept_file(const bt_tokenizer *t, const char *name, bt_text *out, bt_err *err)
    BT_MUST_CHECK;
bool bt_tokenizer_keeps(const bt_tokenizer *t, const char *name);

/* The serialised form is a tokenizer file; checkpoints contain it. */
void bt_tokenizer_save(const bt_tokenizer *t, bt_text *out);
bt_code bt_tokenizer_parse(bt_tokenizer **out, const char *json, size_t n, bt_err *err)
    BT_MUST_CHECK;

/* *same: the tokenizer `name` produces the same ids as the serialised one in json[0..n). */
bt_code bt_tokenizer_compare(const char *name, const char *json, size_t n, bool *same, bt_err *err)
    BT_MUST_CHECK;

/* Imports Hugging Face's tokenizer.json: byte-level BPE with its word patterns, or BPE with byte fallback or Unigram
 * models that mark spaces. Anything else is refused by name. */
bt_code bt_tokenizer_import(bt_tokenizer **out, const char *path, bt_err *err) BT_MUST_CHECK;

/* Exports tokenizer.json, with special tokens in its vocabulary. BT_UNSUPPORTED: two would have the same text. */
bt_code bt_tokenizer_export(const bt_tokenizer *t, bt_text *out, bt_err *err) BT_MUST_CHECK;
/* Appends the text of a token in tokenizer.json and GGUF: in GPT-2's byte alphabet, special tokens unchanged. */
void bt_tokenizer_token_text(const bt_tokenizer *t, int32_t id, bt_text *out);
bool bt_tokenizer_is_hole(const bt_tokenizer *t, int32_t id);
void bt_tokenizer_merge(const bt_tokenizer *t, size_t i, int32_t *left, int32_t *right);
bool bt_tokenizer_ignores_merges(const bt_tokenizer *t);
/* Returns the regular expressions that cut words, one per line; NULL: a fixed pattern. */
const char *bt_tokenizer_rules(const bt_tokenizer *t);

/* The part of the text of a file between two shares, 0 to 1; from = to: none. */
typedef struct bt_held_out {
    double from, to;
} bt_held_out;

typedef struct bt_tok_train_cfg {
    const char *paths, *glob; /* as in bt_loader_cfg */
    const char *field;
    bool skip_bad_rows;    /* true skips rows that cannot be read; false refuses them */
    const char *cache_dir; /* folder of "builtin" */
    int vocab;             /* 257 to 1048576 */
    bt_held_out held_out;  /* unused part of the text of every file, which validates */
    bt_text *notes;        /* bt_documents_notes appends to it; may be NULL */
    void (*progress)(void *ctx, double done, const char *what);
    void *ctx;
} bt_tok_train_cfg;
bt_code bt_tokenizer_train(bt_tokenizer **out, const bt_tok_train_cfg *cfg, bt_err *err)
    BT_MUST_CHECK;

#endif

/* tokenizer.h - bytes, byte-level BPE trained here, or an imported tokenizer. Files are JSON of our own (`bitrain
 * tokenizer train`), see tokenizer.c.
 * Threads: constant after load; encode needs the caller's output only. */
#ifndef BT_ENGINE_DATA_TOKENIZER_TOKENIZER_H
#define BT_ENGINE_DATA_TOKENIZER_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"
#include "engine/base/text.h"

typedef struct bt_tokenizer bt_tokenizer;

/* name: "bytes" or a file. */
bt_code bt_tokenizer_load(bt_tokenizer **out, const char *name, bt_err *err) BT_MUST_CHECK;
void bt_tokenizer_free(bt_tokenizer *t);
int bt_tokenizer_vocab(const bt_tokenizer *t);
uint64_t bt_tokenizer_hash(const bt_tokenizer *t);
/* Returns the end-of-text token, -1: none (bytes). */
int32_t bt_tokenizer_eot(const bt_tokenizer *t);
/* Returns true for a control token or a hole, which represents no text and is not shown. Added tokens that are not
 * special (<think>, <tool_call>) are shown. */
bool bt_tokenizer_is_special(const bt_tokenizer *t, int32_t id);
/* Returns true for a token that is created by its name in text, not by merges, and is shown. */
bool bt_tokenizer_is_added(const bt_tokenizer *t, int32_t id);
/* Returns the added token, special or not, with the name name[0..n); -1: none. */
int32_t bt_tokenizer_named(const bt_tokenizer *t, const char *name, size_t n);
/* Encodes n bytes. Names of added tokens that are not special become these tokens; names of special
 * tokens are plain text. *ids is grown with realloc (the caller frees it), *count is set. */
bt_code bt_tokenizer_encode(const bt_tokenizer *t, const char *text, size_t n, int32_t **ids,
                            size_t *count, size_t *cap, bt_err *err) BT_MUST_CHECK;
/* BT_ENCODE_SPECIAL: names of special tokens become these tokens. BT_ENCODE_WHOLE: the text is a whole
 * document or prompt, and gets the tokens that the tokenizer puts around one (BOS, EOS). BT_ENCODE_MORE: the text
 * continues an earlier text, so no mark of a space is put in front of it. */
enum { BT_ENCODE_TEXT = 0, BT_ENCODE_SPECIAL = 1, BT_ENCODE_WHOLE = 2, BT_ENCODE_MORE = 4 };
bt_code bt_tokenizer_encode_as(const bt_tokenizer *t, unsigned how, const char *text, size_t n,
                               int32_t **ids, size_t *count, size_t *cap, bt_err *err)
    BT_MUST_CHECK;
/* Returns the tokens that the tokenizer adds before (false) or after (true) a whole text. */
const int32_t *bt_tokenizer_affix(const bt_tokenizer *t, bool behind, size_t *n);
/* Appends for example "begins with '<|begin_of_text|>' (token 0)", and the end; nothing if it adds no tokens. */
void bt_tokenizer_describe_affixes(const bt_tokenizer *t, bt_text *out);
/* Largest position at which a text that continues can be cut without changing a token: 0 <= cut < n, 0 if there is
 * none. bt_text_cut alone is enough unless bt_tokenizer_spans_space: an added token that is not special includes
 * white space. */
bool bt_tokenizer_has_flags(const bt_tokenizer *t); /* lstrip, rstrip or single_word */
bool bt_tokenizer_spans_space(const bt_tokenizer *t);
size_t bt_tokenizer_cut(const bt_tokenizer *t, const char *text, size_t n);
/* Returns true if the last token that it adds after a text is the end-of-text token. */
bool bt_tokenizer_ends_texts(const bt_tokenizer *t);
/* Returns the bytes of one token (not NUL-terminated), valid as long as t. */
const char *bt_tokenizer_bytes(const bt_tokenizer *t, int32_t id, size_t *n);
/* Returns BT_ENCODE_MORE if a text behind token `last` gets no mark of a space in front, else 0. last -1: it is the
 * first text. */
unsigned bt_tokenizer_continues(const bt_tokenizer *t, int32_t last);
/* Returns "prepend", "first", ... (marked_spaces.h) for a tokenizer that marks spaces by U+2581; NULL for another. */
const char *bt_tokenizer_spaces(const bt_tokenizer *t);
/* Returns true if the scores of tokens divide a word, not merges (unigram.h). */
bool bt_tokenizer_is_unigram(const bt_tokenizer *t);
/* Returns the token that replaces characters without a token; -1: each text can be restored. */
int32_t bt_tokenizer_unknown(const bt_tokenizer *t);
bool bt_tokenizer_prefixes(const bt_tokenizer *t); /* it puts such a mark in front of a text */
/* Sets a score for each of n tokens, by which the parts of a higher one are merged first, as SentencePiece does. *same:
 * these scores give the merges of the tokenizer. */
bt_code bt_tokenizer_scores(const bt_tokenizer *t, float *scores, size_t n, bool *same, bt_err *err)
    BT_MUST_CHECK;
/* True for a token that merges make, even if text can name it as well. */
bool bt_tokenizer_is_merged(const bt_tokenizer *t, int32_t id);
/* Returns true for a token such as <0x0A> of a tokenizer that marks spaces, which represents a single byte. */
bool bt_tokenizer_is_byte(const bt_tokenizer *t, int32_t id);
/* Appends ids as text; a tokenizer that puts a mark in front of texts loses one space at the beginning of `out`.
 * decode(encode(x)) == x for any bytes x, except for U+2581, which a tokenizer that marks spaces
 * takes as a space, for characters that become an unknown token, and for the text of a byte token in a Unigram model
 * (<0x41> becomes the byte, as in Hugging Face's library). */
void bt_tokenizer_decode(const bt_tokenizer *t, const int32_t *ids, size_t n, bt_text *out);
/* Returns the name of a tokenizer for messages: "bytes" or "bpe 8192". */
const char *bt_tokenizer_kind(const bt_tokenizer *t);
typedef struct bt_tokenizer_about {
    /* for example "bpe 8192", "gpt2", "nfc"; "none" if there is none */
    const char *kind, *pattern, *normalizer;
    size_t merges;
    int specials, added, holes; /* added: named in text, not special */
} bt_tokenizer_about;
void bt_tokenizer_summarise(const bt_tokenizer *t, bt_tokenizer_about *out);

/* the template that chats are rendered with, Jinja text as its author wrote it; NULL: none. It is not part of the hash,
 * because it does not affect the ids */
const char *bt_tokenizer_chat_template(const bt_tokenizer *t);
bt_code bt_tokenizer_set_chat_template(bt_tokenizer *t, const char *text, bt_err *err)
    BT_MUST_CHECK;
/* Tokens named by the model's files: the first token of texts, the padding, and all tokens that end a text. -1:
 * none. They do not affect the ids of a text and are not part of the hash. */
enum { BT_ENDS_MAX = 16 };
typedef struct bt_token_roles {
    bool known; /* false: no model file was read */
    int32_t bos, pad, ends[BT_ENDS_MAX];
    size_t n_ends;
} bt_token_roles;
const bt_token_roles *bt_tokenizer_roles(const bt_tokenizer *t);
/* Sets the roles. Tokens outside the vocabulary are ignored, and their number is returned. The first special token
 * among the ends becomes the end-of-text token. */
size_t bt_tokenizer_set_roles(bt_tokenizer *t, const bt_token_roles *roles);
/* Adds a token that ends a text, once; returns false if there are BT_ENDS_MAX already. */
bool bt_token_roles_add_end(bt_token_roles *roles, int32_t id);
/* Returns true for the end-of-text token and the other ends. */
bool bt_tokenizer_is_end(const bt_tokenizer *t, int32_t id);
/* Returns all ends named by the model's files, or else the end-of-text token, and their number. */
size_t bt_tokenizer_ends(const bt_tokenizer *t, int32_t ends[BT_ENDS_MAX]);

/* ---- original files of the tokenizer, stored byte for byte, in checkpoints too ---- */
enum { BT_KEPT_FILES = 7 };
/* Returns "tokenizer.json", "tokenizer_config.json", ...; NULL after the last. */
const char *bt_kept_file_name(size_t i);
bt_code bt_tokenizer_keep_file(bt_tokenizer *t, const char *name, const char *data, size_t n,
                               bt_err *err) BT_MUST_CHECK;
/* Appends the file; BT_NOTFOUND: the tokenizer has no such file. */
bt_code bt_tokenizer_kept_file(const bt_tokenizer *t, const char *name, bt_text *out, bt_err *err)
    BT_MUST_CHECK;
bool bt_tokenizer_keeps(const bt_tokenizer *t, const char *name);

/* Write and read the serialised form, which checkpoints contain. */
void bt_tokenizer_save(const bt_tokenizer *t, bt_text *out);
bt_code bt_tokenizer_parse(bt_tokenizer **out, const char *json, size_t n, bt_err *err)
    BT_MUST_CHECK;

/* *same: the tokenizer `name` gives the same ids as the serialised one, json of n bytes. */
bt_code bt_tokenizer_compare(const char *name, const char *json, size_t n, bool *same, bt_err *err)
    BT_MUST_CHECK;

/* Hugging Face's tokenizer.json of a byte-level BPE with its word patterns, or of a BPE with byte fallback that marks
 * spaces, or of a Unigram model that does; anything else is refused by name */
bt_code bt_tokenizer_import(bt_tokenizer **out, const char *path, bt_err *err) BT_MUST_CHECK;

/* Exports tokenizer.json, with special tokens in its vocabulary; BT_UNSUPPORTED: two tokens have the same text
 * there. */
bt_code bt_tokenizer_export(const bt_tokenizer *t, bt_text *out, bt_err *err) BT_MUST_CHECK;
/* Appends the text of a token in tokenizer.json and GGUF: in GPT-2's byte alphabet, a special token unchanged;
 * nothing for a hole. */
void bt_tokenizer_token_text(const bt_tokenizer *t, int32_t id, bt_text *out);
bool bt_tokenizer_is_hole(const bt_tokenizer *t, int32_t id);
/* Returns merge i of bt_tokenizer_about.merges, by rank. */
void bt_tokenizer_merge(const bt_tokenizer *t, size_t i, int32_t *left, int32_t *right);
bool bt_tokenizer_ignores_merges(const bt_tokenizer *t);
/* the regular expressions by which it cuts words, in lines; NULL: a fixed pattern */
const char *bt_tokenizer_rules(const bt_tokenizer *t);

/* Shares of the text of a file, 0 to 1; from = to: none */
typedef struct bt_held_out {
    double from, to;
} bt_held_out;

typedef struct bt_tok_train_cfg {
    const char *paths, *glob; /* as in bt_loader_cfg */
    const char *field;
    bool skip_bad_rows;    /* rows that cannot be read are left out, not refused */
    const char *cache_dir; /* folder of "builtin" */
    int vocab;             /* 257 .. 1048576 */
    bt_held_out held_out;  /* unused part of the text of every file, which validates */
    bt_text *notes;        /* bt_documents_notes appends to it; may be NULL */
    void (*progress)(void *ctx, double done, const char *what);
    void *ctx;
} bt_tok_train_cfg;
bt_code bt_tokenizer_train(bt_tokenizer **out, const bt_tok_train_cfg *cfg, bt_err *err)
    BT_MUST_CHECK;

#endif

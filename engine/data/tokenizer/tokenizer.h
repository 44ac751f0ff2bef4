/* tokenizer.h - bytes, or byte-level BPE trained here. Files are JSON of our own (`bitrain
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

/* "bytes" or a file */
bt_code bt_tokenizer_load(bt_tokenizer **out, const char *name, bt_err *err) BT_MUST_CHECK;
void bt_tokenizer_free(bt_tokenizer *t);
int bt_tokenizer_vocab(const bt_tokenizer *t);
uint64_t bt_tokenizer_hash(const bt_tokenizer *t);
/* end-of-text token, -1: none (bytes) */
int32_t bt_tokenizer_eot(const bt_tokenizer *t);
/* stands for no bytes of a text */
bool bt_tokenizer_is_special(const bt_tokenizer *t, int32_t id);
/* encodes n bytes; text never becomes a special token; *ids is grown with realloc (caller frees),
 * *count is set */
bt_code bt_tokenizer_encode(const bt_tokenizer *t, const char *text, size_t n, int32_t **ids,
                            size_t *count, size_t *cap, bt_err *err) BT_MUST_CHECK;
/* bytes of one token (not NUL-terminated), valid as long as t */
const char *bt_tokenizer_bytes(const bt_tokenizer *t, int32_t id, size_t *n);
/* decode(encode(x)) == x for any bytes */
void bt_tokenizer_decode(const bt_tokenizer *t, const int32_t *ids, size_t n, bt_text *out);
/* the name of a tokenizer in messages: "bytes" or "bpe 8192" */
const char *bt_tokenizer_kind(const bt_tokenizer *t);
typedef struct bt_tokenizer_about {
    /* "bpe 8192", "gpt2", "nfc"; "none" where there is none */
    const char *kind, *pattern, *normalizer;
    size_t merges;
    int specials, holes;
} bt_tokenizer_about;
void bt_tokenizer_look(const bt_tokenizer *t, bt_tokenizer_about *out);

/* the template that chats are rendered with, Jinja text as its author wrote it; NULL: none. It is not
 * part of the hash: it changes no id */
const char *bt_tokenizer_chat_template(const bt_tokenizer *t);
bt_code bt_tokenizer_set_chat_template(bt_tokenizer *t, const char *text, bt_err *err)
    BT_MUST_CHECK;
/* another special token ends texts; BT_ARG when the id is no special token */
bt_code bt_tokenizer_set_eot(bt_tokenizer *t, int32_t id, bt_err *err) BT_MUST_CHECK;

/* the serialised form, for embedding in checkpoints, and back */
void bt_tokenizer_save(const bt_tokenizer *t, bt_text *out);
bt_code bt_tokenizer_parse(bt_tokenizer **out, const char *json, size_t n, bt_err *err)
    BT_MUST_CHECK;

/* Hugging Face's tokenizer.json of a byte-level BPE (GPT-2, Llama 3 and Qwen patterns); anything
 * else is refused by name */
bt_code bt_tokenizer_import(bt_tokenizer **out, const char *path, bt_err *err) BT_MUST_CHECK;

/* The way out. tokenizer.json of a tokenizer, special tokens among its vocabulary; BT_UNSUPPORTED
 * when two tokens have one text there */
bt_code bt_tokenizer_export(const bt_tokenizer *t, bt_text *out, bt_err *err) BT_MUST_CHECK;
/* the text of a token in tokenizer.json and GGUF: in GPT-2's byte alphabet, a special one as it is;
 * appends nothing for a hole */
void bt_tokenizer_token_text(const bt_tokenizer *t, int32_t id, bt_text *out);
bool bt_tokenizer_is_hole(const bt_tokenizer *t, int32_t id);
/* merge i of bt_tokenizer_about.merges, by rank */
void bt_tokenizer_merge(const bt_tokenizer *t, size_t i, int32_t *left, int32_t *right);
bool bt_tokenizer_ignores_merges(const bt_tokenizer *t);

typedef struct bt_tok_train_cfg {
    const char *paths, *glob; /* as the loader's */
    const char *field;
    bool skip_bad_rows;    /* rows that cannot be read are left out, not refused */
    const char *cache_dir; /* where "builtin" is */
    int vocab;             /* 257 .. 1048576 */
    double share;          /* of every file, from its beginning, that is learned from; 0: all */
    void (*progress)(void *ctx, double done, const char *what);
    void *ctx;
} bt_tok_train_cfg;
bt_code bt_tokenizer_train(bt_tokenizer **out, const bt_tok_train_cfg *cfg, bt_err *err)
    BT_MUST_CHECK;

#endif

/* chat.h - renders a conversation to the text and the tokens that a model reads, by the templates of chat.def.
 *
 * A rendering is a sequence of pieces. Markup (a template's own text) may contain names of special tokens, which
 * become these tokens if the tokenizer has them; in the text of messages, names of special tokens are plain text.
 * Names of other added tokens (<think>) become tokens in both. Each piece is encoded separately, so that no token
 * spans the border of an answer.
 * Threads: constant tables; the callers' output only. */
#ifndef BT_ENGINE_DATA_CHAT_CHAT_H
#define BT_ENGINE_DATA_CHAT_CHAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"
#include "engine/data/tokenizer/tokenizer.h"

typedef enum { BT_CHAT_SYSTEM, BT_CHAT_USER, BT_CHAT_ASSISTANT } bt_chat_role;

typedef enum {
    BT_CHAT_SYSTEM_OWN_TURN,
    BT_CHAT_SYSTEM_FIRST,
    BT_CHAT_SYSTEM_FINAL,
    BT_CHAT_SYSTEM_REFUSED
} bt_chat_place;

enum {
    BT_CHAT_TRIM = 1,
    BT_CHAT_BETWEEN = 2,
    BT_CHAT_BARE = 4,
    BT_CHAT_DATED = 8,
    BT_CHAT_PREAMBLE = 16
};

typedef struct bt_chat_template { /* columns of chat.def; NULL is "" */
    const char *name, *bos, *system, *system_end, *user, *user_end, *answer, *end, *tail, *close,
        *fallback, *before_last, *stop, *marks, *sha256, *signs[4];
    bt_chat_place place;
    unsigned flags;
} bt_chat_template;

typedef struct bt_chat_message {
    bt_chat_role role;
    const char *text;
    size_t n;
    bool muted; /* never learned, whatever bt_chat_learn selects */
} bt_chat_message;

typedef struct bt_chat_piece {
    const char *text;
    size_t n;
    /* markup: names of special tokens become tokens. bos: the piece is omitted if the tokenizer has no such token. */
    bool markup, bos;
    /* True for an answer's text and its end-of-turn token, which the model learns to write. */
    bool learned;
    size_t message;
} bt_chat_piece;

/* BT_NOTFOUND: the error message lists the known names. */
bt_code bt_chat_find(const bt_chat_template **out, const char *name, bt_err *err) BT_MUST_CHECK;
void bt_chat_names(char *out, size_t size);

/* Returns the rows in order; NULL after the last one. */
const bt_chat_template *bt_chat_at(size_t i);
/* Finds the row that renders like a tokenizer's Jinja template, by its hash or else by its structure; *how names the
 * method. Jinja is not executed. BT_ARG: no row does; the error message lists the rows. */
bt_code bt_chat_of_jinja(const bt_chat_template **out, const char *jinja, const char **how,
                         bt_err *err) BT_MUST_CHECK;
/* Returns the row whose column `marks` names the special tokens of this tokenizer, or else the row "plain". */
const bt_chat_template *bt_chat_of_tokenizer(const bt_tokenizer *t);
/* bt_chat_end_token returns the special token that ends an answer; -1 if the tokenizer has none. bt_chat_stops then
 * writes the texts that end an answer, at most BT_CHAT_STOPS, and returns their number. */
enum { BT_CHAT_STOPS = 2 };
int32_t bt_chat_end_token(const bt_chat_template *t, const bt_tokenizer *tokenizer);
size_t bt_chat_stops(const bt_chat_template *t, const bt_tokenizer *tokenizer,
                     const char *stops[BT_CHAT_STOPS]);

/* A conversation is [system] (user assistant)*; a prompt ends with a user's turn. Any other order of roles is an error.
 * prompt: true renders up to the beginning of the answer, false a whole conversation. `emit` receives the pieces in
 * order and may stop with an error. */
typedef bt_code (*bt_chat_emit_fn)(void *ctx, const bt_chat_piece *piece, bt_err *err);
bt_code bt_chat_render(const bt_chat_template *t, const bt_chat_message *messages, size_t n,
                       bool prompt, bt_chat_emit_fn emit, void *ctx, bt_err *err) BT_MUST_CHECK;

typedef struct bt_chat_encoder {
    const bt_chat_template *t;
    const bt_tokenizer *tokenizer;
} bt_chat_encoder;

typedef struct bt_chat_ids {
    int32_t *ids;
    unsigned char *learned; /* one byte per id */
    size_t n, cap;
} bt_chat_ids;
/* The part of a conversation that is learned: all answers with their ends, the last answer, or every token. */
typedef enum { BT_CHAT_LEARN_ANSWERS, BT_CHAT_LEARN_LAST, BT_CHAT_LEARN_ALL } bt_chat_learn;
/* Appends to *out, which the caller zeroes first and releases. */
bt_code bt_chat_encode(const bt_chat_encoder *e, const bt_chat_message *messages, size_t n,
                       bool prompt, bt_chat_learn learn, bt_chat_ids *out, bt_err *err)
    BT_MUST_CHECK;
/* Appends the tokens of a text; how: a sum of BT_ENCODE_* (tokenizer.h). */
bt_code bt_chat_ids_encode(bt_chat_ids *out, const bt_tokenizer *tokenizer, unsigned how,
                           const char *text, size_t n, bool learned, bt_err *err) BT_MUST_CHECK;
bt_code bt_chat_ids_add(bt_chat_ids *out, int32_t id, bool learned, bt_err *err) BT_MUST_CHECK;
void bt_chat_ids_release(bt_chat_ids *ids); /* accepts an all-zero struct */

#endif

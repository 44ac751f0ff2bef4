/* marked_spaces.h - tokenizers like SentencePiece's: U+2581 marks spaces, and characters without a token become byte
 * tokens <0x00> to <0xFF>.
 *
 * Such a tokenizer does not cut text into words, so merges may cross spaces. In this file a word ends where no token
 * has the two adjacent bytes beside each other; no merge can join them, so encoding word by word results in the ids of
 * the whole text.
 * Threads: pure functions. */
#ifndef BT_ENGINE_DATA_TOKENIZER_MARKED_SPACES_H
#define BT_ENGINE_DATA_TOKENIZER_MARKED_SPACES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"

#define BT_SPACE_MARK "\xe2\x96\x81" /* U+2581 */

/* How spaces are marked. REPLACE and PREPEND are normalisers; PREPEND also adds a mark before each text between added
 * tokens. FIRST, ALWAYS and NEVER are the pre-tokeniser Metaspace: it adds a mark before the beginning of the text,
 * before each text between added tokens, or nowhere, unless the text begins with a mark. */
typedef enum {
    BT_SPACES_PLAIN, /* byte-level vocabulary without marks */
    BT_SPACES_REPLACE,
    BT_SPACES_PREPEND,
    BT_SPACES_FIRST,
    BT_SPACES_ALWAYS,
    BT_SPACES_NEVER,
    BT_SPACES_COUNT
} bt_spaces;

typedef struct bt_marked {
    bt_spaces how;
    bool split; /* a word begins at each mark */
    bool strip; /* decoding removes one space at the beginning */
} bt_marked;

const char *bt_spaces_name(bt_spaces s); /* "plain", "replace", ... */
bool bt_spaces_normalises(bt_spaces s);  /* REPLACE, PREPEND */
bool bt_spaces_prefixes(bt_spaces s);    /* PREPEND, FIRST, ALWAYS */
/* Replaces spaces by marks. begins: text[0] is the beginning of the encoder's text. The caller frees *out. */
bt_code bt_marked_text(const bt_marked *m, const char *text, size_t n, bool begins, char **out,
                       size_t *out_n, bt_err *err) BT_MUST_CHECK;
/* Replaces marks by spaces, in place; returns the new length. */
size_t bt_marked_shown(char *text, size_t n);
/* Returns the byte of a token such as <0x0A>; -1: the text is not such a token. */
int bt_marked_byte(const char *text, size_t n);

/* Pairs of bytes that are adjacent in some token. */
typedef struct bt_byte_pairs {
    uint32_t bits[256][8];
} bt_byte_pairs;
void bt_byte_pairs_add(bt_byte_pairs *p, const char *token, size_t n);
/* Returns the end of the word at text[at]. p NULL: words end only at marks. */
size_t bt_marked_word_end(const bt_byte_pairs *p, bool split, const char *text, size_t n,
                          size_t at);

#endif

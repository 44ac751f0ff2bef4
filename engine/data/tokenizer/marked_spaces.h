/* marked_spaces.h - tokenizers of SentencePiece's kind: U+2581 marks spaces, characters without a token become byte
 * tokens <0x00> to <0xFF>.
 *
 * Such a tokenizer does not cut text into words: merges may cross spaces. Words here end where no token has the two
 * bytes beside each other, so no merge could join them, and ids are those of the whole text.
 * Threads: pure functions. */
#ifndef BT_ENGINE_DATA_TOKENIZER_MARKED_SPACES_H
#define BT_ENGINE_DATA_TOKENIZER_MARKED_SPACES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"

#define BT_SPACE_MARK "\xe2\x96\x81" /* U+2581 */

/* How text gets its marks. REPLACE, PREPEND: a normaliser, PREPEND puts one in front of each stretch between added
 * tokens. FIRST, ALWAYS, NEVER: the pre-tokeniser Metaspace, which puts one in front of the text's beginning or of
 * each stretch that does not begin with one. */
typedef enum {
    BT_SPACES_PLAIN, /* a byte-level vocabulary */
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
/* Replaces spaces by marks. begins: text[0] begins the text that an encoding call was given. *out is malloc'ed. */
bt_code bt_marked_text(const bt_marked *m, const char *text, size_t n, bool begins, char **out,
                       size_t *out_n, bt_err *err) BT_MUST_CHECK;
/* Replaces marks by spaces, in place; returns the new length. */
size_t bt_marked_shown(char *text, size_t n);
/* Returns the byte of a token <0x0A>; -1: the text is no such token. */
int bt_marked_byte(const char *text, size_t n);

/* bytes that are beside each other in a token */
typedef struct bt_byte_pairs {
    uint32_t bits[256][8];
} bt_byte_pairs;
void bt_byte_pairs_add(bt_byte_pairs *p, const char *token, size_t n);
/* Returns the end of the word at text[at]. p NULL: only marks separate words. */
size_t bt_marked_word_end(const bt_byte_pairs *p, bool split, const char *text, size_t n,
                          size_t at);

#endif

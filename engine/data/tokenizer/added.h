/* added.h - finds the names of added tokens in text, at the places where Hugging Face's library does
 * (tokenizers, added_vocabulary.rs).
 *
 * Names are searched from left to right, the longest at each place. A name with `single_word` counts
 * only between characters that are no word characters; `lstrip` and `rstrip` take the white space
 * beside the name. Names with `normalized` are searched after the other ones, in the normalised rest.
 * Inside engine/data. Threads: constant after create. */
#ifndef BT_ENGINE_DATA_TOKENIZER_ADDED_H
#define BT_ENGINE_DATA_TOKENIZER_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"

typedef struct bt_added { /* a token that a text can name */
    int32_t id;
    bool special; /* a control token: found only where special tokens are allowed, never shown */
    bool lstrip, rstrip, single_word, normalized;
} bt_added;

struct bt_tokenizer;
typedef struct bt_added_names bt_added_names;

/* the names of t->added whose `normalized` equals the argument; *out is NULL when there is none */
bt_code bt_added_names_create(bt_added_names **out, const struct bt_tokenizer *t, bool normalized,
                              bt_err *err) BT_MUST_CHECK;
void bt_added_names_destroy(bt_added_names *a); /* accepts NULL */

typedef struct bt_added_hit {
    size_t begin, end; /* bytes that the token replaces */
    size_t scanned;    /* end of the part searched so far; initially 0 */
    int32_t id;
} bt_added_hit;

/* Finds the next name in text[0..n). Zero *hit before the first call and pass it on unchanged. special: includes
 * names of special tokens; false: these are plain text. */
bool bt_added_next(const bt_added_names *a, const char *text, size_t n, bool special,
                   bt_added_hit *hit);

#endif

/* added.h - finds the names of added tokens in a text, at the same positions as Hugging Face's library (tokenizers,
 * added_vocabulary.rs).
 *
 * The search is from left to right and takes the longest name at each position. A name with `single_word` is found only
 * if no word character is beside it. A name with `lstrip` or `rstrip` includes the white space before or after it.
 * Names with `normalized` are searched in a second pass, in the normalised text between the names found first.
 * Private to engine/data. Threads: constant after create. */
#ifndef BT_ENGINE_DATA_TOKENIZER_ADDED_H
#define BT_ENGINE_DATA_TOKENIZER_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"

typedef struct bt_added { /* a token that is created where its name occurs in a text */
    int32_t id;
    /* a control token: found only where special tokens are allowed, and never shown */
    bool special;
    bool lstrip, rstrip, single_word, normalized;
} bt_added;

struct bt_tokenizer;
typedef struct bt_added_names bt_added_names;

/* Selects the names in t->added whose flag `normalized` equals the argument. *out is NULL if there is none. */
bt_code bt_added_names_create(bt_added_names **out, const struct bt_tokenizer *t, bool normalized,
                              bt_err *err) BT_MUST_CHECK;
void bt_added_names_destroy(bt_added_names *a); /* accepts NULL */

typedef struct bt_added_hit {
    size_t begin, end; /* bytes of the text that the token replaces */
    size_t scanned;    /* end of the text searched so far; initially 0 */
    int32_t id;
} bt_added_hit;

/* Finds the next name in text[0..n). The caller zeroes *hit before the first call and does not change it between calls.
 * special: true includes names of special tokens; false leaves them as plain text. */
bool bt_added_next(const bt_added_names *a, const char *text, size_t n, bool special,
                   bt_added_hit *hit);

#endif

/* words.h - builds an argument vector word by word.
 *
 * After a failed allocation bt_words_argv returns NULL. An all-zero struct is empty. Threads: one owner. */
#ifndef BT_BASE_SYSTEM_WORDS_H
#define BT_BASE_SYSTEM_WORDS_H

#include "engine/base/text.h"

typedef struct bt_words {
    bt_text text; /* each word ends with NUL */
    size_t n;
} bt_words;

void bt_words_put(bt_words *w, const char *word);
void bt_words_putn(bt_words *w, const char *word, size_t n);
void bt_words_set(bt_words *w, const char *key, const char *value);
/* Returns the words with a terminating NULL, valid until w changes. The caller frees the array. NULL: out of memory. */
const char **bt_words_argv(const bt_words *w) BT_MUST_CHECK;
void bt_words_clear(bt_words *w);
void bt_words_release(bt_words *w);

#endif

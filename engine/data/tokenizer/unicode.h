/* unicode.h - properties of characters that tokenizers depend on: normalisation form C, word
 * characters and white space as Rust's regular expressions define them (Hugging Face's library uses
 * these).
 * Threads: pure functions. */
#ifndef BT_ENGINE_DATA_TOKENIZER_UNICODE_H
#define BT_ENGINE_DATA_TOKENIZER_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"

/* NFC of the UTF-8 stretches of a text; other bytes are kept. *out is NULL when the text is ASCII and
 * therefore unchanged, else malloc'ed with *out_n bytes. */
bt_code bt_unicode_nfc(const char *text, size_t n, char **out, size_t *out_n, bt_err *err)
    BT_MUST_CHECK;
bool bt_unicode_is_word(uint32_t c);  /* \w */
bool bt_unicode_is_space(uint32_t c); /* \s: the property White_Space */

#endif

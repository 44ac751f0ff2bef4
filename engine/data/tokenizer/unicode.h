/* unicode.h - normalisation form C, word characters and white space as Rust's regular expressions define them, which
 * Hugging Face's library uses.
 * Threads: pure functions. */
#ifndef BT_ENGINE_DATA_TOKENIZER_UNICODE_H
#define BT_ENGINE_DATA_TOKENIZER_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"

/* Normalises the valid UTF-8 of a text to NFC and keeps other bytes. *out is NULL if the text is ASCII and therefore
 * unchanged; otherwise the caller frees it. */
bt_code bt_unicode_nfc(const char *text, size_t n, char **out, size_t *out_n, bt_err *err)
    BT_MUST_CHECK;
bool bt_unicode_is_word(uint32_t c);  /* \w */
bool bt_unicode_is_space(uint32_t c); /* \s: the property White_Space */

#endif

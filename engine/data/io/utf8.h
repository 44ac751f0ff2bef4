/* utf8.h - validates UTF-8 (Unicode table 3-7: no overlong forms, no surrogates, at most U+10FFFF).
 *
 * Threads: any; pure functions. */
#ifndef BT_ENGINE_DATA_IO_UTF8_H
#define BT_ENGINE_DATA_IO_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Returns the length of the character at s in bytes, 0 if it is invalid. */
size_t bt_utf8_char(const char *s, size_t n);
size_t bt_utf8_valid(const char *s, size_t n); /* length of the longest valid prefix, in bytes */
size_t bt_utf8_encode(char out[4], uint32_t c);
/* Returns the code point of the valid character of n bytes at s. */
uint32_t bt_utf8_decode(const char *s, size_t n);

#endif

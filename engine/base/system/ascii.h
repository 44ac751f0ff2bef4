/* ascii.h - character classes and comparisons of ASCII, the same in every locale.
 *
 * The functions of <ctype.h> and <strings.h> depend on LC_CTYPE: in a Turkish locale toupper('i') is not 'I'.
 * Names of settings, HTTP headers, hosts and formats are ASCII, so the sources use these functions instead; the
 * test lint.locale rejects those of the C library. A byte above 127 is in no class and equals only itself. Threads:
 * any. */
#ifndef BT_ENGINE_BASE_SYSTEM_ASCII_H
#define BT_ENGINE_BASE_SYSTEM_ASCII_H

#include <stdbool.h>
#include <stddef.h>

static inline bool bt_ascii_digit(char c) { return c >= '0' && c <= '9'; }
static inline bool bt_ascii_alnum(char c) {
    return bt_ascii_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
static inline bool bt_ascii_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
static inline char bt_ascii_upper(char c) { return c >= 'a' && c <= 'z' ? (char)(c - 32) : c; }
static inline char bt_ascii_lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c; }

bool bt_ascii_equal(const char *a, const char *b);
/* Compares at most the first n bytes; equivalent to strncasecmp(a, b, n) == 0 in the C locale. */
bool bt_ascii_equal_n(const char *a, const char *b, size_t n);
/* Returns the first occurrence of `part` in `text`, ignoring the case of ASCII letters, or NULL. */
char *bt_ascii_find(const char *text, const char *part);

#endif

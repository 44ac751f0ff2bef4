/* ascii.c - comparisons that ignore the case of ASCII letters only. */
#include "engine/base/system/ascii.h"

#include <stdint.h>
#include <string.h>

bool bt_ascii_equal_n(const char *a, const char *b, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (bt_ascii_lower(a[i]) != bt_ascii_lower(b[i])) return false;
        if (a[i] == '\0') return true;
    }
    return true;
}

bool bt_ascii_equal(const char *a, const char *b) { return bt_ascii_equal_n(a, b, SIZE_MAX); }

char *bt_ascii_find(const char *text, const char *part) {
    const size_t n = strlen(part);
    for (; *text || n == 0; text++)
        if (bt_ascii_equal_n(text, part, n)) return (char *)(uintptr_t)text;
    return NULL;
}

/* utf8.c - the first byte of a character determines its length and the bounds of its second byte. */
#include "engine/data/io/utf8.h"

#include <string.h>

size_t bt_utf8_char(const char *s, size_t n) {
    const unsigned char *u = (const unsigned char *)s;
    if (!n) return 0;
    unsigned char c = u[0];
    if (c < 0x80) return 1;
    if (c < 0xC2 || c > 0xF4) return 0;
    size_t k = c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
    if (n < k) return 0;
    unsigned char low = c == 0xE0   ? 0xA0
                        : c == 0xF0 ? 0x90
                                    : 0x80,
                  high = c == 0xED   ? 0x9F
                         : c == 0xF4 ? 0x8F
                                     : 0xBF;
    if (u[1] < low || u[1] > high) return 0;
    for (size_t i = 2; i < k; i++)
        if ((u[i] & 0xC0) != 0x80) return 0;
    return k;
}

size_t bt_utf8_valid(const char *s, size_t n) {
    size_t i = 0;
    while (i < n) {
        uint64_t eight;
        if (n - i >= 8 && (memcpy(&eight, s + i, 8), (eight & 0x8080808080808080u) == 0)) {
            i += 8;
            continue;
        }
        size_t k = bt_utf8_char(s + i, n - i);
        if (!k) break;
        i += k;
    }
    return i;
}

size_t bt_utf8_encode(char out[4], uint32_t c) {
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xC0 | c >> 6);
        out[1] = (char)(0x80 | (c & 63));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xE0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 63));
        out[2] = (char)(0x80 | (c & 63));
        return 3;
    }
    out[0] = (char)(0xF0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 63));
    out[2] = (char)(0x80 | (c >> 6 & 63));
    out[3] = (char)(0x80 | (c & 63));
    return 4;
}

uint32_t bt_utf8_decode(const char *s, size_t n) {
    const unsigned char *u = (const unsigned char *)s;
    uint32_t c = n == 1 ? u[0] : u[0] & (0x7Fu >> n);
    for (size_t i = 1; i < n; i++) c = c << 6 | (u[i] & 63);
    return c;
}

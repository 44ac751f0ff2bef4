/* output_text.c - holds back incomplete characters and possible beginnings of stop strings. */
#include "engine/generate/output_text.h"

#include <string.h>

void bt_output_init(bt_output *o, const char *const *stop, size_t n) {
    memset(o, 0, sizeof *o);
    bt_text_init(&o->text);
    o->stop = stop;
    o->n_stop = n;
}

void bt_output_release(bt_output *o) {
    bt_text_release(&o->text);
    memset(o, 0, sizeof *o);
}

/* Returns the first position, at or after `from`, of a stop string; the length of the text if there is none. */
static size_t find_stop(const bt_output *o, size_t from) {
    size_t at = o->text.len;
    for (size_t i = 0; i < o->n_stop; i++) {
        const size_t n = strlen(o->stop[i]);
        if (n == 0 || n > o->text.len) continue;
        /* a stop string may begin before the new bytes */
        size_t first = from > n ? from - n : 0;
        if (first < o->stop_from) first = o->stop_from;
        for (size_t k = first; k < at && k + n <= o->text.len; k++)
            if (memcmp(o->text.data + k, o->stop[i], n) == 0) at = k;
    }
    return at;
}

void bt_output_add(bt_output *o, const char *bytes, size_t n) {
    if (o->stopped) return;
    const size_t from = o->text.len;
    bt_text_putn(&o->text, bytes, n);
    if (o->text.failed) return;
    const size_t at = find_stop(o, from);
    if (at == o->text.len) return;
    o->stopped = true;
    o->text.len = at;
    o->text.data[at] = '\0';
}

/* Returns the number of bytes at the end of the text with which a stop string begins. */
static size_t held_for_stop(const bt_output *o) {
    size_t held = 0;
    for (size_t i = 0; i < o->n_stop; i++) {
        const size_t n = strlen(o->stop[i]);
        for (size_t k = n ? n - 1 : 0; k > held; k--) {
            if (k <= o->text.len && memcmp(o->text.data + o->text.len - k, o->stop[i], k) == 0) {
                held = k;
                break;
            }
        }
    }
    return held;
}

const char *bt_output_next(bt_output *o, bool last, size_t *n) {
    size_t end = o->text.len;
    if (!last && !o->stopped && o->text.data) {
        end -= held_for_stop(o);
        end -= bt_utf8_unfinished(o->text.data, end);
    }
    const char *s = o->text.data ? o->text.data + o->given : "";
    /* text already returned is final: completing a character makes the text longer, never shorter */
    *n = end > o->given ? end - o->given : 0;
    o->given += *n;
    return s;
}

/* Returns the number of bytes of a character whose first byte is c; 0: c is not a first byte. */
static size_t utf8_length(unsigned char c) {
    if (c < 0x80) return 1;
    if (c >= 0xc2 && c < 0xe0) return 2;
    if (c >= 0xe0 && c < 0xf0) return 3;
    return c >= 0xf0 && c < 0xf5 ? 4 : 0;
}

size_t bt_utf8_unfinished(const char *s, size_t n) {
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        const unsigned char c = (unsigned char)s[n - back];
        if ((c & 0xc0) == 0x80) continue;
        return utf8_length(c) > back ? back : 0;
    }
    return 0;
}

/* Returns the number of bytes of the character at s. If it is incomplete or invalid: the number of bytes that one
 * U+FFFD replaces (the maximal subpart of Unicode 3.9, as in browsers, Python and Rust). */
static size_t utf8_part(const char *s, size_t n, bool *whole) {
    const unsigned char *u = (const unsigned char *)s;
    const size_t k = utf8_length(u[0]);
    unsigned char low = u[0] == 0xe0   ? 0xa0
                        : u[0] == 0xf0 ? 0x90
                                       : 0x80,
                  high = u[0] == 0xed   ? 0x9f
                         : u[0] == 0xf4 ? 0x8f
                                        : 0xbf;
    size_t i = 1;
    for (; i < k && i < n && u[i] >= low && u[i] <= high; i++) {
        low = 0x80;
        high = 0xbf;
    }
    *whole = i == k;
    return i;
}

/* True for C0, DEL and C1 control characters. */
static bool is_control(const char *s, size_t k) {
    const unsigned char *u = (const unsigned char *)s;
    if (k == 1) return (u[0] < 0x20 && u[0] != '\n' && u[0] != '\t') || u[0] == 0x7f;
    return k == 2 && u[0] == 0xc2 && u[1] < 0xa0;
}

void bt_utf8_mend(bt_text *out, const char *s, size_t n, bool terminal) {
    for (size_t i = 0; i < n;) {
        bool whole;
        const size_t k = utf8_part(s + i, n - i, &whole);
        if (!whole || (s[i] == '\0' && !terminal))
            bt_text_put(out, "\xef\xbf\xbd");
        else if (terminal && is_control(s + i, k))
            bt_text_put(out, "?");
        else
            bt_text_putn(out, s + i, k);
        i += k;
    }
}

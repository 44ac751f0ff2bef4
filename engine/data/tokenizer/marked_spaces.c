/* marked_spaces.c - replaces spaces by marks and back, recognises byte tokens, and finds the limits of merges. */
#include "engine/data/tokenizer/marked_spaces.h"

#include <stdlib.h>
#include <string.h>

enum { MARK = sizeof BT_SPACE_MARK - 1 };

static const char *const names[BT_SPACES_COUNT] = {"plain", "replace", "prepend",
                                                   "first", "always",  "never"};

const char *bt_spaces_name(bt_spaces s) { return names[s]; }
bool bt_spaces_normalises(bt_spaces s) { return s == BT_SPACES_REPLACE || s == BT_SPACES_PREPEND; }
bool bt_spaces_prefixes(bt_spaces s) {
    return s == BT_SPACES_PREPEND || s == BT_SPACES_FIRST || s == BT_SPACES_ALWAYS;
}

static bool begins_with_mark(const char *text, size_t n) {
    return n && (*text == ' ' || (n >= MARK && memcmp(text, BT_SPACE_MARK, MARK) == 0));
}

static bool gets_prefix(const bt_marked *m, const char *text, size_t n, bool begins) {
    if (!n) return false;
    if (m->how == BT_SPACES_PREPEND) return true;
    if (m->how != BT_SPACES_ALWAYS && (m->how != BT_SPACES_FIRST || !begins)) return false;
    return !begins_with_mark(text, n);
}

bt_code bt_marked_text(const bt_marked *m, const char *text, size_t n, bool begins, char **out,
                       size_t *out_n, bt_err *err) {
    size_t spaces = gets_prefix(m, text, n, begins), at = 0;
    const bool prefix = spaces;
    for (size_t i = 0; i < n; i++) spaces += text[i] == ' ';
    char *s = *out = malloc(n + MARK * spaces + 1);
    if (!s) return bt_fail(err, BT_NOMEM, "cannot allocate memory for %zu bytes of text", n);
    if (prefix) memcpy(s, BT_SPACE_MARK, at = MARK);
    for (size_t i = 0; i < n; i++) {
        if (text[i] == ' ') {
            memcpy(s + at, BT_SPACE_MARK, MARK);
            at += MARK;
        } else {
            s[at++] = text[i];
        }
    }
    *out_n = at;
    return BT_OK;
}

size_t bt_marked_shown(char *text, size_t n) {
    size_t at = 0;
    for (size_t i = 0; i < n;) {
        const bool mark = n - i >= MARK && memcmp(text + i, BT_SPACE_MARK, MARK) == 0;
        text[at++] = mark ? ' ' : text[i];
        i += mark ? MARK : 1;
    }
    return at;
}

int bt_marked_byte(const char *text, size_t n) {
    static const char digits[] = "0123456789ABCDEF";
    if (n != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>') return -1;
    const char *high = memchr(digits, text[3], 16), *low = memchr(digits, text[4], 16);
    return high && low ? (int)(16 * (high - digits) + (low - digits)) : -1;
}

void bt_byte_pairs_add(bt_byte_pairs *p, const char *token, size_t n) {
    for (size_t i = 1; i < n; i++) {
        const unsigned char a = (unsigned char)token[i - 1], b = (unsigned char)token[i];
        p->bits[a][b / 32] |= 1u << b % 32;
    }
}

size_t bt_marked_word_end(const bt_byte_pairs *p, bool split, const char *text, size_t n,
                          size_t at) {
    size_t i = at + 1;
    for (; i < n; i++) {
        const unsigned char a = (unsigned char)text[i - 1], b = (unsigned char)text[i];
        if ((b & 0xc0) == 0x80) continue; /* continuation byte of a character */
        if (p && !(p->bits[a][b / 32] >> b % 32 & 1)) break;
        if (split && n - i >= MARK && memcmp(text + i, BT_SPACE_MARK, MARK) == 0) break;
    }
    return i;
}

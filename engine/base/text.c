/* text.c - growable text, JSON writer, nearest names, and removal of control characters for a terminal. */
#include "engine/base/text.h"

#include "engine/base/system/ascii.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void bt_text_init(bt_text *t) { memset(t, 0, sizeof *t); }

void bt_text_release(bt_text *t) {
    if (!t) return;
    free(t->data);
    memset(t, 0, sizeof *t);
}

void bt_text_clear(bt_text *t) {
    t->len = 0;
    if (t->data) t->data[0] = '\0';
}

static bool reserve_text(bt_text *t, size_t more) {
    if (t->failed) return false;
    if (more >= SIZE_MAX / 2 - t->len) {
        t->failed = true;
        return false;
    }
    size_t want = t->len + more + 1;
    if (want <= t->cap) return true;
    size_t cap = t->cap ? t->cap : 64;
    while (cap < want) cap *= 2;
    char *data = realloc(t->data, cap);
    if (!data) {
        t->failed = true;
        return false;
    }
    t->data = data;
    t->cap = cap;
    return true;
}

void bt_text_putn(bt_text *t, const char *s, size_t n) {
    if (!reserve_text(t, n)) return;
    if (n) memcpy(t->data + t->len, s, n);
    t->len += n;
    t->data[t->len] = '\0';
}

void bt_text_put(bt_text *t, const char *s) { bt_text_putn(t, s, strlen(s)); }

void bt_text_printf(bt_text *t, const char *fmt, ...) {
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    char small[256];
    int n = vsnprintf(small, sizeof small, fmt, ap);
    if (n < 0) {
        t->failed = true;
    } else if ((size_t)n < sizeof small) {
        bt_text_putn(t, small, (size_t)n);
    } else if (reserve_text(t, (size_t)n)) {
        vsnprintf(t->data + t->len, (size_t)n + 1, fmt, again);
        t->len += (size_t)n;
    }
    va_end(again);
    va_end(ap);
}

const char *bt_text_str(const bt_text *t) { return t->data ? t->data : ""; }

/* Returns the length (1 to 4) and code point of the UTF-8 character at s; 0: it is malformed (RFC 3629). */
static size_t decode_utf8_char(const char *s, uint32_t *code) {
    const unsigned char *u = (const unsigned char *)s;
    if (u[0] < 0x80) {
        *code = u[0];
        return 1;
    }
    size_t n = u[0] >= 0xC2 && u[0] <= 0xDF   ? 2
               : (u[0] & 0xF0) == 0xE0        ? 3
               : u[0] >= 0xF0 && u[0] <= 0xF4 ? 4
                                              : 0;
    if (n == 0) return 0;
    uint32_t c = u[0] & (0xFFu >> (n + 1));
    for (size_t i = 1; i < n; i++) {
        if ((u[i] & 0xC0) != 0x80) return 0; /* also stops at the terminating NUL */
        c = c << 6 | (u[i] & 0x3F);
    }
    static const uint32_t lowest[5] = {0, 0, 0x80, 0x800, 0x10000};
    if (c < lowest[n] || (c >= 0xD800 && c <= 0xDFFF) || c > 0x10FFFF) return 0;
    *code = c;
    return n;
}

/* Embeddings, overrides and isolates for bidirectional text change the order of characters on a terminal. */
static bool is_bidi_control(uint32_t c) {
    return (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}

void bt_text_plain(char *out, size_t size, const char *s) {
    size_t used = 0;
    if (size == 0) return;
    while (*s) {
        uint32_t c = 0;
        size_t n = decode_utf8_char(s, &c);
        const char *from = s;
        s += n ? n : 1;
        if (n == 0) {
            from = "\xEF\xBF\xBD"; /* U+FFFD, as in JSON */
            n = 3;
        } else if (c == '\n' || c == '\t' || c == '\r') {
            from = " ";
        } else if (c < 0x20 || (c >= 0x7F && c < 0xA0)) {
            continue;
        } else if (is_bidi_control(c)) {
            continue;
        }
        if (used + n >= size) break;
        memcpy(out + used, from, n);
        used += n;
    }
    out[used] = '\0';
}

const char *bt_text_shown(const char *s) {
    enum { AT_ONCE = 8, BYTES = 1024 };
    static _Thread_local char kept[AT_ONCE][BYTES];
    static _Thread_local unsigned next;
    char *out = kept[next++ % AT_ONCE];
    bt_text_plain(out, BYTES, s ? s : "");
    return out;
}

/* A byte b >= 0x80 is written as the character U+10FF00 + b, F4 8F BE 80 to F4 8F BF BF in UTF-8. */
enum { ESCAPED_FIRST = 0x10FF80 };

static void put_escaped(bt_text *t, unsigned char b) {
    const char c[4] = {(char)0xF4, (char)0x8F, (char)(0xBC | b >> 6), (char)(0x80 | (b & 0x3F))};
    bt_text_putn(t, c, sizeof c);
}

void bt_text_put_bytes(bt_text *t, const char *s) {
    while (*s) {
        uint32_t c = 0;
        const size_t n = decode_utf8_char(s, &c);
        const char byte = (char)(c & 0xFF);
        if (n == 4 && c >= ESCAPED_FIRST)
            bt_text_putn(t, &byte, 1);
        else
            bt_text_putn(t, s, n ? n : 1);
        s += n ? n : 1;
    }
}

/* Characters that control a terminal are escaped as \u in JSON. */
static bool controls_terminal(uint32_t c) {
    return c < 0x20 || (c >= 0x7F && c < 0xA0) || is_bidi_control(c);
}

/* escape: true writes invalid bytes in the form that bt_text_put_bytes reads. */
static void json_text(bt_text *t, const char *s, bool escape) {
    bt_text_putn(t, "\"", 1);
    while (*s) {
        uint32_t c = 0;
        size_t n = decode_utf8_char(s, &c);
        if (escape && (n == 0 || c >= ESCAPED_FIRST)) {
            put_escaped(t, (unsigned char)*s++);
            continue;
        }
        if (n == 0) {
            bt_text_put(t, "\xEF\xBF\xBD"); /* U+FFFD */
            s++;
            continue;
        }
        if (c == '"' || c == '\\') {
            bt_text_printf(t, "\\%c", (int)c);
        } else if (c == '\n') {
            bt_text_put(t, "\\n");
        } else if (c == '\t') {
            bt_text_put(t, "\\t");
        } else if (c < 0x20 || (c >= 0x7F && c < 0xA0) ||
                   is_bidi_control(c)) { /* escaped, so that JSON cannot control a terminal */
            bt_text_printf(t, "\\u%04x", (unsigned)c);
        } else {
            bt_text_putn(t, s, n);
        }
        s += n;
    }
    bt_text_putn(t, "\"", 1);
}

static void before_value(bt_json *j, const char *key) {
    if (j->depth > 0 && !j->first[j->depth]) bt_text_putn(j->out, ",", 1);
    j->first[j->depth] = false;
    if (key) {
        json_text(j->out, key, false);
        bt_text_putn(j->out, ":", 1);
    }
}

static void open_level(bt_json *j, const char *key, const char *bracket) {
    before_value(j, key);
    bt_text_put(j->out, bracket);
    if (j->depth + 1 >= (int)(sizeof j->first / sizeof j->first[0])) {
        j->out->failed = true;
        return;
    }
    j->first[++j->depth] = true;
}

void bt_json_begin(bt_json *j, bt_text *out) {
    memset(j, 0, sizeof *j);
    j->out = out;
    j->first[0] = true;
}

void bt_json_object(bt_json *j, const char *key) { open_level(j, key, "{"); }

void bt_json_array(bt_json *j, const char *key) { open_level(j, key, "["); }

void bt_json_end(bt_json *j, char close) {
    bt_text_putn(j->out, &close, 1);
    if (j->depth > 0) j->depth--;
}

void bt_json_str(bt_json *j, const char *key, const char *s) {
    if (!s) {
        bt_json_null(j, key);
        return;
    }
    before_value(j, key);
    json_text(j->out, s, false);
}

void bt_json_bytes(bt_json *j, const char *key, const char *s) {
    before_value(j, key);
    json_text(j->out, s, true);
}

void bt_json_document(bt_json *j, const char *key, const char *json) {
    before_value(j, key);
    while (*json) {
        uint32_t c = 0;
        const size_t n = decode_utf8_char(json, &c);
        if (n == 0)
            bt_text_put(j->out, "\xEF\xBF\xBD"); /* U+FFFD */
        else if (controls_terminal(c) && !strchr("\n\r\t", (int)c))
            bt_text_printf(j->out, "\\u%04x", (unsigned)c);
        else
            bt_text_putn(j->out, json, n);
        json += n ? n : 1;
    }
}

void bt_json_num(bt_json *j, const char *key, double v) {
    before_value(j, key);
    if (!isfinite(v)) {
        bt_text_put(j->out, "null");
        return;
    }
    char buf[40];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(buf, sizeof buf, "%.*g", digits, v);
        if (strtod(buf, NULL) == v) break;
    }
    bt_text_put(j->out, buf);
}

void bt_json_rounded(bt_json *j, const char *key, double v, int digits) {
    char buf[40];
    if (!isfinite(v)) {
        bt_json_num(j, key, v);
        return;
    }
    before_value(j, key);
    snprintf(buf, sizeof buf, "%.*g", digits, v);
    bt_text_put(j->out, buf);
}

void bt_json_int(bt_json *j, const char *key, int64_t v) {
    before_value(j, key);
    bt_text_printf(j->out, "%lld", (long long)v);
}

void bt_json_ints(bt_json *j, const char *key, const int64_t *v, size_t n) {
    bt_json_array(j, key);
    for (size_t i = 0; i < n; i++) bt_json_int(j, NULL, v[i]);
    bt_json_end(j, ']');
}

void bt_json_bool(bt_json *j, const char *key, bool v) {
    before_value(j, key);
    bt_text_put(j->out, v ? "true" : "false");
}

void bt_json_null(bt_json *j, const char *key) {
    before_value(j, key);
    bt_text_put(j->out, "null");
}

void bt_json_raw(bt_json *j, const char *key, const char *json) {
    before_value(j, key);
    bt_text_put(j->out, json);
}

/* Longer words are not compared. */
enum { NAME_LIMIT = 64 };

/* Optimal string alignment: an insertion, deletion, replacement or swap of neighbouring letters costs 1. */
static size_t edit_distance(const char *a, size_t na, const char *b, size_t nb) {
    size_t row[3][NAME_LIMIT + 1];
    for (size_t j = 0; j <= nb; j++) row[0][j] = j;
    for (size_t i = 1; i <= na; i++) {
        size_t *now = row[i % 3], *last = row[(i + 2) % 3], *before = row[(i + 1) % 3];
        now[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            size_t best = last[j - 1] + (a[i - 1] != b[j - 1]);
            if (last[j] + 1 < best) best = last[j] + 1;
            if (now[j - 1] + 1 < best) best = now[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                before[j - 2] + 1 < best)
                best = before[j - 2] + 1;
            now[j] = best;
        }
    }
    return row[na % 3][nb];
}

const char *bt_nearest(const char *word, const char *const *candidates, size_t n) {
    const char *best = NULL;
    size_t nw = strlen(word), best_distance = SIZE_MAX;
    if (nw == 0 || nw > NAME_LIMIT) return NULL;
    for (size_t i = 0; i < n; i++) {
        if (!candidates[i]) continue;
        size_t nc = strlen(candidates[i]);
        if (nc == 0 || nc > NAME_LIMIT) continue;
        size_t d = edit_distance(word, nw, candidates[i], nc);
        size_t longer = nw > nc ? nw : nc;
        /* At most a third of the letters may differ. */
        if (d * 3 > longer + 1 || d >= longer) continue;
        if (d < best_distance) {
            best_distance = d;
            best = candidates[i];
        }
    }
    return best;
}

bool bt_name_ok(const char *name) {
    size_t n = 0;
    for (const char *p = name; *p; p++, n++) {
        const char low = bt_ascii_lower(*p);
        bool plain = (low >= 'a' && low <= 'z') || (*p >= '0' && *p <= '9');
        bool later = *p == '.' || *p == '_' || *p == '-';
        if (!plain && !(later && n > 0)) return false;
    }
    return n >= 1 && n <= 64;
}

const char *bt_duration(char *buf, size_t size, double seconds) {
    if (!isfinite(seconds) || seconds < 0 || seconds > 1e12) {
        snprintf(buf, size, "-");
    } else if (seconds < 59.95) {
        snprintf(buf, size, "%.1f s", seconds);
    } else {
        long long s = (long long)(seconds + 0.5);
        if (s < 3600)
            snprintf(buf, size, "%lldm %02llds", s / 60, s % 60);
        else if (s < 86400)
            snprintf(buf, size, "%lldh %02lldm", s / 3600, s % 3600 / 60);
        else
            snprintf(buf, size, "%lldd %02lldh", s / 86400, s % 86400 / 3600);
    }
    return buf;
}

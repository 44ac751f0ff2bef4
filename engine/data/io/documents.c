/* documents.c - fills a buffer from a file and cuts documents out of it, plain or JSONL. */
#include "engine/data/io/documents.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/data/io/binary.h"
#include "engine/data/io/text_file.h"

enum { PIECE = 1 << 20, LINE_MAX_BYTES = 256 << 20, JSON_DEPTH = 64 };

struct bt_documents {
    const bt_source *files;
    size_t n_files, at; /* files[at] is open, or about to be */
    const char *field;
    bt_text_file *file;   /* NULL: none is open */
    uint64_t offset;      /* bytes of text read from it */
    uint64_t done, total; /* bytes of all files */
    char *buf;
    size_t begin, end, cap; /* unconsumed bytes of the file: buf[begin..end) */
    bool eof;
    uint64_t line;  /* JSONL, 1-based */
    json_t *object; /* owns the current JSONL text */
};

bt_code bt_documents_open(bt_documents **out, const bt_source *files, size_t n, const char *field,
                          bt_err *err) {
    *out = NULL;
    bt_documents *d = calloc(1, sizeof *d);
    if (d) d->buf = malloc(2 * PIECE);
    if (!d || !d->buf) {
        free(d);
        return bt_fail(err, BT_NOMEM, "cannot take memory to read text");
    }
    d->files = files;
    d->n_files = n;
    d->field = field && *field ? field : "text";
    d->cap = 2 * PIECE;
    for (size_t i = 0; i < n; i++) d->total += files[i].bytes;
    *out = d;
    return BT_OK;
}

void bt_documents_close(bt_documents *d) {
    if (!d) return;
    bt_text_file_close(d->file);
    json_decref(d->object);
    free(d->buf);
    free(d);
}

double bt_documents_done(const bt_documents *d) {
    return d->total ? (double)(d->done < d->total ? d->done : d->total) / (double)d->total : 1.0;
}

static const char *path_of(const bt_documents *d) { return d->files[d->at].path; }

static bt_code open_file(bt_documents *d, bt_err *err) {
    BT_TRY(bt_text_file_open(&d->file, path_of(d), err));
    d->offset = d->line = 0;
    d->begin = d->end = 0;
    d->eof = false;
    return BT_OK;
}

static bt_code close_file(bt_documents *d, bt_err *err) {
    const uint64_t taken = bt_text_file_taken(d->file);
    if (taken != d->files[d->at].bytes)
        return bt_fail(err, BT_BUSY,
                       "data '%s' was changed while it was read (%llu bytes, had %llu)", path_of(d),
                       (unsigned long long)taken, (unsigned long long)d->files[d->at].bytes);
    bt_text_file_close(d->file);
    d->file = NULL;
    d->at++;
    return BT_OK;
}

/* until `want` unconsumed bytes are there, or the file ends */
static bt_code fill(bt_documents *d, size_t want, bt_err *err) {
    if (d->begin && d->end - d->begin < want) {
        memmove(d->buf, d->buf + d->begin, d->end - d->begin);
        d->end -= d->begin;
        d->begin = 0;
    }
    if (want > d->cap) {
        char *p = realloc(d->buf, want);
        if (!p)
            return bt_fail(err, BT_NOMEM, "cannot take %zu bytes to read '%s'", want, path_of(d));
        d->buf = p;
        d->cap = want;
    }
    while (!d->eof && d->end - d->begin < want) {
        size_t got, ask = d->begin + want - d->end;
        const uint64_t taken = bt_text_file_taken(d->file);
        BT_TRY(bt_text_file_read(d->file, d->buf + d->end, ask, &got, err));
        d->eof = got < ask;
        d->end += got;
        d->offset += got;
        d->done += bt_text_file_taken(d->file) - taken;
    }
    return BT_OK;
}

/* ---- plain text ---- */

static bt_code refuse_binary(const bt_documents *d, size_t nul, bt_err *err) {
    /* the first bytes of the file are still in the buffer */
    const bt_binary_kind *kind = d->offset == d->end ? bt_binary_kind_of(d->buf, d->end) : NULL;
    if (kind)
        return bt_fail(err, BT_FORMAT, "data '%s' is %s: %s", path_of(d), kind->what, kind->remedy);
    uint64_t at = d->offset - d->end + nul;
    return bt_fail(err, BT_FORMAT, "data '%s' is binary, not text: NUL at byte %llu", path_of(d),
                   (unsigned long long)at);
}

/* Unicode space behind or before a cut; text is UTF-8 or not */
/* the character that ends at s[i] */
static bool space_before(const unsigned char *s, size_t i) {
    unsigned char c = s[i];
    if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
    if (i >= 1 && s[i - 1] == 0xC2) return c == 0x85 || c == 0xA0;
    if (i < 2) return false;
    if (s[i - 2] == 0xE1) return s[i - 1] == 0x9A && c == 0x80;
    if (s[i - 2] == 0xE2)
        return (s[i - 1] == 0x80 && (c <= 0x8A || c == 0xA8 || c == 0xA9 || c == 0xAF)) ||
               (s[i - 1] == 0x81 && c == 0x9F);
    return s[i - 2] == 0xE3 && s[i - 1] == 0x80 && c == 0x80;
}

/* the character that begins at s[0] */
static bool space_after(const unsigned char *s, size_t left) {
    if (s[0] < 0x80) return space_before(s, 0);
    if (s[0] == 0xC2) return left < 2 || space_before(s, 1);
    if (s[0] == 0xE1 || s[0] == 0xE2 || s[0] == 0xE3) return left < 3 || space_before(s, 2);
    return false;
}

static bool ascii_letter(unsigned char c) { return (c | 32) >= 'a' && (c | 32) <= 'z'; }

size_t bt_text_cut(const char *text, size_t n) {
    const unsigned char *s = (const unsigned char *)text;
    for (size_t i = n; i-- > 2;) {
        if (s[i - 1] == '\n' && !space_before(s, i - 2) && !space_after(s + i, n - i)) return i;
        if (i + 1 < n && s[i] == ' ' && ascii_letter(s[i - 1]) && ascii_letter(s[i + 1])) return i;
    }
    return n;
}

static size_t character_border(const char *text, size_t n) {
    size_t i = n;
    for (int back = 0; back < 3 && i > 1 && ((unsigned char)text[i] & 0xC0) == 0x80; back++) i--;
    return i;
}

static bt_code next_text(bt_documents *d, bt_piece *out, bt_err *err) {
    bool first = d->offset == 0;
    BT_TRY(fill(d, PIECE + 4, err));
    /* byte order mark */
    if (first && d->end >= 3 && memcmp(d->buf, "\xef\xbb\xbf", 3) == 0) d->begin = 3;
    const char *text = d->buf + d->begin;
    size_t have = d->end - d->begin, n = have;
    const char *nul = memchr(text, 0, have);
    if (nul) return refuse_binary(d, d->begin + (size_t)(nul - text), err);
    if (!d->eof || have > PIECE) {
        n = bt_text_cut(text, PIECE);
        if (n == PIECE) n = character_border(text, PIECE);
    }
    d->begin += n;
    bool ends = d->eof && d->begin == d->end;
    *out = (bt_piece){text, n, ends, ends};
    return ends ? close_file(d, err) : BT_OK;
}

/* ---- JSON lines ---- */

bool bt_json_depth_ok(const char *json, size_t n, int limit) {
    int depth = 0;
    for (size_t i = 0; i < n; i++) {
        switch (json[i]) {
        case '"':
            for (i++; i < n && json[i] != '"'; i++) i += json[i] == '\\';
            break;
        case '{':
        case '[':
            if (++depth > limit) return false;
            break;
        case '}':
        case ']': depth--; break;
        default: break;
        }
    }
    return true;
}

static json_t *field_of(json_t *object, const char *field) {
    json_t *v = json_object_get(object, field);
    const char *dot;
    while (!v && (dot = strchr(field, '.'))) {
        char head[256];
        size_t n = (size_t)(dot - field);
        if (n >= sizeof head) return NULL;
        memcpy(head, field, n);
        head[n] = '\0';
        object = json_object_get(object, head);
        field = dot + 1;
        v = json_object_get(object, field);
    }
    return v;
}

/* leaves the line's object in d->object */
static bt_code parse_object(bt_documents *d, const char *s, size_t n, bt_err *err) {
    unsigned long long line = d->line;
    if (!bt_json_depth_ok(s, n, JSON_DEPTH))
        return bt_fail(err, BT_FORMAT, "'%s' line %llu: JSON nested deeper than %d", path_of(d),
                       line, JSON_DEPTH);
    json_error_t why;
    json_decref(d->object);
    d->object = json_loadb(s, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
    if (!d->object)
        return bt_fail(err, BT_FORMAT, "'%s' line %llu, column %d: not valid JSON: %s", path_of(d),
                       line, why.column, why.text);
    if (!json_is_object(d->object))
        return bt_fail(err, BT_FORMAT, "'%s' line %llu: not a JSON object", path_of(d), line);
    return BT_OK;
}

static bt_code text_of_object(const bt_documents *d, bt_piece *out, bt_err *err) {
    unsigned long long line = d->line;
    json_t *v = field_of(d->object, d->field);
    if (!v)
        return bt_fail(
            err, BT_FORMAT,
            "'%s' line %llu: no field '%s' (name the one that holds the text with data.field)",
            path_of(d), line, d->field);
    if (!json_is_string(v))
        return bt_fail(err, BT_FORMAT, "'%s' line %llu: field '%s' is not a string", path_of(d),
                       line, d->field);
    *out = (bt_piece){json_string_value(v), json_string_length(v), true, false};
    return BT_OK;
}

static bool blank(const char *s, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (s[i] != ' ' && s[i] != '\t' && s[i] != '\r') return false;
    return true;
}

/* the object of the next non-empty line; *ends: there is none, the file has been closed */
static bt_code next_line(bt_documents *d, bool *ends, bt_err *err) {
    *ends = false;
    for (;;) {
        size_t want = PIECE, searched = 0;
        const char *newline = NULL;
        for (;;) {
            BT_TRY(fill(d, want, err));
            size_t have = d->end - d->begin;
            newline = have > searched ? memchr(d->buf + d->begin + searched, '\n', have - searched)
                                      : NULL;
            if (newline || d->eof) break;
            searched = have;
            if (have >= LINE_MAX_BYTES)
                return bt_fail(err, BT_FORMAT,
                               "'%s' line %llu is longer than %d bytes: not JSON lines?",
                               path_of(d), (unsigned long long)d->line + 1, LINE_MAX_BYTES);
            want = 2 * have;
        }
        const char *s = d->buf + d->begin;
        size_t n = newline ? (size_t)(newline - s) : d->end - d->begin;
        if (!newline && n == 0) {
            *ends = true;
            return close_file(d, err);
        }
        if (d->line == 0 && n >= 3 && memcmp(s, "\xef\xbb\xbf", 3) == 0) {
            s += 3;
            n -= 3;
        }
        d->line++;
        d->begin = newline ? (size_t)(newline - d->buf) + 1 : d->end;
        if (!blank(s, n)) return parse_object(d, s, n, err);
    }
}

/* at the end of the file a piece without text that ends the file */
static bt_code next_json(bt_documents *d, bt_piece *out, bt_err *err) {
    bool ends;
    BT_TRY(next_line(d, &ends, err));
    if (!ends) return text_of_object(d, out, err);
    *out = (bt_piece){"", 0, false, true};
    return BT_OK;
}

bt_code bt_documents_object(bt_documents *d, json_t **object, bool *files_end, bt_err *err) {
    bool ends;
    *object = NULL;
    *files_end = d->at == d->n_files;
    if (*files_end) return BT_OK;
    if (d->files[d->at].kind != BT_SOURCE_JSONL)
        return bt_fail(err, BT_ARG,
                       "'%s' is not JSON lines: conversations are read from .jsonl files",
                       path_of(d));
    if (!d->file) BT_TRY(open_file(d, err));
    BT_TRY(next_line(d, &ends, err));
    if (!ends) *object = d->object;
    return BT_OK;
}

void bt_documents_where(const bt_documents *d, char *out, size_t size) {
    snprintf(out, size, "'%s' line %llu", path_of(d), (unsigned long long)d->line);
}

bt_code bt_documents_next(bt_documents *d, bt_piece *out, bt_err *err) {
    if (d->at == d->n_files) {
        *out = (bt_piece){NULL, 0, false, false};
        return BT_OK;
    }
    if (!d->file) BT_TRY(open_file(d, err));
    return d->files[d->at].kind == BT_SOURCE_JSONL ? next_json(d, out, err)
                                                   : next_text(d, out, err);
}

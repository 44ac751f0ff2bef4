/* documents.c - reads a file into a buffer and divides it into documents: plain text or JSON rows. */
#include "engine/data/io/documents.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/data/io/file_kind.h"
#include "engine/data/io/text_file.h"
#include "engine/data/io/utf8.h"

/* TEXT_PIECE: usual size of a piece of text. PIECE: maximum size, reached where a text has no position for a cut. */
enum { TEXT_PIECE = 256 << 10, PIECE = 1 << 20, LINE_MAX_BYTES = 256 << 20, JSON_DEPTH = 64 };

/* layout of the rows of a JSON file */
typedef enum { ROWS_IN_LINES, ROWS_IN_LIST, ROWS_AFTER_EACH_OTHER } rows_form;

struct bt_documents {
    const bt_source *files;
    size_t n_files, at; /* index of the open or next file */
    const char *field;
    bt_json_selection wanted;
    bool skip_bad;
    uint64_t max_rows;    /* maximum number of rows read from each JSON file; 0: all */
    bt_text_file *file;   /* NULL: no file is open */
    uint64_t offset;      /* bytes of text read from the file */
    uint64_t done, total; /* bytes of all files */
    char *buf;
    size_t begin, end, cap; /* unconsumed bytes of the file: buf[begin..end) */
    bool eof;
    rows_form rows;
    bool list_open;
    uint64_t line;      /* line number for ROWS_IN_LINES, otherwise row number, from 1 */
    uint64_t file_rows; /* number of rows read from the open file */
    json_t *object;     /* owns the current row */
    uint64_t n_rows, n_bad, files_cut; /* statistics for the final notes */
    char first_bad[720];
    uint64_t not_utf8, files_not_utf8; /* invalid bytes, and the number of files with such bytes */
    const char *first_not_utf8, *last_not_utf8; /* paths */
    bt_json_unread unread;
};

bt_code bt_documents_open(bt_documents **out, const bt_source *files, size_t n, const char *field,
                          bt_err *err) {
    *out = NULL;
    bt_documents *d = calloc(1, sizeof *d);
    if (d) d->buf = malloc(2 * PIECE);
    if (!d || !d->buf) {
        free(d);
        return bt_fail(err, BT_NOMEM, "cannot allocate memory to read text");
    }
    d->files = files;
    d->n_files = n;
    d->field = field && *field ? field : "text";
    d->wanted = (bt_json_selection){.path = d->field};
    d->cap = 2 * PIECE;
    for (size_t i = 0; i < n; i++) d->total += files[i].bytes;
    *out = d;
    return BT_OK;
}

void bt_documents_rows(bt_documents *d, const bt_json_selection *wanted, bool skip_bad) {
    if (wanted) d->wanted = *wanted;
    d->skip_bad = skip_bad;
}

void bt_documents_limit(bt_documents *d, uint64_t max_rows) { d->max_rows = max_rows; }

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

static const char *document_path(const bt_documents *d) { return d->files[d->at].path; }

static bt_code close_file(bt_documents *d, bool cut, bt_err *err) {
    const uint64_t taken = bt_text_file_consumed(d->file);
    if (cut) {
        d->done += d->files[d->at].bytes > taken ? d->files[d->at].bytes - taken : 0;
        d->files_cut++;
    } else if (taken != d->files[d->at].bytes)
        return bt_fail(err, BT_BUSY,
                       "data '%s' was changed while it was read (%llu bytes read, %llu bytes "
                       "before): start again when nothing writes to it",
                       document_path(d), (unsigned long long)taken,
                       (unsigned long long)d->files[d->at].bytes);
    bt_text_file_close(d->file);
    d->file = NULL;
    d->at++;
    if (d->at == d->n_files && d->n_bad && d->n_bad == d->n_rows)
        return bt_fail(err, BT_FORMAT, "all %llu rows are unusable; the first error: %s",
                       (unsigned long long)d->n_bad, d->first_bad);
    return BT_OK;
}

/* Reads until `want` unconsumed bytes are available, or the file ends. */
static bt_code fill_buffer(bt_documents *d, size_t want, bt_err *err) {
    if (d->begin && d->end - d->begin < want) {
        memmove(d->buf, d->buf + d->begin, d->end - d->begin);
        d->end -= d->begin;
        d->begin = 0;
    }
    if (want > d->cap) {
        char *p = realloc(d->buf, want);
        if (!p)
            return bt_fail(err, BT_NOMEM, "cannot allocate %zu bytes to read '%s'", want,
                           document_path(d));
        d->buf = p;
        d->cap = want;
    }
    while (!d->eof && d->end - d->begin < want) {
        size_t got, ask = d->begin + want - d->end;
        const uint64_t taken = bt_text_file_consumed(d->file);
        BT_TRY(bt_text_file_read(d->file, d->buf + d->end, ask, &got, err));
        d->eof = got < ask;
        d->end += got;
        d->offset += got;
        d->done += bt_text_file_consumed(d->file) - taken;
    }
    return BT_OK;
}

/* Refuses a file that is neither text nor JSON, by its first bytes in the buffer, and names its kind. */
static bt_code check_file_kind(const bt_documents *d, bt_err *err) {
    const bt_source *f = &d->files[d->at];
    const bt_file_kind *kind = bt_file_kind_of(d->buf, d->end);
    if (!kind && f->kind == BT_SOURCE_TEXT) kind = bt_file_kind_named(f->path);
    return kind ? bt_file_kind_refuse(kind, "data", f->path, err) : BT_OK;
}

static bool is_document_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

/* A list of objects begins with '[' and '{'. An object that spans several lines is not a row of JSON lines. */
static void find_rows_form(bt_documents *d) {
    size_t i = d->begin;
    bool lines;
    while (i < d->end && is_document_blank(d->buf[i])) i++;
    d->rows = ROWS_IN_LINES;
    if (i == d->end) return;
    const size_t bracket = i;
    if (d->buf[i] == '[')
        for (i++; i < d->end && is_document_blank(d->buf[i]);) i++;
    if (i > bracket && (i == d->end || d->buf[i] == '{' || d->buf[i] == ']'))
        d->rows = ROWS_IN_LIST;
    else if (d->buf[i] == '{' && bt_json_object_end(d->buf + i, d->end - i, &lines) > 0 && lines)
        d->rows = ROWS_AFTER_EACH_OTHER;
}

static bt_code open_next_file(bt_documents *d, bt_err *err) {
    BT_TRY(bt_text_file_open(&d->file, document_path(d), err));
    d->offset = d->line = d->file_rows = 0;
    d->begin = d->end = 0;
    d->eof = d->list_open = false;
    BT_TRY(fill_buffer(d, PIECE + 4, err));
    BT_TRY(check_file_kind(d, err));
    if (d->end >= 3 && memcmp(d->buf, "\xef\xbb\xbf", 3) == 0) d->begin = 3; /* byte order mark */
    if (d->files[d->at].kind == BT_SOURCE_JSONL) find_rows_form(d);
    return BT_OK;
}

static bool ends_with_space(const unsigned char *s, size_t i) {
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

static bool begins_with_space(const unsigned char *s, size_t left) {
    if (s[0] < 0x80) return ends_with_space(s, 0);
    if (s[0] == 0xC2) return left < 2 || ends_with_space(s, 1);
    if (s[0] == 0xE1 || s[0] == 0xE2 || s[0] == 0xE3) return left < 3 || ends_with_space(s, 2);
    return false;
}

static bool ascii_letter(unsigned char c) { return (c | 32) >= 'a' && (c | 32) <= 'z'; }

size_t bt_text_cut(const char *text, size_t n) {
    const unsigned char *s = (const unsigned char *)text;
    for (size_t i = n; i-- > 2;) {
        if (s[i - 1] == '\n' && !ends_with_space(s, i - 2) && !begins_with_space(s + i, n - i))
            return i;
        if (i + 1 < n && s[i] == ' ' && ascii_letter(s[i - 1]) && ascii_letter(s[i + 1])) return i;
    }
    return n;
}

static size_t character_border(const char *text, size_t n) {
    size_t i = n;
    for (int back = 0; back < 3 && i > 1 && ((unsigned char)text[i] & 0xC0) == 0x80; back++) i--;
    return i;
}

/* Counts bytes that are part of no UTF-8 character. */
static uint64_t bytes_not_utf8(const char *s, size_t n) {
    uint64_t bad = 0;
    for (size_t i = bt_utf8_valid(s, n); i < n; i += bt_utf8_valid(s + i, n - i)) bad++, i++;
    return bad;
}

static void count_not_utf8(bt_documents *d, const char *text, size_t n) {
    const uint64_t bad = bytes_not_utf8(text, n);
    const char *path = document_path(d);
    if (!bad) return;
    d->not_utf8 += bad;
    if (!d->first_not_utf8) d->first_not_utf8 = path;
    if (d->last_not_utf8 != path) d->files_not_utf8++;
    d->last_not_utf8 = path;
}

static bt_code next_text_piece(bt_documents *d, bt_piece *out, bt_err *err) {
    BT_TRY(fill_buffer(d, PIECE + 4, err));
    const char *text = d->buf + d->begin;
    size_t have = d->end - d->begin, n = have;
    const char *nul = memchr(text, 0, have);
    if (nul)
        return bt_fail(err, BT_FORMAT, "data '%s' is binary, not text: NUL at byte %llu",
                       document_path(d),
                       (unsigned long long)(d->offset - d->end + d->begin + (size_t)(nul - text)));
    const size_t usual = !d->eof || have > TEXT_PIECE ? bt_text_cut(text, TEXT_PIECE) : TEXT_PIECE;
    if (usual < TEXT_PIECE) {
        n = usual;
    } else if (!d->eof || have > PIECE) {
        n = bt_text_cut(text, PIECE);
        if (n == PIECE) n = character_border(text, PIECE);
    }
    d->begin += n;
    count_not_utf8(d, text, n);
    bool ends = d->eof && d->begin == d->end;
    *out = (bt_piece){text, n, ends, ends};
    return ends ? close_file(d, false, err) : BT_OK;
}

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

static json_t *find_row_field(json_t *object, const char *field) {
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

static void format_row_position(const bt_documents *d, char *out, size_t size) {
    snprintf(out, size, "'%s' %s %llu", document_path(d), d->rows == ROWS_IN_LINES ? "line" : "row",
             (unsigned long long)d->line);
}

/* Suggests the data.form whose key the row has, if the row lacks a field of the current form. */
static void suggest_field(const bt_documents *d, const char *what, char *out, size_t size) {
    const char *form = d->unread.form, *now = d->wanted.form;
    out[0] = '\0';
    if (!strstr(what, "is missing") && !strstr(what, "no field")) return;
    if (form && !(now && strcmp(form, now) == 0))
        snprintf(out, size, " (it looks like data.form=%s)", form);
    else if (d->rows == ROWS_AFTER_EACH_OTHER && d->line == 1)
        snprintf(out, size,
                 " (if its rows are in a list inside: jq -c '.data[]' FILE > rows.jsonl)");
}

bt_code bt_documents_bad_row(bt_documents *d, bt_code code, const bt_err *why, bt_err *err) {
    char where[200], hint[120];
    format_row_position(d, where, sizeof where);
    suggest_field(d, why->msg, hint, sizeof hint);
    const char *between = strncmp(why->msg, "column ", 7) == 0 ? "," : ":";
    const bool of_the_row = code == BT_FORMAT || code == BT_UNSUPPORTED || code == BT_ARG;
    if (!d->skip_bad || !of_the_row)
        return bt_fail(err, code, "%s%s %s%s", where, between, why->msg, hint);
    if (d->n_bad++ == 0) {
        /* Rows are already skipped, so the error's advice to skip them is cut off. */
        const char *remedy = strstr(why->msg, "; data.bad_rows=skip");
        const int n = remedy ? (int)(remedy - why->msg) : (int)strlen(why->msg);
        snprintf(d->first_bad, sizeof d->first_bad, "%.200s%s %.*s%s", where, between, n, why->msg,
                 remedy ? ")" : "");
    }
    return BT_OK;
}

/* Parses the row into d->object. s points into the buffer; the values of unused keys in it are replaced by blanks. */
static bt_code parse_object(bt_documents *d, char *s, size_t n, bt_err *err) {
    json_error_t why;
    json_decref(d->object);
    d->object = NULL;
    bt_json_drop_unread(s, n, &d->wanted, &d->unread);
    if (!bt_json_depth_ok(s, n, JSON_DEPTH))
        return bt_fail(err, BT_FORMAT, "the JSON is nested more than %d levels deep", JSON_DEPTH);
    d->object = json_loadb(s, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
    if (!d->object) {
        const uint64_t bad = bytes_not_utf8(s, n);
        if (bad)
            return bt_fail(err, BT_FORMAT,
                           "%llu bytes are not UTF-8 (if the file is Latin-1: 'iconv -f LATIN1 -t "
                           "UTF-8')",
                           (unsigned long long)bad);
        return bt_fail(err, BT_FORMAT, "column %d: not valid JSON: %s", why.column, why.text);
    }
    if (json_is_object(d->object)) return BT_OK;
    json_decref(d->object);
    d->object = NULL;
    return bt_fail(err, BT_FORMAT, "not a JSON object");
}

static bt_code text_of_object(const bt_documents *d, bt_piece *out, bt_err *err) {
    json_t *v = find_row_field(d->object, d->field);
    if (!v)
        return bt_fail(err, BT_FORMAT,
                       "no field '%s': set data.field to the field that contains the text",
                       d->field);
    if (!json_is_string(v)) return bt_fail(err, BT_FORMAT, "field '%s' is not a string", d->field);
    *out = (bt_piece){json_string_value(v), json_string_length(v), true, false};
    return BT_OK;
}

static bool is_blank_line(const char *s, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (s[i] != ' ' && s[i] != '\t' && s[i] != '\r') return false;
    return true;
}

static bt_code next_nonblank_line(bt_documents *d, char **s, size_t *n, bt_err *err) {
    *s = NULL;
    *n = 0;
    for (;;) {
        size_t want = PIECE, searched = 0;
        const char *newline = NULL;
        for (;;) {
            BT_TRY(fill_buffer(d, want, err));
            size_t have = d->end - d->begin;
            newline = have > searched ? memchr(d->buf + d->begin + searched, '\n', have - searched)
                                      : NULL;
            if (newline || d->eof) break;
            searched = have;
            if (have >= LINE_MAX_BYTES)
                return bt_fail(err, BT_FORMAT,
                               "'%s' line %llu is longer than %d bytes: does the file contain one "
                               "JSON object a line?",
                               document_path(d), (unsigned long long)d->line + 1, LINE_MAX_BYTES);
            want = 2 * have;
        }
        *s = d->buf + d->begin;
        *n = newline ? (size_t)(newline - *s) : d->end - d->begin;
        if (!newline && *n == 0) {
            *s = NULL;
            return BT_OK;
        }
        d->line++;
        d->begin = newline ? (size_t)(newline - d->buf) + 1 : d->end;
        if (!is_blank_line(*s, *n)) return BT_OK;
    }
}

static bt_code skip_document_blanks(bt_documents *d, char *c, bt_err *err) {
    for (*c = '\0';; d->begin++) {
        if (d->begin == d->end) BT_TRY(fill_buffer(d, PIECE, err));
        if (d->begin == d->end) return BT_OK;
        if (!is_document_blank(d->buf[d->begin])) break;
    }
    *c = d->buf[d->begin];
    return BT_OK;
}

static bt_code fail_in_list(const bt_documents *d, const char *what, bt_err *err) {
    return bt_fail(err, BT_FORMAT, "'%s' row %llu: %s", document_path(d),
                   (unsigned long long)d->line + 1, what);
}

/* Skips the list's bracket and commas up to the next row. *c is the first byte of the row; 0 at the end of the list. */
static bt_code find_next_list_row(bt_documents *d, char *c, bt_err *err) {
    BT_TRY(skip_document_blanks(d, c, err));
    if (d->rows == ROWS_AFTER_EACH_OTHER) return BT_OK;
    const char wanted = d->list_open ? ',' : '[';
    if (*c == ']' && d->list_open) {
        d->begin++;
        d->list_open = false;
        BT_TRY(skip_document_blanks(d, c, err));
        return *c ? fail_in_list(d, "the file continues after the end of its JSON list", err)
                  : BT_OK;
    }
    if (!*c)
        return fail_in_list(d, "the closing ']' of the list is missing: is the file complete?",
                            err);
    if (*c != wanted) return fail_in_list(d, "a comma or ']' is missing", err);
    d->begin++;
    const bool first = !d->list_open;
    d->list_open = true;
    BT_TRY(skip_document_blanks(d, c, err));
    if (first && *c == ']') return find_next_list_row(d, c, err);
    return BT_OK;
}

static bt_code next_json_object(bt_documents *d, char **s, size_t *n, bt_err *err) {
    char c;
    bool lines;
    *s = NULL;
    *n = 0;
    BT_TRY(find_next_list_row(d, &c, err));
    if (!c) return BT_OK;
    if (c != '{') return fail_in_list(d, "not a JSON object", err);
    for (size_t want = PIECE;; want *= 2) {
        BT_TRY(fill_buffer(d, want, err));
        *n = bt_json_object_end(d->buf + d->begin, d->end - d->begin, &lines);
        if (*n) break;
        if (d->eof)
            return fail_in_list(d, "the closing '}' of an object is missing: is the file complete?",
                                err);
        if (want >= LINE_MAX_BYTES) return fail_in_list(d, "a row is too long", err);
    }
    *s = d->buf + d->begin;
    d->begin += *n;
    d->line++;
    return BT_OK;
}

/* Reads the object of the next row that is not skipped. *ends: no row is left, and the file was closed. */
static bt_code read_next_row(bt_documents *d, bool *ends, bt_err *err) {
    for (;;) {
        char *s;
        size_t n;
        bt_err why = BT_ERR_INIT;
        *ends = d->max_rows && d->file_rows == d->max_rows;
        if (*ends) return close_file(d, !d->eof || d->begin < d->end, err);
        BT_TRY(d->rows == ROWS_IN_LINES ? next_nonblank_line(d, &s, &n, err)
                                        : next_json_object(d, &s, &n, err));
        *ends = s == NULL;
        if (*ends) return close_file(d, false, err);
        d->n_rows++;
        d->file_rows++;
        const bt_code code = parse_object(d, s, n, &why);
        if (code == BT_OK) return BT_OK;
        BT_TRY(bt_documents_bad_row(d, code, &why, err));
    }
}

/* Returns an empty last piece at the end of the file. */
static bt_code next_json_piece(bt_documents *d, bt_piece *out, bt_err *err) {
    for (;;) {
        bool ends;
        bt_err why = BT_ERR_INIT;
        BT_TRY(read_next_row(d, &ends, err));
        *out = (bt_piece){"", 0, false, true};
        if (ends) return BT_OK;
        const bt_code code = text_of_object(d, out, &why);
        if (code == BT_OK) return BT_OK;
        BT_TRY(bt_documents_bad_row(d, code, &why, err));
    }
}

bt_code bt_documents_object(bt_documents *d, json_t **object, bool *files_end, bt_err *err) {
    bool ends;
    *object = NULL;
    *files_end = d->at == d->n_files;
    if (*files_end) return BT_OK;
    if (d->files[d->at].kind != BT_SOURCE_JSONL)
        return bt_fail(err, BT_ARG,
                       "'%s' is not JSON: rows are read from files named *.jsonl or *.json",
                       document_path(d));
    if (!d->file) BT_TRY(open_next_file(d, err));
    BT_TRY(read_next_row(d, &ends, err));
    if (!ends) *object = d->object;
    return BT_OK;
}

bt_code bt_documents_next(bt_documents *d, bt_piece *out, bt_err *err) {
    if (d->at == d->n_files) {
        *out = (bt_piece){NULL, 0, false, false};
        return BT_OK;
    }
    if (!d->file) BT_TRY(open_next_file(d, err));
    return d->files[d->at].kind == BT_SOURCE_JSONL ? next_json_piece(d, out, err)
                                                   : next_text_piece(d, out, err);
}

void bt_documents_notes(const bt_documents *d, bt_text *out) {
    if (d->n_bad)
        bt_text_printf(out, "!%llu of %llu rows are bad and left out; the first: %s\n",
                       (unsigned long long)d->n_bad, (unsigned long long)d->n_rows, d->first_bad);
    if (d->files_cut)
        bt_text_printf(out, " only the first %llu rows of %s are read (data.max_rows)\n",
                       (unsigned long long)d->max_rows, d->n_files == 1 ? "the file" : "each file");
    if (d->not_utf8)
        bt_text_printf(out,
                       "!%llu bytes of '%.100s'%s are not UTF-8 and are trained on as they are (if "
                       "it is Latin-1: 'iconv -f LATIN1 -t UTF-8')\n",
                       (unsigned long long)d->not_utf8, d->first_not_utf8,
                       d->files_not_utf8 > 1 ? " and other files" : "");
    if (!d->unread.n) return;
    bt_text_printf(out, " keys of rows that are not used: ");
    bt_json_unread_text(&d->unread, out);
    bt_text_put(out, "\n");
}

/* documents.h - reads files of text and of JSON document by document, in pieces of bounded size.
 *
 * A text file is one document; so is each row of a JSON file: a line of JSON lines, an object of a list, or one of
 * concatenated objects. A piece ends where every pre-tokeniser splits anyway (bt_text_cut), so tokens do not
 * depend on the size of the pieces.
 * Refuses:  files whose first bytes are not text (file_kind.h); NUL bytes in text; rows that are not JSON objects, or
 *           whose field is not a string; and, in values that are used, nesting deeper than 64 and duplicate keys. The
 *           error names file and byte, line or row. Unused keys may have any values.
 * Owns:     one open file and its buffers; a piece is valid until the following `next`.
 * Threads:  one owner. */
#ifndef BT_ENGINE_DATA_IO_DOCUMENTS_H
#define BT_ENGINE_DATA_IO_DOCUMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"
#include "engine/base/text.h"
#include "engine/data/io/json_rows.h"
#include "engine/data/io/sources.h"

typedef struct bt_documents bt_documents;
struct json_t;

typedef struct bt_piece {
    const char *text;              /* NULL: no more files */
    size_t n;                      /* may be 0 */
    bool document_ends, file_ends; /* the document or file ends after this piece */
} bt_piece;

/* Opens files of kind TEXT or JSONL, which are borrowed. field: "text", or "meta.body" for a nested field. */
bt_code bt_documents_open(bt_documents **out, const bt_source *files, size_t n, const char *field,
                          bt_err *err) BT_MUST_CHECK;
bt_code bt_documents_next(bt_documents *d, bt_piece *out, bt_err *err) BT_MUST_CHECK;
double bt_documents_done(const bt_documents *d); /* share of the bytes read so far, 0..1 */
void bt_documents_close(bt_documents *d);        /* accepts NULL */
/* Sets the keys of rows that are read (NULL: only the field of `open`). skip_bad: unusable rows are skipped and
 * counted, not refused. Call it before the first piece or object. `wanted` and its strings are borrowed. */
void bt_documents_rows(bt_documents *d, const bt_json_selection *wanted, bool skip_bad);
/* Limits the number of rows read from each JSON file (0: all). Call it before the first piece or object. */
void bt_documents_limit(bt_documents *d, uint64_t max_rows);
/* A reader calls this for a row that it cannot use. Returns BT_OK if such rows are skipped, else `code` with file and
 * row in the error. Errors not caused by the row (BT_NOMEM, ...) are always returned. */
bt_code bt_documents_bad_row(bt_documents *d, bt_code code, const bt_err *why, bt_err *err)
    BT_MUST_CHECK;
/* Appends one line each about skipped rows, bytes that are not UTF-8, and unused keys. Warnings begin with '!'. */
void bt_documents_notes(const bt_documents *d, bt_text *out);

/* Returns the object of the next row, borrowed until the following call; use it instead of `next`, for JSON files only.
 * After the last row of each file *object is NULL; after the last file *files_end is set as well. */
bt_code bt_documents_object(bt_documents *d, struct json_t **object, bool *files_end, bt_err *err)
    BT_MUST_CHECK;

/* Returns the last position in text[0..n) where a cut changes no token, or n if there is none: after a newline
 * between two characters that are not space, or before a space between ASCII letters. */
size_t bt_text_cut(const char *text, size_t n);
/* Returns true if a JSON text is nested at most `limit` levels deep. Parsers recurse, so nesting must be bounded. */
bool bt_json_depth_ok(const char *json, size_t n, int limit);

#endif

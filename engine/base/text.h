/* text.h - growable text, a JSON writer, and helpers for text that people read.
 *
 * A failed allocation sets `failed`, and later appends have no effect; callers check once at the end.
 * Owns: `data` (always NUL-terminated after the first append). Threads: one owner. */
#ifndef BT_ENGINE_BASE_TEXT_H
#define BT_ENGINE_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"

typedef struct bt_text {
    char *data;
    size_t len, cap;
    bool failed;
} bt_text;

void bt_text_init(bt_text *t);
void bt_text_release(bt_text *t); /* accepts an all-zero struct */
void bt_text_clear(bt_text *t);
void bt_text_put(bt_text *t, const char *s);
void bt_text_putn(bt_text *t, const char *s, size_t n);
void bt_text_printf(bt_text *t, const char *fmt, ...) BT_PRINTF(2, 3);
const char *bt_text_str(const bt_text *t); /* "" when empty */

/* Begin and end nest. Inside an object each value has a key; inside an array the key is NULL. Commas are automatic.
 * Numbers: the shortest text that reads back the same double; NaN and infinities become null. Strings: invalid UTF-8 is
 *    replaced. */
typedef struct bt_json {
    bt_text *out;
    int depth;
    bool first[32];
} bt_json;

void bt_json_begin(bt_json *j, bt_text *out);
void bt_json_object(bt_json *j, const char *key);
void bt_json_array(bt_json *j, const char *key);
void bt_json_end(bt_json *j, char close);                     /* '}' or ']' */
void bt_json_str(bt_json *j, const char *key, const char *s); /* s NULL: null */
/* Writes a string of any bytes, such as a path. Bytes that are not UTF-8 become characters of the private range
 * U+10FF80 to U+10FFFF, and such a character in s is escaped in the same way. bt_text_put_bytes restores the bytes. */
void bt_json_bytes(bt_json *j, const char *key, const char *s);
/* Appends the bytes that bt_json_bytes encoded as s. */
void bt_text_put_bytes(bt_text *t, const char *s);
void bt_json_num(bt_json *j, const char *key, double v);
/* Writes a number with at most `digits` significant digits (1 to 17). */
void bt_json_rounded(bt_json *j, const char *key, double v, int digits);
void bt_json_int(bt_json *j, const char *key, int64_t v);
void bt_json_ints(bt_json *j, const char *key, const int64_t *v, size_t n); /* an array */
void bt_json_bool(bt_json *j, const char *key, bool v);
void bt_json_null(bt_json *j, const char *key);
/* Writes a JSON object or array from a database or a file with the escapes of this writer. */
void bt_json_document(bt_json *j, const char *key, const char *json);
void bt_json_raw(bt_json *j, const char *key, const char *json); /* inserts json unchanged */

/* Returns the candidate with the smallest edit distance to `word`; NULL: none is close enough. */
const char *bt_nearest(const char *word, const char *const *candidates, size_t n);
bool bt_name_ok(const char *name); /* [A-Za-z0-9][A-Za-z0-9._-]{0,63} */
/* Copies s for output on a terminal: without C0, C1 and escape bytes, and with invalid UTF-8 replaced by '?'. */
void bt_text_plain(char *out, size_t size, const char *s);
/* Returns a copy made by bt_text_plain, as an argument of printf. Use it for every text from a database, a file or
 * another host. The copy is at most 1,023 bytes long, in static storage of the thread, and valid until the eighth
 * further call; "" for NULL. */
const char *bt_text_shown(const char *s);
/* Returns buf with "3m 12s", "1h 04m" or "12.3s". */
const char *bt_duration(char *buf, size_t size, double seconds);

#endif

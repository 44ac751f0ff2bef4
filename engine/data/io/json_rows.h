/* json_rows.h - finds the end of a JSON row in a text, and replaces its unused members by blanks.
 *
 * The replacement precedes parsing, so unused values may be anything that other programs write: integers beyond 64
 * bits, NaN, Infinity, 1e999, duplicate keys, deep nesting, halves of surrogate pairs. Columns in messages are still
 * those of the file.
 * Threads: the caller's text and counts only. */
#ifndef BT_ENGINE_DATA_IO_JSON_ROWS_H
#define BT_ENGINE_DATA_IO_JSON_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/text.h"

typedef struct bt_json_selection {
    const char *form;       /* value of data.form; NULL: text */
    const char *const *row; /* keys of a row that are read, NULL-terminated; may be NULL */
    /* keys that are read in objects inside the values of `row`; NULL-terminated */
    const char *const *inner;
    const char *path; /* one more key that is read, possibly nested: "meta.body"; may be NULL */
} bt_json_selection;

enum { BT_UNREAD_MAX = 64, BT_UNREAD_NAME = 48 };

/* unused keys and their number of occurrences; zeroed by the caller */
typedef struct bt_json_unread {
    struct {
        char name[BT_UNREAD_NAME];
        bool inner; /* key of an object inside a row */
        uint64_t count;
    } keys[BT_UNREAD_MAX];
    size_t n, next;   /* next: start of the search for the next key */
    uint64_t others;  /* occurrences of keys beyond BT_UNREAD_MAX */
    const char *form; /* data.form that probably fits the last row; NULL: unknown */
} bt_json_unread;

/* Replaces the members of the object s[0..n) that w does not list by blanks, and counts them. An invalid object is
 * changed only up to its error, which the parser then reports. */
void bt_json_drop_unread(char *s, size_t n, const bt_json_selection *w, bt_json_unread *u);

/* Returns the length of the object that begins with '{' at s[0]; 0: it does not end within n bytes, or is not JSON.
 * *lines: the object spans several lines, so it is not a row of JSON lines. */
size_t bt_json_object_end(const char *s, size_t n, bool *lines);

/* Writes "id (60 rows), meta (60 rows), name in messages (57)"; nothing if all keys are read. */
void bt_json_unread_text(const bt_json_unread *u, bt_text *out);

#endif

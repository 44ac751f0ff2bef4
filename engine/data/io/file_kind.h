/* file_kind.h - recognises well-known files that are neither plain text nor JSON by their first bytes, and holds
 * the command that converts them. One table serves the readers of data and of models.
 *
 * Threads: pure functions. */
#ifndef BT_ENGINE_DATA_IO_FILE_KIND_H
#define BT_ENGINE_DATA_IO_FILE_KIND_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/base/status.h"

enum {
    BT_FILE_KIND_HEAD = 512
}; /* number of first bytes that suffice for every row of the table */

typedef struct bt_file_kind {
    const char *magic;
    size_t n, at;       /* its length, and its offset in the file */
    const char *inside; /* NULL, or further bytes that must occur at the beginning */
    const char *what;   /* "a Parquet file" */
    const char *remedy; /* "{}" is replaced by the path */
    bool text;          /* the file itself is text */
    bool model;         /* a model format that this program reads */
} bt_file_kind;

/* Returns the kind of a file that begins with head[0..n); NULL: not in the table. */
const bt_file_kind *bt_file_kind_of(const char *head, size_t n);
/* Returns the kind of a table of values, which has no magic bytes, by the extension before .gz and .zst: .csv, .tsv;
 * NULL: another extension. */
const bt_file_kind *bt_file_kind_named(const char *path);
/* Returns BT_FORMAT: "NOUN 'x.pq' is a Parquet file: convert it with '...'". */
bt_code bt_file_kind_refuse(const bt_file_kind *kind, const char *noun, const char *path,
                            bt_err *err);

#endif

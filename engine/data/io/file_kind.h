/* file_kind.h - recognises by their first bytes files that are neither plain text nor JSON, and names the command that
 * converts them. Readers of data and of models use the same table.
 * Threads: pure functions. */
#ifndef BT_ENGINE_DATA_IO_FILE_KIND_H
#define BT_ENGINE_DATA_IO_FILE_KIND_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/base/status.h"

enum { BT_FILE_KIND_HEAD = 512 }; /* number of first bytes that every row of the table needs */

typedef struct bt_file_kind {
    const char *magic;
    size_t n, at;       /* length of the magic, and its offset in the file */
    const char *inside; /* further bytes that must occur at the beginning; NULL: none */
    const char *what;   /* name for messages, such as "a Parquet file" */
    const char *remedy; /* how to convert it; "{}" is replaced by the path */
    bool text;          /* the format is plain text */
    bool model;         /* a model format that this program reads */
} bt_file_kind;

/* Returns the kind of a file that begins with head[0..n); NULL: unknown. */
const bt_file_kind *bt_file_kind_of(const char *head, size_t n);
/* Returns the kind of a table of values by the extension .csv or .tsv before .gz and .zst, because such files have no
 * magic. NULL: another extension. */
const bt_file_kind *bt_file_kind_named(const char *path);
/* Returns BT_FORMAT with the message "NOUN 'x.pq' is a Parquet file: convert it with '...'". */
bt_code bt_file_kind_refuse(const bt_file_kind *kind, const char *noun, const char *path,
                            bt_err *err);

#endif

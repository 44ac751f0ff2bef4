/* sources.h - expands the words after --data to a list of files.
 *
 * A word is a text file, a file of rows (.jsonl, .ndjson, .json), a token shard (.bts), a folder (all of these
 * below it, recursively, in byte order of their paths), "builtin", or synth:NAME. Every other file name counts as
 * plain text; documents.c refuses binary content and tables (.csv, .tsv). Text and rows may be compressed: the
 * name then ends in .gz or .zst behind the rest (text_file.h).
 * In a folder the following are skipped: names that begin with a dot or do not match the glob, sockets and pipes;
 * and, counted as skipped, broken links, and by their first bytes files that are not text and .json files without
 * rows. A file that is given directly is never skipped.
 * Threads: any; no shared state. */
#ifndef BT_ENGINE_DATA_IO_SOURCES_H
#define BT_ENGINE_DATA_IO_SOURCES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"

typedef enum { BT_SOURCE_TEXT, BT_SOURCE_JSONL, BT_SOURCE_SHARD, BT_SOURCE_SYNTH } bt_source_kind;

typedef struct bt_source {
    char *path; /* for synth: "synth:chain" */
    bt_source_kind kind;
    uint64_t bytes;
    int64_t mtime_ns;
    size_t word; /* index of its word, 0-based */
} bt_source;

typedef struct bt_sources {
    bt_source *items;
    size_t n, cap;
    size_t
        skipped; /* number of files skipped in folders: broken links, and files that are not text */
    char first_skipped[256]; /* "books/cover.jpg (binary)" */
} bt_sources;

/* paths: '\n'-separated words; "" means "builtin". Nothing found is an error. In folders, only files whose name
 * matches the shell pattern `glob` count ("" or NULL: all). */
bt_code bt_sources_list_glob(bt_sources *out, const char *paths, const char *glob,
                             const char *cache_dir, bt_err *err) BT_MUST_CHECK;
/* Continues the hash h over the files (path, size, modification time, kind; for JSON lines the field): the key of
 * cached data derived from them. */
uint64_t bt_sources_hash(const bt_source *files, size_t n, const char *field, uint64_t h);
void bt_sources_release(bt_sources *s); /* accepts an all-zero struct */

/* Returns true if "builtin" is one of the words of a list of data, one per line. */
bool bt_names_builtin(const char *list);
/* Returns the path of the text of "builtin"; bt_builtin_make (monitor/job/launch/builtin.h) creates it before ranks
 * start. */
void bt_builtin_path(char *out, size_t size, const char *cache_dir);

#endif

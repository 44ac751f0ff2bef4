/* sources.h - expands the words after --data to a list of files.
 *
 * A word is a text file, a file of JSON rows (.jsonl, .ndjson, .json), a token shard (.bts), a folder (all such files
 * in it, recursively, in byte order of their paths), "builtin", or synth:NAME. Every other file name counts as plain
 * text; documents.c refuses binary content and tables (.csv, .tsv). Text and rows may be compressed: the name then ends
 * in .gz or .zst (text_file.h). In a folder, names that begin with a dot or do not match the glob, sockets and pipes
 * are ignored. Broken links, files whose first bytes are not text, and .json files without rows are skipped and
 * counted. A file that is given directly is never skipped. Threads: any; no shared state. */
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
    size_t word; /* index of its word in the list, from 0 */
} bt_source;

typedef struct bt_sources {
    bt_source *items;
    size_t n, cap;
    /* number of files skipped in folders: broken links, and files that are not text */
    size_t skipped;
    char first_skipped[256]; /* "books/cover.jpg (binary)" */
} bt_sources;

/* paths: words separated by line feeds; "" means "builtin". An empty result is an error. In folders, only files whose
 * names match the shell pattern `glob` are listed ("" or NULL: all). */
bt_code bt_sources_list_glob(bt_sources *out, const char *paths, const char *glob,
                             const char *cache_dir, bt_err *err) BT_MUST_CHECK;
/* Continues the hash h with path, size, modification time and kind of the files, and with `field` for JSON lines.
 * Caches of data derived from the files use it as their key. */
uint64_t bt_sources_hash(const bt_source *files, size_t n, const char *field, uint64_t h);
void bt_sources_release(bt_sources *s); /* accepts an all-zero struct */

/* list: words separated by line feeds. */
bool bt_names_builtin(const char *list);
/* Writes the path of the text of "builtin". bt_builtin_make creates that file before the ranks start. */
void bt_builtin_path(char *out, size_t size, const char *cache_dir);

#endif

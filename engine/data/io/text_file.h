/* text_file.h - reads a text file from its beginning to its end and decompresses it if its name ends in .gz (gzip, RFC
 * 1952) or .zst (Zstandard, RFC 8878), also with several gzip members or zstd frames.
 *
 * Errors:   BT_FORMAT names a file whose compressed data are damaged, truncated or missing.
 * Owns:     an open file, and for a compressed one a buffer and the state of its decoder.
 * Threads:  one caller. */
#ifndef BT_ENGINE_DATA_IO_TEXT_FILE_H
#define BT_ENGINE_DATA_IO_TEXT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"

typedef struct bt_text_file bt_text_file;

/* Returns the length of path without ".gz" or ".zst". */
size_t bt_text_file_stem(const char *path);
/* path is borrowed until close. Errors: BT_NOTFOUND, BT_IO. */
bt_code bt_text_file_open(bt_text_file **out, const char *path, bt_err *err) BT_MUST_CHECK;
/* Reads the next n bytes of text; *got < n only at the end. */
bt_code bt_text_file_read(bt_text_file *f, void *buf, size_t n, size_t *got, bt_err *err)
    BT_MUST_CHECK;
/* Returns how many bytes of the file, before decompression, were read. */
uint64_t bt_text_file_consumed(const bt_text_file *f);
void bt_text_file_close(bt_text_file *f); /* accepts NULL */

#endif

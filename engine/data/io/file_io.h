/* file_io.h - reads and writes whole files, in spite of EINTR and short counts.
 * Threads: any; no shared state. */
#ifndef BT_ENGINE_DATA_IO_FILE_IO_H
#define BT_ENGINE_DATA_IO_FILE_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"

/* Reads n bytes at offset; *got < n only at the end of the file. */
bt_code bt_file_pread(int fd, const char *name, void *buf, size_t n, uint64_t offset, size_t *got,
                      bt_err *err) BT_MUST_CHECK;
bt_code bt_file_pwrite(int fd, const char *name, const void *buf, size_t n, uint64_t offset,
                       bt_err *err) BT_MUST_CHECK;
/* Reads a file of at most `limit` bytes into malloc'ed, NUL-terminated memory. */
bt_code bt_file_slurp(const char *path, size_t limit, char **data, size_t *n, bt_err *err)
    BT_MUST_CHECK;
/* Returns true for a device, a pipe or a socket. These are written directly, because a rename would replace them. */
bool bt_file_is_device(const char *path);
/* Writes and fsyncs a temporary file and renames it, so the path has either the old or the complete new content. Writes
 * to a device (bt_file_is_device) directly. */
bt_code bt_file_replace(const char *path, const char *data, size_t n, bt_err *err) BT_MUST_CHECK;
/* Makes a rename durable, if the file system supports it. */
void bt_file_sync_folder_of(const char *path);

#endif

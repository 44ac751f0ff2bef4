/* given_path.h - paths that a command was given: made absolute, and files written there, completely or not at all. */
#ifndef BT_CLI_COMMON_GIVEN_PATH_H
#define BT_CLI_COMMON_GIVEN_PATH_H

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>

#include "engine/base/status.h"

/* Makes `path` absolute from the current folder; it need not exist, and links in it remain. Fails with BT_ARG if it
 * is too long. */
bt_code bt_absolute_path(const char *path, char out[PATH_MAX], bt_err *err) BT_MUST_CHECK;

typedef struct bt_out_text {
    FILE *to;
    const char *path; /* the caller's, until it is closed; "": standard output */
    char part[1040];  /* temporary file that is written; "": the path itself */
} bt_out_text;

/* BT_BUSY if `path` is a file or a folder, unless `force`. Devices and pipes may always be written. */
bt_code bt_may_write(const char *path, bool force, bt_err *err) BT_MUST_CHECK;

/* Opens `path`. A regular file is written beside its place and moved there by bt_out_text_close; a device, a pipe or a
 * socket is written into. An existing file is replaced if `force` is set, else BT_BUSY. BT_ARG, BT_IO. */
bt_code bt_out_text_open(bt_out_text *o, const char *path, bool force, bt_err *err) BT_MUST_CHECK;

/* Closes the file and renames it to its path if `code`, that of the writer, is BT_OK, otherwise removes it. Returns
 * `code`, or BT_IO. Standard output remains open. */
bt_code bt_out_text_close(bt_out_text *o, bt_code code, bt_err *err) BT_MUST_CHECK;

#endif

/* given_path.h - paths from the command line: made absolute, and output files that are written completely or not at
 * all. */
#ifndef BT_CLI_COMMON_GIVEN_PATH_H
#define BT_CLI_COMMON_GIVEN_PATH_H

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>

#include "engine/base/status.h"

/* Makes `path` absolute relative to the current folder. The path need not exist, and links in it are not resolved.
 * Fails with BT_ARG if the absolute path is too long. */
bt_code bt_absolute_path(const char *path, char out[PATH_MAX], bt_err *err) BT_MUST_CHECK;

typedef struct bt_out_text {
    FILE *to;
    const char *path; /* borrowed until the file is closed; "": standard output */
    char part[1040];  /* temporary file that is written; "": `path` itself is written */
} bt_out_text;

/* Returns BT_BUSY if `path` is an existing file or folder, unless `force` is set. Devices and pipes may always be
 * written. */
bt_code bt_may_write(const char *path, bool force, bt_err *err) BT_MUST_CHECK;

/* Opens `path` for writing. A regular file is written under a temporary name in the same folder, and
 * bt_out_text_close renames it; devices, pipes and sockets are written directly. Fails with BT_BUSY if the file
 * exists and `force` is not set, with BT_ARG or BT_IO. */
bt_code bt_out_text_open(bt_out_text *o, const char *path, bool force, bt_err *err) BT_MUST_CHECK;

/* Closes the file. If `code`, the writer's result, is BT_OK, renames the file to its path, otherwise removes it.
 * Returns `code`, or BT_IO. Standard output remains open. */
bt_code bt_out_text_close(bt_out_text *o, bt_code code, bt_err *err) BT_MUST_CHECK;

#endif

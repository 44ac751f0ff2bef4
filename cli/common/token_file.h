/* token_file.h - stores a server's access token in a file that only the same user can read. */
#ifndef BT_CLI_COMMON_TOKEN_FILE_H
#define BT_CLI_COMMON_TOKEN_FILE_H

#include <stddef.h>

#include "engine/base/status.h"

/* Writes $XDG_RUNTIME_DIR/bitrain/SERVER-PORT.token or, without that folder, a file beside the database `store`;
 * mode 0600. path receives the file's path; the caller removes the file at the end. */
bt_code bt_token_file_keep(const char *store, const char *server, int port, const char *token,
                           char *path, size_t size, bt_err *err) BT_MUST_CHECK;

#endif

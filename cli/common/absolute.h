/* absolute.h - a path that holds in any folder. */
#ifndef BT_CLI_COMMON_ABSOLUTE_H
#define BT_CLI_COMMON_ABSOLUTE_H

#include <limits.h>

#include "engine/base/status.h"

/* `path` as seen from the current folder; it need not exist, and links in it stay. BT_ARG when it is too long. */
bt_code bt_absolute_path(const char *path, char out[PATH_MAX], bt_err *err) BT_MUST_CHECK;

#endif

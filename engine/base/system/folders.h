/* folders.h - creates folders and their parents, like mkdir -p. Threads: any. */
#ifndef BT_BASE_SYSTEM_FOLDERS_H
#define BT_BASE_SYSTEM_FOLDERS_H

#include "engine/base/status.h"

/* An existing folder is not an error, even if this process could not create it. BT_ARG: the path is empty or too long.
 * BT_IO: the error names the first folder that cannot be created. */
bt_code bt_make_folders(const char *path, bt_err *err) BT_MUST_CHECK;
/* Creates the parent folders of a file. */
bt_code bt_make_folder_of(const char *path, bt_err *err) BT_MUST_CHECK;

#endif

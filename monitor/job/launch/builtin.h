/* builtin.h - the built-in corpus: the King James Bible of Debian's package bible-kjv (text in the public domain;
 * Crown patent in the UK), one verse per line without its number. The text is created once by running `bible`, and kept
 * in the cache folder. This function starts a program, so it must be called before ranks start. Concurrent calls are
 * safe. */
#ifndef BT_MONITOR_JOB_LAUNCH_BUILTIN_H
#define BT_MONITOR_JOB_LAUNCH_BUILTIN_H

#include <stddef.h>

#include "engine/base/status.h"

/* path: where to store the text (bt_builtin_path). BT_NOTFOUND: the program is missing. */
bt_code bt_builtin_make(const char *path, bt_err *err) BT_MUST_CHECK;

#endif

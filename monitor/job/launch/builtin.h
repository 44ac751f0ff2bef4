/* builtin.h - the built-in corpus: the King James Bible of Debian's package bible-kjv (text in the
 * public domain; Crown patent in the UK), one verse a line without its number. Made once, by
 * running `bible`; kept in the cache folder. Call before ranks start: running programs is this
 * folder's privilege. Safe when several do it at once. */
#ifndef BT_MONITOR_JOB_LAUNCH_BUILTIN_H
#define BT_MONITOR_JOB_LAUNCH_BUILTIN_H

#include <stddef.h>

#include "engine/base/status.h"

/* path gets where the text is (bt_builtin_path). BT_NOTFOUND when the program is missing. */
bt_code bt_builtin_make(const char *path, bt_err *err) BT_MUST_CHECK;

#endif

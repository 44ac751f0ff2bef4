/* rescue.h - private to store/: the file is damaged or gone while a run is being recorded: another
 * one is begun, training does not notice.
 *
 * A damaged file is moved to FILE.corrupt-TIME (with its log) and what can be read of it is copied,
 * row by row from both ends of each table. The caller holds the lock file and has no connection
 * open. */
#ifndef BT_STORE_WRITE_RESCUE_H
#define BT_STORE_WRITE_RESCUE_H

#include "store/sql/sql.h"

typedef struct bt_rescue_result {
    char moved_to[BT_PATH_BYTES + 48]; /* "": there was no file any more */
    int64_t rows;                      /* saved */
    int unreadable;                    /* tables of which something is missing */
} bt_rescue_result;

bt_code bt_rescue(const char *path, bt_rescue_result *out, bt_err *err) BT_MUST_CHECK;
bool bt_rescue_wanted(int rc); /* does this result code of SQLite mean damage? */

#endif

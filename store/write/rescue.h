/* rescue.h - private to store/: the file is damaged, cut or gone while a run is being recorded:
 * another one is begun, training does not notice.
 *
 * A file or log that was removed still exists for the connection that has it open: a snapshot taken
 * through it holds every row. Otherwise the damaged file is moved to FILE.corrupt-TIME (with its
 * log) and what can be read of it is copied, row by row from both ends of each table. The caller
 * holds the lock file. */
#ifndef BT_STORE_WRITE_RESCUE_H
#define BT_STORE_WRITE_RESCUE_H

#include "store/sql/sql.h"

typedef enum bt_damage {
    BT_UNDAMAGED,
    BT_FILE_GONE, /* removed, or another file stands in its place */
    BT_LOG_CUT,   /* the write-ahead log is shorter than its index says, or removed */
    BT_ROWS_BAD   /* SQLite says so */
} bt_damage;

typedef struct bt_rescue_result {
    char moved_to[BT_PATH_BYTES + 48]; /* "": there was no file any more */
    int64_t rows;                      /* saved */
    int unreadable;                    /* tables of which something is missing */
    bool setting;                      /* keep_rank_steps was saved, too */
} bt_rescue_result;

/* what somebody did to the files under an open connection; a few system calls */
bt_damage bt_rescue_look(sqlite3 *db, const char *path);
/* everything the open connection sees, checked, as FILE.saved; false: it cannot be read whole */
bool bt_rescue_snapshot(sqlite3 *db, const char *path);
/* after every connection of this process is closed: the snapshot becomes the file; what stands there
 * is moved aside, its log removed. *kept: another run has begun a new database there, which stays */
bt_code bt_rescue_install(const char *path, bt_rescue_result *out, bool *kept, bt_err *err)
    BT_MUST_CHECK;
/* no connection of this process is open. progress: may be NULL, here and below */
bt_code bt_rescue(const char *path, const bt_store_progress *progress, bt_rescue_result *out,
                  bt_err *err) BT_MUST_CHECK;
/* adds the rows that `path` lacks and `from`, a copy of an earlier moment of it, has, to those of *out; none when
 * the two number other runs alike, or `from` cannot be read. Its setting, where *out has none yet. */
bt_code bt_rescue_fill(const char *path, const char *from, const bt_store_progress *progress,
                       bt_rescue_result *out, bt_err *err) BT_MUST_CHECK;
/* the text of the event: what was found, and what became of the rows; whole: all of them were saved */
void bt_rescue_describe(char *out, size_t size, bt_damage what, bool whole,
                        const bt_rescue_result *r);
bool bt_rescue_wanted(int rc); /* does this result code of SQLite mean damage? */

#endif

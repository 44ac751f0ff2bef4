/* rescue.h - private to store/: replaces a database that is damaged, cut or removed during a
 * recording, without affecting the training.
 *
 * A removed file or log still exists for the connection that has it open: a snapshot through it
 * contains every row. Otherwise the damaged file is moved to FILE.corrupt-TIME (with its log),
 * and its readable rows are copied from both ends of each table. The caller holds the lock file. */
#ifndef BT_STORE_WRITE_RESCUE_H
#define BT_STORE_WRITE_RESCUE_H

#include "store/sql/sql.h"

typedef enum bt_damage {
    BT_UNDAMAGED,
    BT_FILE_GONE, /* removed, or replaced by another file */
    BT_LOG_CUT,   /* the write-ahead log was removed or is shorter than its index states */
    BT_ROWS_BAD   /* SQLite reports damage */
} bt_damage;

typedef struct bt_rescue_result {
    char moved_to[BT_PATH_BYTES + 48]; /* "": there was no file */
    int64_t rows;                      /* saved */
    int unreadable;                    /* number of incompletely read tables */
    bool setting;                      /* keep_rank_steps was rescued as well */
} bt_rescue_result;

/* Detects changes of the files of an open connection with a few system calls. */
bt_damage bt_rescue_examine(sqlite3 *db, const char *path);
/* Copies everything that the open connection can read to FILE.saved and checks it; returns false if it is
 * incomplete. */
bool bt_rescue_snapshot(sqlite3 *db, const char *path);
/* Installs the snapshot as the file after every connection of this process was closed; moves the file there aside
 * and removes its log. *kept: another run has created a new database there, which is kept. */
bt_code bt_rescue_install(const char *path, bt_rescue_result *out, bool *kept, bt_err *err)
    BT_MUST_CHECK;
/* Requires that no connection of this process is open. progress: may be NULL, here and below. */
bt_code bt_rescue(const char *path, const bt_store_progress *progress, bt_rescue_result *out,
                  bt_err *err) BT_MUST_CHECK;
/* Adds rows to `path` that only `from`, an earlier copy, has, and counts them in *out; none if the two number runs
 * differently, or if `from` is unreadable. Also copies the setting keep_rank_steps of `from` if *out has none yet. */
bt_code bt_rescue_fill(const char *path, const char *from, const bt_store_progress *progress,
                       bt_rescue_result *out, bt_err *err) BT_MUST_CHECK;
/* Composes the text of the event: the damage and the number of rescued rows; whole: all rows were rescued. */
void bt_rescue_describe(char *out, size_t size, bt_damage what, bool whole,
                        const bt_rescue_result *r);
bool bt_rescue_wanted(int rc); /* true if this SQLite result code indicates damage */

#endif

/* retain.h - private to store/: deletes old raw rank rows.
 *
 * The newest `keep_rank_steps` steps of an attempt (in meta, initially 50000; 0: all) and
 * BT_RETAIN_AROUND steps around warnings, errors and restarts are kept; older ones are deleted
 * in small chunks after their summaries are written. Step rows, layers, events and summaries are
 * kept. */
#ifndef BT_STORE_WRITE_RETAIN_H
#define BT_STORE_WRITE_RETAIN_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

/* in steps; a chunk is one level-2 block */
enum { BT_RETAIN_AROUND = 200, BT_RETAIN_CHUNK = 256 };

/* Deletes at most one chunk of old rows of the attempt in its own transaction; requires the lock file. *more:
 * another chunk remains. *rows counts the deleted rows. Returns SQLITE_OK or the code of the failure. */
int bt_retain_chunk(sqlite3 *db, int64_t aid, int64_t newest_step, bool *more, int64_t *rows);

#endif

/* retain.h - private to store/: raw rank rows do not stay for ever. The newest `keep_rank_steps`
 * steps of an attempt stay (meta, 50000 at first; 0: all), and BT_RETAIN_AROUND steps around
 * warnings, errors and restarts; older ones go in small chunks once their summaries are written.
 * Step rows, layers, events and summaries stay. */
#ifndef BT_STORE_WRITE_RETAIN_H
#define BT_STORE_WRITE_RETAIN_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

/* steps; a chunk is one level-2 block */
enum { BT_RETAIN_AROUND = 200, BT_RETAIN_CHUNK = 256 };

/* deletes at most one chunk of old rows of the attempt, in a transaction of its own (the caller
 * holds the lock file). *more: there is another. *rows counts what went. SQLITE_OK or what
 * failed. */
int bt_retain_chunk(sqlite3 *db, int64_t aid, int64_t newest_step, bool *more, int64_t *rows);

#endif

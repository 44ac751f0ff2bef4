/* reading.c - reports the share of its file that a connection has read, while its statements
 * run. */
#include <math.h>

#include "store/sql/sql.h"

enum { OPS = 10000 }; /* SQLite instructions between two callbacks: less than a millisecond */

static int pages_read(sqlite3 *db) {
    int now = 0, most = 0;
    sqlite3_db_status(db, SQLITE_DBSTATUS_CACHE_MISS, &now, &most, 0);
    return now;
}

static int on_sqlite_progress(void *ctx) {
    const bt_sql_reading *r = ctx;
    const double done = (double)(pages_read(r->db) - r->before) / fmax(1, r->pages);
    r->to->fn(r->to->ctx, r->what, fmin(1, done));
    return 0; /* continue */
}

void bt_sql_reading_begin(bt_sql_reading *r, sqlite3 *db, const bt_store_progress *to,
                          const char *what) {
    *r = (bt_sql_reading){.db = db, .to = to, .what = what};
    if (!to || !to->fn) return;
    r->pages = (double)bt_sql_int(db, "PRAGMA page_count", 0);
    r->before = pages_read(db);
    sqlite3_progress_handler(db, OPS, on_sqlite_progress, r);
}

void bt_sql_reading_end(bt_sql_reading *r) { sqlite3_progress_handler(r->db, 0, NULL, NULL); }

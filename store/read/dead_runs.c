/* dead_runs.c - stores records of runs that were killed together with their ranks, at the next access of a reader. */
#include "store/read/dead_runs.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "store/record/ring.h"
#include "store/sql/sql.h"

typedef struct lost {
    char run[BT_NAME_MAX], ring[BT_PATH_BYTES];
} lost;

/* Finds the next run of this host with a dead supervisor and a ring file without a writer. */
static bool find_next_lost_run(sqlite3_stmt *st, lost *l) {
    while (sqlite3_step(st) == SQLITE_ROW) {
        const int pid = sqlite3_column_int(st, 2);
        snprintf(l->run, sizeof l->run, "%s", (const char *)sqlite3_column_text(st, 0));
        if (snprintf(l->ring, sizeof l->ring, "%s/%s", (const char *)sqlite3_column_text(st, 1),
                     BT_RING_FILE) >= (int)sizeof l->ring)
            continue;
        if (kill(pid, 0) != 0 && errno == ESRCH && bt_ring_left(l->ring)) return true;
    }
    return false;
}

void bt_store_rescue(bt_db *db, double wait_s) {
    sqlite3_stmt *st = NULL;
    bt_writer *w = NULL;
    char here[BT_HOST_MAX] = "";
    lost l;
    bt_err err = BT_ERR_INIT;
    gethostname(here, sizeof here - 1);
    bt_code code = bt_sql_prepare(bt_db_handle(db), bt_db_path(db),
                                  "SELECT name, out_dir, pid FROM run WHERE state = 'running' AND "
                                  "host = ? AND out_dir <> '' AND pid > 0",
                                  &st, &err);
    if (code == BT_OK) sqlite3_bind_text(st, 1, here, -1, SQLITE_STATIC);
    while (code == BT_OK && find_next_lost_run(st, &l)) {
        int64_t steps = 0;
        if (!w) code = bt_writer_open(&w, bt_db_path(db), wait_s, &err);
        if (code == BT_OK) code = bt_writer_recover(w, l.run, l.ring, &steps, &err);
        if (code == BT_OK) unlink(l.ring);
    }
    sqlite3_finalize(st);
    bt_writer_close(w);
}

/* recover.c - finds the attempt of lost records, and stores the missing ones. */
#include "store/write/recover.h"

#include <stdlib.h>

typedef struct lost_attempt {
    bt_apply_attempt at;
    int64_t known;
} lost_attempt;

/* Sets aid to the run's newest attempt if the records belong to it, otherwise to 0. */
static bt_code find_lost_attempt(sqlite3 *db, const char *path, const bt_lost *lost,
                                 lost_attempt *out, bt_err *err) {
    sqlite3_stmt *st = NULL;
    *out = (lost_attempt){.known = -1};
    BT_TRY(bt_sql_prepare(db, path,
                          "SELECT a.run, a.id, a.from_step, (SELECT max(step) FROM step WHERE aid "
                          "= a.id) FROM attempt a JOIN run r ON r.id = a.run"
                          " WHERE r.name = ?1 AND a.attempt = ?2 AND r.n_attempts = ?2 + 1",
                          &st, err));
    sqlite3_bind_text(st, 1, lost->run, -1, SQLITE_STATIC);
    sqlite3_bind_int(st, 2, lost->attempt);
    if (sqlite3_step(st) == SQLITE_ROW) {
        out->at = (bt_apply_attempt){.run = sqlite3_column_int64(st, 0),
                                     .aid = sqlite3_column_int64(st, 1),
                                     .from_step = sqlite3_column_int64(st, 2),
                                     .attempt = lost->attempt};
        if (sqlite3_column_type(st, 3) != SQLITE_NULL) out->known = sqlite3_column_int64(st, 3);
    }
    sqlite3_finalize(st);
    return BT_OK;
}

void bt_recover_drop_facts(bt_record **list) {
    for (bt_record **at = list; *at;) {
        bt_record *r = *at;
        if (r->head.kind != BT_REC_FACT) {
            at = &r->next;
            continue;
        }
        *at = r->next;
        free(r);
    }
}

static int64_t steps_after(const bt_record *list, int64_t known) {
    int64_t n = 0;
    for (; list; list = list->next) n += list->head.kind == BT_REC_STEP && list->head.step > known;
    return n;
}

bt_code bt_recover_store(const bt_lost *lost, sqlite3 *db, const char *path, bt_apply *apply,
                         int64_t open, int64_t *aid, int64_t *steps, bt_err *err) {
    lost_attempt found;
    BT_TRY(find_lost_attempt(db, path, lost, &found, err));
    *aid = found.at.aid;
    if (!found.at.aid) return BT_OK;
    if (found.at.aid != open) {
        BT_TRY(bt_apply_set_attempt(apply, &found.at, err));
        bt_apply_reread(apply);
    }
    const int rc = bt_apply_again(apply, found.known, lost->list);
    if (rc != SQLITE_OK) return bt_sql_fail(db, rc, path, "write", err);
    *steps = steps_after(lost->list, found.known);
    return BT_OK;
}

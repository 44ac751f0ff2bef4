/* attempt_change.c - encodes changes of attempts as records, and stores them as rows. */
#include "store/write/attempt_change.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/record/ring.h"
#include "store/write/recover.h"

#define TURN UINT32_MAX /* kind of their records */

bt_record *bt_attempt_change_record(bt_attempt_change *t) {
    const bt_record_head head = {.kind = TURN, .bytes = sizeof t, .step = -1};
    bt_record *r = t ? bt_record_empty(&head) : NULL;
    if (r)
        memcpy(r->data, &t, sizeof t);
    else
        bt_attempt_change_free(t);
    return r;
}

bt_attempt_change *bt_attempt_change_of(const bt_record *r) {
    bt_attempt_change *t = NULL;
    if (r->head.kind == TURN) memcpy(&t, r->data, sizeof t);
    return t;
}

void bt_attempt_change_free(bt_attempt_change *t) {
    if (!t) return;
    bt_records_free(t->lost);
    bt_run_start_release(&t->start);
    free(t);
}

void bt_attempt_changes_free(bt_record *list) {
    for (const bt_record *r = list; r; r = r->next) bt_attempt_change_free(bt_attempt_change_of(r));
    bt_records_free(list);
}

bt_code bt_turn_read_ring(bt_attempt_change *t, const char *path, bt_err *err) {
    struct stat st;
    bt_err own = BT_ERR_INIT;
    if (stat(path, &st) != 0 ||
        snprintf(t->ring, sizeof t->ring, "%s", path) >= (int)sizeof t->ring) {
        t->ring[0] = '\0';
        return BT_OK;
    }
    t->ring_inode = st.st_ino;
    const bt_code code = bt_ring_read(path, &t->lost_attempt, &t->lost, &own);
    bt_recover_drop_facts(&t->lost);
    if (code == BT_OK || code == BT_NOTFOUND || code == BT_FORMAT) return BT_OK;
    t->ring[0] = '\0'; /* keep the file */
    if (err) *err = own;
    return code;
}

/* The next attempt may have created its own ring file at the path. */
static void remove_ring(const bt_attempt_change *t) {
    struct stat st;
    if (t->ring[0] && stat(t->ring, &st) == 0 && st.st_ino == t->ring_inode) unlink(t->ring);
}

static bt_code finish_attempt_change(sqlite3 *db, const char *path, bt_code code, bt_err *err) {
    if (code == BT_OK) code = bt_sql_exec(db, path, "COMMIT", err);
    if (code != BT_OK && !sqlite3_get_autocommit(db))
        sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    return code;
}

static bt_code end_attempt(bt_attempt_change *t, sqlite3 *db, const char *path, bt_apply *apply,
                           const bt_attempt *at, bt_err *err) {
    if (t->lost && t->lost_attempt == at->attempt) {
        const int rc = bt_apply_again(apply, bt_apply_last_step(apply), t->lost);
        if (rc != SQLITE_OK) return bt_sql_fail(db, rc, path, "write", err);
    }
    bt_records_free(t->lost);
    t->lost = NULL;
    BT_TRY(bt_sql_exec(db, path, "BEGIN IMMEDIATE", err));
    bt_code code = bt_attempt_end(db, path, at, t->state, t->exit_kind, t->exit_code, t->us, err);
    if (code == BT_OK) code = bt_apply_store_times(apply, at->run, err);
    BT_TRY(finish_attempt_change(db, path, code, err));
    remove_ring(t);
    return BT_OK;
}

bt_code bt_attempt_change_apply(bt_attempt_change *t, sqlite3 *db, const char *path,
                                bt_apply *apply, bt_attempt *at, bt_err *err) {
    if (t->ends) return end_attempt(t, db, path, apply, at, err);
    bt_attempt next = {.created_us = at->created_us, .attempt = t->attempt};
    BT_TRY(bt_sql_exec(db, path, "BEGIN IMMEDIATE", err));
    BT_TRY(
        finish_attempt_change(db, path, bt_attempt_follow(db, path, &t->start, &next, err), err));
    const bt_apply_attempt rows = {
        .run = next.run, .aid = next.aid, .from_step = t->start.from_step, .attempt = next.attempt};
    BT_TRY(bt_apply_set_attempt(apply, &rows, err));
    *at = next;
    return BT_OK;
}

/* attempt.c - writes the rows of runs and attempts. */
#include "store/write/attempt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/base/system/pid.h"
#include "store/write/start.h"

typedef struct known_run {
    int64_t id, attempts, pid, created_us, newest_us;
    bool empty; /* neither a step nor a checkpoint is recorded */
    char state[32], host[BT_HOST_MAX];
    char name[BT_NAME_MAX]; /* recorded spelling, because names are unique regardless of case */
} known_run;

static void copy_cell(char *out, size_t size, sqlite3_stmt *st, int i) {
    const char *s = (const char *)sqlite3_column_text(st, i);
    snprintf(out, size, "%s", s ? s : "");
}

static bt_code find_run(sqlite3 *db, const char *path, const char *name, known_run *k,
                        bt_err *err) {
    sqlite3_stmt *st = NULL;
    *k = (known_run){0};
    BT_TRY(bt_sql_prepare(db, path,
                          "SELECT id, n_attempts, pid, state, host, created_us, name, last_step IS "
                          "NULL AND NOT EXISTS (SELECT 1 FROM ckpt WHERE run = id), "
                          "max(created_us, coalesce(last_us, 0), coalesce(ended_us, 0)) FROM run "
                          "WHERE name = ?1 COLLATE NOCASE ORDER BY name <> ?1",
                          &st, err));
    sqlite3_bind_text(st, 1, name, -1, SQLITE_STATIC);
    int rc = sqlite3_step(st);
    if (rc == SQLITE_ROW) {
        k->id = sqlite3_column_int64(st, 0);
        k->attempts = sqlite3_column_int64(st, 1);
        k->pid = sqlite3_column_int64(st, 2);
        copy_cell(k->state, sizeof k->state, st, 3);
        copy_cell(k->host, sizeof k->host, st, 4);
        k->created_us = sqlite3_column_int64(st, 5);
        copy_cell(k->name, sizeof k->name, st, 6);
        k->empty = sqlite3_column_int64(st, 7) != 0;
        k->newest_us = sqlite3_column_int64(st, 8);
    }
    bt_code code = rc == SQLITE_ROW || rc == SQLITE_DONE ? BT_OK
                                                         : bt_sql_fail(db, rc, path, "read", err);
    sqlite3_finalize(st);
    return code;
}

/* True if the process that owns the run is known to have ended. */
static bool owner_has_ended(const bt_run_start *s, const known_run *k) {
    if (strcmp(k->state, "running") != 0) return true;
    return s->host && strcmp(k->host, s->host) == 0 && !bt_pid_lives(k->pid);
}

static bt_code check_may_begin(const bt_run_start *s, const known_run *k, bt_err *err) {
    if (!bt_name_ok(s->name)) {
        return bt_fail(err, BT_ARG,
                       "'%.64s' is not a run name: letters, digits, '.', '_' and '-', at most 64, "
                       "starting with a letter or digit",
                       s->name);
    }
    if (!s->resume && k->id && !(k->empty && owner_has_ended(s, k)))
        return bt_fail(
            err, BT_BUSY,
            "run '%s' exists already (choose another --name, or continue it with --resume %s)",
            k->name, k->name);
    if (s->resume && !k->id) return bt_fail(err, BT_NOTFOUND, "no run '%s' to resume", s->name);
    if (s->resume && strcmp(k->state, "running") == 0 && k->pid != s->pid && s->host &&
        strcmp(k->host, s->host) == 0 && bt_pid_lives(k->pid)) {
        return bt_fail(err, BT_BUSY, "run '%s' is being trained by pid %lld on %s", s->name,
                       (long long)k->pid, k->host);
    }
    return BT_OK;
}

#define TEXTS(...) \
    (const char *const[]) { __VA_ARGS__ }
#define INTS(...) \
    (const int64_t[]) { __VA_ARGS__ }

static bt_code insert_run(sqlite3 *db, const char *path, const bt_run_start *s, int64_t created_us,
                          int64_t *id, bt_err *err) {
    BT_TRY(bt_sql_put_row(db, path,
                          "INSERT INTO run(name, created_us, host, user, pid, build, mpi, note, "
                          "out_dir, world, seed, state) VALUES (?,?,?,?,?,?,?,?,?,?,?,'running')",
                          "tittittttii",
                          TEXTS(s->name, s->host, s->user, s->build, s->mpi, s->note, s->out_dir),
                          INTS(created_us, s->pid, s->world_size, (int64_t)s->seed), err));
    *id = sqlite3_last_insert_rowid(db);
    return bt_sql_put_row(db, path,
                          "INSERT OR REPLACE INTO run_doc(run, argv, config) VALUES (?,?,?)", "itt",
                          TEXTS(s->argv, s->config_json), INTS(*id), err);
}

static bt_code continue_run(sqlite3 *db, const char *path, const bt_run_start *s, int64_t id,
                            int64_t now, bt_err *err) {
    BT_TRY(
        bt_sql_put_row(db, path,
                       "UPDATE attempt SET ended_us = coalesce((SELECT last_us FROM run WHERE id = "
                       "?1), ?2), exit_kind = 'lost' WHERE run = ?1 AND ended_us IS NULL",
                       "ii", NULL, INTS(id, now), err));
    BT_TRY(
        bt_sql_put_row(db, path,
                       "UPDATE run SET state='running', ended_us=NULL, exit_kind=NULL, "
                       "exit_code=NULL, pid=?1, world=?2, host=coalesce(?3, host), rev=rev+1 WHERE "
                       "id=?4",
                       "iiti", TEXTS(s->host), INTS(s->pid, s->world_size, id), err));
    return bt_start_propose(db, path, id, s, err);
}

static bt_code insert_attempt(sqlite3 *db, const char *path, const bt_run_start *s, bt_attempt *a,
                              int64_t now, bt_err *err) {
    a->aid = 1;
    BT_TRY(bt_sql_get(db, path,
                      "SELECT max(value, (SELECT coalesce(max(id), 0) + 1 FROM attempt)) FROM "
                      "meta WHERE key = 'next_aid'",
                      &a->aid, err));
    BT_TRY(bt_sql_put_row(db, path,
                          "INSERT INTO attempt(id, run, attempt, started_us, from_step, live_to, "
                          "world, pid, host, reason) VALUES (?,?,?,?,?,?,?,?,?,?)",
                          "iiiiiiiitt", TEXTS(s->host, s->reason),
                          INTS(a->aid, a->run, a->attempt, now, s->from_step, BT_LIVE_FOREVER,
                               s->world_size, s->pid),
                          err));
    return bt_sql_put_row(db, path, "UPDATE meta SET value = ? WHERE key = 'next_aid'", "i", NULL,
                          INTS(a->aid + 1), err);
}

/* All attempts of a run use one clock, which never goes back. */
static bt_code adopt_run_clock(sqlite3 *db, const char *path, const known_run *k, bt_err *err) {
    sqlite3_stmt *st = NULL;
    BT_TRY(bt_sql_prepare(db, path, "SELECT value FROM fact WHERE run = ? AND key = 'clock'", &st,
                          err));
    sqlite3_bind_int64(st, 1, k->id);
    int rc = sqlite3_step(st);
    bt_clock_join(rc == SQLITE_ROW ? (const char *)sqlite3_column_text(st, 0) : NULL, k->newest_us);
    bt_code code = rc == SQLITE_ROW || rc == SQLITE_DONE ? BT_OK
                                                         : bt_sql_fail(db, rc, path, "read", err);
    sqlite3_finalize(st);
    return code;
}

static bt_code store_clock_name(sqlite3 *db, const char *path, const bt_attempt *a, bt_err *err) {
    char name[BT_CLOCK_NAME];
    return bt_sql_put_row(
        db, path, "INSERT OR REPLACE INTO fact(value, run, attempt, key) VALUES (?,?,?,'clock')",
        "tii", TEXTS(bt_clock_name(name)), INTS(a->run, a->attempt), err);
}

bt_code bt_attempt_begin(sqlite3 *db, const char *path, const bt_run_start *s, bool remember,
                         bt_attempt *a, bt_err *err) {
    known_run k;
    BT_TRY(find_run(db, path, s->name, &k, err));
    BT_TRY(check_may_begin(s, &k, err));
    if (k.id && !s->resume) { /* a start that recorded no step does not reserve the name */
        BT_TRY(
            bt_sql_put_row(db, path, "DELETE FROM run WHERE id = ?", "i", NULL, INTS(k.id), err));
        k = (known_run){0};
    }
    if (!s->started_us && k.id) BT_TRY(adopt_run_clock(db, path, &k, err));
    const int64_t now = s->started_us ? s->started_us : bt_wall_us();
    *a = (bt_attempt){
        .run = k.id, .created_us = k.id ? k.created_us : now, .attempt = (int)k.attempts};
    if (k.id && remember) BT_TRY(bt_start_remember(db, path, k.id, err));
    if (!k.id)
        BT_TRY(insert_run(db, path, s, now, &a->run, err));
    else
        BT_TRY(continue_run(db, path, s, k.id, now, err));
    BT_TRY(insert_attempt(db, path, s, a, now, err));
    if (!s->started_us) BT_TRY(store_clock_name(db, path, a, err));
    return bt_sql_put_row(db, path, "UPDATE run SET n_attempts = n_attempts + 1 WHERE id = ?", "i",
                          NULL, INTS(a->run), err);
}

bt_code bt_attempt_end(sqlite3 *db, const char *path, const bt_attempt *a, const char *state,
                       const char *exit_kind, int exit_code, int64_t now, bt_err *err) {
    BT_TRY(bt_sql_put_row(
        db, path,
        "UPDATE run SET state=?, exit_kind=?, exit_code=?, ended_us=?, rev=rev+1 WHERE id=?",
        "ttiii", TEXTS(state, exit_kind), INTS(exit_code, now, a->run), err));
    return bt_sql_put_row(db, path,
                          "UPDATE attempt SET exit_kind=?, exit_code=?, ended_us=? WHERE id=?",
                          "tiii", TEXTS(exit_kind), INTS(exit_code, now, a->aid), err);
}

bt_code bt_attempt_restore(sqlite3 *db, const char *path, const bt_run_start *s, bt_attempt *a,
                           bt_err *err) {
    known_run k;
    char sql[120];
    BT_TRY(find_run(db, path, s->name, &k, err));
    a->run = k.id;
    BT_TRY(k.id ? bt_start_propose(db, path, k.id, s, err)
                : insert_run(db, path, s, a->created_us, &a->run, err));
    snprintf(sql, sizeof sql, "SELECT id FROM attempt WHERE run = %lld AND attempt = %d",
             (long long)a->run, a->attempt);
    a->aid = 0;
    BT_TRY(bt_sql_get(db, path, sql, &a->aid, err));
    const int64_t began = s->started_us ? s->started_us : bt_wall_us();
    if (!a->aid) BT_TRY(insert_attempt(db, path, s, a, began, err));
    return bt_sql_put_row(
        db, path,
        "UPDATE run SET n_attempts = max(n_attempts, ?), state = 'running', ended_us "
        "= NULL WHERE id = ?",
        "ii", NULL, INTS(a->attempt + 1, a->run), err);
}

bt_code bt_attempt_follow(sqlite3 *db, const char *path, const bt_run_start *s, bt_attempt *a,
                          bt_err *err) {
    known_run k;
    BT_TRY(find_run(db, path, s->name, &k, err));
    if (k.id) BT_TRY(continue_run(db, path, s, k.id, s->started_us, err));
    return bt_attempt_restore(db, path, s, a, err);
}

static const size_t text_fields[] = {
    offsetof(bt_run_start, name),  offsetof(bt_run_start, reason),
    offsetof(bt_run_start, argv),  offsetof(bt_run_start, config_json),
    offsetof(bt_run_start, host),  offsetof(bt_run_start, user),
    offsetof(bt_run_start, build), offsetof(bt_run_start, mpi),
    offsetof(bt_run_start, note),  offsetof(bt_run_start, out_dir),
};
enum { N_TEXTS = sizeof text_fields / sizeof text_fields[0] };

static const char **run_start_field(bt_run_start *s, size_t i) {
    return (const char **)(void *)((char *)s + text_fields[i]);
}

bt_code bt_run_start_copy(bt_run_start *out, const bt_run_start *s, bt_err *err) {
    *out = *s;
    for (size_t i = 0; i < N_TEXTS; i++) *run_start_field(out, i) = NULL;
    for (size_t i = 0; i < N_TEXTS; i++) {
        const char *text = *run_start_field((bt_run_start *)s, i);
        if (!text) continue;
        *run_start_field(out, i) = strdup(text);
        if (!*run_start_field(out, i)) {
            bt_run_start_release(out);
            return bt_fail(err, BT_NOMEM, "cannot write metrics: out of memory");
        }
    }
    return BT_OK;
}

void bt_run_start_release(bt_run_start *s) {
    for (size_t i = 0; i < N_TEXTS; i++) free((void *)*run_start_field(s, i));
    *s = (bt_run_start){0};
}

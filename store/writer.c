/* writer.c - the one writer of this process: begin and end of attempts, and the thread that commits what the sink queued.
 *
 * The thread commits at once when the last commit is 50 ms old, else when it has become so: each step up to 20 steps/s.
 * A failed transaction (locked by a foreign program, disk full, I/O error) keeps its records at the front of the queue and
 * is tried again, at first after 20 ms, at last every second: training never waits and never dies for its records. */
#include "store/store.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "store/apply.h"
#include "store/retain.h"

enum { QUEUE_BYTES = 64 << 20, BATCH_BYTES = 8 << 20, WAL_PAGES_IDLE = 1024, WAL_PAGES_BUSY = 16384 };
static const int64_t PACE_NS = 50000000, RETRY_NS = 20000000, RETRY_MAX_NS = 1000000000, BUSY_PATIENCE_NS = 30000000000;

struct bt_writer {
    char path[BT_PATH_BYTES];
    double lock_wait_s;
    pthread_mutex_t db_mu;              /* guards what follows, up to the thread */
    sqlite3 *db;
    bt_lock lock;
    bt_apply *apply;
    int64_t run, aid;                   /* 0: no attempt is open */
    bool past;                          /* records of another time: the attempt ends with its last step, not now */
    bool retain;                        /* there may be rank rows too old to keep */
    int wal_pages;                      /* in the log after the newest commit */
    bt_err trouble;                     /* why the newest transaction failed; BT_OK: it did not */
    pthread_t thread;
    bool running;
    bt_queue q;
    bt_sink sink;
    _Atomic int64_t committed;
    _Atomic uint64_t skipped;
};

/* ---- the thread ---- */

static int on_wal(void *ctx, sqlite3 *db, const char *name, int pages) {
    (void)db;
    (void)name;
    ((bt_writer *)ctx)->wal_pages = pages;
    return SQLITE_OK;
}

static void checkpoint(bt_writer *w, int mode, double wait_s) {
    bt_err ignored;
    if (bt_lock_take(&w->lock, wait_s, &ignored) != BT_OK) return;
    sqlite3_wal_checkpoint_v2(w->db, NULL, mode, NULL, NULL);   /* what readers still need stays for the next time */
    bt_lock_drop(&w->lock);
    w->wal_pages = 0;
}

static bt_code commit(bt_writer *w, bt_record *list) {
    bt_err err = BT_ERR_INIT;
    uint64_t dropped = bt_queue_dropped(&w->q);
    pthread_mutex_lock(&w->db_mu);
    bt_code code = w->aid ? bt_lock_take(&w->lock, 1.0, &err) : BT_OK;
    if (code == BT_OK && w->aid) {      /* records outside an attempt belong to nobody */
        int rc = bt_apply_transaction(w->apply, list, dropped);
        if (rc != SQLITE_OK) code = bt_sql_fail(w->db, rc, w->path, "write", &err);
        bt_lock_drop(&w->lock);
    }
    if (code == BT_OK && w->trouble.code != BT_OK) bt_log(BT_LOG_INFO, "metrics database writes again");
    if (code != BT_OK && w->trouble.code != code) bt_log(BT_LOG_WARN, "metrics wait in memory: %s", err.msg);
    w->trouble = err;
    w->trouble.code = code;
    if (code == BT_OK) {
        int64_t before = atomic_exchange(&w->committed, bt_apply_last_step(w->apply));
        if (bt_apply_last_step(w->apply) / BT_RETAIN_CHUNK != before / BT_RETAIN_CHUNK) w->retain = true;
        atomic_store(&w->skipped, bt_apply_skipped(w->apply));
    }
    if (w->wal_pages > WAL_PAGES_BUSY) checkpoint(w, SQLITE_CHECKPOINT_PASSIVE, 0);
    pthread_mutex_unlock(&w->db_mu);
    return code;
}

/* what waits for a quiet moment: the log back into the file, and one chunk of old rank rows */
static void tidy(bt_writer *w) {
    bt_err ignored;
    int64_t rows = 0;
    pthread_mutex_lock(&w->db_mu);      /* nothing to do: two comparisons */
    if (w->wal_pages > WAL_PAGES_IDLE) checkpoint(w, SQLITE_CHECKPOINT_PASSIVE, 0);
    if (w->retain && w->aid && bt_lock_take(&w->lock, 0, &ignored) == BT_OK) {
        if (bt_retain_chunk(w->db, w->aid, bt_apply_last_step(w->apply), &w->retain, &rows) != SQLITE_OK) w->retain = false;
        bt_lock_drop(&w->lock);
    }
    pthread_mutex_unlock(&w->db_mu);
}

static void wait_until(bt_queue *q, int64_t ns) {       /* q->mu is held */
    struct timespec t = {ns / 1000000000, ns % 1000000000};
    pthread_cond_timedwait(&q->work, &q->mu, &t);
}

/* sleeps until there is something to write; false: stop, and nothing is left */
static bool await_work(bt_writer *w, int64_t not_before) {
    bt_queue *q = &w->q;
    pthread_mutex_lock(&q->mu);
    while (!q->head && !q->stop) {
        q->sleeping = true;
        wait_until(q, bt_now_ns() + 200000000);
        q->sleeping = false;
        if (q->head || q->stop) break;
        pthread_mutex_unlock(&q->mu);
        tidy(w);
        pthread_mutex_lock(&q->mu);
    }
    while (!q->hurry && !q->stop && bt_now_ns() < not_before) wait_until(q, not_before);
    bool more = q->head != NULL;
    pthread_mutex_unlock(&q->mu);
    return more;
}

static void *write_loop(void *arg) {
    bt_writer *w = arg;
    int64_t not_before = 0, pause = RETRY_NS;
    while (await_work(w, not_before)) {
        bt_record *list = bt_queue_take(&w->q, BATCH_BYTES);
        if (!list) continue;
        not_before = bt_now_ns() + PACE_NS;
        if (commit(w, list) == BT_OK) {
            bt_records_free(list);
            bt_queue_done(&w->q);
            pause = RETRY_NS;
            if (!w->q.hurry) tidy(w);
            continue;
        }
        bt_queue_untake(&w->q, list);
        pthread_mutex_lock(&w->q.mu);
        bool stop = w->q.stop;
        int64_t until = bt_now_ns() + pause;
        while (!w->q.stop && bt_now_ns() < until) wait_until(&w->q, until);
        pthread_mutex_unlock(&w->q.mu);
        pause = pause * 2 < RETRY_MAX_NS ? pause * 2 : RETRY_MAX_NS;
        if (stop) break;                /* told to stop while the disk does not take it: close() has waited long enough */
    }
    return NULL;
}

static bt_code start_thread(bt_writer *w, bt_err *err) {
    sigset_t all, old;
    if (w->running) return BT_OK;
    sigfillset(&all);                   /* signals belong to the main thread */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(&w->thread, NULL, write_loop, w);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc != 0) return bt_fail_errno(err, BT_NOMEM, rc, "cannot start the thread that writes metrics");
    w->running = true;
    return BT_OK;
}

/* ---- open ---- */

static bt_code open_database(bt_writer *w, bt_err *err) {
    BT_TRY(bt_sql_open_rw(&w->db, w->path, err));
    BT_TRY(bt_lock_open(&w->lock, w->path, err));
    BT_TRY(bt_lock_take(&w->lock, w->lock_wait_s, err));
    bt_code code = bt_schema_apply(w->db, w->path, err);
    if (code == BT_OK) code = bt_apply_open(&w->apply, w->db, w->path, err);
    bt_lock_drop(&w->lock);
    sqlite3_wal_hook(w->db, on_wal, w);
    return code;
}

bt_code bt_writer_open(bt_writer **out, const char *path, double lock_wait_s, bt_err *err) {
    *out = NULL;
    bt_writer *w = calloc(1, sizeof *w);
    if (!w) return bt_fail(err, BT_NOMEM, "cannot write metrics: out of memory");
    snprintf(w->path, sizeof w->path, "%s", path);
    w->lock_wait_s = lock_wait_s;
    w->lock.fd = -1;
    atomic_store(&w->committed, -1);
    pthread_mutex_init(&w->db_mu, NULL);
    bt_code code = bt_queue_init(&w->q, QUEUE_BYTES) ? BT_OK : bt_fail(err, BT_NOMEM, "cannot write metrics: out of memory");
    if (code == BT_OK) code = open_database(w, err);
    if (code == BT_OK) code = start_thread(w, err);
    if (code != BT_OK) {
        bt_writer_close(w);
        return code;
    }
    bt_queue_sink(&w->q, &w->sink);
    *out = w;
    return BT_OK;
}

/* ---- begin ---- */

typedef struct known_run { int64_t id, attempts, pid; char state[32], host[BT_HOST_MAX]; } known_run;

static void copy_cell(char *out, size_t size, sqlite3_stmt *st, int i) {
    const char *s = (const char *)sqlite3_column_text(st, i);
    snprintf(out, size, "%s", s ? s : "");
}

static bt_code find_run(bt_writer *w, const char *name, known_run *k, bt_err *err) {
    sqlite3_stmt *st = NULL;
    *k = (known_run){0};
    BT_TRY(bt_sql_prepare(w->db, w->path, "SELECT id, n_attempts, pid, state, host FROM run WHERE name = ?", &st, err));
    sqlite3_bind_text(st, 1, name, -1, SQLITE_STATIC);
    int rc = sqlite3_step(st);
    if (rc == SQLITE_ROW) {
        k->id = sqlite3_column_int64(st, 0);
        k->attempts = sqlite3_column_int64(st, 1);
        k->pid = sqlite3_column_int64(st, 2);
        copy_cell(k->state, sizeof k->state, st, 3);
        copy_cell(k->host, sizeof k->host, st, 4);
    }
    bt_code code = rc == SQLITE_ROW || rc == SQLITE_DONE ? BT_OK : bt_sql_fail(w->db, rc, w->path, "read", err);
    sqlite3_finalize(st);
    return code;
}

static bt_code may_begin(const bt_run_start *s, const known_run *k, bt_err *err) {
    if (!bt_name_ok(s->name)) {
        return bt_fail(err, BT_ARG, "'%.64s' is not a run name: lower-case letters, digits, '.', '_' and '-', at most 63, starting with a letter or digit", s->name);
    }
    if (!s->resume && k->id) return bt_fail(err, BT_BUSY, "run '%s' exists already (choose another --name, or continue it with --resume %s)", s->name, s->name);
    if (s->resume && !k->id) return bt_fail(err, BT_NOTFOUND, "no run '%s' to resume", s->name);
    if (s->resume && strcmp(k->state, "running") == 0 && k->pid > 0 && k->pid != s->pid && s->host && strcmp(k->host, s->host) == 0
        && (kill((pid_t)k->pid, 0) == 0 || errno == EPERM)) {
        return bt_fail(err, BT_BUSY, "run '%s' is being trained by pid %lld on %s", s->name, (long long)k->pid, k->host);
    }
    return BT_OK;
}

/* binds (name = value)... in order: 't' text, 'i' int64, 'n' NULL text allowed */
static bt_code put_row(bt_writer *w, const char *sql, const char *types, const char *const *texts, const int64_t *ints, bt_err *err) {
    sqlite3_stmt *st = NULL;
    BT_TRY(bt_sql_prepare(w->db, w->path, sql, &st, err));
    for (int i = 0; types[i]; i++) {
        if (types[i] == 'i') sqlite3_bind_int64(st, i + 1, *ints++);
        else {
            const char *t = *texts++;
            if (t) sqlite3_bind_text(st, i + 1, t, -1, SQLITE_STATIC);
        }
    }
    int rc = sqlite3_step(st);
    bt_code code = rc == SQLITE_DONE ? BT_OK : bt_sql_fail(w->db, rc, w->path, "write", err);
    sqlite3_finalize(st);
    return code;
}

static bt_code begin_rows(bt_writer *w, const bt_run_start *s, int *attempt, bt_err *err) {
    known_run k;
    int64_t now = s->started_us ? s->started_us : bt_wall_us();
    BT_TRY(find_run(w, s->name, &k, err));
    BT_TRY(may_begin(s, &k, err));
    if (!k.id) {
        BT_TRY(put_row(w, "INSERT INTO run(name, created_us, host, user, pid, build, mpi, note, out_dir, world, seed, state) VALUES (?,?,?,?,?,?,?,?,?,?,?,'running')",
                       "titti" "ttttii", (const char *[]){s->name, s->host, s->user, s->build, s->mpi, s->note, s->out_dir},
                       (const int64_t[]){now, s->pid, s->world_size, (int64_t)s->seed}, err));
        k.id = sqlite3_last_insert_rowid(w->db);
        BT_TRY(put_row(w, "INSERT INTO run_doc(run, argv, config) VALUES (?,?,?)", "itt", (const char *[]){s->argv, s->config_json}, (const int64_t[]){k.id}, err));
    } else {
        BT_TRY(put_row(w, "UPDATE attempt SET ended_us = coalesce((SELECT last_us FROM run WHERE id = ?1), ?2), exit_kind = 'lost' WHERE run = ?1 AND ended_us IS NULL",
                       "ii", NULL, (const int64_t[]){k.id, now}, err));
        BT_TRY(put_row(w, "UPDATE run SET state='running', ended_us=NULL, exit_kind=NULL, exit_code=NULL, pid=?1, world=?2, host=coalesce(?3, host),"
                       " build=coalesce(?4, build), mpi=coalesce(?5, mpi), out_dir=coalesce(?6, out_dir), note=coalesce(nullif(?7, ''), note), rev=rev+1 WHERE id=?8",
                       "iittttti", (const char *[]){s->host, s->build, s->mpi, s->out_dir, s->note}, (const int64_t[]){s->pid, s->world_size, k.id}, err));
        BT_TRY(put_row(w, "UPDATE run_doc SET argv=coalesce(?1, argv), config=coalesce(?2, config) WHERE run=?3", "tti",
                       (const char *[]){s->argv, s->config_json}, (const int64_t[]){k.id}, err));
    }
    w->aid = bt_sql_int(w->db, "SELECT value FROM meta WHERE key = 'next_aid'", 1);
    BT_TRY(put_row(w, "INSERT INTO attempt(id, run, attempt, started_us, from_step, live_to, world, pid, host, reason) VALUES (?,?,?,?,?,?,?,?,?,?)", "iiiiiiiitt",
                   (const char *[]){s->host, s->reason}, (const int64_t[]){w->aid, k.id, k.attempts, now, s->from_step, BT_LIVE_FOREVER, s->world_size, s->pid}, err));
    BT_TRY(put_row(w, "UPDATE meta SET value = ? WHERE key = 'next_aid'", "i", NULL, (const int64_t[]){w->aid + 1}, err));
    w->run = k.id;
    w->past = s->started_us != 0;
    *attempt = (int)k.attempts;
    return put_row(w, "UPDATE run SET n_attempts = n_attempts + 1 WHERE id = ?", "i", NULL, (const int64_t[]){k.id}, err);
}

/* BEGIN IMMEDIATE under the lock file, waiting lock_wait_s for foreign programs too */
static bt_code enter(bt_writer *w, bt_err *err) {
    int64_t deadline = bt_now_ns() + (int64_t)(w->lock_wait_s * 1e9);
    for (;;) {
        BT_TRY(bt_lock_take(&w->lock, w->lock_wait_s, err));
        bt_code code = bt_sql_exec(w->db, w->path, "BEGIN IMMEDIATE", err);
        if (code == BT_OK) return BT_OK;
        bt_lock_drop(&w->lock);
        if (code != BT_BUSY || bt_now_ns() >= deadline) return code;
    }
}

static bt_code leave(bt_writer *w, bt_code code, bt_err *err) {
    if (code == BT_OK) code = bt_sql_exec(w->db, w->path, "COMMIT", err);
    if (code != BT_OK && !sqlite3_get_autocommit(w->db)) sqlite3_exec(w->db, "ROLLBACK", NULL, NULL, NULL);
    bt_lock_drop(&w->lock);
    return code;
}

bt_code bt_writer_begin(bt_writer *w, const bt_run_start *s, int *attempt, bt_err *err) {
    if (w->aid) return bt_fail(err, BT_ARG, "an attempt is open already");
    pthread_mutex_lock(&w->db_mu);
    bt_code code = enter(w, err);
    if (code == BT_OK) code = leave(w, begin_rows(w, s, attempt, err), err);
    if (code == BT_OK) {
        bt_apply_attempt at = {.run = w->run, .aid = w->aid, .from_step = s->from_step, .attempt = *attempt};
        code = bt_apply_set_attempt(w->apply, &at, err);
    } else w->aid = w->run = 0;
    atomic_store(&w->committed, -1);
    pthread_mutex_unlock(&w->db_mu);
    return code;
}

const bt_sink *bt_writer_sink(bt_writer *w) { return &w->sink; }
int64_t bt_writer_committed_step(const bt_writer *w) { return atomic_load(&w->committed); }
uint64_t bt_writer_dropped(const bt_writer *w) { return bt_queue_dropped((bt_queue *)&w->q) + atomic_load(&w->skipped); }

/* ---- flush, end, close ---- */

static bt_code trouble_of(bt_writer *w, bt_err *err) {
    pthread_mutex_lock(&w->db_mu);
    bt_code code = w->trouble.code;
    if (err && code != BT_OK) *err = w->trouble;
    pthread_mutex_unlock(&w->db_mu);
    return code;
}

bt_code bt_writer_flush(bt_writer *w, bt_err *err) {
    int64_t start = bt_now_ns(), patience = (int64_t)((w->lock_wait_s > 1 ? w->lock_wait_s : 1) * 1e9);
    bt_code code = BT_OK;
    bt_queue_set(&w->q, &w->q.hurry, true);
    while (!bt_queue_wait_drained(&w->q, 50000000)) {
        code = trouble_of(w, err);
        int64_t spent = bt_now_ns() - start;
        if (code == BT_OK) start = bt_now_ns();        /* it moves */
        else if (spent > (code == BT_BUSY ? BUSY_PATIENCE_NS : patience)) break;
        code = BT_OK;
    }
    bt_queue_set(&w->q, &w->q.hurry, false);
    return code;
}

bt_code bt_writer_end(bt_writer *w, const char *state, const char *exit_kind, int exit_code, bt_err *err) {
    if (!w->aid) return BT_OK;
    bt_code flushed = bt_writer_flush(w, err);
    bt_err own = BT_ERR_INIT;
    pthread_mutex_lock(&w->db_mu);
    int64_t now = w->past && bt_apply_last_us(w->apply) >= 0 ? bt_apply_last_us(w->apply) : bt_wall_us();
    bt_code code = enter(w, &own);
    if (code == BT_OK) {
        code = put_row(w, "UPDATE run SET state=?, exit_kind=?, exit_code=?, ended_us=?, rev=rev+1 WHERE id=?", "ttiii",
                       (const char *[]){state, exit_kind}, (const int64_t[]){exit_code, now, w->run}, &own);
        if (code == BT_OK) {
            code = put_row(w, "UPDATE attempt SET exit_kind=?, exit_code=?, ended_us=? WHERE id=?", "tiii", (const char *[]){exit_kind},
                           (const int64_t[]){exit_code, now, w->aid}, &own);
        }
        code = leave(w, code, &own);
    }
    w->run = w->aid = 0;
    pthread_mutex_unlock(&w->db_mu);
    if (flushed != BT_OK) return flushed;
    if (code != BT_OK && err) *err = own;
    return code;
}

void bt_writer_close(bt_writer *w) {
    if (!w) return;
    bt_err ignored;
    if (w->running) {
        if (w->aid && bt_writer_flush(w, &ignored) != BT_OK) bt_log(BT_LOG_WARN, "metrics were lost at the end: %s", ignored.msg);
        bt_queue_set(&w->q, &w->q.stop, true);
        pthread_join(w->thread, NULL);
    }
    bt_apply_close(w->apply);
    if (w->db && w->running) checkpoint(w, SQLITE_CHECKPOINT_TRUNCATE, 0.2);
    sqlite3_close(w->db);
    bt_lock_close(&w->lock);
    bt_queue_release(&w->q);
    pthread_mutex_destroy(&w->db_mu);
    free(w);
}

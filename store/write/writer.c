/* writer.c - the only writer of this process: begin and end of attempts, and the thread that commits queued records.
 *
 * The thread commits 50 ms after the previous commit: each step up to 20 steps/s. A failed transaction (locked by
 * another program, disk full, I/O error) keeps its records at the front of the queue and is repeated, first after 20
 * ms, finally every second. Training never waits for the database and never fails because of it. */
#include "store/store.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "store/ledger/ledger.h"
#include "store/record/ring.h"
#include "store/write/apply.h"
#include "store/write/attempt.h"
#include "store/write/attempt_change.h"
#include "store/write/recover.h"
#include "store/write/rescue.h"
#include "store/write/retain.h"
#include "store/write/start.h"

enum { QUEUE_BYTES = 64 << 20, BATCH_BYTES = 8 << 20 };
enum { WAL_PAGES_IDLE = 1024, WAL_PAGES_BUSY = 16384 };
static const int64_t PACE_NS = 50000000, RETRY_NS = 20000000, RETRY_MAX_NS = 1000000000,
                     BUSY_PATIENCE_NS = 30000000000, RESCUE_PAUSE_NS = 5000000000;

struct bt_writer {
    char path[BT_PATH_BYTES];
    double lock_wait_s;
    pthread_mutex_t db_mu; /* guards the following fields, up to the thread */
    sqlite3 *db;
    bt_lock lock;
    bt_apply *apply;
    bt_attempt at;      /* aid 0: no attempt is open */
    bool over;          /* the attempt has ended, and no other has begun */
    bt_run_start start; /* copy, in case the file must be created again */
    int64_t remembered; /* run whose rows were remembered when it was resumed (start.h); 0: none */
    int64_t rescued_ns; /* time of the last rescue */
    bool past;          /* records of the past: the attempt ends with its last step, not now */
    bool retain;        /* some rank rows may be too old to keep */
    int wal_pages;      /* pages in the log after the newest commit */
    bt_err trouble;     /* error of the newest transaction, or BT_OK */
    pthread_t thread;
    bool running;
    bt_ring *ring; /* set by bt_writer_keep; NULL: none */
    char ring_path[BT_PATH_BYTES];
    bt_queue q;
    bt_sink sink;
    _Atomic int64_t committed;
    _Atomic uint64_t skipped;
};

/* ---- the thread ---- */

static int remember_wal_pages(void *ctx, sqlite3 *db, const char *name, int pages) {
    (void)db;
    (void)name;
    ((bt_writer *)ctx)->wal_pages = pages;
    return SQLITE_OK;
}

static void checkpoint_log(bt_writer *w, int mode, double wait_s) {
    bt_err ignored;
    if (bt_lock_take(&w->lock, wait_s, &ignored) != BT_OK) return;
    /* A cut log must not be copied into the file: the next transaction rescues the data. Frames that readers still
     * need are copied later. */
    if (bt_rescue_examine(w->db, w->path) == BT_UNDAMAGED)
        sqlite3_wal_checkpoint_v2(w->db, NULL, mode, NULL, NULL);
    bt_lock_drop(&w->lock);
    w->wal_pages = 0;
}

/* Directs the following records to this attempt. */
static bt_code set_open_attempt(bt_writer *w, const bt_attempt *a, int64_t from_step, bt_err *err) {
    bt_apply_attempt at = {
        .run = a->run, .aid = a->aid, .from_step = from_step, .attempt = a->attempt};
    BT_TRY(bt_apply_set_attempt(w->apply, &at, err));
    w->at = *a;
    return BT_OK;
}

static bt_code connect_again(bt_writer *w, bt_err *err);

/* Copies all rows through the open connection or, if that fails, rescues the readable rows or creates a new database.
 * Closes the connection. */
static bt_code rescue_rows(bt_writer *w, bt_damage what, bt_rescue_result *r, bool *whole,
                           bt_err *err) {
    struct stat st;
    bool kept = false;
    *whole = what != BT_ROWS_BAD && bt_rescue_snapshot(w->db, w->path);
    bt_apply_close(w->apply);
    sqlite3_close(w->db);
    w->apply = NULL;
    w->db = NULL;
    w->remembered =
        0; /* the temporary tables with the remembered rows were closed with the connection */
    if (*whole && bt_rescue_install(w->path, r, &kept, err) == BT_OK) {
        *whole = !kept;
        return BT_OK;
    }
    *whole = false;
    /* If the file was removed and there is one again, another run has created it. */
    return what != BT_FILE_GONE || stat(w->path, &st) != 0 ? bt_rescue(w->path, NULL, r, err)
                                                           : BT_OK;
}

/* Replaces a damaged or missing file by a new one with the rescued rows. Requires the lock file. */
static bt_code replace_database(bt_writer *w, bt_damage what, bt_err *err) {
    bt_rescue_result r = {0};
    bt_attempt a = w->at;
    bool whole = false;
    if (w->rescued_ns && bt_now_ns() - w->rescued_ns < RESCUE_PAUSE_NS)
        return bt_fail(err, BT_FORMAT, "metrics database '%s' was damaged again", w->path);
    w->rescued_ns = bt_now_ns();
    BT_TRY(rescue_rows(w, what, &r, &whole, err));
    BT_TRY(connect_again(w, err));
    BT_TRY(bt_sql_exec(w->db, w->path, "BEGIN IMMEDIATE", err));
    char title[2 * BT_PATH_BYTES + 200];
    bt_rescue_describe(title, sizeof title, what, whole, &r);
    bt_code code = bt_attempt_restore(w->db, w->path, &w->start, &a, err);
    if (code == BT_OK) {
        code = bt_sql_put_row(
            w->db, w->path,
            "INSERT INTO event(run, aid, t_us, kind, level, title) VALUES (?,?,?,'warning',2,?)",
            "iiit", (const char *const[]){title}, (const int64_t[]){a.run, a.aid, bt_wall_us()},
            err);
    }
    if (code == BT_OK) code = bt_sql_exec(w->db, w->path, "COMMIT", err);
    if (code != BT_OK && !sqlite3_get_autocommit(w->db))
        sqlite3_exec(w->db, "ROLLBACK", NULL, NULL, NULL);
    if (code == BT_OK) bt_log(BT_LOG_ERROR, "%s", title);
    if (code == BT_OK) code = set_open_attempt(w, &a, w->start.from_step, err);
    if (code == BT_OK) bt_apply_reread(w->apply);
    return code;
}

/* Executes one transaction under the lock file, in the current file or, if it is lost, in a new one. */
static bt_code write_records(bt_writer *w, const bt_record *list, uint64_t dropped, bt_err *err) {
    bt_damage what = bt_rescue_examine(w->db, w->path);
    int rc = what ? SQLITE_OK : bt_apply_transaction(w->apply, list, dropped);
    if (!what && rc == SQLITE_OK) return BT_OK;
    if (!what && !bt_rescue_wanted(rc)) return bt_sql_fail(w->db, rc, w->path, "write", err);
    BT_TRY(replace_database(w, what ? what : BT_ROWS_BAD, err));
    rc = bt_apply_transaction(w->apply, list, dropped);
    return rc == SQLITE_OK ? BT_OK : bt_sql_fail(w->db, rc, w->path, "write", err);
}

/* Requires the lock file. */
static bt_code write_attempt_change(bt_writer *w, bt_attempt_change *t, bt_err *err) {
    const bt_damage what = bt_rescue_examine(w->db, w->path);
    if (what) BT_TRY(replace_database(w, what, err));
    bt_code code = bt_attempt_change_apply(t, w->db, w->path, w->apply, &w->at, err);
    if (code == BT_FORMAT) {
        BT_TRY(replace_database(w, BT_ROWS_BAD, err));
        code = bt_attempt_change_apply(t, w->db, w->path, w->apply, &w->at, err);
    }
    BT_TRY(code);
    w->over = t->ends;
    if (t->ends) return BT_OK;
    bt_run_start_release(&w->start);
    w->start = t->start; /* the record is freed without its copy of the start */
    t->start = (bt_run_start){0};
    return BT_OK;
}

/* Stores a list: a change of attempts alone, the records between two changes in one transaction. *list keeps the
 * records that were not stored. */
static bt_code store_records(bt_writer *w, bt_record **list, uint64_t dropped, bt_err *err) {
    while (*list) {
        bt_record *last = *list;
        bt_attempt_change *turn = bt_attempt_change_of(last);
        while (!turn && last->next && !bt_attempt_change_of(last->next)) last = last->next;
        bt_record *rest = last->next;
        last->next = NULL;
        const bt_code code = turn ? write_attempt_change(w, turn, err)
                                  : write_records(w, *list, dropped, err);
        last->next = rest;
        BT_TRY(code);
        last->next = NULL;
        bt_attempt_changes_free(*list);
        *list = rest;
    }
    return BT_OK;
}

/* *list keeps the records that were not stored. */
static bt_code commit_records(bt_writer *w, bt_record **list) {
    bt_err err = BT_ERR_INIT;
    uint64_t dropped = bt_queue_dropped(&w->q);
    pthread_mutex_lock(&w->db_mu);
    const bool open = w->at.aid != 0;
    bt_code code = open ? bt_lock_take(&w->lock, 1.0, &err) : BT_OK;
    if (code == BT_OK && open) {
        /* An earlier attempt to create a new file was interrupted. */
        if (!w->apply) code = connect_again(w, &err);
        if (code == BT_OK) code = store_records(w, list, dropped, &err);
        bt_lock_drop(&w->lock);
    }
    if (!open) { /* records outside of an attempt are dropped */
        bt_attempt_changes_free(*list);
        *list = NULL;
    }
    if (code == BT_OK && w->trouble.code != BT_OK)
        bt_log(BT_LOG_WARN, "the metrics database takes records again");
    if (code != BT_OK && w->trouble.code != code)
        bt_log(BT_LOG_WARN, "metrics wait in memory: %s", err.msg);
    w->trouble = err;
    w->trouble.code = code;
    if (code == BT_OK && w->apply) {
        int64_t before = atomic_exchange(&w->committed, bt_apply_last_step(w->apply));
        if (bt_apply_last_step(w->apply) / BT_RETAIN_CHUNK != before / BT_RETAIN_CHUNK)
            w->retain = true;
        atomic_store(&w->skipped, bt_apply_skipped(w->apply));
    }
    if (w->db && w->wal_pages > WAL_PAGES_BUSY) checkpoint_log(w, SQLITE_CHECKPOINT_PASSIVE, 0);
    pthread_mutex_unlock(&w->db_mu);
    return code;
}

/* Idle work: copies the log into the file and deletes one chunk of old rank rows. */
static void do_idle_work(bt_writer *w) {
    bt_err ignored;
    int64_t rows = 0;
    pthread_mutex_lock(&w->db_mu);
    if (w->db && w->wal_pages > WAL_PAGES_IDLE) checkpoint_log(w, SQLITE_CHECKPOINT_PASSIVE, 0);
    if (w->retain && w->apply && w->at.aid && bt_lock_take(&w->lock, 0, &ignored) == BT_OK) {
        if (bt_retain_chunk(w->db, w->at.aid, bt_apply_last_step(w->apply), &w->retain, &rows) !=
            SQLITE_OK)
            w->retain = false;
        bt_lock_drop(&w->lock);
    }
    pthread_mutex_unlock(&w->db_mu);
}

static void wait_on_queue_until(bt_queue *q, int64_t ns) { /* requires q->mu */
    struct timespec t = {ns / 1000000000, ns % 1000000000};
    pthread_cond_timedwait(&q->work, &q->mu, &t);
}

/* Sleeps until there is something to write; returns false at the stop if nothing is left. */
static bool wait_for_records(bt_writer *w, int64_t not_before) {
    bt_queue *q = &w->q;
    pthread_mutex_lock(&q->mu);
    while (!q->head && !q->stop) {
        q->sleeping = true;
        wait_on_queue_until(q, bt_now_ns() + 200000000);
        q->sleeping = false;
        if (q->head || q->stop) break;
        pthread_mutex_unlock(&q->mu);
        do_idle_work(w);
        pthread_mutex_lock(&q->mu);
    }
    while (!q->flush_requested && !q->stop && bt_now_ns() < not_before)
        wait_on_queue_until(q, not_before);
    bool more = q->head != NULL;
    pthread_mutex_unlock(&q->mu);
    return more;
}

static bool is_flush_requested(bt_queue *q) {
    pthread_mutex_lock(&q->mu);
    bool yes = q->flush_requested || q->stop;
    pthread_mutex_unlock(&q->mu);
    return yes;
}

static void *write_loop(void *arg) {
    bt_writer *w = arg;
    int64_t not_before = 0, pause = RETRY_NS;
    while (wait_for_records(w, not_before)) {
        bt_record *list = bt_queue_take(&w->q, BATCH_BYTES);
        if (!list) continue;
        not_before = bt_now_ns() + PACE_NS;
        if (commit_records(w, &list) == BT_OK) {
            bt_queue_done(&w->q);
            pause = RETRY_NS;
            if (!is_flush_requested(&w->q)) do_idle_work(w);
            continue;
        }
        bt_queue_requeue(&w->q, list);
        pthread_mutex_lock(&w->q.mu);
        bool stop = w->q.stop;
        int64_t until = bt_now_ns() + pause;
        while (!w->q.stop && bt_now_ns() < until) wait_on_queue_until(&w->q, until);
        pthread_mutex_unlock(&w->q.mu);
        pause = pause * 2 < RETRY_MAX_NS ? pause * 2 : RETRY_MAX_NS;
        /* The disk refuses data after a stop was requested, and close() has waited long enough. */
        if (stop) break;
    }
    return NULL;
}

static bt_code start_thread(bt_writer *w, bt_err *err) {
    sigset_t all, old;
    if (w->running) return BT_OK;
    sigfillset(&all); /* only the main thread handles signals */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(&w->thread, NULL, write_loop, w);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc != 0)
        return bt_fail_errno(err, BT_NOMEM, rc, "cannot start the thread that writes metrics");
    w->running = true;
    return BT_OK;
}

/* ---- open ---- */

/* Requires the lock file. */
static bt_code connect_again(bt_writer *w, bt_err *err) {
    if (!w->db) BT_TRY(bt_sql_open_rw(&w->db, w->path, err));
    BT_TRY(bt_schema_apply(w->db, w->path, err));
    BT_TRY(bt_ledger_store_missing(w->db, w->path, err));
    if (!w->apply) BT_TRY(bt_apply_open(&w->apply, w->db, w->path, err));
    sqlite3_wal_hook(w->db, remember_wal_pages, w);
    return BT_OK;
}

static bt_code open_database(bt_writer *w, bt_err *err) {
    BT_TRY(bt_sql_open_rw(&w->db, w->path, err)); /* creates the folders for the lock file */
    BT_TRY(bt_lock_open(&w->lock, w->path, err));
    BT_TRY(bt_lock_take(&w->lock, w->lock_wait_s, err));
    bt_code code = connect_again(w, err);
    bt_lock_drop(&w->lock);
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
    bt_code code = bt_queue_init(&w->q, QUEUE_BYTES)
                       ? BT_OK
                       : bt_fail(err, BT_NOMEM, "cannot write metrics: out of memory");
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

/* Takes the lock file and begins a transaction; waits at most lock_wait_s for this and for other programs. */
static bt_code begin_immediate(bt_writer *w, bt_err *err) {
    int64_t deadline = bt_now_ns() + (int64_t)(w->lock_wait_s * 1e9);
    for (bool named = false;; named = true) {
        BT_TRY(bt_lock_take(&w->lock, w->lock_wait_s, err));
        bt_code code = w->apply ? BT_OK : connect_again(w, err);
        const bt_damage what = code == BT_OK ? bt_rescue_examine(w->db, w->path) : BT_UNDAMAGED;
        if (what && w->at.aid) code = replace_database(w, what, err);
        if (code == BT_OK) code = bt_sql_exec(w->db, w->path, "BEGIN IMMEDIATE", err);
        if (code == BT_OK) return BT_OK;
        bt_lock_drop(&w->lock);
        if (code != BT_BUSY || bt_now_ns() >= deadline) return code;
        if (!named) bt_log(BT_LOG_WARN, "waiting for a program that has locked '%s'", w->path);
    }
}

static bt_code end_transaction(bt_writer *w, bt_code code, bt_err *err) {
    if (code == BT_OK) code = bt_sql_exec(w->db, w->path, "COMMIT", err);
    if (code != BT_OK && !sqlite3_get_autocommit(w->db))
        sqlite3_exec(w->db, "ROLLBACK", NULL, NULL, NULL);
    bt_lock_drop(&w->lock);
    return code;
}

bt_code bt_writer_begin(bt_writer *w, const bt_run_start *s, int *attempt, bt_err *err) {
    bt_attempt a = {0};
    if (w->at.aid) return bt_fail(err, BT_ARG, "an attempt is open already");
    pthread_mutex_lock(&w->db_mu);
    const bool first = !w->start.name; /* no run was begun before */
    bt_run_start_release(&w->start);
    bt_code code = bt_run_start_copy(&w->start, s, err);
    if (code == BT_OK) code = begin_immediate(w, err);
    if (code == BT_OK)
        code = end_transaction(w, bt_attempt_begin(w->db, w->path, s, first, &a, err), err);
    if (code == BT_OK && first && s->resume) w->remembered = a.run;
    if (code == BT_OK) code = set_open_attempt(w, &a, s->from_step, err);
    if (code == BT_OK) *attempt = a.attempt;
    w->past = s->started_us != 0;
    atomic_store(&w->committed, -1);
    pthread_mutex_unlock(&w->db_mu);
    return code;
}

void bt_writer_push(bt_writer *w, struct bt_record *r) { bt_queue_push(&w->q, r); }
const bt_sink *bt_writer_sink(bt_writer *w) { return &w->sink; }
int64_t bt_writer_committed_step(const bt_writer *w) { return atomic_load(&w->committed); }
uint64_t bt_writer_dropped(const bt_writer *w) {
    return bt_queue_dropped((bt_queue *)&w->q) + atomic_load(&w->skipped);
}

/* ---- flush, end, close ---- */

static bt_code copy_writer_error(bt_writer *w, bt_err *err) {
    pthread_mutex_lock(&w->db_mu);
    bt_code code = w->trouble.code;
    if (err && code != BT_OK) *err = w->trouble;
    pthread_mutex_unlock(&w->db_mu);
    return code;
}

bt_code bt_writer_flush(bt_writer *w, bt_err *err) {
    int64_t start = bt_now_ns(),
            patience = (int64_t)((w->lock_wait_s > 1 ? w->lock_wait_s : 1) * 1e9);
    bt_code code = BT_OK;
    bt_queue_set(&w->q, &w->q.flush_requested, true);
    while (!bt_queue_wait_drained(&w->q, 50000000)) {
        code = copy_writer_error(w, err);
        int64_t spent = bt_now_ns() - start;
        if (code == BT_OK)
            start = bt_now_ns(); /* progress was made */
        else if (spent > (code == BT_BUSY ? BUSY_PATIENCE_NS : patience))
            break;
        code = BT_OK;
    }
    bt_queue_set(&w->q, &w->q.flush_requested, false);
    return code;
}

static void release_database(bt_writer *w) {
    pthread_mutex_lock(&w->q.mu);
    w->q.ring = NULL;
    pthread_mutex_unlock(&w->q.mu);
    bt_ring_close(w->ring);
    w->ring = NULL;
}

bt_code bt_writer_keep(bt_writer *w, const char *ring_path, int attempt, bt_err *err) {
    if (snprintf(w->ring_path, sizeof w->ring_path, "%s", ring_path) >= (int)sizeof w->ring_path)
        return bt_fail(err, BT_ARG, "path '%.100s...' is too long", ring_path);
    BT_TRY(bt_ring_create(&w->ring, w->ring_path, attempt, BT_RING_BYTES, err));
    pthread_mutex_lock(&w->q.mu);
    w->q.ring = w->ring;
    pthread_mutex_unlock(&w->q.mu);
    return BT_OK;
}

/* Takes the lock, because the writer's thread changes `at`. */
static bool is_attempt_open(bt_writer *w) {
    pthread_mutex_lock(&w->db_mu);
    const bool open = w->at.aid != 0;
    pthread_mutex_unlock(&w->db_mu);
    return open;
}

bt_code bt_writer_end_later(bt_writer *w, const char *state, const char *exit_kind, int exit_code,
                            const char *ring, bt_err *err) {
    bt_attempt_change *t = calloc(1, sizeof *t);
    if (!t) return bt_fail(err, BT_NOMEM, "cannot write metrics: out of memory");
    t->ends = true;
    t->us = bt_wall_us();
    t->exit_code = exit_code;
    snprintf(t->state, sizeof t->state, "%s", state);
    snprintf(t->exit_kind, sizeof t->exit_kind, "%s", exit_kind);
    const bt_code code = ring ? bt_turn_read_ring(t, ring, err) : BT_OK;
    bt_queue_push(&w->q, bt_attempt_change_record(t));
    return code;
}

bt_code bt_writer_begin_later(bt_writer *w, const bt_run_start *s, int attempt, bt_err *err) {
    bt_attempt_change *t = calloc(1, sizeof *t);
    if (!t) return bt_fail(err, BT_NOMEM, "cannot write metrics: out of memory");
    const bt_code code = bt_run_start_copy(&t->start, s, err);
    if (code != BT_OK) {
        bt_attempt_change_free(t);
        return code;
    }
    if (!t->start.started_us) t->start.started_us = bt_wall_us();
    t->attempt = attempt;
    atomic_store(&w->committed, -1);
    bt_queue_push(&w->q, bt_attempt_change_record(t));
    return BT_OK;
}

bt_code bt_writer_end(bt_writer *w, const char *state, const char *exit_kind, int exit_code,
                      bt_err *err) {
    if (!is_attempt_open(w)) return BT_OK;
    bt_code flushed = bt_writer_flush(w, err);
    bt_err own = BT_ERR_INIT;
    pthread_mutex_lock(&w->db_mu);
    int64_t now = w->past && w->apply && bt_apply_last_us(w->apply) >= 0
                      ? bt_apply_last_us(w->apply)
                      : bt_wall_us();
    const bool over = w->over;
    bt_code code = over ? BT_OK : begin_immediate(w, &own);
    if (code == BT_OK && !over) {
        code = bt_attempt_end(w->db, w->path, &w->at, state, exit_kind, exit_code, now, &own);
        if (code == BT_OK) code = bt_apply_store_times(w->apply, w->at.run, &own);
        code = end_transaction(w, code, &own);
    }
    w->at = (bt_attempt){0};
    w->over = false;
    pthread_mutex_unlock(&w->db_mu);
    if (w->ring && flushed == BT_OK && code == BT_OK) unlink(w->ring_path);
    release_database(w);
    if (flushed != BT_OK) return flushed;
    if (code != BT_OK && err) *err = own;
    return code;
}

bt_code bt_writer_withdraw(bt_writer *w, bool *withdrawn, bt_err *err) {
    *withdrawn = false;
    if (!w->remembered || w->at.aid) return BT_OK;
    pthread_mutex_lock(&w->db_mu);
    bt_code code = begin_immediate(w, err);
    if (code == BT_OK)
        code = end_transaction(w, bt_start_withdraw(w->db, w->path, w->remembered, withdrawn, err),
                               err);
    w->remembered = 0;
    pthread_mutex_unlock(&w->db_mu);
    return code;
}

/* ---- recover ---- */

bt_code bt_writer_recover(bt_writer *w, const char *run, const char *ring_path, int64_t *steps,
                          bt_err *err) {
    bt_record *list = NULL;
    bt_err own = BT_ERR_INIT;
    int attempt = -1;
    *steps = 0;
    bt_code code = bt_ring_read(ring_path, &attempt, &list, &own);
    if (code == BT_NOTFOUND || code == BT_FORMAT) return BT_OK;
    if (code == BT_OK && is_attempt_open(w)) code = bt_writer_flush(w, &own);
    bt_recover_drop_facts(&list);
    if (code == BT_OK && list) {
        pthread_mutex_lock(&w->db_mu);
        code = bt_lock_take(&w->lock, w->lock_wait_s, &own);
        if (code == BT_OK && !w->apply) code = connect_again(w, &own);
        const bt_lost lost = {run, attempt, list};
        int64_t aid = -1;
        if (code == BT_OK)
            code = bt_recover_store(&lost, w->db, w->path, w->apply, w->at.aid, &aid, steps, &own);
        if (code == BT_OK && aid == w->at.aid)
            atomic_store(&w->committed, bt_apply_last_step(w->apply));
        bt_lock_drop(&w->lock);
        pthread_mutex_unlock(&w->db_mu);
    }
    bt_records_free(list);
    if (code != BT_OK && err) *err = own;
    return code;
}

void bt_writer_close(bt_writer *w) {
    if (!w) return;
    bt_err ignored;
    if (w->running) {
        if (is_attempt_open(w) && bt_writer_flush(w, &ignored) != BT_OK)
            bt_log(BT_LOG_WARN, "metrics were lost at the end: %s", ignored.msg);
        bt_queue_set(&w->q, &w->q.stop, true);
        pthread_join(w->thread, NULL);
    }
    bt_apply_close(w->apply);
    if (w->db && w->running) checkpoint_log(w, SQLITE_CHECKPOINT_TRUNCATE, 0.2);
    sqlite3_close(w->db);
    bt_lock_close(&w->lock);
    bt_ring_close(w->ring);
    bt_attempt_changes_free(bt_queue_take(&w->q, SIZE_MAX));
    bt_queue_release(&w->q);
    bt_run_start_release(&w->start);
    pthread_mutex_destroy(&w->db_mu);
    free(w);
}

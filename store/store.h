/* store.h - the metrics database: one SQLite file for all runs. Who may do what:
 *
 *   writer   exactly one at a time in the whole system (lock file FILE.lock); owns WAL checkpoints.
 *   readers  any number, read-only, any process of this host.
 * Base tables hold integers in microseconds and bytes; the views are the public contract.
 * Paths: --store, else $BITRAIN_STORE, else $XDG_DATA_HOME/bitrain/bitrain.db, else
 *        ~/.local/share/bitrain/bitrain.db. */
#ifndef BT_STORE_STORE_H
#define BT_STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/sink.h"
#include "engine/base/status.h"
#include "engine/base/text.h"

/* given: path from the command line, may be "". */
bt_code bt_store_path(char *out, size_t size, const char *given, bt_err *err) BT_MUST_CHECK;

/* Appends " --store PATH", quoted for a shell, to a printed command, unless every shell of this
 * user finds the database `path` without it. */
void bt_store_flag(bt_text *out, const char *path);

/* Progress callback of a long call, in the calling thread: current activity ("checking") and its completed share,
 * 0..1. fn NULL: none. */
typedef struct bt_store_progress {
    void (*fn)(void *ctx, const char *what, double done);
    void *ctx;
} bt_store_progress;

/* Returns true if the checkpoint recorded at `path` (NULL: none) still exists on this host. */
bool bt_checkpoint_there(const char *path);

/* properties of a database's location, for `bitrain doctor`; creates nothing */
typedef struct bt_store_check {
    const char *sqlite; /* version of the library */
    char folder[1024];  /* the deepest existing folder of the path */
    /* name of a file system that cannot hold the database (NFS, ...), or NULL */
    const char *refused;
    bool writable;
    uint64_t free_bytes;
} bt_store_check;
bt_code bt_store_check_folder(bt_store_check *out, const char *path, bt_err *err) BT_MUST_CHECK;

/* ---- writing --------------------------------------------------------------------------------- */
typedef struct bt_writer bt_writer;
struct bt_record;

#define BT_RING_FILE \
    "metrics.ring" /* file in the checkpoint folder: records of rank 0 that are not committed yet */

typedef struct bt_run_start {
    const char *name; /* must not exist yet, or must exist if `resume` is set */
    bool resume;
    int64_t from_step; /* first step of this attempt */
    /* reason of the attempt: "start", "resume", "restart after rank 3 died (signal 9)" */
    const char *reason;
    const char *argv;        /* the command line */
    const char *config_json; /* every option and its origin */
    const char *host, *user, *build, *mpi, *note;
    const char *out_dir; /* checkpoint folder */
    int world_size;
    uint64_t seed;
    int pid; /* process that owns the run */
    /* start of this attempt, for records of the past (import, tests); 0: now */
    int64_t started_us;
} bt_run_start;

/* Opens or creates the file, migrates it and takes the lock (waits lock_wait_s, then BT_BUSY with the holder's
 * name). */
bt_code bt_writer_open(bt_writer **out, const char *path, double lock_wait_s, bt_err *err)
    BT_MUST_CHECK;
/* Begins the run and attempt. `attempt` receives its number (0, 1, ...). A resumed run stores the settings and texts
 * of s together with the attempt's first step. */
bt_code bt_writer_begin(bt_writer *w, const bt_run_start *s, int *attempt, bt_err *err)
    BT_MUST_CHECK;
/* Returns the sink of the current attempt, which copies records into a bounded queue; a thread commits them (each
 * step up to 20 steps/s, else every 50 ms). */
const bt_sink *bt_writer_sink(bt_writer *w);
/* Queues a record that wire.h has received and checked; takes ownership of r. */
void bt_writer_push(bt_writer *w, struct bt_record *r);
/* After kill -9 of rank 0 or its supervisor: stores the records of rank 0's ring file that the database lacks as
 * rows of their attempt, before it ends or the next one begins. Does nothing without a ring of this run. steps:
 * number of recovered steps. */
bt_code bt_writer_recover(bt_writer *w, const char *run, const char *ring_path, int64_t *steps,
                          bt_err *err) BT_MUST_CHECK;
/* For a writer inside rank 0: also keeps the records of its sink in a ring file until the attempt has ended. */
bt_code bt_writer_keep(bt_writer *w, const char *ring_path, int attempt, bt_err *err) BT_MUST_CHECK;
/* Returns the newest step that survives kill -9; -1: none. */
int64_t bt_writer_committed_step(const bt_writer *w);
/* Returns the number of per-rank records that were dropped because the disk was too slow. */
uint64_t bt_writer_dropped(const bt_writer *w);
/* Commits everything that is queued. */
bt_code bt_writer_flush(bt_writer *w, bt_err *err) BT_MUST_CHECK;
/* Ends the attempt with state "done", "stopped" or "failed"; exit_kind is free text. bt_writer_begin may follow. */
bt_code bt_writer_end(bt_writer *w, const char *state, const char *exit_kind, int exit_code,
                      bt_err *err) BT_MUST_CHECK;
/* Variants of end and begin for a live run that do not wait for the disk: the writer's thread
 * executes them in order with the surrounding records. Records between end_later and begin_later belong to the ended
 * attempt. ring (NULL: none): the ring file of the attempt's rank 0; its records become rows, then it is removed.
 * attempt: number of the new attempt. An error of end_later concerns the ring only. */
bt_code bt_writer_end_later(bt_writer *w, const char *state, const char *exit_kind, int exit_code,
                            const char *ring, bt_err *err) BT_MUST_CHECK;
bt_code bt_writer_begin_later(bt_writer *w, const bt_run_start *s, int attempt, bt_err *err)
    BT_MUST_CHECK;
/* After the end of the last attempt: restores the previous state of a run that this writer resumed if no step was
 * recorded since then; *withdrawn is then true. */
bt_code bt_writer_withdraw(bt_writer *w, bool *withdrawn, bt_err *err) BT_MUST_CHECK;
/* Flushes, checkpoints the WAL and releases the lock; accepts NULL. */
void bt_writer_close(bt_writer *w);

/* ---- reading --------------------------------------------------------------------------------- */
typedef struct bt_db bt_db;

/* BT_NOTFOUND: no file yet; BT_FORMAT: not a bitrain database, corrupt or newer. */
bt_code bt_db_open(bt_db **out, const char *path, bt_err *err) BT_MUST_CHECK;
void bt_db_close(bt_db *db);
int64_t bt_db_version(bt_db *db); /* changes with every commit of another connection */
/* Returns true if the file is no longer at its path: removed, or moved aside as damaged (a writer then creates
 * another). */
bool bt_db_moved(bt_db *db);
/* Connects to the file that is now at the path; on failure the old file remains open. Views over db continue to use
 * the old file: close and reopen them. */
bt_code bt_db_reopen(bt_db *db, bt_err *err) BT_MUST_CHECK;
/* Resolves "last" to the newest run, or a name regardless of case (the message of BT_NOTFOUND has the most similar
 * one). run receives the recorded name. */
bt_code bt_db_run(bt_db *db, const char *wanted, char run[BT_NAME_MAX], bt_err *err) BT_MUST_CHECK;

/* Limits SQLite's memory in the whole process; above the limit a statement fails with BT_NOMEM. */
void bt_db_limit_memory(int64_t bytes);
/* A read-only statement. params bind ?1.. as text. Limits: rows and seconds, 0 for none; *truncated (may be NULL) is
 * set if there were more rows. All pointers are borrowed. */
typedef struct bt_query {
    const char *sql;
    const char *const *params;
    int n_params;
    int64_t max_rows;
    double max_s;
    bool *truncated;
} bt_query;

/* cells are texts, NULL for SQL's NULL; types: 'i' 'r' 't' 'b' 'n' */
typedef struct bt_row {
    int n;
    const char *const *names, *const *cells;
    const char *types;
    const double *nums; /* NaN if the cell is not a number */
} bt_row;
typedef bool (*bt_row_fn)(void *ctx, const bt_row *row); /* returns false to stop */
bt_code bt_db_query(bt_db *db, const bt_query *q, bt_row_fn fn, void *ctx, bt_err *err)
    BT_MUST_CHECK;

/* Reads one number, ?1 = run; NaN for NULL or no row. */
bt_code bt_db_value(bt_db *db, const char *sql, const char *run, double *out, bt_err *err)
    BT_MUST_CHECK;
/* Writes the absolute path of the folder with checkpoints and log of a run (its name, not "last"); "": not recorded. */
bt_code bt_db_run_folder(bt_db *db, const char *run, char *out, size_t size, bt_err *err)
    BT_MUST_CHECK;

#endif

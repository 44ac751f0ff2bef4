/* manage.h - changes recorded runs (remove, tag, note) and compacts the file.
 *
 * Each call takes the lock file for a short time (waits wait_s, then BT_BUSY) and works in short transactions, so that
 * it never delays a run in progress. A run with a live process cannot be removed (BT_BUSY). */
#ifndef BT_STORE_WRITE_MANAGE_H
#define BT_STORE_WRITE_MANAGE_H

#include "store/store.h"

typedef struct bt_gc_cfg {
    /* new retention for all runs: the newest N steps; 0: all; -1: unchanged */
    int64_t keep_rank_steps;
    bool rebuild; /* recompute all summaries from the rows */
    bool compact; /* return free pages to the file system */
    bt_store_progress progress;
} bt_gc_cfg;

typedef struct bt_gc_result {
    int64_t orphan_rows, rank_rows, bytes_before, bytes_after;
} bt_gc_result;

typedef struct bt_repair_result {
    bool sound;              /* the file is intact and was not changed */
    char moved_to[1200];     /* new path of the damaged file; "": none */
    int64_t rows;            /* rows saved from it */
    int64_t rows_of_backups; /* rows found in backups only */
    int incomplete_tables;   /* incompletely read tables of the damaged file */
} bt_repair_result;

bt_code bt_runs_remove(const char *path, const char *const *runs, size_t n, double wait_s,
                       bt_err *err) BT_MUST_CHECK;
/* words: "paper" or "+paper" adds, "-paper" removes; result receives the resulting tags, separated by spaces. */
bt_code bt_run_tag(const char *path, const char *run, const char *const *words, size_t n,
                   double wait_s, char result[256], bt_err *err) BT_MUST_CHECK;
enum { BT_NOTE_MAX = 2000 }; /* bytes */
/* text "": removes the note. BT_ARG: more than BT_NOTE_MAX bytes. */
bt_code bt_run_note(const char *path, const char *run, const char *text, double wait_s, bt_err *err)
    BT_MUST_CHECK;
/* Renames an ended run. The folder of the run keeps the old name; resuming finds it through the record. BT_ARG: invalid
 * name; BT_BUSY: another run has the name, a process trains this run, or its folder belongs to a sweep, which
 * identifies runs by name. */
bt_code bt_run_rename(const char *path, const char *run, const char *name, double wait_s,
                      bt_err *err) BT_MUST_CHECK;
/* Records a user's event: ANNOTATION at a step (-1: now), or ACKNOWLEDGED, which marks all earlier warnings and
 * errors as read. */
bt_code bt_run_mark(const char *path, const char *run, int64_t step, bt_event_kind kind,
                    const char *title, double wait_s, bt_err *err) BT_MUST_CHECK;
/* Records a fact that was found after a run's training; replaces an earlier value. BT_NOTFOUND: no such run. */
bt_code bt_run_fact(const char *path, const char *run, const char *key, const char *value,
                    double wait_s, bt_err *err) BT_MUST_CHECK;
/* Writes a copy to FILE.backup; the previous one becomes FILE.backup.1. BT_UNSUPPORTED: not enough space. Needs no
 * lock. */
bt_code bt_store_backup(const char *path, bt_err *err) BT_MUST_CHECK;
/* Moves a damaged or removed database aside and begins a new one with its readable rows and
 * those found in backups only. A recording in progress continues in the new database. BT_FORMAT: another program's
 * file; BT_NOTFOUND: there never was a database. progress: may be NULL. */
bt_code bt_store_repair(const char *path, double wait_s, const bt_store_progress *progress,
                        bt_repair_result *out, bt_err *err) BT_MUST_CHECK;
bt_code bt_store_gc(const char *path, const bt_gc_cfg *cfg, double wait_s, bt_gc_result *out,
                    bt_err *err) BT_MUST_CHECK;

#endif

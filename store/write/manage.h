/* manage.h - changing recorded runs: removing, tagging, noting; and keeping the file small.
 *
 * Each call is a writer for a moment: it takes the lock file (waits wait_s, then BT_BUSY) and works
 * in short transactions, so that a run in progress is never held up. A run that a living process
 * trains cannot be removed (BT_BUSY). */
#ifndef BT_STORE_WRITE_MANAGE_H
#define BT_STORE_WRITE_MANAGE_H

#include "store/store.h"

typedef struct bt_gc_cfg {
    /* new retention for all runs from now on: the newest N steps; 0: for ever; -1: as it is */
    int64_t keep_rank_steps;
    bool rebuild; /* make all summaries again from the rows */
    bool compact; /* give free pages back to the file system */
    bt_store_progress progress;
} bt_gc_cfg;

typedef struct bt_gc_result {
    int64_t orphan_rows, rank_rows, bytes_before, bytes_after;
} bt_gc_result;

typedef struct bt_repair_result {
    bool sound;              /* nothing was wrong: the file is as it was */
    char moved_to[1200];     /* where the damaged file is now; "": there was none */
    int64_t rows;            /* saved from it */
    int64_t rows_of_backups; /* that only a backup still had */
    int incomplete_tables;   /* of the damaged file */
} bt_repair_result;

bt_code bt_runs_remove(const char *path, const char *const *runs, size_t n, double wait_s,
                       bt_err *err) BT_MUST_CHECK;
/* words: "paper" or "+paper" adds, "-paper" removes; result receives the tags now, separated by
 * spaces */
bt_code bt_run_tag(const char *path, const char *run, const char *const *words, size_t n,
                   double wait_s, char result[256], bt_err *err) BT_MUST_CHECK;
enum { BT_NOTE_MAX = 2000 }; /* bytes */
/* "": no note. BT_ARG: more than BT_NOTE_MAX bytes */
bt_code bt_run_note(const char *path, const char *run, const char *text, double wait_s, bt_err *err)
    BT_MUST_CHECK;
/* Gives an ended run another name; its folder keeps the old one, which resuming finds by the record.
 * BT_ARG: no name for a run; BT_BUSY: another run has it, a living process trains this one, or its
 * folder is a sweep's, which knows its runs by their names. */
bt_code bt_run_rename(const char *path, const char *run, const char *name, double wait_s,
                      bt_err *err) BT_MUST_CHECK;
/* an event of somebody who looks at the run: ANNOTATION at a step (-1: now), or ACKNOWLEDGED: the
 * warnings and errors so far have been seen */
bt_code bt_run_mark(const char *path, const char *run, int64_t step, bt_event_kind kind,
                    const char *title, double wait_s, bt_err *err) BT_MUST_CHECK;
/* FILE.backup, a copy of this moment; the one before becomes FILE.backup.1. BT_UNSUPPORTED: no room
 * for it. Needs no lock: it reads */
bt_code bt_store_backup(const char *path, bt_err *err) BT_MUST_CHECK;
/* A damaged or removed database is moved aside; what can be read of it, and what only its backups have,
 * begins a new one. A run that is being recorded goes on in it. BT_FORMAT: another program's file;
 * BT_NOTFOUND: no database ever stood there. progress: may be NULL. */
bt_code bt_store_repair(const char *path, double wait_s, const bt_store_progress *progress,
                        bt_repair_result *out, bt_err *err) BT_MUST_CHECK;
bt_code bt_store_gc(const char *path, const bt_gc_cfg *cfg, double wait_s, bt_gc_result *out,
                    bt_err *err) BT_MUST_CHECK;

#endif

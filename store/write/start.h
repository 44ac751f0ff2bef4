/* start.h - private to store/: changes that the start of a resumed run makes.
 *
 * A rank or mpirun may refuse a start after its attempt is recorded. So the settings, the
 * command line and the folder of a resumed run wait in the table `proposal`, and replace those
 * of the run in the transaction of the attempt's first step. A start that ends before its first step is withdrawn,
 * which restores the rows of the run. All functions run inside the caller's transaction. */
#ifndef BT_STORE_WRITE_START_H
#define BT_STORE_WRITE_START_H

#include "store/sql/sql.h"
#include "store/store.h"

/* Statements with one parameter, the run, to execute in this order at the first step of an attempt. */
#define BT_START_ACCEPT_RUN \
    "UPDATE run SET build = coalesce(p.build, run.build), mpi = coalesce(p.mpi, run.mpi), " \
    "out_dir = coalesce(p.out_dir, run.out_dir), note = coalesce(nullif(p.note, ''), run.note) " \
    "FROM proposal p WHERE p.run = run.id AND run.id = ?"
#define BT_START_ACCEPT_DOC \
    "UPDATE run_doc SET argv = coalesce(p.argv, run_doc.argv), " \
    "config = coalesce(p.config, run_doc.config) FROM proposal p WHERE p.run = run_doc.run AND " \
    "run_doc.run = ?"
#define BT_START_ACCEPTED "DELETE FROM proposal WHERE run = ?"

/* Replaces an earlier proposal of the run. */
bt_code bt_start_propose(sqlite3 *db, const char *path, int64_t run, const bt_run_start *s,
                         bt_err *err) BT_MUST_CHECK;
/* Copies the rows that a start changes into temporary tables of this connection, for one run at a time. */
bt_code bt_start_remember(sqlite3 *db, const char *path, int64_t run, bt_err *err) BT_MUST_CHECK;
/* Restores the remembered rows and deletes the attempts since then, unless one of them recorded a step; *withdrawn
 * is the result. */
bt_code bt_start_withdraw(sqlite3 *db, const char *path, int64_t run, bool *withdrawn, bt_err *err)
    BT_MUST_CHECK;

#endif

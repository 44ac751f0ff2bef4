/* run_log.h - the end of a run's log.txt: what its ranks, mpirun and the libraries wrote beside the
 * records; where this machine can read the run's folder. */
#ifndef BT_STORE_READ_RUN_LOG_H
#define BT_STORE_READ_RUN_LOG_H

#include "engine/base/sink.h"
#include "engine/base/text.h"
#include "store/store.h"

/* of a line, by its words: the programs that write there have no common form */
bt_event_level bt_run_log_level(const char *line);
int bt_run_log_rank(const char *line); /* "... rank 3 ...", -1: it names none */
/* into an open object: readable, cut (older lines are left out) and lines, oldest first, each {level,
 * rank or null, text}; at most `bytes` of the file's end. A file that cannot be read is no error. */
bt_code bt_run_log_json(bt_db *db, const char *run, size_t bytes, bt_json *j, bt_err *err)
    BT_MUST_CHECK;
/* the same object for the recorded lines (view log_lines) that contain `text`; ASCII letters match in
 * either case. The newest `most` of them, oldest first; their members have time and host besides.
 * cut: there are more. */
bt_code bt_run_log_search_json(bt_db *db, const char *run, const char *text, int64_t most,
                               bt_json *j, bt_err *err) BT_MUST_CHECK;

#endif

/* run_log.h - reads the end of a run's log.txt (output of its ranks, mpirun and libraries), if
 * this machine can read the run's folder. */
#ifndef BT_STORE_READ_RUN_LOG_H
#define BT_STORE_READ_RUN_LOG_H

#include "engine/base/sink.h"
#include "engine/base/text.h"
#include "store/store.h"

/* Classifies a line by keywords, because its writers have no common format. */
bt_event_level bt_run_log_level(const char *line);
int bt_run_log_rank(const char *line); /* rank of a line "... rank 3 ..."; -1: none */
/* Adds readable, cut (older lines are omitted) and lines, oldest first, each {level, rank or
 * null, text}, to an open object; reads at most `bytes` of the file's end. An unreadable file is
 * no error. */
bt_code bt_run_log_json(bt_db *db, const char *run, size_t bytes, bt_json *j, bt_err *err)
    BT_MUST_CHECK;
/* Adds the recorded lines (view log_lines) that contain `text`, ignoring ASCII case, in the same form with time and
 * host: the newest `most` of them, oldest first. cut: there are more. */
bt_code bt_run_log_search_json(bt_db *db, const char *run, const char *text, int64_t most,
                               bt_json *j, bt_err *err) BT_MUST_CHECK;

#endif

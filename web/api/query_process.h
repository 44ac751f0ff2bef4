/* query_process.h - executes a user's SQL statement in a separate process, `bitrain query`, with limits of time and
 * memory; the process is killed if it exceeds them. A long single operation of SQLite cannot be interrupted and uses
 * memory of its process, so the server does not execute statements itself.
 * Threads: any; nothing is shared. */
#ifndef BT_WEB_API_QUERY_PROCESS_H
#define BT_WEB_API_QUERY_PROCESS_H

#include "engine/base/text.h"

typedef struct bt_query_process {
    const char *program, *store, *sql;
    int64_t rows, memory_mib;
    double seconds;
    size_t bytes; /* maximum size of the result */
} bt_query_process;

/* out: {"columns","rows","truncated"}. BT_ARG: the statement is refused; BT_BUSY: it exceeded the time or memory; the
 * message is the one that `bitrain query` printed. */
bt_code bt_query_process_run(const bt_query_process *q, bt_text *out, bt_err *err) BT_MUST_CHECK;

#endif

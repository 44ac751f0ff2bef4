/* query_process.h - a user's SQL statement in a separate process: `bitrain query` with
 * limits of time and memory, which is killed when it outlives them. A single operation of SQLite
 * cannot be interrupted, and its memory is the process's: so neither is left to the server.
 * Threads: any; nothing is shared. */
#ifndef BT_WEB_API_QUERY_PROCESS_H
#define BT_WEB_API_QUERY_PROCESS_H

#include "engine/base/text.h"

typedef struct bt_query_process {
    const char *program, *store, *sql;
    int64_t rows, memory_mib;
    double seconds;
    size_t bytes; /* limits of an answer */
} bt_query_process;

/* out: {"columns","rows","truncated"}. BT_ARG: the statement is refused; BT_BUSY: it took longer, or
 * more memory; its message is that of the command */
bt_code bt_query_process_run(const bt_query_process *q, bt_text *out, bt_err *err) BT_MUST_CHECK;

#endif

/* output.h - processes the output of ranks and mpirun: writes it to the log file, sanitised and limited in size, and
 * extracts errors and warnings for restart.h.
 *
 * A failing rank writes one line `bitrain rank R: error C: message` (bt_output_error_line); mpirun reports a dead rank
 * in its own format. */
#ifndef BT_MONITOR_JOB_LAUNCH_OUTPUT_H
#define BT_MONITOR_JOB_LAUNCH_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"

enum { BT_OUTPUT_NOTES = 50, BT_OUTPUT_LINES = 10000 };

typedef struct bt_output {
    /* descriptor of the log file, -1 if it could not be opened */
    int log;
    int64_t logged_bytes;
    char line[1024];
    size_t n;
    bool reported; /* an error line was found, which determines rank and code */
    bt_code code;
    int rank, signal; /* -1, 0: unknown */
    bool node_lost;   /* mpirun reported that it lost the daemon of the host `lost_node` */
    char lost_node[64];
    char message[480], last_line[256];
    /* ssh's line about a host, otherwise mpirun's first paragraph joined to one line */
    char said[256];
    int said_state; /* 0 before the paragraph, 1 inside, 2 after it */
    /* Receives each warning or error of a rank's log once; may be NULL. */
    void (*note)(void *ctx, const char *text);
    void *note_ctx;
    int notes; /* number of warnings reported in this attempt, at most BT_OUTPUT_NOTES */
    /* Receives every non-empty line without control characters: at most BT_OUTPUT_LINES per attempt, then one line
     * that refers to log.txt. May be NULL. */
    void (*on_line)(void *ctx, const char *text);
    int lines;
    char last_note[256];
} bt_output;

void bt_output_open(bt_output *o, const char *log_path, int attempt);
/* Begins the next attempt in the same file. */
void bt_output_reset(bt_output *o, int attempt);
void bt_output_feed(bt_output *o, const char *data, size_t n);
/* Reads the available output; returns false at end of file. */
bool bt_output_drain(bt_output *o, int fd);
void bt_output_close(bt_output *o);
/* Formats the line that a failing rank writes, with newline. */
int bt_output_error_line(char *buf, size_t size, int rank, bt_code code, const char *message);

#endif

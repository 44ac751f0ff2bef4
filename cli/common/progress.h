/* progress.h - one line on a terminal's standard error that shows how far a command is; nothing
 * anywhere else. */
#ifndef BT_CLI_COMMON_PROGRESS_H
#define BT_CLI_COMMON_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct bt_progress {
    bool on, drawn, blocks;
    int64_t begun_ns, next_ns;
} bt_progress;

void bt_progress_begin(bt_progress *p, bool quiet);
/* done 0..1; about ten times a second at most. note: "12.3 M tokens" */
void bt_progress_show(bt_progress *p, const char *what, double done, const char *note);
/* Draws at once, whatever the rate limit: a step that may take long and reports nothing follows. */
void bt_progress_stage(bt_progress *p, const char *what, double done, const char *note);
void bt_progress_end(bt_progress *p); /* clears the line */
/* for bt_prepare_cfg.progress and bt_loader_cfg.progress: ctx is a bt_progress */
void bt_progress_tokenising(void *ctx, double done, uint64_t ids);
/* A callback for functions that report their progress, such as bt_store_progress.fn; ctx is a bt_progress. */
void bt_progress_of(void *ctx, const char *what, double done);
double bt_progress_seconds(const bt_progress *p);

#endif

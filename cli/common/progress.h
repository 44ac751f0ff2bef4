/* progress.h - a progress line on standard error if that is a terminal; otherwise nothing is written. */
#ifndef BT_CLI_COMMON_PROGRESS_H
#define BT_CLI_COMMON_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct bt_progress {
    bool on, drawn, blocks;
    int64_t begun_ns, next_ns;
} bt_progress;

void bt_progress_begin(bt_progress *p, bool quiet);
/* Redraws the line at most about ten times a second. done: 0..1; note: for example "12.3 M tokens". */
void bt_progress_show(bt_progress *p, const char *what, double done, const char *note);
/* Redraws immediately, before a step that may take long and reports no progress. */
void bt_progress_stage(bt_progress *p, const char *what, double done, const char *note);
void bt_progress_end(bt_progress *p); /* clears the line */
/* Callback for bt_prepare_cfg.progress and bt_loader_cfg.progress; ctx is a bt_progress. */
void bt_progress_tokenising(void *ctx, double done, uint64_t ids);
/* Callback for functions that report a share of their work, such as bt_store_progress.fn; ctx is a bt_progress. */
void bt_progress_of(void *ctx, const char *what, double done);
double bt_progress_seconds(const bt_progress *p);

#endif

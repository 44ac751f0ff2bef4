/* log.h - levelled text lines to one callback; the engine never prints.
 *
 * The program (cli) sets the callback. The supervisor of a run reads the ranks' stderr and writes the log file.
 * Threads: any thread may call bt_log, so the callback must be thread-safe. The default callback writes each line with
 *    one write(). */
#ifndef BT_ENGINE_BASE_LOG_H
#define BT_ENGINE_BASE_LOG_H

#include "engine/base/status.h"

typedef enum { BT_LOG_DEBUG, BT_LOG_INFO, BT_LOG_WARN, BT_LOG_ERROR } bt_log_level;
/* line has no newline */
typedef void (*bt_log_fn)(void *ctx, bt_log_level level, const char *line);

void bt_log_set(bt_log_fn fn, void *ctx, bt_log_level lowest); /* fn NULL: silent */
void bt_log(bt_log_level level, const char *fmt, ...) BT_PRINTF(2, 3);
const char *bt_log_level_name(bt_log_level level);

#endif

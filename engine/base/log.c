/* log.c - formats a line and passes it to the handler. */
#include "engine/base/log.h"

#include <stdarg.h>
#include <stdio.h>

static bt_log_fn sink_fn;
static void *sink_ctx;
static bt_log_level sink_lowest = BT_LOG_INFO;

void bt_log_set(bt_log_fn fn, void *ctx, bt_log_level lowest) {
    sink_fn = fn;
    sink_ctx = ctx;
    sink_lowest = lowest;
}

void bt_log(bt_log_level level, const char *fmt, ...) {
    if (!sink_fn || level < sink_lowest) return;
    char line[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    sink_fn(sink_ctx, level, line);
}

const char *bt_log_level_name(bt_log_level level) {
    static const char *const names[] = {"debug", "info", "warning", "error"};
    return (unsigned)level < 4 ? names[level] : "?";
}

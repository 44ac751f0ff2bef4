/* log_said.h - captures the program's log as lines "log LEVEL TEXT". Only one file of a test program may include it. */
#ifndef BT_TESTS_LOG_SAID_H
#define BT_TESTS_LOG_SAID_H

#include "engine/base/log.h"
#include "tests/heard.h"

void bt_log(bt_log_level level, const char *fmt, ...) {
    char line[300];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    said("log %d %s", (int)level, line);
}

#endif

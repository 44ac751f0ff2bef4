/* log_said.h - what a program logs is heard: "log LEVEL TEXT". For one test program. */
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

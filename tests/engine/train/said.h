/* said.h - a text log of calls and events, filled by functions that a test defines instead of the real ones. Only one
 * file of a test program may include it. */
#ifndef BT_TESTS_SAID_H
#define BT_TESTS_SAID_H

#include "tests/fake_sink.h"

#include "engine/observe/telemetry.h"
#include "tests/heard.h"

/* Appends "kind step title body" to the log. */
void bt_telemetry_event(const bt_telemetry *of, bt_event_kind kind, int64_t step, const char *body,
                        const char *fmt, ...) {
    char title[512];
    va_list ap;
    assert_non_null(of);
    va_start(ap, fmt);
    vsnprintf(title, sizeof title, fmt, ap);
    va_end(ap);
    said("%s %d %s%s%s", bt_events[kind].name, (int)step, title, body ? " " : "", body ? body : "");
}

#endif

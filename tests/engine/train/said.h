/* said.h - what a part of the trainer does, as lines of a text: functions that a test defines in the place of others
 * add theirs, and events do. For one test program. */
#ifndef BT_TESTS_SAID_H
#define BT_TESTS_SAID_H

#include "tests/fake_sink.h"

#include "engine/base/text.h"
#include "engine/observe/telemetry.h"

static bt_text heard;

static void said(const char *fmt, ...) BT_PRINTF(1, 2);
static void said(const char *fmt, ...) {
    char line[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    bt_text_printf(&heard, "%s\n", line);
}

/* these lines and no others, since the last look */
static void heard_is(const char *want) {
    assert_string_equal(bt_text_str(&heard), want);
    bt_text_clear(&heard);
}

/* "kind step title body" */
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

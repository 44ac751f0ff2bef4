/* heard.h - what happened, as lines of a text that is compared whole: functions that a test defines in the place of
 * others add theirs. For one test program. */
#ifndef BT_TESTS_HEARD_H
#define BT_TESTS_HEARD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "engine/base/text.h"

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

#endif

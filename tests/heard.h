/* heard.h - a text log of calls, compared as a whole; functions that a test defines instead of the real ones fill it.
 * Only one file of a test program may include it. */
#ifndef BT_TESTS_HEARD_H
#define BT_TESTS_HEARD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engine/base/status.h"
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

/* Logs the call; returns this code if `fails` is the name of the function. */
static inline bt_code said_or_fails(const char *what, const char *fails, bt_code code,
                                    bt_err *err) {
    said("%s", what);
    return fails && strcmp(fails, what) == 0 ? bt_fail(err, code, "%s fails", what) : BT_OK;
}

/* Compares the lines logged since the last call. */
static void heard_is(const char *want) {
    assert_string_equal(bt_text_str(&heard), want);
    bt_text_clear(&heard);
}

#endif

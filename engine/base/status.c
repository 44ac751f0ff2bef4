/* status.c - fills errors and names their codes. */
#include "engine/base/status.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Enough for a message with two of the longest paths. */
enum { LONG_MESSAGE = 9000 };

static bool continues_character(char c) { return ((unsigned char)c & 0xc0) == 0x80; }

/* Shortens a long message in its middle, where paths are, to keep the reason and the remedy at its end. */
static void store_message(bt_err *err, bt_code code, const char *text) {
    static const char gap[] = " ... ";
    const size_t n = strlen(text), size = sizeof err->msg;
    err->code = code;
    err->rank = -1;
    if (n < size) {
        memcpy(err->msg, text, n + 1);
        return;
    }
    size_t head = size / 2, tail = n - (size - 1 - head - (sizeof gap - 1));
    while (head > 0 && continues_character(text[head])) head--;
    while (tail < n && continues_character(text[tail])) tail++;
    snprintf(err->msg, size, "%.*s%s%s", (int)head, text, gap, text + tail);
}

bt_code bt_failv(bt_err *err, bt_code code, const char *fmt, va_list ap) {
    if (err) {
        char text[LONG_MESSAGE]; /* a copy, because arguments of fmt may point into err->msg */
        vsnprintf(text, sizeof text, fmt, ap);
        store_message(err, code, text);
    }
    return code;
}

bt_code(bt_fail)(bt_err *err, bt_code code, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    bt_failv(err, code, fmt, ap);
    va_end(ap);
    return code;
}

bt_code(bt_fail_errno)(bt_err *err, bt_code code, int errnum, const char *fmt, ...) {
    va_list ap;
    if (errnum == ENOMEM) code = BT_NOMEM;
    if (err) {
        char text[LONG_MESSAGE], buffer[128];
        /* the GNU variant returns the text */
        const char *reason = strerror_r(errnum, buffer, sizeof buffer);
        va_start(ap, fmt);
        vsnprintf(text, sizeof text - sizeof buffer - 2, fmt, ap);
        va_end(ap);
        const size_t n = strlen(text);
        snprintf(text + n, sizeof text - n, ": %s", reason);
        store_message(err, code, text);
    }
    return code;
}

static const struct {
    const char *name;
    int exit_code;
} codes[BT_CODE_COUNT] = {
    [BT_OK] = {"ok", 0},           [BT_ARG] = {"argument", 2},
    [BT_NOMEM] = {"memory", 1},    [BT_IO] = {"io", 1},
    [BT_FORMAT] = {"format", 6},   [BT_MPI] = {"mpi", 1},
    [BT_DB] = {"database", 1},     [BT_UNSUPPORTED] = {"unsupported", 1},
    [BT_STOPPED] = {"stopped", 0}, [BT_NOTFOUND] = {"not found", 3},
    [BT_BUSY] = {"busy", 4},       [BT_CHECK] = {"check", 5},
    [BT_DAMAGED] = {"damaged", 5},
};

int bt_exit_code(bt_code code) {
    return (unsigned)code < BT_CODE_COUNT ? codes[code].exit_code : 1;
}

const char *bt_code_name(bt_code code) {
    return (unsigned)code < BT_CODE_COUNT ? codes[code].name : "unknown";
}

/* status.c - filling and naming errors. */
#include "engine/base/status.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

bt_code bt_failv(bt_err *err, bt_code code, const char *fmt, va_list ap) {
    if (err) {
        char text[sizeof err->msg]; /* fmt's arguments may point into err->msg */
        vsnprintf(text, sizeof text, fmt, ap);
        memcpy(err->msg, text, sizeof text);
        err->code = code;
        err->rank = -1;
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
    va_start(ap, fmt);
    bt_failv(err, code, fmt, ap);
    va_end(ap);
    if (err) {
        size_t n = strlen(err->msg);
        char reason[128];
        /* the GNU variant returns the text */
        const char *text = strerror_r(errnum, reason, sizeof reason);
        snprintf(err->msg + n, sizeof err->msg - n, ": %s", text);
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

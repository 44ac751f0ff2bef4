/* status.h - error reporting of every function of bitrain.
 *
 * A failing function fills one bt_err where the cause is known and returns its code; callers return it unchanged;
 * cli prints it once. Messages: what failed first, lower case, no full stop, subject in single quotes, numbers
 * with units and, if known, the remedy.
 * Threads: a bt_err belongs to its caller; there is no shared state. */
#ifndef BT_ENGINE_BASE_STATUS_H
#define BT_ENGINE_BASE_STATUS_H

#include <stdarg.h>
#include <stddef.h>

#define BT_MUST_CHECK __attribute__((warn_unused_result))
#define BT_PRINTF(f, a) __attribute__((format(printf, f, a)))

typedef enum {
    BT_OK = 0,
    BT_ARG,    /* the caller's or user's input is invalid                public exit code 2 */
    BT_NOMEM,  /* memory could not be allocated                                             1 */
    BT_IO,     /* file, socket or system call                                         1 */
    BT_FORMAT, /* input or state is corrupt, or of another program                     6 */
    BT_MPI,    /* communication                                                       1 */
    BT_DB,     /* SQLite                                                              1 */
    BT_UNSUPPORTED, /* valid, but this build or machine does not support it                        1 */
    BT_STOPPED,     /* stopped by request; not an error                                    0 */
    BT_NOTFOUND,    /* run, file or key does not exist                                     3 */
    BT_BUSY,        /* held by another process, or refused                                 4 */
    BT_CHECK,       /* a check requested by the user failed                                5 */
    /* state in memory is damaged; the newest checkpoint is intact                   5 */
    BT_DAMAGED,
    BT_CODE_COUNT
} bt_code;

typedef struct bt_err {
    bt_code code;
    int rank; /* rank that failed, -1 when unknown or not in an MPI job */
    char msg[480];
} bt_err;

#define BT_ERR_INIT \
    { \
        BT_OK, -1, { 0 } \
    }

/* Fills *err (may be NULL) and returns code. */
bt_code bt_fail(bt_err *err, bt_code code, const char *fmt, ...) BT_PRINTF(3, 4);
bt_code bt_failv(bt_err *err, bt_code code, const char *fmt, va_list ap);
/* Appends ": " and the text of errnum, as in "cannot open 'x': No such file"; ENOMEM changes code to BT_NOMEM. */
bt_code bt_fail_errno(bt_err *err, bt_code code, int errnum, const char *fmt, ...) BT_PRINTF(4, 5);
int bt_exit_code(bt_code code);
const char *bt_code_name(bt_code code);

#ifdef __clang_analyzer__ /* the analyzer cannot see that these return the code they are given */
#define bt_fail(err, code, ...) ((void)(bt_fail)(err, code, __VA_ARGS__), (code))
#define bt_fail_errno(err, code, errnum, ...) \
    ((void)(bt_fail_errno)(err, code, errnum, __VA_ARGS__), (code))
#endif

#define BT_TRY(call) \
    do { \
        bt_code bt_try_c_ = (call); \
        if (bt_try_c_ != BT_OK) return bt_try_c_; \
    } while (0)

#endif

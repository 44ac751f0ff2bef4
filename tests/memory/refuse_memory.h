/* refuse_memory.h - refuses memory in unit tests. A test that includes this header is linked with refuse_memory.c,
 * whose malloc, calloc, realloc, aligned_alloc and posix_memalign replace those of the C library, also for libraries
 * (strdup, fopen and SQLite use them). Only requests of the thread that called refuse_memory are refused, or those of
 * all threads with `everywhere`. */
#ifndef BT_TESTS_MEMORY_REFUSE_MEMORY_H
#define BT_TESTS_MEMORY_REFUSE_MEMORY_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engine/base/status.h"

typedef struct refusal {
    long after; /* this number of requests is granted, and the next one is refused */
    bool all;   /* all later requests are refused as well */
    /* only requests of the program's own code count; requests of libraries are always granted */
    bool own;
    bool everywhere; /* requests of every thread count */
} refusal;

/* Returns false in builds (with sanitizers) whose allocator cannot be replaced. */
bool refuse_memory_works(void);
void refuse_memory(const refusal *r);
/* Grants all requests from now on; returns whether any was refused. */
bool grant_memory(void);
/* Counts the requests of this thread (own: only those of the program's own code, whose call stacks are recorded) until
 * recorded_requests, which returns their number. */
void record_requests(bool own);
long recorded_requests(void);
/* Returns true if no own request before the k-th, in this recording and the earlier ones, has the same call stack. */
bool is_of_new_place(long k);
/* Makes the present recording an earlier one. */
void forget_requests(void);
/* Returns the number of allocated blocks; own: only those of the program's own code. */
long memory_blocks(bool own);
/* Prints the stack of the first refused request to standard error. */
void tell_refused(void);

/* A function that allocates, and frees everything whether it succeeds or not. */
typedef bt_code (*needs_memory)(void *ctx, bt_err *err);

/* Calls the function with a single request refused, then with that request and all later ones refused: it must fail
 * with one line and the code for memory, or succeed, and leak nothing. For the program's own requests (own) it tries
 * one request of each call stack that no earlier call has refused, and the last; for the thousands of requests of
 * libraries, a sample. Three calls before it let libraries allocate their permanent memory. Returns twice the number of
 * requests. */
static inline long survives_refusals(const char *what, needs_memory fn, void *ctx, bool own) {
    bt_err err = BT_ERR_INIT;
    for (int i = 0; i < 3; i++) {
        err = (bt_err)BT_ERR_INIT;
        if (i == 2) record_requests(own);
        if (fn(ctx, &err) != BT_OK) fail_msg("%s, with all memory: %s", what, err.msg);
    }
    const long n = recorded_requests();
    for (int all = 0; all < 2; all++) {
        for (long k = 0;; k += own ? 1 : 1 + k / 25) {
            if (own && k < n - 1 && !is_of_new_place(k)) continue;
            const long before = memory_blocks(false);
            err = (bt_err)BT_ERR_INIT;
            refuse_memory(&(refusal){.after = k, .all = all, .own = own});
            const bt_code code = fn(ctx, &err);
            const bool any = grant_memory();
            const long left = memory_blocks(false) - before;
            const char *fault = code != BT_OK && code != BT_NOMEM   ? "another code"
                                : code != BT_OK && err.code != code ? "an error of another code"
                                : code != BT_OK && !err.msg[0]      ? "no message"
                                : code != BT_OK && strchr(err.msg, '\n') ? "more than a line"
                                : code != BT_OK && !any ? "failed without a refusal"
                                : left != 0             ? "blocks are left"
                                                        : NULL;
            if (fault) {
                tell_refused();
                fail_msg("%s, request %ld%s refused: %s (%s: '%s', %ld blocks left)", what, k,
                         all ? " and all after it" : "", fault, bt_code_name(code), err.msg, left);
            }
            if (!any) break;
        }
    }
    forget_requests();
    return 2 * n;
}

#endif

/* refuse_memory.h - for unit tests: memory that is not to be had. A test that includes this is linked with
 * refuse_memory.c, whose malloc, calloc, realloc, aligned_alloc and posix_memalign stand before those of the C
 * library, for the libraries that the program uses too (strdup, fopen and SQLite ask them).
 *
 * Threads: requests of the thread that called refuse_memory are refused, those of others only with `everywhere`. */
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
    long after; /* so many requests are granted, the next one is refused */
    bool all;   /* and every one after it */
    bool own; /* requests of the program's own code alone count: libraries get what they ask for */
    bool everywhere; /* those of every thread count */
} refusal;

/* false: in this build (a sanitizer's) memory belongs to somebody else, nothing can be refused */
bool refuse_memory_works(void);
void refuse_memory(const refusal *r);
/* from now on all are granted; whether any was refused */
bool grant_memory(void);
/* blocks that the process has and did not give back; own: that the program's own code asked for, less those that it
 * gave back */
long memory_blocks(bool own);
/* writes to standard error who asked for what was refused first */
void tell_refused(void);

/* Does something that takes memory, and gives back all of it, whether it succeeds or not. */
typedef bt_code (*needs_memory)(void *ctx, bt_err *err);

/* Runs it with each single request refused (of many, a sample), and with each and all after it: it fails with one line
 * and the code for memory, or succeeds without, and keeps no block. It runs twice before, for what libraries keep.
 * Returns how many requests were refused. */
static inline long survives_refusals(const char *what, needs_memory fn, void *ctx, bool own) {
    long refused = 0;
    bt_err err = BT_ERR_INIT;
    for (int i = 0; i < 2; i++) {
        err = (bt_err)BT_ERR_INIT;
        if (fn(ctx, &err) != BT_OK) fail_msg("%s, with all memory: %s", what, err.msg);
    }
    for (int all = 0; all < 2; all++) {
        for (long k = 0;;
             k += own && k < 120 ? 1
                                 : 1 + k / 25) { /* of thousands, as SQLite makes them, a sample */
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
            refused++;
        }
    }
    return refused;
}

#endif

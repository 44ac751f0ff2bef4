/* fake_mpi.h - functions of MPI in the place of the library's, for one process that takes itself for one of several:
 * each call is a line of a text with all it is given, requests are numbered, and any function can be made to fail. What
 * is received is of the test's making. For one test program.
 *
 * Requests are named by their number, buffers by the order in which they are first seen (a, b, ...). */
#ifndef BT_TESTS_FAKE_MPI_H
#define BT_TESTS_FAKE_MPI_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engine/base/clock.h"
#include "engine/base/span.h"
#include "engine/base/tables/metric.h"
#include "engine/parallel/mpi/comm_internal.h"
#include "tests/heard.h"

enum { FAKE_REQUESTS = 256 };

static const char *call_fails; /* the function that fails; NULL: none */
static int64_t wait_takes_ns;  /* a wait for one request */
static const void *seen_buffer[26];
static int n_requests;
static int tests_that_wait; /* so many tests find what they ask for under way */
static struct {
    void *into; /* of a receiving one */
    size_t bytes;
} fake_request[FAKE_REQUESTS];

static int outcome(const char *function) {
    return call_fails && strcmp(call_fails, function) == 0 ? MPI_ERR_OTHER : MPI_SUCCESS;
}

static char letter_of(const void *buffer) {
    for (int i = 0; i < 26; i++) {
        if (!seen_buffer[i]) seen_buffer[i] = buffer;
        if (seen_buffer[i] == buffer) return (char)('a' + i);
    }
    return '?';
}

static inline void forget_calls(void) {
    bt_text_clear(&heard);
    memset(seen_buffer, 0, sizeof seen_buffer);
    memset(fake_request, 0, sizeof fake_request);
    n_requests = tests_that_wait = 0;
    wait_takes_ns = 0;
    call_fails = NULL;
}

static const char *type_of(MPI_Datatype type) {
    return type == MPI_FLOAT      ? "floats"
           : type == MPI_UINT16_T ? "halves"
           : type == MPI_BYTE     ? "bytes"
           : type == MPI_DOUBLE   ? "doubles"
           : type == MPI_INT64_T  ? "longs"
           : type == MPI_INT      ? "ints"
                                  : "?";
}

static inline const char *name_of_op(MPI_Op op) {
    return op == MPI_SUM ? "sum" : op == MPI_MAX ? "largest" : op == MPI_MIN ? "least" : "?";
}

static size_t size_of(MPI_Datatype type) {
    return type == MPI_FLOAT ? 4 : type == MPI_UINT16_T ? 2 : type == MPI_DOUBLE ? 8 : 1;
}

static MPI_Request next_request(void *into, size_t bytes) {
    assert_true(n_requests < FAKE_REQUESTS);
    fake_request[n_requests].into = into;
    fake_request[n_requests].bytes = bytes;
    return (MPI_Request)(uintptr_t)(++n_requests);
}

/* 0: there is none; -1: nobody has set it */
static int number_of(MPI_Request r) {
    return r == MPI_REQUEST_NULL ? 0 : r == (MPI_Request)0 ? -1 : (int)(uintptr_t)r;
}

/* a message is made of floats that are the number of its request; one of another length of bytes that are */
static void arrive(int request) {
    if (request <= 0 || !fake_request[request - 1].into) return;
    unsigned char *to = fake_request[request - 1].into;
    const size_t bytes = fake_request[request - 1].bytes;
    const float x = (float)request;
    for (size_t i = 0; bytes % 4 == 0 && i < bytes; i += 4) memcpy(to + i, &x, 4);
    if (bytes % 4 != 0) memset(to, request, bytes);
}

int MPI_Error_string(int rc, char *text, int *n) {
    *n = sprintf(text, rc == MPI_ERR_OTHER ? "the link is gone" : "?");
    return MPI_SUCCESS;
}

int MPI_Irecv(void *to, int n, MPI_Datatype type, int from, int tag, MPI_Comm c, MPI_Request *r) {
    (void)c;
    *r = next_request(to, (size_t)n * size_of(type));
    said("irecv %d: %d %s to %c from %d tag %d", n_requests, n, type_of(type), letter_of(to), from,
         tag);
    return outcome("irecv");
}

int MPI_Isend(const void *from, int n, MPI_Datatype type, int to, int tag, MPI_Comm c,
              MPI_Request *r) {
    (void)c;
    *r = next_request(NULL, 0);
    said("isend %d: %d %s of %c to %d tag %d", n_requests, n, type_of(type), letter_of(from), to,
         tag);
    return outcome("isend");
}

int MPI_Wait(MPI_Request *r, MPI_Status *s) {
    (void)s;
    said("wait %d", number_of(*r));
    if (wait_takes_ns > 0) bt_sleep_ns(wait_takes_ns);
    arrive(number_of(*r));
    *r = MPI_REQUEST_NULL;
    return outcome("wait");
}

int MPI_Waitall(int n, MPI_Request *r, MPI_Status *s) {
    (void)s;
    bt_text_put(&heard, "wait for");
    for (int i = 0; i < n; i++) {
        bt_text_printf(&heard, " %d", number_of(r[i]));
        arrive(number_of(r[i]));
        r[i] = MPI_REQUEST_NULL;
    }
    said("%s", "");
    return outcome("wait");
}

int MPI_Testall(int n, MPI_Request *r, int *done, MPI_Status *s) {
    (void)s;
    *done = tests_that_wait == 0;
    bt_text_put(&heard, *done ? "have" : "lack");
    for (int i = 0; i < n; i++) {
        bt_text_printf(&heard, " %d", number_of(r[i]));
        if (!*done) continue;
        arrive(number_of(r[i]));
        r[i] = MPI_REQUEST_NULL;
    }
    said("%s", "");
    if (tests_that_wait > 0) tests_that_wait--;
    return outcome("test");
}

int MPI_Send(const void *from, int n, MPI_Datatype type, int to, int tag, MPI_Comm c) {
    (void)c, (void)from;
    said("send %d %s to %d tag %d", n, type_of(type), to, tag);
    return outcome("send");
}

int MPI_Recv(void *to, int n, MPI_Datatype type, int from, int tag, MPI_Comm c, MPI_Status *s) {
    (void)c, (void)to, (void)s;
    said("recv %d %s from %d tag %d", n, type_of(type), from, tag);
    return outcome("recv");
}

int MPI_Iprobe(int from, int tag, MPI_Comm c, int *flag, MPI_Status *s) {
    (void)c, (void)s;
    *flag = 0;
    said("probe from %s tag %d", from == MPI_ANY_SOURCE ? "any" : "one", tag);
    return MPI_SUCCESS;
}

int MPI_Allreduce(const void *x, void *y, int n, MPI_Datatype type, MPI_Op op, MPI_Comm c) {
    (void)c;
    assert_ptr_equal(x, MPI_IN_PLACE);
    said("all-reduce %d %s of %c: %s", n, type_of(type), letter_of(y), name_of_op(op));
    return outcome("all-reduce");
}

/* what was measured has ended: no time is charged to it any more */
static inline void no_span_is_open(void) {
    const int64_t wait_ns = bt_span_ns(BT_MR_WAIT), moved_ns = bt_span_ns(BT_MR_COMM_EXPOSED);
    bt_sleep_ns(1000);
    assert_int_equal(bt_span_ns(BT_MR_WAIT), wait_ns);
    assert_int_equal(bt_span_ns(BT_MR_COMM_EXPOSED), moved_ns);
}

#endif

/* mailbox.c - non-blocking sends and receives, completed as one. */
#include "engine/parallel/mpi/mailbox.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>

#include "engine/base/clock.h"
#include "engine/base/span.h"
#include "engine/parallel/mpi/comm_internal.h"

enum { TAG = 30500 };

struct bt_mailbox {
    bt_comm *comm;
    MPI_Request *requests;
    size_t n;
    size_t max; /* asserted */
    int64_t begin_ns, busy_ns, bytes_logical, bytes_wire;
};

bt_code bt_mailbox_create(bt_mailbox **out, bt_comm *comm, size_t max, bt_err *err) {
    bt_mailbox *b = *out = calloc(1, sizeof *b);
    if (b) *b = (bt_mailbox){.comm = comm, .max = max};
    if (b) b->requests = calloc(max + 1, sizeof *b->requests);
    if (b && b->requests) return BT_OK;
    bt_mailbox_destroy(b);
    *out = NULL;
    return bt_fail(err, BT_NOMEM, "cannot take memory for %zu messages", max);
}

void bt_mailbox_destroy(bt_mailbox *b) {
    if (!b) return;
    free(b->requests);
    free(b);
}

void bt_mailbox_begin(bt_mailbox *b) {
    b->n = 0;
    b->bytes_logical = b->bytes_wire = 0;
    bt_traffic_next();
    b->begin_ns = bt_now_ns();
}

static bt_code fits_message(size_t bytes, bt_err *err) {
    return bytes <= INT_MAX ? BT_OK
                            : bt_fail(err, BT_UNSUPPORTED,
                                      "a message of %zu bytes is longer than MPI can send", bytes);
}

bt_code bt_mailbox_send(bt_mailbox *b, int to, const void *data, size_t bytes, size_t logical_bytes,
                        bt_err *err) {
    assert(b->n < b->max);
    BT_TRY(fits_message(bytes, err));
    b->bytes_logical += (int64_t)logical_bytes;
    b->bytes_wire += (int64_t)bytes;
    return bt_mpi_check(MPI_Isend(data, (int)bytes, MPI_BYTE, to, TAG, b->comm->mpi,
                                  &b->requests[b->n++]),
                        "sending to another rank", err);
}

bt_code bt_mailbox_recv(bt_mailbox *b, int from, void *data, size_t bytes, bt_err *err) {
    assert(b->n < b->max);
    BT_TRY(fits_message(bytes, err));
    return bt_mpi_check(MPI_Irecv(data, (int)bytes, MPI_BYTE, from, TAG, b->comm->mpi,
                                  &b->requests[b->n++]),
                        "receiving from another rank", err);
}

bt_code bt_mailbox_wait(bt_mailbox *b, bt_err *err) {
    if (b->n == 0) return BT_OK;
    bt_span_begin(BT_MR_COMM_EXPOSED);
    int64_t start = bt_now_ns();
    BT_TRY(bt_mpi_check(MPI_Waitall((int)b->n, b->requests, MPI_STATUSES_IGNORE),
                        "exchanging with other ranks", err));
    bt_span_end();
    int64_t end = bt_now_ns();
    b->busy_ns += end - b->begin_ns;
    bt_comm_count((uint64_t)b->bytes_logical, (uint64_t)b->bytes_wire);
    bt_traffic_add(BT_COLL_SEND, b->comm->axis,
                   &(bt_traffic){.calls = 1,
                                 .bytes_logical = b->bytes_logical,
                                 .bytes_wire = b->bytes_wire,
                                 .busy_ns = end - b->begin_ns,
                                 .exposed_ns = end - start});
    b->n = 0;
    return BT_OK;
}

int64_t bt_mailbox_take_busy_ns(bt_mailbox *b) {
    int64_t ns = b->busy_ns;
    b->busy_ns = 0;
    return ns;
}

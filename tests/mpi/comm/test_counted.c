// ctest: ranks=3
/* Properties of comm.c besides the results of collectives: every exchange is counted in its row of traffic.h, each
 * operation exists for each type, errors of MPI are returned, and a communicator of one rank works without MPI. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/parallel/mpi/clock_sync.h"
#include "engine/parallel/mpi/comm_internal.h"
#include "engine/parallel/mpi/host_memory.h"
#include "engine/parallel/mpi/link.h"
#include "engine/parallel/mpi/mailbox.h"
#include "tests/message.h"

static bt_comm *w, *alone; /* alone has one rank and is split from the world */
static int rank, size;
static bt_err err;

/* Checks that an exchange was added to its row and to no other row. */
static void check_one_exchange_counted(bt_coll kind, bt_axis axis, int64_t bytes, bool timed) {
    for (int c = 0; c < BT_COLL_COUNT; c++)
        for (int a = 0; a < BT_AXIS_COUNT; a++) {
            const bt_traffic *t = bt_traffic_get((bt_coll)c, (bt_axis)a);
            const bool it = c == (int)kind && a == (int)axis;
            if (t->calls != it || t->bytes_logical != (it ? bytes : 0) ||
                t->bytes_wire != (it ? bytes : 0) || (t->busy_ns > 0) != (it && timed))
                fail_msg("%s of %s: %lld calls, %lld bytes, expected %lld",
                         bt_coll_name((bt_coll)c), bt_axis_name((bt_axis)a), (long long)t->calls,
                         (long long)t->bytes_wire, (long long)(it ? bytes : 0));
        }
    bt_traffic_reset();
}

static void every_exchange_is_counted_in_its_row(void **state) {
    (void)state;
    enum { N = 300 };
    static unsigned char all[3 * 8 * N];
    static float f[N];
    static double d[N];
    static int64_t x[N];
    bt_request r;
    _Atomic int64_t begun = 0;
    bt_traffic_reset();
    bt_traffic_count_in(&begun);
    const uint64_t before = bt_comm_bytes_wire(), logical = bt_comm_bytes_logical();
    for (int k = 0; k < 2; k++) {
        const bt_axis axis = k ? BT_AXIS_TP : BT_AXIS_WORLD;
        bt_comm_set_axis(w, axis);
        assert_int_equal(bt_all_reduce_f32(w, f, N, BT_SUM, &err), BT_OK);
        check_one_exchange_counted(BT_COLL_ALL_REDUCE, axis, 2 * 4 * N * (size - 1) / size, true);
        assert_int_equal(bt_all_reduce_f64(w, d, N, BT_SUM, &err), BT_OK);
        check_one_exchange_counted(BT_COLL_ALL_REDUCE, axis, 2 * 8 * N * (size - 1) / size, true);
        assert_int_equal(bt_broadcast(w, all, N, 1, &err), BT_OK);
        check_one_exchange_counted(BT_COLL_BROADCAST, axis, rank == 1 ? N * (size - 1) : 0, true);
        assert_int_equal(bt_gather(w, f, sizeof f, all, 2, &err), BT_OK);
        check_one_exchange_counted(BT_COLL_GATHER, axis, rank == 2 ? 0 : (int)sizeof f, true);
        assert_int_equal(bt_all_gather(w, f, sizeof f, all, &err), BT_OK);
        check_one_exchange_counted(BT_COLL_ALL_GATHER, axis, (int)sizeof f * (size - 1), true);
        assert_int_equal(bt_barrier(w, &err), BT_OK);
        check_one_exchange_counted(BT_COLL_BARRIER, axis, 0, true);
        assert_int_equal(bt_all_reduce_i64_start(w, x, N, BT_SUM, &r, &err), BT_OK);
        check_one_exchange_counted(BT_COLL_ALL_REDUCE, axis, 2 * 8 * N * (size - 1) / size, false);
        assert_true(r.active);
        assert_int_equal(bt_request_wait(&r, &err), BT_OK);
        assert_int_equal(bt_gather_start(w, d, sizeof d, all, 1, &r, &err), BT_OK);
        check_one_exchange_counted(BT_COLL_GATHER, axis, rank == 1 ? 0 : (int)sizeof d, false);
        assert_true(r.active);
        assert_int_equal(bt_request_wait(&r, &err), BT_OK);
        assert_false(r.active);
    }
    bt_comm_set_axis(w, BT_AXIS_WORLD);
    bt_traffic_count_in(NULL);
    assert_int_equal(begun, 2 * 8);
    const uint64_t reduced = 2 * (4 + 8 + 8) * N * (uint64_t)(size - 1) / (uint64_t)size,
                   sent = reduced + (rank == 1 ? N * (uint64_t)(size - 1) : 0) +
                          (rank == 2 ? 0 : sizeof f) + sizeof f * (uint64_t)(size - 1) +
                          (rank == 1 ? 0 : sizeof d);
    assert_int_equal(bt_comm_bytes_wire() - before, 2 * sent);
    assert_int_equal(bt_comm_bytes_logical() - logical, 2 * sent);
}

static void every_operation_in_every_type(void **state) {
    (void)state;
    static const struct {
        bt_reduce_op op;
        double want; /* expected result for the values rank + 1 of three ranks */
    } rows[] = {{BT_SUM, 6}, {BT_MAX, 3}, {BT_MIN, 1}};
    for (size_t i = 0; i < 3; i++) {
        float f = (float)(rank + 1);
        double d = rank + 1;
        int64_t x = rank + 1, y = rank + 1;
        bt_request r;
        assert_int_equal(bt_all_reduce_f32(w, &f, 1, rows[i].op, &err), BT_OK);
        assert_int_equal(bt_all_reduce_f64(w, &d, 1, rows[i].op, &err), BT_OK);
        assert_int_equal(bt_all_reduce_i64(w, &x, 1, rows[i].op, &err), BT_OK);
        assert_int_equal(bt_all_reduce_i64_start(w, &y, 1, rows[i].op, &r, &err), BT_OK);
        assert_int_equal(bt_request_wait(&r, &err), BT_OK);
        assert_true(f == (float)rows[i].want && d == rows[i].want);
        assert_true(x == (int64_t)rows[i].want && y == (int64_t)rows[i].want);
    }
}

/* A sum above the limit of one all-reduce (lowered here) is divided. */
static void a_long_sum_goes_in_parts(void **state) {
    (void)state;
    const size_t n = (16 << 20) / sizeof(int64_t) + 3;
    int64_t *x = malloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = (int64_t)i + rank;
    assert_int_equal(bt_all_reduce_i64(w, x, n, BT_SUM, &err), BT_OK);
    for (size_t i = 0; i < n; i++) assert_true(x[i] == size * (int64_t)i + 3);
    free(x);
}

static void an_exchange_that_cannot_start(void **state) {
    (void)state;
    bt_request r = {.active = true};
    int64_t x = 5;
    bool done = false;
    assert_int_equal(bt_all_reduce_i64_start(w, &x, 0, BT_SUM, &r, &err), BT_OK);
    assert_false(r.active);
    assert_int_equal(bt_request_test(&r, &done, &err), BT_OK);
    assert_true(done);
    r.active = true;
    assert_int_equal(bt_all_reduce_i64_start(w, &x, (size_t)INT_MAX + 1, BT_SUM, &r, &err), BT_ARG);
    message_has(err.msg, "2147483648 elements are too many for one");
    assert_false(r.active);
    r.active = true;
    assert_int_equal(bt_gather_start(w, &x, (size_t)INT_MAX + 1, NULL, 0, &r, &err), BT_ARG);
    assert_false(r.active);
    bt_mailbox *b = NULL;
    assert_int_equal(bt_mailbox_create(&b, w, 2, &err), BT_OK);
    bt_mailbox_begin(b);
    assert_int_equal(bt_mailbox_send(b, 0, &x, (size_t)INT_MAX + 1, 1, &err), BT_UNSUPPORTED);
    message_has(err.msg, "a message of 2147483648 bytes is longer than");
    assert_int_equal(bt_mailbox_recv(b, 0, &x, (size_t)INT_MAX + 1, &err), BT_UNSUPPORTED);
    /* No message was posted, so waiting ends at once. */
    assert_int_equal(bt_mailbox_wait(b, &err), BT_OK);
    bt_mailbox_destroy(b);
    bt_mailbox_destroy(NULL);
}

/* If a call of MPI fails, the error that is returned contains the rank's number. */
static void errors_of_mpi_are_returned(void **state) {
    (void)state;
    char want[MPI_MAX_ERROR_STRING + 64], said[MPI_MAX_ERROR_STRING] = "";
    int n = 0;
    double d = 1;
    assert_int_equal(bt_mpi_check(MPI_SUCCESS, "nothing", NULL), BT_OK);
    assert_int_equal(bt_mpi_check(MPI_ERR_ROOT, "nothing", NULL), BT_MPI);
    MPI_Error_string(MPI_ERR_ROOT, said, &n);
    err = (bt_err)BT_ERR_INIT;
    assert_int_equal(bt_mpi_check(MPI_ERR_ROOT, "broadcast", &err), BT_MPI);
    snprintf(want, sizeof want, "broadcast failed: %s", said);
    assert_string_equal(err.msg, want);
    assert_int_equal(err.rank, rank);
    err = (bt_err)BT_ERR_INIT;
    assert_int_equal(bt_broadcast(w, &d, sizeof d, size, &err), BT_MPI);
    assert_non_null(strstr(err.msg, "broadcast failed: "));
    assert_int_equal(bt_gather(w, &d, sizeof d, &d, size, &err), BT_MPI);
    assert_non_null(strstr(err.msg, "gather failed: "));
    bt_request r;
    assert_int_equal(bt_gather_start(w, &d, sizeof d, &d, size, &r, &err), BT_MPI);
    assert_false(r.active);
    bt_comm *other = NULL, wrong = {.mpi = MPI_COMM_NULL, .size = 2};
    assert_int_equal(bt_all_reduce_f64(&wrong, &d, 1, BT_SUM, &err), BT_MPI);
    assert_non_null(strstr(err.msg, "all-reduce failed: "));
    assert_int_equal(bt_all_reduce_i64_start(&wrong, (int64_t[]){1}, 1, BT_SUM, &r, &err), BT_MPI);
    assert_int_equal(bt_barrier(&wrong, &err), BT_MPI);
    assert_int_equal(bt_comm_split(&other, &wrong, 0, 0, &err), BT_MPI);
    assert_null(other);
    bt_mailbox *b = NULL;
    assert_int_equal(bt_mailbox_create(&b, w, 4, &err), BT_OK);
    bt_mailbox_begin(b);
    assert_int_equal(bt_mailbox_send(b, size, &d, sizeof d, sizeof d, &err), BT_MPI);
    assert_int_equal(bt_mailbox_recv(b, size, &d, sizeof d, &err), BT_MPI);
    bt_mailbox_destroy(b);
}

static void one_rank_works_without_mpi(void **state) {
    (void)state;
    bt_request r = {.active = true};
    double d = 7, got[2] = {0, 0};
    int64_t x = 3;
    const uint64_t before = bt_comm_bytes_wire();
    bt_traffic_reset();
    assert_int_equal(bt_comm_size(alone), 1);
    assert_int_equal(bt_comm_rank(alone), 0);
    assert_true(alone->mpi == MPI_COMM_NULL);
    assert_int_equal(bt_all_reduce_f64(alone, &d, 1, BT_SUM, &err), BT_OK);
    assert_int_equal(bt_broadcast(alone, &d, sizeof d, 0, &err), BT_OK);
    assert_int_equal(bt_barrier(alone, &err), BT_OK);
    assert_int_equal(bt_gather(alone, &d, sizeof d, &got[0], 0, &err), BT_OK);
    assert_int_equal(bt_all_gather(alone, &d, sizeof d, &got[1], &err), BT_OK);
    assert_int_equal(bt_gather(alone, NULL, 0, NULL, 0, &err), BT_OK);
    assert_true(d == 7 && got[0] == 7 && got[1] == 7);
    got[0] = 0;
    assert_int_equal(bt_gather_start(alone, &d, sizeof d, got, 0, &r, &err), BT_OK);
    assert_true(got[0] == 7 && !r.active);
    assert_int_equal(bt_gather_start(alone, NULL, 0, NULL, 0, &r, &err), BT_OK);
    r.active = true;
    assert_int_equal(bt_all_reduce_i64_start(alone, &x, 1, BT_SUM, &r, &err), BT_OK);
    assert_true(x == 3 && !r.active);
    bt_link l = {.tried = true, .latency_s = 3, .bytes_per_s = 4};
    assert_int_equal(bt_link_measure(&l, alone, 1 << 20, &err), BT_OK);
    assert_true(!l.tried && l.latency_s == 0 && l.bytes_per_s == 0);
    bt_clock_sync s = {5, 6};
    assert_int_equal(bt_clock_sync_ping(&s, alone, &err), BT_OK);
    assert_true(s.offset_ns == 0 && s.error_ns == 0);
    bt_host_memory m;
    assert_int_equal(bt_host_memory_create(&m, alone, 100, "bitrain-test", &err), BT_OK);
    assert_non_null(m.at);
    bt_host_memory_release(&m);
    assert_int_equal(bt_comm_bytes_wire(), before);
    for (int c = 0; c < BT_COLL_COUNT; c++)
        assert_int_equal(bt_traffic_get((bt_coll)c, BT_AXIS_WORLD)->calls, 0);
    assert_int_equal(bt_agree(alone, BT_FORMAT, &err), BT_FORMAT);
    assert_int_equal(bt_agree(alone, BT_OK, &err), BT_OK);
    bt_comm_free(NULL);
}

/* The split reverses the order of the ranks and separates the colours. */
static void a_split_orders_its_ranks_by_key(void **state) {
    (void)state;
    bt_comm *c = NULL;
    int64_t sum = rank;
    assert_int_equal(bt_comm_split(&c, w, 0, -rank, &err), BT_OK);
    assert_int_equal(bt_comm_rank(c), size - 1 - rank);
    assert_int_equal(bt_comm_size(c), size);
    bt_comm_free(c);
    assert_int_equal(bt_comm_split(&c, w, rank == 0, rank, &err), BT_OK);
    assert_int_equal(bt_comm_size(c), rank == 0 ? 1 : size - 1);
    assert_int_equal(bt_all_reduce_i64(c, &sum, 1, BT_SUM, &err), BT_OK);
    assert_int_equal(sum, rank == 0 ? 0 : 3);
    bt_comm_free(c);
}

static int freed; /* number of freed MPI communicators */
static int count_freed(MPI_Comm c, int key, void *value, void *state) {
    (void)c, (void)key, (void)value, (void)state;
    freed++;
    return MPI_SUCCESS;
}

static void a_communicator_is_freed(void **state) {
    (void)state;
    bt_comm *c = NULL;
    int key = MPI_KEYVAL_INVALID;
    assert_int_equal(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, count_freed, &key, NULL),
                     MPI_SUCCESS);
    assert_int_equal(bt_comm_split(&c, w, 0, rank, &err), BT_OK);
    assert_int_equal(MPI_Comm_set_attr(c->mpi, key, NULL), MPI_SUCCESS);
    assert_int_equal(freed, 0);
    bt_comm_free(c);
    assert_int_equal(freed, 1);
    MPI_Comm_free_keyval(&key);
}

static void ranks_of_this_host(void **state) {
    (void)state;
    assert_int_equal(bt_comm_local_rank(), rank);
    assert_int_equal(bt_comm_local_size(), size);
    for (int r = 0; r < size; r++) assert_int_equal(bt_comm_host(r), 0);
    /* MPI has the host name of each rank of the world. */
    bt_comm_expect_hosts((const int[]){1, 1, 1, 1, 1}, 5);
    for (int r = 0; r < size; r++) assert_int_equal(bt_comm_host(r), 0);
    assert_int_equal(bt_comm_host(size), size);
    bt_comm_expect_hosts(NULL, 0);
    assert_true(bt_comm_am_rank());
    assert_int_equal(bt_comm_init(&err), BT_OK); /* MPI is initialized only once. */
    assert_ptr_equal(bt_comm_world(), w);
    char text[256], full[MPI_MAX_LIBRARY_VERSION_STRING];
    int n = 0;
    bt_comm_library(text, sizeof text);
    MPI_Get_library_version(full, &n);
    assert_true(strlen(text) > 3 && strncmp(text, full, strlen(text)) == 0);
    assert_null(strchr(text, '\n'));
    bt_comm_library(text, 4);
    assert_int_equal(strlen(text), 3);
}

/* The lowest failing rank has no error message, and the error of another rank names a rank. */
static void agreement_without_a_message(void **state) {
    (void)state;
    bt_err mine = BT_ERR_INIT;
    assert_int_equal(bt_agree(w, rank == 1 ? BT_IO : BT_OK, NULL), BT_IO);
    assert_int_equal(bt_agree(w, rank == 1 ? BT_IO : BT_OK, rank == 1 ? NULL : &mine), BT_IO);
    if (rank != 1) {
        assert_int_equal(mine.rank, 1);
        assert_int_equal(mine.code, BT_IO);
        assert_string_equal(mine.msg, "");
    }
    mine = (bt_err)BT_ERR_INIT;
    mine.rank = 17; /* a rank of another job */
    assert_int_equal(bt_agree(w, rank == 2 ? BT_DB : BT_OK, &mine), BT_DB);
    assert_int_equal(mine.rank, 17);
    assert_int_equal(mine.code, BT_DB);
}

int main(void) {
    if (bt_comm_init(&err) != BT_OK || bt_comm_size(bt_comm_world()) != 3) return 1;
    w = bt_comm_world();
    rank = bt_comm_rank(w);
    size = bt_comm_size(w);
    if (bt_comm_split(&alone, w, rank, 0, &err) != BT_OK) return 1;
    alarm(30); /* A test that hangs is ended. */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_exchange_is_counted_in_its_row),
        cmocka_unit_test(every_operation_in_every_type),
        cmocka_unit_test(a_long_sum_goes_in_parts),
        cmocka_unit_test(an_exchange_that_cannot_start),
        cmocka_unit_test(errors_of_mpi_are_returned),
        cmocka_unit_test(one_rank_works_without_mpi),
        cmocka_unit_test(a_split_orders_its_ranks_by_key),
        cmocka_unit_test(a_communicator_is_freed),
        cmocka_unit_test(ranks_of_this_host),
        cmocka_unit_test(agreement_without_a_message),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_comm_free(alone);
    bt_comm_finalize();
    /* After MPI ends, a world of one rank remains; ending it again has no effect. */
    failed += bt_comm_size(w) != 1 || bt_comm_rank(w) != 0 || bt_comm_local_rank() != 0 ||
              bt_comm_local_size() != 1 || bt_comm_host(2) != 0 || w->mpi != MPI_COMM_NULL;
    bt_comm_finalize();
    return failed;
}

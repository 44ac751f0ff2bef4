/* test_clock_sync.c - clock offsets computed from messages with given travel times: the shortest round trip is used,
 * and half of it is the stated error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <time.h>

#include <cmocka.h>

#include "engine/base/clock.h"
#include "engine/parallel/mpi/clock_sync.h"
#include "engine/parallel/mpi/comm_internal.h"

enum { ROUNDS = 24, OFFSET_NS = 5000000, SIZE = 3 };

static int64_t now_ns;                            /* this rank's clock */
static int64_t there_ns[ROUNDS], back_ns[ROUNDS]; /* travel times of the messages */
static int64_t others_error_ns;
static int n_sent, n_received, calls;
static struct bt_comm comm = {.size = SIZE};

int clock_gettime(clockid_t id, struct timespec *t) {
    (void)id;
    *t = (struct timespec){now_ns / 1000000000, now_ns % 1000000000};
    return 0;
}

int MPI_Send(const void *data, int n, MPI_Datatype type, int to, int tag, MPI_Comm mpi) {
    (void)tag, (void)mpi;
    calls++;
    assert_true(n == 1 && type == MPI_INT64_T);
    assert_true(*(const int64_t *)data == now_ns);
    assert_int_equal(to, comm.rank == 0 ? 1 + n_sent / ROUNDS : 0);
    /* Rank 0 replies to the requests of each rank. */
    assert_int_equal(n_received - n_sent, comm.rank == 0);
    now_ns += comm.rank == 0 ? 10 : there_ns[n_sent];
    n_sent++;
    return MPI_SUCCESS;
}

int MPI_Recv(void *data, int n, MPI_Datatype type, int from, int tag, MPI_Comm mpi,
             MPI_Status *status) {
    (void)tag, (void)mpi, (void)status;
    calls++;
    assert_true(n == 1 && type == MPI_INT64_T);
    assert_int_equal(from, comm.rank == 0 ? 1 + n_received / ROUNDS : 0);
    *(int64_t *)data = now_ns + OFFSET_NS;
    now_ns += comm.rank == 0 ? 10 : back_ns[n_received];
    n_received++;
    return MPI_SUCCESS;
}

int MPI_Allreduce(const void *mine, void *all, int n, MPI_Datatype type, MPI_Op op, MPI_Comm mpi) {
    int64_t *x = all;
    (void)mpi;
    calls++;
    assert_true(mine == MPI_IN_PLACE && n == 1 && type == MPI_INT64_T && op == MPI_MAX);
    if (others_error_ns > *x) *x = others_error_ns;
    return MPI_SUCCESS;
}

static bt_clock_sync ping_rank_0(int rank) {
    bt_clock_sync s = {1, 1};
    bt_err err = BT_ERR_INIT;
    comm.rank = rank;
    n_sent = n_received = calls = 0;
    assert_int_equal(bt_clock_sync_ping(&s, &comm, &err), BT_OK);
    return s;
}

static void the_shortest_trip_counts(void **state) {
    (void)state;
    for (int shortest = 0; shortest < ROUNDS; shortest += ROUNDS - 1) {
        others_error_ns = 0;
        for (int i = 0; i < ROUNDS; i++) {
            there_ns[i] = i == shortest ? 300 : 400 + i;
            back_ns[i] = i == shortest ? 200 : 250;
        }
        bt_clock_sync s = ping_rank_0(1);
        assert_true(n_sent == ROUNDS && n_received == ROUNDS);
        assert_int_equal(s.offset_ns, OFFSET_NS + 50); /* Both directions take equally long. */
        assert_int_equal(s.error_ns, 251);
        assert_int_equal(bt_clock_sync_common(&s, 1000), OFFSET_NS + 1050);
        others_error_ns = 900; /* The result is the largest error of all ranks. */
        s = ping_rank_0(2);
        assert_int_equal(s.offset_ns, OFFSET_NS + 50);
        assert_int_equal(s.error_ns, 900);
    }
}

static void rank_0_replies_to_each_rank_in_turn(void **state) {
    (void)state;
    others_error_ns = 70;
    const bt_clock_sync s = ping_rank_0(0);
    assert_int_equal(n_sent, (SIZE - 1) * ROUNDS);
    assert_int_equal(n_received, (SIZE - 1) * ROUNDS);
    assert_int_equal(s.offset_ns, 0);
    assert_int_equal(s.error_ns, 70);
}

static void a_single_rank_sends_no_message(void **state) {
    (void)state;
    comm.size = 1;
    const bt_clock_sync s = ping_rank_0(0);
    comm.size = SIZE;
    assert_int_equal(calls, 0);
    assert_true(s.offset_ns == 0 && s.error_ns == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_shortest_trip_counts),
        cmocka_unit_test(rank_0_replies_to_each_rank_in_turn),
        cmocka_unit_test(a_single_rank_sends_no_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

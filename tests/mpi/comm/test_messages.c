// ctest: ranks=3
/* Communication that is not an exchange of gradients or weights: batches of messages, the model of a link, clocks
 * relative to rank 0, shared memory within a host. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/base/clock.h"
#include "engine/base/span.h"
#include "engine/parallel/mpi/clock_sync.h"
#include "engine/parallel/mpi/comm.h"
#include "engine/parallel/mpi/host_memory.h"
#include "engine/parallel/mpi/link.h"
#include "engine/parallel/mpi/mailbox.h"

static bt_comm *w;
static int rank, size;
static bt_err err;

static int smaller_ranks_sum(int by) { return (rank + by) % size; }

static void a_batch_of_messages(void **state) {
    (void)state;
    enum { LONG = 300000 };
    bt_mailbox *b = NULL;
    static unsigned char out[LONG], in[2][LONG];
    int32_t first = 100 + rank, second = 200 + rank, got[4] = {0};
    _Atomic int64_t begun = 0;
    assert_int_equal(bt_mailbox_create(&b, w, 12, &err), BT_OK);
    memset(out, rank + 1, sizeof out);
    bt_traffic_reset();
    bt_traffic_count_in(&begun);
    bt_comm_set_axis(w, BT_AXIS_REPLICATE);
    for (int round = 1; round <= 2; round++) {
        const uint64_t wire = bt_comm_bytes_wire(), logical = bt_comm_bytes_logical();
        const int64_t start = bt_now_ns();
        bt_span_reset();
        bt_mailbox_begin(b);
        for (int by = 1; by <= 2; by++) {
            assert_int_equal(bt_mailbox_recv(b, smaller_ranks_sum(by), &got[2 * by - 2], 4, &err),
                             BT_OK);
            assert_int_equal(bt_mailbox_recv(b, smaller_ranks_sum(by), &got[2 * by - 1], 4, &err),
                             BT_OK);
            assert_int_equal(bt_mailbox_recv(b, smaller_ranks_sum(by), in[by - 1], LONG, &err),
                             BT_OK);
        }
        for (int by = 1; by <= 2; by++) {
            assert_int_equal(bt_mailbox_send(b, smaller_ranks_sum(by), &first, 4, 8, &err), BT_OK);
            assert_int_equal(bt_mailbox_send(b, smaller_ranks_sum(by), &second, 4, 16, &err),
                             BT_OK);
            assert_int_equal(bt_mailbox_send(b, smaller_ranks_sum(by), out, LONG, 2 * LONG, &err),
                             BT_OK);
        }
        assert_int_equal(bt_mailbox_wait(b, &err), BT_OK);
        const int64_t took = bt_now_ns() - start;
        for (int by = 1; by <= 2; by++) {
            assert_int_equal(
                got[2 * by - 2],
                100 + smaller_ranks_sum(by)); /* messages between two ranks keep their order */
            assert_int_equal(got[2 * by - 1], 200 + smaller_ranks_sum(by));
            memset(out, smaller_ranks_sum(by) + 1, sizeof out);
            assert_memory_equal(in[by - 1], out, sizeof out);
        }
        memset(out, rank + 1, sizeof out);
        memset(got, 0, sizeof got);
        memset(in, 0, sizeof in);
        assert_int_equal(bt_comm_bytes_wire() - wire, 2 * (8 + LONG));
        assert_int_equal(bt_comm_bytes_logical() - logical, 2 * (24 + 2 * LONG));
        const bt_traffic *t = bt_traffic_get(BT_COLL_SEND, BT_AXIS_REPLICATE);
        assert_int_equal(t->calls, round);
        assert_int_equal(t->bytes_wire, round * 2 * (8 + LONG));
        assert_int_equal(t->bytes_logical, round * 2 * (24 + 2 * LONG));
        assert_true(t->exposed_ns > 0 && t->busy_ns >= t->exposed_ns);
        if (round == 1) assert_true(t->busy_ns <= took);
        assert_true(bt_span_ns(BT_MR_COMM_EXPOSED) > 0 && bt_span_ns(BT_MR_COMM_EXPOSED) <= took);
        const int64_t busy = bt_mailbox_take_busy_ns(b);
        assert_true(busy > 0 && busy <= took);
        assert_int_equal(bt_mailbox_take_busy_ns(b), 0);
        assert_int_equal(begun, round);
    }
    bt_mailbox_begin(b); /* A batch without messages is not counted as an exchange. */
    assert_int_equal(bt_mailbox_wait(b, &err), BT_OK);
    assert_int_equal(bt_traffic_get(BT_COLL_SEND, BT_AXIS_REPLICATE)->calls, 2);
    bt_traffic_count_in(NULL);
    bt_comm_set_axis(w, BT_AXIS_WORLD);
    bt_mailbox_destroy(b);
}

/* On a busy machine the measurement may give no rate; otherwise the rate is plausible. */
static void links_are_measured(void **state) {
    (void)state;
    static const bt_link_work works[] = {
        {.bytes = 1 << 20, .memory = 4 << 20, .rounds = 3},
        {.bytes = 1, .memory = 1, .rounds = 2},
        {.bytes = 4 << 20, .memory = 1, .rounds = 1, .processor = true}};
    double same[2];
    bt_link l;
    for (size_t i = 0; i < 3; i++) {
        bt_traffic_reset();
        assert_int_equal(bt_link_measure_long(&l, w, &works[i], &err), BT_OK);
        /* The ranks agree on their memory, then on the times of a small and of a large round. */
        assert_int_equal(bt_traffic_get(BT_COLL_ALL_REDUCE, BT_AXIS_WORLD)->calls, 3);
        assert_true(l.tried);
        assert_true(l.bytes_per_s == 0 ? l.latency_s == 0
                                       : l.latency_s >= 1e-9 && l.latency_s < 60);
        assert_true(l.bytes_per_s >= 0 && l.bytes_per_s <= 1e12);
        /* All ranks receive the values of the slowest rank. */
        same[0] = l.bytes_per_s, same[1] = -l.bytes_per_s;
        assert_int_equal(bt_all_reduce_f64(w, same, 2, BT_MAX, &err), BT_OK);
        assert_true(same[0] == l.bytes_per_s && same[1] == -l.bytes_per_s);
    }
    assert_int_equal(bt_link_measure(&l, w, 1 << 16, &err), BT_OK);
    assert_true(l.tried);
}

static void clocks_are_those_of_rank_0(void **state) {
    (void)state;
    bt_clock_sync s = {1, 2};
    int64_t error;
    bt_traffic_reset();
    /* Ranks on one host have the same clock. */
    assert_int_equal(bt_clock_sync_measure(&s, w, &err), BT_OK);
    /* One all-reduce gives the result to all ranks. */
    assert_int_equal(bt_traffic_get(BT_COLL_ALL_REDUCE, BT_AXIS_WORLD)->calls, 1);
    assert_true(s.offset_ns == 0 && s.error_ns == 0);
    assert_int_equal(bt_barrier(w, &err), BT_OK);
    const int64_t start = bt_now_ns();
    assert_int_equal(bt_clock_sync_ping(&s, w, &err), BT_OK);
    int64_t took = bt_now_ns() - start;
    assert_int_equal(bt_all_reduce_i64(w, &took, 1, BT_MAX, &err), BT_OK);
    /* Both ranks use one clock, so the measured offset is within the stated error: half of the shortest of 24 round
     * trips, equal on all ranks. */
    assert_true(s.error_ns > 0 && s.error_ns <= took / 24 / 2 + 1);
    assert_true(llabs(s.offset_ns) <= s.error_ns);
    assert_true(rank > 0 || s.offset_ns == 0);
    error = s.error_ns;
    assert_int_equal(bt_broadcast(w, &error, sizeof error, 0, &err), BT_OK);
    assert_int_equal(error, s.error_ns);
    s.offset_ns = -5;
    assert_int_equal(bt_clock_sync_common(&s, 100), 95);
}

static int open_files_of_this(void) {
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (readdir(d)) n++;
    closedir(d);
    return n;
}

static void memory_of_a_host_is_common(void **state) {
    (void)state;
    static const size_t sizes[] = {1, 4096, 4097, 100000};
    const int files = open_files_of_this();
    for (size_t i = 0; i < 4; i++) {
        bt_host_memory m = {(unsigned char *)&m, 3};
        assert_int_equal(bt_host_memory_create(&m, w, sizes[i], "bitrain-test", &err), BT_OK);
        assert_non_null(m.at);
        assert_int_equal((uintptr_t)m.at % 4096, 0);
        assert_int_equal(m.bytes, (sizes[i] + 4095) / 4096 * 4096 + 4096);
        for (size_t k = 0; k < sizes[i]; k++) assert_int_equal(m.at[k], 0);
        assert_int_equal(bt_barrier(w, &err), BT_OK);
        for (size_t k = (size_t)rank; k < sizes[i]; k += (size_t)size)
            m.at[k] = (unsigned char)(k + 1);
        assert_int_equal(bt_barrier(w, &err), BT_OK);
        for (size_t k = 0; k < sizes[i]; k++) assert_int_equal(m.at[k], (unsigned char)(k + 1));
        /* The shared memory remains mapped after its file was removed. */
        assert_int_equal(open_files_of_this(), files);
        assert_int_equal(bt_barrier(w, &err), BT_OK);
        bt_host_memory_release(&m);
        assert_true(!m.at && m.bytes == 0);
        bt_host_memory_release(&m);
    }
    assert_int_equal(open_files_of_this(), files);
}

int main(void) {
    if (bt_comm_init(&err) != BT_OK || bt_comm_size(bt_comm_world()) != 3) return 1;
    w = bt_comm_world();
    rank = bt_comm_rank(w);
    size = bt_comm_size(w);
    alarm(30); /* A test that hangs is ended. */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_of_messages),
        cmocka_unit_test(links_are_measured),
        cmocka_unit_test(clocks_are_those_of_rank_0),
        cmocka_unit_test(memory_of_a_host_is_common),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_comm_finalize();
    return failed;
}

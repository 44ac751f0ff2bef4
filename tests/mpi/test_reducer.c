// ctest: ranks=3
/* The reducer adds the contributions of all ranks for any bucket size and any order in which pieces become ready; notes
 * are combined by maximum; waiting time is attributed to the ranks that arrive early. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "engine/base/clock.h"
#include "engine/base/testing/testing.h"
#include "engine/parallel/grad/reducer.h"
#include "engine/parallel/mpi/clock_sync.h"
#include "engine/parallel/mpi/traffic.h"

static bt_comm *w;
static int rank, size;
enum { N = 10007 };
static float grads[N];

static bt_mesh plain; /* all ranks are replicas */

static void reduce_one_round(bt_reducer *r, size_t piece, bt_reduce_times *times) {
    bt_err err = BT_ERR_INIT;
    for (int i = 0; i < N; i++) grads[i] = -1;
    bt_reducer_begin(r);
    bt_reducer_last(r);
    /* Writes each piece and marks it ready, as the backward pass does. */
    for (size_t end = N; end > 0;) {
        size_t begin = end > piece ? end - piece : 0;
        for (size_t i = begin; i < end; i++) grads[i] = (float)((i % 97) * (size_t)(rank + 1));
        bt_reducer_ready(r, begin, end);
        end = begin;
    }
    int64_t notes[3] = {rank, -rank, rank == 1 ? 77 : 0};
    if (bt_reducer_finish(r, notes, 3, times, &err) != BT_OK) fail_msg("%s", err.msg);
    for (size_t i = 0; i < N; i++)
        assert_true(grads[i] == (float)((i % 97) * (size_t)(size * (size + 1) / 2)));
    assert_int_equal(notes[0], size - 1);
    assert_int_equal(notes[1], 0);
    assert_int_equal(notes[2], 77);
    assert_true(times->wait_ns >= 0 && times->exposed_ns >= 0 && times->busy_ns > 0);
}

static void sums_are_right_for_any_cut(void **state) {
    (void)state;
    static const size_t bucket_bytes[] = {64, 1000, 16384, 1 << 20}, pieces[] = {1, 13, 1000, N};
    for (int overlap = 0; overlap < 2; overlap++)
        for (size_t b = 0; b < 4; b++) {
            bt_reducer_cfg cfg = {.mesh = &plain,
                                  .grads = grads,
                                  .n = N,
                                  .bucket_bytes = bucket_bytes[b],
                                  .overlap = overlap};
            bt_reducer *r = NULL;
            bt_err err = BT_ERR_INIT;
            assert_int_equal(bt_reducer_create(&r, &cfg, &err), BT_OK);
            for (size_t p = 0; p < 4; p++) {
                bt_reduce_times times;
                reduce_one_round(r, pieces[p], &times);
            }
            bt_reducer_destroy(r);
        }
}

/* Messages within a host without shared memory, too, arrive, and not before they were sent. */
static void messages_are_in_flight_part_of_the_time(void **state) {
    (void)state;
    bt_reducer_cfg cfg = {
        .mesh = &plain, .grads = grads, .n = N, .bucket_bytes = 4096, .overlap = true};
    bt_reducer *r = NULL;
    bt_err err = BT_ERR_INIT;
    bt_reduce_times times;
    bt_testing_exchange_messages = true;
    const int64_t began_ns = bt_now_ns();
    assert_int_equal(bt_reducer_create(&r, &cfg, &err), BT_OK);
    assert_false(bt_reducer_shares_memory(r));
    bt_pairs_reset();
    reduce_one_round(r, 500, &times);
    const int64_t took_ns = bt_now_ns() - began_ns;
    for (int from = 0; from < size; from++) {
        const bt_pair *pair = bt_pair_get(from);
        assert_int_equal(pair->timed > 0, from != rank);
        assert_true(pair->flight_ns >= 0 && pair->flight_ns <= pair->timed * took_ns);
    }
    bt_reducer_destroy(r);
    bt_testing_exchange_messages = false;
}

/* The last rank is 200 ms late: the other ranks wait for it, and it does not wait. */
static void early_ranks_wait(void **state) {
    (void)state;
    bt_reducer_cfg cfg = {
        .mesh = &plain, .grads = grads, .n = N, .bucket_bytes = 4096, .overlap = true};
    bt_reducer *r = NULL;
    bt_err err = BT_ERR_INIT;
    bt_reduce_times times;
    assert_int_equal(bt_reducer_create(&r, &cfg, &err), BT_OK);
    assert_int_equal(bt_barrier(w, &err), BT_OK);
    if (rank == size - 1) bt_sleep_ns(200000000);
    reduce_one_round(r, 500, &times);
    if (rank == size - 1)
        assert_true(times.wait_ns < 50000000);
    else
        assert_true(times.wait_ns > 100000000 && times.exposed_ns < times.wait_ns);
    bt_reducer_destroy(r);
}

static void blocked_time_is_split_by_who_was_late(void **state) {
    (void)state;
    static const struct {
        int64_t blocked, skew, error, wait;
    } cases[] = {
        {1000, 400, 10, 400}, /* the last rank arrived 400 later; the transfer took 600 */
        {1000, 0, 10, 0},     /* all ranks arrived together: transfer only */
        {1000, -300, 10, 0},  /* this rank was the last */
        {1000, 29, 10, 0},    /* less than the error of the clock */
        {1000, 30, 10, 30},   {1000, 5000, 10, 1000}, /* at most the blocked time */
        {0, 400, 10, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bt_reduce_times t = bt_reduce_split(cases[i].blocked, cases[i].skew, cases[i].error);
        assert_int_equal(t.wait_ns, cases[i].wait);
        assert_int_equal(t.exposed_ns, cases[i].blocked - cases[i].wait);
    }
}

/* Ranks that arrive together do not wait: their blocked time is transfer. Other load on the machine may delay a rank in
 * some of these rounds, not in all. */
static void a_transfer_is_exposed_not_waited_for(void **state) {
    (void)state;
    bt_reducer_cfg cfg = {.mesh = &plain, .grads = grads, .n = N, .bucket_bytes = 4096};
    bt_reducer *r = NULL;
    bt_err err = BT_ERR_INIT;
    int64_t exposed = 0;
    assert_int_equal(bt_reducer_create(&r, &cfg, &err), BT_OK);
    for (int i = 0; i < 50; i++) {
        bt_reduce_times times;
        assert_int_equal(bt_barrier(w, &err), BT_OK);
        reduce_one_round(r, N, &times);
        exposed += times.exposed_ns > times.wait_ns;
    }
    assert_int_equal(bt_all_reduce_i64(w, &exposed, 1, BT_MIN, &err), BT_OK);
    assert_true(exposed > 0);
    bt_reducer_destroy(r);
}

static void a_single_rank_exchanges_nothing(void **state) {
    (void)state;
    bt_mesh self;
    bt_err err = BT_ERR_INIT;
    bt_mesh_shape s = {1, 1, 1, size}; /* tensor parallel, without replicas */
    assert_int_equal(bt_mesh_create(&self, &s, w, &err), BT_OK);
    bt_reducer_cfg cfg = {
        .mesh = &self, .grads = grads, .n = N, .bucket_bytes = 4096, .overlap = true};
    bt_reducer *r = NULL;
    bt_reduce_times times;
    assert_int_equal(bt_reducer_create(&r, &cfg, &err), BT_OK);
    for (int i = 0; i < N; i++) grads[i] = 5;
    bt_reducer_begin(r);
    bt_reducer_last(r);
    bt_reducer_ready(r, 0, N);
    int64_t note = rank;
    assert_int_equal(bt_reducer_finish(r, &note, 1, &times, &err), BT_OK);
    for (int i = 0; i < N; i++) assert_true(grads[i] == 5);
    assert_int_equal(note, size - 1); /* Notes are exchanged over the world. */
    bt_reducer_destroy(r);
    bt_mesh_release(&self);
}

/* On one host the true offset is 0, so the measured offset must be within the stated error. */
static void ping_pong_bounds_its_own_error(void **state) {
    (void)state;
    bt_clock_sync s;
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_clock_sync_ping(&s, w, &err), BT_OK);
    assert_true(llabs(s.offset_ns) <= s.error_ns);
    assert_true(s.error_ns > 0);
    assert_int_equal(bt_clock_sync_measure(&s, w, &err), BT_OK);
    assert_int_equal(s.offset_ns, 0);
    assert_int_equal(s.error_ns, 0);
}

int main(void) {
    bt_err err = BT_ERR_INIT;
    if (bt_comm_init(&err) != BT_OK) return 1;
    w = bt_comm_world();
    rank = bt_comm_rank(w);
    size = bt_comm_size(w);
    bt_mesh_shape replicas = {1, size, 1, 1};
    if (bt_mesh_create(&plain, &replicas, w, &err) != BT_OK) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_right_for_any_cut),
        cmocka_unit_test(messages_are_in_flight_part_of_the_time),
        cmocka_unit_test(early_ranks_wait),
        cmocka_unit_test(blocked_time_is_split_by_who_was_late),
        cmocka_unit_test(a_transfer_is_exposed_not_waited_for),
        cmocka_unit_test(a_single_rank_exchanges_nothing),
        cmocka_unit_test(ping_pong_bounds_its_own_error),
    };
    int failed = size > 1 ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
    bt_mesh_release(&plain);
    bt_comm_finalize();
    return failed;
}

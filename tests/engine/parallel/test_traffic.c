/* test_traffic.c - costs of exchanges are summed by kind, by axis and, up to a limit, by sender, and reset when they
 * are read; exchanges in progress are counted for other threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine/base/clock.h"
#include "engine/base/span.h"
#include "engine/parallel/mpi/traffic.h"

/* declared in comm_internal.h, which includes MPI's header */
void bt_comm_count(uint64_t logical_bytes, uint64_t wire_bytes);

static void exchanges_add_up_by_kind_and_axis(void **state) {
    (void)state;
    static const bt_traffic none;
    const bt_traffic one = {1, 2, 30, 40, 500, 600, 700};
    bt_traffic_reset();
    for (int c = 0; c < BT_COLL_COUNT; c++)
        for (int a = 0; a < BT_AXIS_COUNT; a++)
            for (int k = 0; k <= c + a; k++) bt_traffic_add((bt_coll)c, (bt_axis)a, &one);
    for (int c = 0; c < BT_COLL_COUNT; c++)
        for (int a = 0; a < BT_AXIS_COUNT; a++) {
            const int64_t n = c + a + 1;
            const bt_traffic want = {n, 2 * n, 30 * n, 40 * n, 500 * n, 600 * n, 700 * n};
            assert_memory_equal(bt_traffic_get((bt_coll)c, (bt_axis)a), &want, sizeof want);
        }
    bt_traffic_reset();
    for (int c = 0; c < BT_COLL_COUNT; c++)
        for (int a = 0; a < BT_AXIS_COUNT; a++)
            assert_memory_equal(bt_traffic_get((bt_coll)c, (bt_axis)a), &none, sizeof none);
}

static void names_are_those_of_the_record(void **state) {
    (void)state;
    assert_string_equal(bt_axis_name(BT_AXIS_DP), "dp");
    assert_string_equal(bt_axis_name(BT_AXIS_TP), "tp");
    for (int c = 0; c < BT_COLL_COUNT; c++) {
        assert_true(bt_coll_name((bt_coll)c)[0] != '\0');
        for (int other = 0; other < c; other++)
            assert_string_not_equal(bt_coll_name((bt_coll)c), bt_coll_name((bt_coll)other));
    }
}

static void messages_are_counted_by_sender(void **state) {
    (void)state;
    static const bt_pair none;
    const bt_pair one = {1, 20, 3, 400}, two = {2, 40, 6, 800};
    bt_pairs_reset();
    /* Senders outside the range are ignored. */
    for (int from = -1; from <= BT_PAIRS_MAX; from++) {
        bt_pair_add(from, &one);
        if (from % 2) bt_pair_add(from, &one);
    }
    for (int from = 0; from < BT_PAIRS_MAX; from++)
        assert_memory_equal(bt_pair_get(from), from % 2 ? &two : &one, sizeof one);
    bt_pairs_reset();
    for (int from = 0; from < BT_PAIRS_MAX; from++)
        assert_memory_equal(bt_pair_get(from), &none, sizeof none);
}

/* The whole time of a blocking exchange is exposed; its bytes are those counted during the call. */
static void a_blocking_exchange_is_measured(void **state) {
    (void)state;
    _Atomic int64_t begun = 7;
    bt_traffic_reset();
    bt_traffic_next(); /* Only this thread reads the counters. */
    bt_traffic_count_in(&begun);
    bt_comm_count(1000, 2000);
    const int64_t around_ns = bt_now_ns();
    const bt_traffic_mark mark = bt_traffic_begin();
    bt_comm_count(30, 40);
    const int64_t inside_ns = bt_now_ns();
    bt_sleep_ns(1000000);
    const int64_t slept_ns = bt_now_ns() - inside_ns;
    bt_traffic_end(&mark, 0, BT_AXIS_DP);
    const bt_traffic *t = bt_traffic_get(0, BT_AXIS_DP);
    assert_true(t->calls == 1 && t->bytes_logical == 30 && t->bytes_wire == 40);
    assert_true(t->busy_ns >= slept_ns && t->busy_ns <= bt_now_ns() - around_ns);
    assert_true(t->exposed_ns == t->busy_ns && t->wait_ns == 0 && t->rounds == 0);
    bt_traffic_next();
    assert_int_equal(begun, 9);
    bt_traffic_count_in(NULL);
    bt_traffic_next();
    assert_int_equal(begun, 9);
}

/* Waiting inside an exchange does not count as time in flight; exchanges of an evaluation belong to no step. */
static void waits_and_evaluations_are_no_exchange_of_a_step(void **state) {
    (void)state;
    static const bt_traffic none;
    static const bt_pair no_pair;
    bt_traffic_reset();
    bt_pairs_reset();
    bt_span_reset();
    const int64_t begin = bt_now_ns();
    bt_traffic_mark mark = bt_traffic_begin();
    bt_span_begin(BT_MR_WAIT);
    bt_sleep_ns(3000000);
    bt_span_end();
    const int64_t waited = bt_span_ns(BT_MR_WAIT);
    bt_traffic_end(&mark, BT_COLL_ALL_REDUCE, BT_AXIS_TP);
    const int64_t took = bt_now_ns() - begin;
    const bt_traffic *x = bt_traffic_get(BT_COLL_ALL_REDUCE, BT_AXIS_TP);
    assert_true(x->wait_ns == waited && waited >= 3000000);
    assert_true(x->busy_ns == x->exposed_ns && x->busy_ns >= 0 && x->busy_ns <= took - waited);
    bt_traffic_reset();
    bt_span_begin(BT_SPAN_EXCLUDED);
    mark = bt_traffic_begin();
    bt_comm_count(100, 50);
    bt_traffic_end(&mark, BT_COLL_ALL_REDUCE, BT_AXIS_TP);
    bt_traffic_add(BT_COLL_ALL_GATHER, BT_AXIS_SHARD, &(bt_traffic){.calls = 1, .busy_ns = 7});
    bt_pair_add(1, &(bt_pair){.messages = 1, .bytes = 9});
    bt_span_end();
    assert_memory_equal(x, &none, sizeof none);
    assert_memory_equal(bt_traffic_get(BT_COLL_ALL_GATHER, BT_AXIS_SHARD), &none, sizeof none);
    assert_memory_equal(bt_pair_get(1), &no_pair, sizeof no_pair);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waits_and_evaluations_are_no_exchange_of_a_step),
        cmocka_unit_test(exchanges_add_up_by_kind_and_axis),
        cmocka_unit_test(names_are_those_of_the_record),
        cmocka_unit_test(messages_are_counted_by_sender),
        cmocka_unit_test(a_blocking_exchange_is_measured)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_tp_calls.c - a tensor-parallel group by messages, one rank of it: which parts go to whom and come from whom, in
 * chunks and slots, what their sums are, what is counted, and that nothing is asked of MPI after a failure. */
#include "tests/engine/parallel/fake_mpi.h"

#include "engine/kernels/table/kernels.h"
#include "engine/parallel/mpi/comm_internal.h"
#include "engine/parallel/tp/tp_group_internal.h"

enum { CHUNK = 65536 }; /* floats */

static bt_comm axis;
static bt_tp_group *t;
static bt_err err;

static void stand_at(int rank, int size, size_t rows, size_t cols) {
    axis = (bt_comm){.rank = rank, .size = size, .axis = BT_AXIS_TP};
    forget_calls();
    bt_traffic_reset();
    bt_pairs_reset();
    assert_int_equal(bt_tp_group_messages_create(&t, &axis, rows, cols, &err), BT_OK);
    assert_true(t->rank == rank && t->size == size && t->failed == BT_OK);
    assert_true((uintptr_t)t->partial % 64 == 0 && (uintptr_t)t->common % 64 == 0);
    memset(t->partial, 0, rows * cols * sizeof(float)); /* there is room */
    memset(t->common, 0, rows * cols * sizeof(float));
}

static void leave(void) {
    no_span_is_open();
    bt_tp_group_destroy(t);
}

/* an exchange of a kind, of which this rank has sent so much, and its time */
static void counted(bt_coll kind, int64_t sent) {
    const bt_traffic *x = bt_traffic_get(kind, BT_AXIS_TP);
    assert_int_equal(x->calls, 1);
    assert_int_equal(x->bytes_wire, sent);
    assert_int_equal(x->bytes_logical, sent);
    assert_true(x->busy_ns > 0);
    assert_true(bt_tp_group_take_busy_ns(t) > 0);
    bt_traffic_reset();
}

/* the middle rank of three, of whose row there are three chunks: all are under way, then added in turn */
static void parts_are_summed_chunk_by_chunk(void **state) {
    (void)state;
    enum { COLS = 2 * CHUNK + 10 };
    stand_at(1, 3, 3, COLS);
    for (size_t i = 0; i < 3 * (size_t)COLS; i++) t->partial[i] = (float)(i % 97);
    t->reduce_scatter_rows(t, 3, COLS);
    heard_is(
        "irecv 1: 262144 bytes to a from 2 tag 30100\nirecv 2: 262144 bytes to b from 0 tag 30100\n"
        "isend 3: 262144 bytes of c to 0 tag 30100\nisend 4: 262144 bytes of d to 2 tag 30100\n"
        "irecv 5: 262144 bytes to e from 2 tag 30100\nirecv 6: 262144 bytes to f from 0 tag 30100\n"
        "isend 7: 262144 bytes of g to 0 tag 30100\nisend 8: 262144 bytes of h to 2 tag 30100\n"
        "irecv 9: 40 bytes to i from 2 tag 30100\nirecv 10: 40 bytes to j from 0 tag 30100\n"
        "isend 11: 40 bytes of k to 0 tag 30100\nisend 12: 40 bytes of l to 2 tag 30100\n"
        "wait for 1 2 3 4\nwait for 5 6 7 8\nwait for 9 10 11 12\n");
    static const int begins[] = {'c' - 'a', 'g' - 'a', 'k' - 'a'};
    for (int c = 0; c < 3; c++) { /* what goes is the receiver's row */
        assert_ptr_equal(seen_buffer[begins[c]], t->partial + c * CHUNK);
        assert_ptr_equal(seen_buffer[begins[c] + 1], t->partial + 2 * COLS + c * CHUNK);
    }
    for (size_t i = 0; i < 3 * (size_t)COLS; i++) {
        const size_t at = i % COLS;
        const float come = i / COLS != 1 ? 0 : at < CHUNK ? 3 : at < 2 * CHUNK ? 11 : 19;
        if (t->partial[i] != (float)(i % 97) + come) fail_msg("element %zu", i);
    }
    counted(BT_COLL_REDUCE_SCATTER, 2 * 4 * COLS);
    for (int from = -1; from <= 1;
         from += 2) { /* ranks of the world beside this one, of which tp are neighbours */
        const bt_pair *pair = from > 0 ? bt_pair_get(1) : NULL;
        if (pair) assert_true(pair->messages == 3 && pair->bytes == 4 * COLS);
    }
    leave();
}

/* of more chunks than there are slots the next ones go when the first have come */
static void chunks_wait_for_slots(void **state) {
    (void)state;
    enum { COLS = 11 * CHUNK + 1 };
    bt_text want;
    stand_at(0, 2, 2, COLS);
    for (size_t i = 0; i < 2 * (size_t)COLS; i++) t->partial[i] = 1;
    t->reduce_scatter_rows(t, 2, COLS);
    bt_text_init(&want);
    const char *line = bt_text_str(&heard);
    for (int c = 0; c < 12; c++) { /* eight at first, then four more, each behind a wait */
        if (c >= 8) bt_text_printf(&want, "wait for %d %d\n", 2 * (c - 8) + 1, 2 * (c - 8) + 2);
        bt_text_printf(&want, "irecv %d: %d bytes to ? from 1 tag 30100\n", 2 * c + 1,
                       c < 11 ? 4 * CHUNK : 4);
        bt_text_printf(&want, "isend %d: %d bytes of ? to 1 tag 30100\n", 2 * c + 2,
                       c < 11 ? 4 * CHUNK : 4);
    }
    for (int c = 4; c < 12; c++) bt_text_printf(&want, "wait for %d %d\n", 2 * c + 1, 2 * c + 2);
    for (char *at = strstr((char *)(uintptr_t)line, " to "); at; at = strstr(at + 1, " to "))
        if (at[4] >= 'a') at[4] = '?'; /* a buffer */
    for (char *at = strstr((char *)(uintptr_t)line, " of "); at; at = strstr(at + 1, " of "))
        at[4] = '?';
    heard_is(bt_text_str(&want));
    bt_text_release(&want);
    for (size_t i = 0; i < COLS; i++)
        if (t->partial[i] != 1 + (float)(2 * (i / CHUNK) + 1)) fail_msg("element %zu", i);
    for (size_t i = COLS; i < 2 * (size_t)COLS; i++) assert_true(t->partial[i] == 1);
    leave();
}

/* rows of several arrays, of which the last rank has fewer; rows that are longer than a message go one by one */
static void rows_are_gathered(void **state) {
    (void)state;
    static float wide[5 * 2];
    static unsigned char narrow[5 * 3];
    stand_at(1, 3, 8, 8);
    for (int k = 0; k < 5 * 3; k++) narrow[k] = 200;
    for (int k = 0; k < 5 * 2; k++) wide[k] = -1;
    const size_t first = bt_tp_first_row(5, 1, 3), end = bt_tp_first_row(5, 2, 3);
    assert_true(first == 1 && end == 3);
    t->all_gather_rows(t, (const bt_tp_rows[]){{wide, 8}, {narrow, 3}}, 2, 5);
    heard_is("irecv 1: 16 bytes to a from 2 tag 30100\nisend 2: 16 bytes of b to 0 tag 30100\n"
             "irecv 3: 6 bytes to c from 2 tag 30100\nisend 4: 6 bytes of d to 0 tag 30100\n"
             "irecv 5: 8 bytes to e from 0 tag 30100\nisend 6: 16 bytes of b to 2 tag 30100\n"
             "irecv 7: 3 bytes to f from 0 tag 30100\nisend 8: 6 bytes of d to 2 tag 30100\n"
             "wait for 1 2 3 4 5 6 7 8\n");
    static const float want[] = {5, 5, -1, -1, -1, -1, 1, 1, 1, 1};
    static const unsigned char few[] = {7, 7, 7, 200, 200, 200, 200, 200, 200, 3, 3, 3, 3, 3, 3};
    assert_memory_equal(wide, want, sizeof want);
    assert_memory_equal(narrow, few, sizeof few);
    counted(BT_COLL_ALL_GATHER, 2 * (16 + 6));
    leave();
    static unsigned char long_rows[4][300000];
    stand_at(0, 2, 8, 8);
    t->all_gather_rows(t, &(bt_tp_rows){long_rows, sizeof *long_rows}, 1, 4);
    heard_is(
        "irecv 1: 300000 bytes to a from 1 tag 30100\nisend 2: 300000 bytes of b to 1 tag 30100\n"
        "irecv 3: 300000 bytes to c from 1 tag 30100\nisend 4: 300000 bytes of d to 1 tag 30100\n"
        "wait for 1 2\nwait for 3 4\n");
    assert_ptr_equal(seen_buffer[0], long_rows[2]);
    assert_ptr_equal(seen_buffer[1], long_rows[0]);
    assert_ptr_equal(seen_buffer[2], long_rows[3]);
    assert_ptr_equal(seen_buffer[3], long_rows[1]);
    leave();
    static unsigned char small[200][4096]; /* 64 of them a message */
    stand_at(0, 2, 8, 8);
    t->all_gather_rows(t, &(bt_tp_rows){small, sizeof *small}, 1, 200);
    heard_is(
        "irecv 1: 262144 bytes to a from 1 tag 30100\nisend 2: 262144 bytes of b to 1 tag 30100\n"
        "irecv 3: 147456 bytes to c from 1 tag 30100\nisend 4: 147456 bytes of d to 1 tag 30100\n"
        "wait for 1 2\nwait for 3 4\n");
    leave();
}

static void values_of_all_are_gathered(void **state) {
    (void)state;
    const float mine[] = {7, 8};
    float all[6];
    stand_at(2, 3, 8, 8);
    t->all_gather(t, mine, all, sizeof mine);
    heard_is("irecv 1: 8 bytes to a from 0 tag 30100\nisend 2: 8 bytes of b to 1 tag 30100\n"
             "irecv 3: 8 bytes to c from 1 tag 30100\nisend 4: 8 bytes of b to 0 tag 30100\n"
             "wait for 1 2 3 4\n");
    assert_memory_equal(all, ((float[]){1, 1, 3, 3, 7, 8}), sizeof all);
    counted(BT_COLL_ALL_GATHER, 16);
    leave();
}

/* among two of four neighbours: each owns a half, adds it, and gives it to the other */
static void neighbours_sum_among_themselves(void **state) {
    (void)state;
    float x[] = {10, 20, 30};
    stand_at(3, 4, 8, 8);
    t->all_reduce(t, x, 3, 2);
    heard_is("irecv 1: 8 bytes to a from 2 tag 30100\nisend 2: 4 bytes of b to 2 tag 30100\n"
             "wait for 1 2\n"
             "irecv 3: 4 bytes to b from 2 tag 30100\nisend 4: 8 bytes of c to 2 tag 30100\n"
             "wait for 3 4\n");
    assert_memory_equal(x, ((float[]){3, 21, 31}), sizeof x);
    counted(BT_COLL_ALL_REDUCE, 12);
    leave();
}

/* told by the first failure; the calls after it are none */
static void nothing_follows_a_failure(void **state) {
    (void)state;
    static const char *const faults[] = {"irecv", "isend", "wait"};
    static const char *const told[] = {
        "irecv 1: 4 bytes to a from 1 tag 30100\n",
        "irecv 1: 4 bytes to a from 1 tag 30100\nisend 2: 4 bytes of b to 1 tag 30100\n",
        "irecv 1: 4 bytes to a from 1 tag 30100\nisend 2: 4 bytes of b to 1 tag 30100\nwait for 1 "
        "2\n"};
    for (int i = 0; i < 3; i++) {
        float x[] = {10, 20};
        stand_at(0, 2, 8, 8);
        call_fails = faults[i];
        t->all_reduce(t, x, 2, 2);
        heard_is(told[i]);
        assert_int_equal(t->failed, BT_MPI);
        assert_int_equal(bt_tp_group_check(t, &err), BT_MPI);
        assert_string_equal(err.msg,
                            "exchange of a tensor-parallel group failed: the link is gone");
        call_fails = NULL;
        t->reduce_scatter_rows(t, 2, 2);
        t->all_gather_rows(t, &(bt_tp_rows){x, 4}, 1, 2);
        heard_is("");
        assert_int_equal(t->failed, BT_MPI);
        leave();
    }
}

int main(void) {
    if (bt_kernels_select("generic", &err) != BT_OK) return 1;
    bt_text_init(&heard);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_summed_chunk_by_chunk),
        cmocka_unit_test(chunks_wait_for_slots),
        cmocka_unit_test(rows_are_gathered),
        cmocka_unit_test(values_of_all_are_gathered),
        cmocka_unit_test(neighbours_sum_among_themselves),
        cmocka_unit_test(nothing_follows_a_failure),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_text_release(&heard);
    return failed;
}

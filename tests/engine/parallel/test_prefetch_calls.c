/* test_prefetch_calls.c - what the gathering of a layer's weights asks of MPI, by the middle rank of three: which parts
 * are asked for and sent ahead of need, in which order of a walk, where they lie when they have come, what is counted,
 * and what is said of a call that fails. */
#include "tests/engine/parallel/fake_mpi.h"

#include "engine/base/threads.h"
#include "engine/parallel/mpi/comm_internal.h"
#include "engine/parallel/mpi/mesh.h"
#include "engine/parallel/shard/weight_prefetch.h"

enum { RANKS = 3, PARTS = 3 };

/* begins of each shard's parts: 8, 4 and 12 bytes of the first, none and 8 and 4, 4 and none and 8 */
static const size_t at[] = {0, 8, 12, 24, 0, 0, 8, 12, 0, 4, 4, 12};
static unsigned char own[12];
static bt_comm axis;
static bt_mesh mesh;
static bt_prefetch *f;
static bt_err err;

static void stand_at(int rank) {
    axis = (bt_comm){.rank = rank, .size = RANKS, .axis = BT_AXIS_SHARD};
    mesh = (bt_mesh){
        .shape = {1, 1, RANKS, 2}, .me = {.dp = rank, .dp_shard = rank, .tp = 1}, .shard = &axis};
    forget_calls();
    bt_traffic_reset();
    bt_pairs_reset();
    err = (bt_err)BT_ERR_INIT;
    assert_int_equal(bt_prefetch_create(&f, &(bt_prefetch_cfg){&mesh, PARTS, at, own}, &err),
                     BT_OK);
}

static void leave(void) {
    bt_prefetch_destroy(f);
    f = NULL;
}

/* bytes of a shard's part that is used now are floats of the number of its request; 0: they are this rank's */
static void part_is(int shard, size_t bytes, int request) {
    const unsigned char *x = bt_prefetch_from(f, shard);
    for (size_t i = 0; request && i < bytes; i += 4)
        assert_memory_equal(x + i, &(float){(float)request}, 4);
}

#define FIRST_ASKS \
    "irecv 1: 4 bytes to a from 2 tag 30001\nirecv 2: 8 bytes to b from 0 tag 30001\n" \
    "irecv 3: 4 bytes to c from 0 tag 30001\n"

/* once through, where the third rank goes through twice: two parts are asked for, eight are sent ahead */
static void forward(void **state) {
    (void)state;
    const uint64_t wire = bt_comm_bytes_wire();
    stand_at(1);
    assert_int_equal(bt_prefetch_begin(f, BT_PASSES_FORWARD, (size_t[]){1, 1, 2}, &err), BT_OK);
    heard_is(FIRST_ASKS "wait 0\nisend 4: 8 bytes of d to 0 tag 30001\n"
                        "wait 0\nisend 5: 8 bytes of d to 2 tag 30001\n"
                        "wait 0\nisend 6: 4 bytes of e to 0 tag 30001\n"
                        "wait 0\nisend 7: 4 bytes of e to 2 tag 30001\n"
                        "wait 0\nisend 8: 8 bytes of d to 2 tag 30001\n"
                        "wait 0\nisend 9: 4 bytes of e to 2 tag 30001\n");
    assert_ptr_equal(seen_buffer[3], own);
    assert_ptr_equal(seen_buffer[4], own + 8);
    assert_int_equal(bt_comm_bytes_wire() - wire, 36);
    tests_that_wait = 2; /* they are late */
    assert_int_equal(bt_prefetch_wait(f, 0, &err), BT_OK);
    assert_memory_equal(bt_text_str(&heard), "lack 2 0 1\n", 11);
    assert_non_null(strstr(bt_text_str(&heard), "have 2 0 1\nhave 3 0 0\n"));
    bt_text_clear(&heard);
    assert_int_equal(bt_prefetch_busy_ns(f) > 0, true);
    part_is(0, 8, 2);
    part_is(2, 4, 1);
    assert_ptr_equal(bt_prefetch_from(f, 2), bt_prefetch_from(f, 0) + 8);
    assert_ptr_equal(bt_prefetch_from(f, 1), own);
    assert_int_equal(bt_prefetch_next(f, &err), BT_OK);
    heard_is("irecv 10: 8 bytes to f from 2 tag 30001\nirecv 11: 12 bytes to b from 0 tag 30001\n");
    assert_int_equal(bt_prefetch_wait(f, 1, &err), BT_OK);
    heard_is("have 11 0 10\n");
    part_is(0, 4, 3);
    assert_ptr_equal(bt_prefetch_from(f, 1), own);
    assert_int_equal(bt_prefetch_next(f, &err), BT_OK);
    heard_is("");
    assert_int_equal(bt_prefetch_wait(f, 2, &err), BT_OK);
    heard_is("");
    part_is(0, 12, 11);
    part_is(2, 8, 10);
    assert_ptr_equal(bt_prefetch_from(f, 2), bt_prefetch_from(f, 0) + 12);
    assert_ptr_equal(bt_prefetch_from(f, 1), own + 8);
    assert_int_equal(bt_prefetch_next(f, &err), BT_OK);
    assert_int_equal(bt_prefetch_end(f, &err), BT_OK);
    bt_text want;
    bt_text_init(&want);
    bt_text_put(&want, "wait for");
    static const int left[32][3] = {
        [1] = {4, 0, 5}, [2] = {6, 0, 7}, [4] = {0, 0, 8}, [5] = {0, 0, 9}};
    for (int i = 0; i < 32; i++)
        for (int r = 0; r < RANKS; r++) bt_text_printf(&want, " %d", left[i][r]);
    bt_text_put(&want, "\n");
    heard_is(bt_text_str(&want));
    bt_text_release(&want);
    const bt_traffic *x = bt_traffic_get(BT_COLL_ALL_GATHER, BT_AXIS_SHARD);
    assert_true(x->bytes_logical == 36 && x->bytes_wire == 36 && x->rounds == 3 && x->calls == 0);
    /* of ranks of the world, tp is the fastest axis */
    assert_true(bt_pair_get(1)->messages == 3 && bt_pair_get(1)->bytes == 24);
    assert_true(bt_pair_get(5)->messages == 2 && bt_pair_get(5)->bytes == 12);
    assert_true(bt_pair_get(3)->messages == 0);
    leave();
}

/* forwards and backwards the last part is visited once, and so is the first but for the ends */
static void there_and_back(void **state) {
    (void)state;
    static const size_t parts[] = {0, 1, 2, 1, 0, 1, 2, 1, 0};
    static const unsigned of_0[] = {8, 4, 12}, of_2[] = {4, 0, 8};
    stand_at(1);
    assert_int_equal(bt_prefetch_begin(f, BT_PASSES_FORWARD_BACKWARD, (size_t[]){2, 2, 2}, &err),
                     BT_OK);
    int sent = 0, got = 0;
    for (size_t i = 0; i < 9; i++) {
        assert_int_equal(bt_prefetch_wait(f, parts[i], &err), BT_OK);
        const unsigned char *x = bt_prefetch_from(f, 0), *y = bt_prefetch_from(f, 2);
        assert_ptr_equal(y, x + of_0[parts[i]]);
        float first;
        memcpy(&first, x, 4);
        for (unsigned k = 0; k < of_0[parts[i]]; k += 4) assert_memory_equal(x + k, &first, 4);
        if (of_2[parts[i]]) assert_true(memcmp(y, &first, 4) != 0);
        assert_int_equal(bt_prefetch_next(f, &err), BT_OK);
    }
    for (const char *line = bt_text_str(&heard); *line; line = strchr(line, '\n') + 1) {
        sent += strncmp(line, "isend", 5) == 0;
        got += strncmp(line, "irecv", 5) == 0;
    }
    assert_int_equal(sent, 2 * (4 + 2)); /* part 1 four times, part 2 twice, to both */
    assert_int_equal(got, 9 + 5);
    bt_text_clear(&heard);
    assert_int_equal(bt_prefetch_end(f, &err), BT_OK);
    leave();
}

/* of four parts of a byte each, whose turn comes in which order */
static void parts_of_a_byte(void **state) {
    (void)state;
    static const size_t bytes[] = {0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4};
    static const size_t parts[] = {0, 1, 2, 3, 2, 1, 0, 1, 2, 3, 2, 1, 0};
    stand_at(1);
    leave();
    assert_int_equal(bt_prefetch_create(&f, &(bt_prefetch_cfg){&mesh, 4, bytes, own}, &err), BT_OK);
    assert_int_equal(bt_prefetch_begin(f, BT_PASSES_FORWARD_BACKWARD, (size_t[]){2, 2, 2}, &err),
                     BT_OK);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        assert_int_equal(bt_prefetch_wait(f, parts[i], &err), BT_OK);
        assert_ptr_equal(bt_prefetch_from(f, 1), own + parts[i]);
        assert_int_equal(bt_prefetch_next(f, &err), BT_OK);
    }
    int sent = 0;
    for (const char *line = bt_text_str(&heard); *line; line = strchr(line, '\n') + 1)
        sent += strncmp(line, "isend", 5) == 0;
    assert_int_equal(sent, 2 * 13);
    assert_int_equal(bt_prefetch_end(f, &err), BT_OK);
    leave();
}

/* where nothing is to come the others are given time; after the walk nobody asks */
static void mpi_is_given_time(void **state) {
    (void)state;
    stand_at(1);
    (void)bt_threads_poll();
    heard_is("");
    assert_int_equal(bt_prefetch_begin(f, BT_PASSES_FORWARD, (size_t[]){0, 0, 0}, &err), BT_OK);
    for (int i = 0; i < 2; i++) {
        (void)bt_threads_poll();
        heard_is("probe from any tag 30001\n");
        bt_sleep_ns(60000);
    }
    const int64_t began_ns = bt_now_ns();
    for (int i = 0; i < 200; i++) (void)bt_threads_poll();
    assert_in_range((int64_t)(heard.len / strlen("probe from any tag 30001\n")), 1,
                    (bt_now_ns() - began_ns) / 50000 + 1);
    bt_text_clear(&heard);
    assert_int_equal(bt_prefetch_end(f, &err), BT_OK);
    bt_text_clear(&heard);
    bt_sleep_ns(60000);
    (void)bt_threads_poll();
    heard_is("");
    assert_int_equal(bt_prefetch_begin(f, BT_PASSES_FORWARD, (size_t[]){0, 1, 0}, &err), BT_OK);
    heard_is(FIRST_ASKS);
    tests_that_wait = 1;
    (void)bt_threads_poll();
    heard_is("lack 2 0 1\n");
    bt_sleep_ns(60000);
    (void)bt_threads_poll();
    heard_is("have 2 0 1\nhave 3 0 0\n");
    leave();
    (void)bt_threads_poll();
    heard_is("");
}

static void what_fails_is_named(void **state) {
    (void)state;
    static const struct {
        const char *fails;
        int when; /* at begin, wait, next, end */
    } rows[] = {{"irecv", 0}, {"isend", 0}, {"wait", 0}, {"test", 1}, {"irecv", 2}, {"wait", 3}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bt_code code[4];
        stand_at(1);
        const size_t passes[] = {1, 1, 1};
        for (int k = 0; k < 4; k++) {
            call_fails = rows[i].when == k ? rows[i].fails : NULL;
            if (k == 0) code[k] = bt_prefetch_begin(f, BT_PASSES_FORWARD, passes, &err);
            if (k == 1) code[k] = bt_prefetch_wait(f, 0, &err);
            if (k == 2) code[k] = bt_prefetch_next(f, &err);
            for (size_t part = 1; k == 3 && part < PARTS; part++) {
                call_fails = NULL;
                assert_int_equal(bt_prefetch_wait(f, part, &err), BT_OK);
                assert_int_equal(bt_prefetch_next(f, &err), BT_OK);
                call_fails = rows[i].fails;
            }
            if (k == 3) code[k] = bt_prefetch_end(f, &err);
            if (k == rows[i].when) break;
        }
        assert_int_equal(code[rows[i].when], BT_MPI);
        assert_string_equal(err.msg, "gathering of a layer's weights failed: the link is gone");
        leave();
    }
}

int main(void) {
    if (bt_threads_init(1, &err) != BT_OK) return 1;
    for (int i = 0; i < 12; i++) own[i] = (unsigned char)(100 + i);
    bt_text_init(&heard);
    const struct CMUnitTest tests[] = {cmocka_unit_test(forward), cmocka_unit_test(there_and_back),
                                       cmocka_unit_test(parts_of_a_byte),
                                       cmocka_unit_test(mpi_is_given_time),
                                       cmocka_unit_test(what_fails_is_named)};
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_text_release(&heard);
    bt_threads_release();
    return failed;
}

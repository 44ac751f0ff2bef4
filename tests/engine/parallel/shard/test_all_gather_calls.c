/* test_all_gather_calls.c - what a gather of shards' weights asks of MPI: which
 * parts of which pieces go to and come from whom, where they lie, what is
 * counted, and what is said of a call that fails. */
#include "tests/engine/parallel/fake_mpi.h"

#include "engine/parallel/mpi/comm_internal.h"
#include "engine/parallel/shard/shard_all_gather.h"

/* two stripes of three pieces each, of four elements; the last piece is empty.
 * Gathered are fp32 values of [0, 6) and bf16 values of [8, 19); nothing is of
 * [6, 8) and of the last element */
enum { SHARDS = 3 };
static const bt_shards shards = {
    .total = 20, .stripe = 12, .piece = 4, .n_stripes = 2, .n = SHARDS};
static float values[6];
static uint16_t table[11];
static bt_comm axis;
static bt_mesh mesh;
static bt_shard_all_gather *p;
static bt_err err;

static void stand_at(int shard) {
    axis = (bt_comm){.rank = shard, .size = SHARDS, .axis = BT_AXIS_SHARD};
    mesh =
        (bt_mesh){.shape = {1, 1, SHARDS, 2}, .me = {.dp_shard = shard, .tp = 1}, .shard = &axis};
    const bt_gathered ranges[] = {{{0, 6}, values, 4}, {{8, 19}, table, 2}};
    forget_calls();
    bt_traffic_reset();
    bt_pairs_reset();
    err = (bt_err)BT_ERR_INIT;
    for (int i = 0; i < 6; i++) values[i] = -1;
    for (int i = 0; i < 11; i++) table[i] = 7;
    assert_int_equal(bt_shard_all_gather_create(&p, &mesh, &shards, ranges, 2, &err), BT_OK);
}

static void leave(void) {
    bt_shard_all_gather_destroy(p);
    bt_shard_all_gather_destroy(NULL);
    p = NULL;
}

static void counted(int64_t calls, int64_t bytes) {
    const bt_traffic *t = bt_traffic_get(BT_COLL_ALL_GATHER, BT_AXIS_SHARD);
    assert_true(t->calls == calls && t->rounds == calls);
    assert_true(t->bytes_logical == bytes && t->bytes_wire == bytes);
    assert_int_equal(t->busy_ns > 0, calls > 0);
    assert_int_equal(t->exposed_ns, t->busy_ns);
    bt_traffic_reset();
}

/* messages and bytes that came from a shard; its rank of the world is 2 shard +
 * 1 */
static void came(int shard, int64_t messages, int64_t bytes) {
    const bt_pair *pair = bt_pair_get(2 * shard + 1);
    assert_true(pair->messages == messages && pair->bytes == bytes && pair->timed == 0);
}

static void parts_of_pieces_go_to_all(void **state) {
    (void)state;
    stand_at(1); /* it owns [4, 8) and [16, 20) */
    const uint64_t before = bt_comm_bytes_wire();
    assert_int_equal(bt_shard_all_gather_start(p, 0, &err), BT_OK);
    heard_is("irecv 1: 4 halves to a from 2 tag 30000\nirecv 2: 4 floats to b "
             "from 0 tag 30000\n"
             "isend 3: 2 floats of c to 0 tag 30000\nisend 4: 2 floats of c to 2 "
             "tag 30000\n");
    assert_true(seen_buffer[0] == table && seen_buffer[1] == values &&
                seen_buffer[2] == values + 4);
    counted(0, 16);
    assert_int_equal(bt_comm_bytes_wire() - before, 16);
    came(0, 1, 16);
    came(2, 1, 8);
    came(1, 0, 0);
    /* the next stripe begins before the first one has come */
    assert_int_equal(bt_shard_all_gather_start(p, 1, &err), BT_OK);
    heard_is("irecv 5: 4 halves to d from 0 tag 30000\n"
             "isend 6: 3 halves of e to 0 tag 30000\nisend 7: 3 halves of e to 2 "
             "tag 30000\n");
    assert_true(seen_buffer[3] == table + 4 && seen_buffer[4] == table + 8);
    came(0, 2, 24);
    assert_int_equal(bt_shard_all_gather_finish(p, &err), BT_OK);
    heard_is("wait for 1 2 3 4 5 6 7\n");
    counted(1, 12);
    for (int i = 0; i < 6; i++) assert_true(values[i] == (i < 4 ? 2 : -1));
    assert_memory_equal(table, ((float[]){1, 1}), 8);
    assert_memory_equal(table + 4, ((float[]){5, 5}), 8);
    for (int i = 8; i < 11; i++) assert_int_equal(table[i], 7);
    assert_int_equal(bt_shard_all_gather_finish(p, &err), BT_OK); /* nothing is under way */
    heard_is("");
    counted(0, 0);
    leave();
}

/* a piece that lies in two ranges goes in two parts; one that is empty, or of
 * which nothing is gathered, in none */
static void a_piece_may_be_several_parts(void **state) {
    (void)state;
    static const bt_shards two = {.total = 16, .stripe = 16, .piece = 8, .n_stripes = 1, .n = 2};
    stand_at(2);
    assert_int_equal(bt_shard_all_gather_start(p, 1, &err), BT_OK); /* its own piece is empty */
    heard_is("irecv 1: 4 halves to a from 0 tag 30000\nirecv 2: 3 halves to b "
             "from 1 tag 30000\n");
    assert_int_equal(bt_shard_all_gather_finish(p, &err), BT_OK);
    leave();
    stand_at(0);
    leave();
    axis.size = 2;
    const bt_gathered ranges[] = {
        {{1, 3}, values, 4}, {{5, 7}, values + 2, 4}, {{7, 10}, table, 2}};
    bt_text_clear(&heard);
    assert_int_equal(bt_shard_all_gather_create(&p, &mesh, &two, ranges, 3, &err), BT_OK);
    assert_int_equal(bt_shard_all_gather_start(p, 0, &err), BT_OK);
    heard_is("irecv 1: 2 halves to a from 1 tag 30000\nisend 2: 2 floats of b to "
             "1 tag 30000\n"
             "isend 3: 2 floats of c to 1 tag 30000\nisend 4: 1 halves of d to 1 "
             "tag 30000\n");
    assert_true(seen_buffer[0] == table + 1 && seen_buffer[1] == values &&
                seen_buffer[2] == values + 2 && seen_buffer[3] == table);
    leave();
}

static void a_call_that_fails_is_told(void **state) {
    (void)state;
    static const char *const calls[] = {"irecv", "isend", "wait"};
    for (int i = 0; i < 3; i++) {
        stand_at(1);
        call_fails = calls[i];
        const bt_code code = bt_shard_all_gather_start(p, 0, &err);
        assert_int_equal(code, i < 2 ? BT_MPI : BT_OK);
        if (i == 2) assert_int_equal(bt_shard_all_gather_finish(p, &err), BT_MPI);
        assert_string_equal(err.msg, "gathering of weights failed: the link is gone");
        assert_int_equal(bt_traffic_get(BT_COLL_ALL_GATHER, BT_AXIS_SHARD)->rounds, 0);
        assert_int_equal(n_requests, i == 0 ? 1 : i == 1 ? 3 : 4);
        leave();
    }
}

int main(void) {
    bt_text_init(&heard);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_of_pieces_go_to_all),
        cmocka_unit_test(a_piece_may_be_several_parts),
        cmocka_unit_test(a_call_that_fails_is_told),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_text_release(&heard);
    return failed;
}

/* test_pipe_calls.c - what a pipeline stage asks of MPI: which messages it awaits and sends, from and to which stage,
 * in which buffer, with which tag, of what length; what it counts; and what it says of a call that fails. */
#include "tests/engine/parallel/fake_mpi.h"

#include "engine/base/threads.h"
#include "engine/kernels/table/kernels.h"
#include "engine/parallel/mpi/comm_internal.h"
#include "engine/parallel/pp/pipe.h"

enum { ELEMS = 5 };

static bt_comm axis;
static bt_mesh mesh;
static bt_pipe *p;
static bt_err err;

static void stand_at(int stage, int stages, const bt_pipe_cfg *cfg) {
    axis = (bt_comm){.rank = stage, .size = stages, .axis = BT_AXIS_PP};
    mesh = (bt_mesh){.shape = {stages, 1, 1, 2}, .me = {.pp = stage, .tp = 1}, .pp = &axis};
    forget_calls();
    bt_traffic_reset();
    bt_pairs_reset();
    err = (bt_err)BT_ERR_INIT;
    assert_int_equal(bt_pipe_create(&p, &mesh, cfg, &err), BT_OK);
}

static void leave(void) {
    if (!call_fails) no_span_is_open();
    call_fails = NULL;
    bt_pipe_destroy(p);
    p = NULL;
}

/* of row "send" along the pipeline, since the last look; times are not nothing where something was moved */
static void counted(int64_t sent, int64_t logical, int64_t wire, bool waited) {
    const bt_traffic *t = bt_traffic_get(BT_COLL_SEND, BT_AXIS_PP);
    assert_int_equal(t->calls, sent);
    assert_int_equal(t->bytes_logical, logical);
    assert_int_equal(t->bytes_wire, wire);
    assert_true(t->busy_ns > 0 && t->exposed_ns == t->busy_ns);
    assert_int_equal(t->wait_ns > 0, waited);
    bt_traffic_reset();
}

/* messages and bytes that came from a rank of the world */
static void came(int rank, int64_t messages, int64_t bytes) {
    const bt_pair *pair = bt_pair_get(rank);
    assert_int_equal(pair->messages, messages);
    assert_int_equal(pair->bytes, bytes);
}

/* the middle one of three: two messages are awaited ahead of need, two buffers are sent in turn */
static void a_stage_in_the_middle(void **state) {
    (void)state;
    float x[ELEMS], want[ELEMS];
    stand_at(1, 3, &(bt_pipe_cfg){.elems = ELEMS, .chunks = 1});
    assert_int_equal(bt_pipe_begin(p, 3, 1, &err), BT_OK);
    heard_is("irecv 1: 5 floats to a from 0 tag 30400\n"
             "irecv 2: 5 floats to b from 0 tag 30400\n"
             "irecv 3: 5 floats to c from 2 tag 30401\n");
    static const char *const recvs[] = {"wait 1\nirecv 4: 5 floats to a from 0 tag 30400\n",
                                        "wait 2\n", "wait 4\n"};
    static const int of[] = {1, 2, 4};
    for (int i = 0; i < 3; i++) {
        wait_takes_ns = i == 0 ? 100000 : 0;
        assert_int_equal(bt_pipe_recv(p, BT_PIPE_DOWN, x, &err), BT_OK);
        if (i == 0) assert_true(bt_traffic_get(BT_COLL_SEND, BT_AXIS_PP)->wait_ns >= 100000);
        for (int k = 0; k < ELEMS; k++) want[k] = (float)of[i];
        assert_memory_equal(x, want, sizeof want);
        heard_is(recvs[i]);
        if (i == 0) counted(0, 0, 0, true);
    }
    assert_int_equal(bt_pipe_recv(p, BT_PIPE_UP, x, &err), BT_OK);
    heard_is("wait 3\n");
    came(1, 3, 60);
    came(5, 1, 20);
    assert_true(bt_pipe_take_busy_ns(p) > 0);
    assert_int_equal(bt_pipe_take_busy_ns(p), 0);
    bt_traffic_reset();
    static const char *const sends[] = {"wait 0\nisend 5: 5 floats of d to 2 tag 30400\n",
                                        "wait 0\nisend 6: 5 floats of e to 2 tag 30400\n",
                                        "wait 5\nisend 7: 5 floats of d to 2 tag 30400\n"};
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < ELEMS; k++) x[k] = (float)(10 * i + k);
        assert_int_equal(bt_pipe_send(p, BT_PIPE_DOWN, x, &err), BT_OK);
        assert_memory_equal(seen_buffer[3 + i % 2], x, sizeof x);
        heard_is(sends[i]);
    }
    assert_int_equal(bt_pipe_send(p, BT_PIPE_UP, x, &err), BT_OK);
    heard_is("wait 0\nisend 8: 5 floats of f to 0 tag 30401\n");
    counted(4, 80, 80, false);
    assert_int_equal(bt_pipe_end(p, &err), BT_OK);
    heard_is("wait 7\nwait 6\nwait 8\nwait 0\n");
    /* the next pass begins anew */
    assert_int_equal(bt_pipe_begin(p, 1, 0, &err), BT_OK);
    heard_is("irecv 9: 5 floats to a from 0 tag 30400\n");
    leave();
}

/* rounded, they are half as long, and counted as what they are made of */
static void messages_are_halved(void **state) {
    (void)state;
    float x[ELEMS] = {1, -2, 3.140625f, 0, 5};
    uint16_t half[ELEMS];
    stand_at(1, 3, &(bt_pipe_cfg){.elems = ELEMS, .bf16 = true, .chunks = 1});
    assert_int_equal(bt_pipe_begin(p, 1, 1, &err), BT_OK);
    heard_is("irecv 1: 5 halves to a from 0 tag 30400\nirecv 2: 5 halves to b from 2 tag 30401\n");
    const uint64_t logical = bt_comm_bytes_logical(), wire = bt_comm_bytes_wire();
    assert_int_equal(bt_pipe_send(p, BT_PIPE_UP, x, &err), BT_OK);
    heard_is("wait 0\nisend 3: 5 halves of c to 0 tag 30401\n");
    bt_k()->to_bf16(half, x, ELEMS);
    assert_memory_equal(seen_buffer[2], half, sizeof half);
    counted(1, 20, 10, false);
    assert_int_equal(bt_comm_bytes_logical() - logical, 20);
    assert_int_equal(bt_comm_bytes_wire() - wire, 10);
    assert_int_equal(bt_pipe_recv(p, BT_PIPE_UP, x, &err), BT_OK);
    memset(half, 2, sizeof half);
    float want[ELEMS];
    bt_k()->from_bf16(want, half, ELEMS);
    assert_memory_equal(x, want, sizeof want);
    came(5, 1, 10);
    leave();
}

/* how many come from whom, of 10 down and 7 up: in a ring the ends are neighbours */
static void neighbours_and_counts(void **state) {
    (void)state;
    static const struct {
        int stage, stages, chunks, before, after, down, up; /* -1: there is none */
    } rows[] = {{0, 3, 1, -1, 1, 0, 7},  {1, 3, 1, 0, 2, 10, 7},  {2, 3, 1, 1, -1, 10, 0},
                {0, 3, 2, 2, 1, 10, 14}, {1, 3, 2, 0, 2, 20, 14}, {2, 3, 2, 1, 0, 20, 7},
                {0, 2, 3, 1, 1, 20, 21}, {1, 2, 3, 0, 0, 30, 14}, {0, 1, 1, -1, -1, 0, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        float x[ELEMS];
        char from[32];
        stand_at(rows[i].stage, rows[i].stages,
                 &(bt_pipe_cfg){.elems = ELEMS, .chunks = rows[i].chunks});
        for (int way = 0; way < 2; way++) {
            const int peer = way ? rows[i].after : rows[i].before,
                      to = way ? rows[i].before : rows[i].after,
                      want = way ? rows[i].up : rows[i].down;
            forget_calls();
            assert_int_equal(bt_pipe_begin(p, way ? 0 : 10, way ? 7 : 0, &err), BT_OK);
            snprintf(from, sizeof from, " from %d tag %d\n", peer, 30400 + way);
            assert_int_equal(n_requests, want < 2 ? want : 2);
            for (int n = 0; n < want; n++) {
                bt_text_clear(&heard);
                assert_int_equal(bt_pipe_recv(p, (bt_pipe_way)way, x, &err), BT_OK);
                if ((strstr(bt_text_str(&heard), from) != NULL) != (n + 2 < want))
                    fail_msg("row %zu, way %d, message %d: %s", i, way, n, bt_text_str(&heard));
            }
            forget_calls();
            assert_int_equal(bt_pipe_end(p, &err), BT_OK);
            forget_calls();
            if (to < 0) continue;
            assert_int_equal(bt_pipe_send(p, (bt_pipe_way)way, x, &err), BT_OK);
            snprintf(from, sizeof from, " to %d tag %d\n", to, 30400 + way);
            if (!strstr(bt_text_str(&heard), from))
                fail_msg("row %zu, way %d: %s", i, way, bt_text_str(&heard));
            assert_int_equal(bt_pipe_end(p, &err), BT_OK);
        }
        leave();
    }
}

/* between the ends, in parts that MPI can count; whoever is in between has no part in it */
static void tables_go_from_end_to_end(void **state) {
    (void)state;
    enum { MOST = 1 << 30 };
    static char x[8];
    static const struct {
        int stage;
        bt_pipe_way way;
        size_t n;
        const char *want;
    } rows[] = {{0, BT_PIPE_UP, 8, "recv 8 bytes from 2 tag 30410\n"},
                {2, BT_PIPE_UP, 8, "send 8 bytes to 0 tag 30410\n"},
                {0, BT_PIPE_DOWN, 8, "send 8 bytes to 2 tag 30410\n"},
                {2, BT_PIPE_DOWN, 8, "recv 8 bytes from 0 tag 30410\n"},
                {1, BT_PIPE_DOWN, 8, ""},
                {2, BT_PIPE_UP, MOST, "send 1073741824 bytes to 0 tag 30410\n"},
                {2, BT_PIPE_UP, (size_t)MOST + 1,
                 "send 1073741824 bytes to 0 tag 30410\nsend 1 bytes to 0 tag 30410\n"},
                {0, BT_PIPE_UP, 2 * (size_t)MOST + 7,
                 "recv 1073741824 bytes from 2 tag 30410\nrecv 1073741824 bytes from 2 tag 30410\n"
                 "recv 7 bytes from 2 tag 30410\n"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        stand_at(rows[i].stage, 3, &(bt_pipe_cfg){.elems = ELEMS, .chunks = 1});
        assert_int_equal(bt_pipe_copy(p, rows[i].way, x, rows[i].n, &err), BT_OK);
        const bool sends = strncmp(rows[i].want, "send", 4) == 0, comes = rows[i].want[0] == 'r';
        heard_is(rows[i].want);
        const int64_t n = (int64_t)rows[i].n;
        if (sends || comes) counted(sends, sends ? n : 0, sends ? n : 0, false);
        came(1, comes && rows[i].stage == 2, comes && rows[i].stage == 2 ? n : 0);
        came(5, comes && rows[i].stage == 0, comes && rows[i].stage == 0 ? n : 0);
        assert_int_equal(bt_pipe_take_busy_ns(p) > 0, sends || comes);
        leave();
    }
}

static void tables_go_up_without_waiting(void **state) {
    (void)state;
    static char x[8];
    const size_t n = (size_t)(1 << 30) + 9;
    const bt_pipe_cfg cfg = {.elems = ELEMS, .chunks = 1, .tables = 5, .table_bytes = n};
    stand_at(2, 3, &cfg);
    for (int at = 1; at >= 0; at--) assert_int_equal(bt_pipe_copy_up(p, at, x, &err), BT_OK);
    heard_is("isend 1: 1073741824 bytes of a to 0 tag 30410\n"
             "isend 2: 9 bytes of b to 0 tag 30410\n"
             "isend 3: 1073741824 bytes of a to 0 tag 30410\n"
             "isend 4: 9 bytes of b to 0 tag 30410\n");
    assert_int_equal((uintptr_t)seen_buffer[1] - (uintptr_t)x, 1 << 30);
    counted(2, 2 * (int64_t)n, 2 * (int64_t)n, false);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(bt_pipe_copy_up_wait(p, 1, &err), BT_OK);
        assert_int_equal(bt_pipe_copy_up_wait(p, 0, &err), BT_OK);
        heard_is(again ? "wait 0\nwait 0\nwait 0\nwait 0\n" : "wait 1\nwait 2\nwait 3\nwait 4\n");
    }
    assert_int_equal(bt_pipe_copy_up_wait(p, 4, &err), BT_OK); /* was never sent */
    heard_is("wait 0\nwait 0\n");
    leave();
    stand_at(0, 3, &(bt_pipe_cfg){.elems = ELEMS, .chunks = 1, .tables = 1, .table_bytes = 8});
    assert_int_equal(bt_pipe_expect(p, x, &err), BT_OK);
    heard_is("irecv 1: 8 bytes to a from 2 tag 30410\n");
    assert_int_equal(bt_pipe_take(p, &err), BT_OK);
    heard_is("wait 1\n");
    assert_memory_equal(x, ((float[]){1, 1}), 8);
    came(5, 1, 8);
    assert_true(bt_traffic_get(BT_COLL_SEND, BT_AXIS_PP)->wait_ns > 0);
    leave();
    stand_at(0, 3, &cfg);
    assert_int_equal(bt_pipe_expect(p, x, &err), BT_OK);
    heard_is("irecv 1: 1073741824 bytes to a from 2 tag 30410\n"
             "irecv 2: 9 bytes to b from 2 tag 30410\n");
    assert_int_equal((uintptr_t)seen_buffer[1] - (uintptr_t)x, 1 << 30);
    memset(fake_request, 0, sizeof fake_request); /* there is no such memory */
    wait_takes_ns = 100000;
    assert_int_equal(bt_pipe_take(p, &err), BT_OK);
    assert_true(bt_traffic_get(BT_COLL_SEND, BT_AXIS_PP)->wait_ns >= 200000);
    heard_is("wait 1\nwait 2\n");
    leave();
}

/* between begin and end MPI is given time while threads wait, every 50 us at most */
static void mpi_is_given_time(void **state) {
    (void)state;
    static const char probe[] = "probe from any tag 30410\n";
    stand_at(1, 3, &(bt_pipe_cfg){.elems = ELEMS, .chunks = 1});
    (void)bt_threads_poll();
    heard_is("");
    assert_int_equal(bt_pipe_begin(p, 0, 0, &err), BT_OK);
    for (int i = 0; i < 3; i++) {
        (void)bt_threads_poll();
        heard_is(probe);
        bt_sleep_ns(60000);
    }
    const int64_t began_ns = bt_now_ns();
    for (int i = 0; i < 200; i++) (void)bt_threads_poll();
    const int64_t most = (bt_now_ns() - began_ns) / 50000 + 1;
    assert_in_range((int64_t)(heard.len / strlen(probe)), 1, most);
    bt_text_clear(&heard);
    assert_int_equal(bt_pipe_end(p, &err), BT_OK);
    bt_text_clear(&heard);
    bt_sleep_ns(60000);
    (void)bt_threads_poll();
    heard_is("");
    assert_int_equal(bt_pipe_begin(p, 0, 0, &err), BT_OK);
    leave(); /* nobody asks what is gone */
    (void)bt_threads_poll();
    heard_is("");
}

static bt_code do_begin(void) { return bt_pipe_begin(p, 3, 3, &err); }
static bt_code do_recv(void) {
    float x[ELEMS];
    return bt_pipe_recv(p, BT_PIPE_DOWN, x, &err);
}
static bt_code do_send(void) { return bt_pipe_send(p, BT_PIPE_DOWN, (float[ELEMS]){0}, &err); }
static bt_code do_end(void) { return bt_pipe_end(p, &err); }
static bt_code do_copy(void) { return bt_pipe_copy(p, BT_PIPE_UP, (char[8]){0}, 8, &err); }
static bt_code do_copy_down(void) { return bt_pipe_copy(p, BT_PIPE_DOWN, (char[8]){0}, 8, &err); }
static char table[8];
static bt_code do_copy_up(void) { return bt_pipe_copy_up(p, 0, table, &err); }
static bt_code do_copy_up_wait(void) { return bt_pipe_copy_up_wait(p, 0, &err); }
static bt_code do_expect(void) { return bt_pipe_expect(p, table, &err); }
static bt_code do_take(void) { return bt_pipe_take(p, &err); }
static bt_code do_sum(void) { return bt_pipe_sum(p, (double[2]){0}, 2, &err); }

static void what_fails_is_named(void **state) {
    (void)state;
    static const struct {
        int stage;
        bt_code (*does)(void);
        const char *fails, *says;
    } rows[] = {{1, do_begin, "irecv", "receiving from a pipeline stage"},
                {1, do_recv, "wait", "receiving from a pipeline stage"},
                {1, do_send, "wait", "sending to a pipeline stage"},
                {1, do_send, "isend", "sending to a pipeline stage"},
                {1, do_end, "wait", "sending to a pipeline stage"},
                {2, do_copy, "send", "sending the tied embedding between stages"},
                {2, do_copy_down, "recv", "sending the tied embedding between stages"},
                {2, do_copy_up, "isend", "sending the tied embedding's gradients"},
                {2, do_copy_up_wait, "wait", "sending the tied embedding's gradients"},
                {0, do_expect, "irecv", "receiving the tied embedding's gradients"},
                {0, do_take, "wait", "receiving the tied embedding's gradients"},
                {1, do_sum, "all-reduce", "all-reduce"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char want[80];
        stand_at(rows[i].stage, 3,
                 &(bt_pipe_cfg){.elems = ELEMS, .chunks = 1, .tables = 1, .table_bytes = 8});
        call_fails = rows[i].fails;
        assert_int_equal(rows[i].does(), BT_MPI);
        snprintf(want, sizeof want, "%s failed: the link is gone", rows[i].says);
        assert_string_equal(err.msg, want);
        leave();
    }
    /* a message that has come makes room for the next, which cannot be awaited */
    stand_at(1, 3, &(bt_pipe_cfg){.elems = ELEMS, .chunks = 1});
    assert_int_equal(do_begin(), BT_OK);
    call_fails = "irecv";
    assert_int_equal(do_recv(), BT_MPI);
    leave();
}

int main(void) {
    if (bt_kernels_select("generic", &err) != BT_OK || bt_threads_init(1, &err) != BT_OK) return 1;
    bt_text_init(&heard);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stage_in_the_middle),        cmocka_unit_test(messages_are_halved),
        cmocka_unit_test(neighbours_and_counts),        cmocka_unit_test(tables_go_from_end_to_end),
        cmocka_unit_test(tables_go_up_without_waiting), cmocka_unit_test(mpi_is_given_time),
        cmocka_unit_test(what_fails_is_named),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_text_release(&heard);
    bt_threads_release();
    return failed;
}

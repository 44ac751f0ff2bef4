// ctest: ranks=3
/* Messages between pipeline stages in both directions, in a chain of stages and in a ring with several chunks of layers
 * per stage, in fp32 and bf16; the tied table between the first and the last stage; counters of messages. */
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
#include "engine/base/threads.h"
#include "engine/kernels/table/kernels.h"
#include "engine/parallel/mpi/comm.h"
#include "engine/parallel/pp/pipe.h"

enum { STAGES = 3, MESSAGES = 5, ELEMS = 3000, TABLE = 1001 };

static bt_mesh mesh;
static int stage;
static bt_err err;

/* Returns a value that depends on border, number and element, and that bf16 represents exactly. */
static float value_of_element(int border, int number, int i) {
    return (float)((border * 7 + number * 3 + i) % 128);
}

static void fill_with_values(float *x, int border, int number) {
    for (int i = 0; i < ELEMS; i++) x[i] = value_of_element(border, number, i);
}

static void check_values(const float *x, int border, int number) {
    for (int i = 0; i < ELEMS; i++)
        if (x[i] != value_of_element(border, number, i))
            fail_msg("stage %d, border %d, message %d: value %d is %g", stage, border, number, i,
                     (double)x[i]);
}

/* Checks the counters since they were reset: the row of sends, and the number of messages by sender. */
static void check_message_counters(int64_t calls, int64_t logical, int64_t wire,
                                   const int64_t *messages, int64_t bytes_each) {
    const bt_traffic *t = bt_traffic_get(BT_COLL_SEND, BT_AXIS_PP);
    if (t->calls != calls || t->bytes_logical != logical || t->bytes_wire != wire)
        fail_msg("stage %d: %lld calls, %lld and %lld bytes, not %lld, %lld and %lld", stage,
                 (long long)t->calls, (long long)t->bytes_logical, (long long)t->bytes_wire,
                 (long long)calls, (long long)logical, (long long)wire);
    for (int from = 0; from < STAGES; from++) {
        assert_int_equal(bt_pair_get(from)->messages, messages[from]);
        assert_int_equal(bt_pair_get(from)->bytes, messages[from] * bytes_each);
    }
    assert_true((t->busy_ns > 0) && t->exposed_ns == t->busy_ns);
    bt_traffic_reset();
    bt_pairs_reset();
}

/* Border i is between virtual stages i and i + 1; chunk c of stage s is virtual stage c * STAGES + s. */
static void check_all_borders(bool bf16, int chunks) {
    const int last = chunks * STAGES - 1;
    const bt_pipe_cfg c = {.elems = ELEMS, .bf16 = bf16, .chunks = chunks};
    const int64_t bytes = ELEMS * (bf16 ? 2 : 4);
    static float x[ELEMS];
    int64_t sent = 0, got[STAGES] = {0};
    bt_pipe *p = NULL;
    assert_int_equal(bt_pipe_create(&p, &mesh, &c, &err), BT_OK);
    for (int round = 0; round < 2; round++) { /* A pipe is created for every step. */
        const uint64_t wire = bt_comm_bytes_wire(), logical = bt_comm_bytes_logical();
        sent = 0;
        memset(got, 0, sizeof got);
        bt_span_reset();
        assert_int_equal(bt_pipe_begin(p, MESSAGES, MESSAGES, &err), BT_OK);
        for (int m = 0; m < MESSAGES; m++)
            for (int k = 0; k < 2 * chunks; k++) {
                const bool down = k < chunks;
                const int v = (down ? k : 2 * chunks - 1 - k) * STAGES + stage,
                          from = down ? v - 1 : v + 1, to = down ? v + 1 : v - 1;
                const bt_pipe_way way = down ? BT_PIPE_DOWN : BT_PIPE_UP;
                if (from >= 0 && from <= last) {
                    memset(x, 0xff, sizeof x);
                    assert_int_equal(bt_pipe_recv(p, way, x, &err), BT_OK);
                    check_values(x, down ? from : 50 + v, m + 10 * round);
                    got[(from + STAGES) % STAGES]++;
                }
                if (to < 0 || to > last) continue;
                fill_with_values(x, down ? v : 50 + to, m + 10 * round);
                assert_int_equal(bt_pipe_send(p, way, x, &err), BT_OK);
                memset(x, 0, sizeof x); /* The buffer is no longer used by the pipe. */
                sent++;
            }
        assert_int_equal(bt_pipe_end(p, &err), BT_OK);
        assert_int_equal(bt_comm_bytes_logical() - logical, sent * ELEMS * 4);
        assert_int_equal(bt_comm_bytes_wire() - wire, sent * bytes);
        assert_true(bt_span_ns(BT_MR_COMM_EXPOSED) > 0 && bt_span_ns(BT_MR_WAIT) > 0);
        const int64_t busy = bt_traffic_get(BT_COLL_SEND, BT_AXIS_PP)->busy_ns;
        assert_true(bt_traffic_get(BT_COLL_SEND, BT_AXIS_PP)->wait_ns > 0);
        assert_int_equal(bt_pipe_take_busy_ns(p), busy);
        assert_int_equal(bt_pipe_take_busy_ns(p), 0);
        check_message_counters(sent, sent * ELEMS * 4, sent * bytes, got, bytes);
    }
    bt_pipe_destroy(p);
}

static void a_chain_of_stages(void **state) {
    (void)state;
    check_all_borders(false, 1);
    check_all_borders(true, 1);
}

static void a_ring_of_chunks(void **state) {
    (void)state;
    check_all_borders(false, 2);
    check_all_borders(true, 3);
}

/* Halfway cases round to even. */
static void values_are_rounded_on_request(void **state) {
    (void)state;
    static const float given[] = {1, 1 + 1 / 256.0f, 1 + 3 / 256.0f, 1 + 5 / 1024.0f, -3.14159274f},
                       rounded[] = {1, 1, 1 + 4 / 256.0f, 1 + 2 / 256.0f, -3.140625f};
    for (int bf16 = 0; bf16 < 2; bf16++) {
        float x[5] = {0};
        bt_pipe *p = NULL;
        assert_int_equal(
            bt_pipe_create(&p, &mesh, &(bt_pipe_cfg){.elems = 5, .bf16 = bf16, .chunks = 1}, &err),
            BT_OK);
        assert_int_equal(bt_pipe_begin(p, 1, 0, &err), BT_OK);
        if (stage == 0) assert_int_equal(bt_pipe_send(p, BT_PIPE_DOWN, given, &err), BT_OK);
        if (stage == 1) {
            assert_int_equal(bt_pipe_recv(p, BT_PIPE_DOWN, x, &err), BT_OK);
            assert_memory_equal(x, bf16 ? rounded : given, sizeof x);
            assert_int_equal(bt_pipe_send(p, BT_PIPE_DOWN, x, &err), BT_OK);
        }
        if (stage == 2) assert_int_equal(bt_pipe_recv(p, BT_PIPE_DOWN, x, &err), BT_OK);
        assert_int_equal(bt_pipe_end(p, &err), BT_OK);
        bt_pipe_destroy(p);
    }
}

/* bt_pipe_destroy returns only after the other stage has received all messages. */
static void destroying_a_pipe_waits_for_messages(void **state) {
    (void)state;
    static float x[ELEMS];
    int64_t times[2] = {0, 0}; /* start of the receiver; end of the sender */
    bt_pipe *p = NULL;
    assert_int_equal(bt_pipe_create(&p, &mesh, &(bt_pipe_cfg){.elems = ELEMS, .chunks = 1}, &err),
                     BT_OK);
    assert_int_equal(bt_barrier(bt_comm_world(), &err), BT_OK);
    if (stage == 1) {
        bt_sleep_ns(50000000);
        times[0] = bt_now_ns();
    }
    assert_int_equal(bt_pipe_begin(p, 1, 0, &err), BT_OK);
    if (stage > 0) assert_int_equal(bt_pipe_recv(p, BT_PIPE_DOWN, x, &err), BT_OK);
    if (stage < 2) assert_int_equal(bt_pipe_send(p, BT_PIPE_DOWN, x, &err), BT_OK);
    assert_int_equal(bt_pipe_end(p, &err), BT_OK);
    if (stage == 0) times[1] = bt_now_ns();
    assert_int_equal(bt_all_reduce_i64(bt_comm_world(), times, 2, BT_MAX, &err), BT_OK);
    assert_true(times[1] > times[0]); /* Ranks of a host share a clock. */
    bt_pipe_destroy(p);
}

static void set(unsigned char *x, int number) {
    for (int i = 0; i < TABLE; i++) x[i] = (unsigned char)(i + 31 * number);
}

static void is_equal_table(const unsigned char *x, int number) {
    unsigned char want[TABLE];
    set(want, number);
    assert_memory_equal(x, want, TABLE);
}

/* Only the first and the last stage exchange the tied table. */
static void tables_pass_between_the_ends(void **state) {
    (void)state;
    enum { LAST = STAGES - 1 };
    static const int64_t none[STAGES] = {0};
    unsigned char x[TABLE] = {0}, y[TABLE];
    bt_pipe *p = NULL;
    const bt_pipe_cfg c = {.elems = 4, .chunks = 1, .tables = 2, .table_bytes = TABLE};
    assert_int_equal(bt_pipe_create(&p, &mesh, &c, &err), BT_OK);
    bt_traffic_reset();
    bt_pairs_reset();
    for (int way = 0; way < 2; way++) {
        const int from = way == BT_PIPE_UP ? LAST : 0, to = LAST - from;
        memset(x, 0, sizeof x);
        if (stage == from) set(x, way);
        const uint64_t before = bt_comm_bytes_wire();
        bt_traffic_reset();
        bt_pairs_reset();
        assert_int_equal(bt_pipe_copy(p, (bt_pipe_way)way, x, TABLE, &err), BT_OK);
        assert_int_equal(bt_comm_bytes_wire() - before, stage == from ? TABLE : 0);
        const bt_traffic *t = bt_traffic_get(BT_COLL_SEND, BT_AXIS_PP);
        assert_int_equal(t->calls, stage == from);
        assert_true((t->busy_ns > 0) == (stage == from || stage == to));
        for (int k = 0; k < STAGES; k++)
            assert_int_equal(bt_pair_get(k)->bytes, stage == to && k == from ? TABLE : 0);
        if (stage == from || stage == to)
            is_equal_table(x, way);
        else
            assert_int_equal(x[TABLE - 1], 0);
    }
    bt_traffic_reset();
    bt_pairs_reset();
    (void)bt_pipe_take_busy_ns(p);
    if (stage == LAST) {
        set(x, 7);
        set(y, 8);
        assert_int_equal(bt_pipe_copy_up(p, 0, x, &err), BT_OK);
        assert_int_equal(bt_pipe_copy_up(p, 1, y, &err), BT_OK);
        assert_int_equal(bt_pipe_copy_up_wait(p, 1, &err), BT_OK);
        assert_int_equal(bt_pipe_copy_up_wait(p, 0, &err), BT_OK);
        check_message_counters(2, 2 * TABLE, 2 * TABLE, none, 0);
    }
    if (stage == 0) {
        memset(x, 0, sizeof x);
        assert_int_equal(bt_pipe_expect(p, x, &err), BT_OK);
        assert_int_equal(bt_pipe_take(p, &err), BT_OK);
        is_equal_table(x, 7);
        assert_int_equal(bt_pair_get(LAST)->bytes, TABLE);
        assert_int_equal(bt_pair_get(LAST)->messages, 1);
        assert_true(bt_traffic_get(BT_COLL_SEND, BT_AXIS_PP)->wait_ns > 0);
        assert_int_equal(bt_pipe_copy(p, BT_PIPE_UP, x, TABLE, &err), BT_OK);
        is_equal_table(x, 8);
        assert_true(bt_pipe_take_busy_ns(p) > 0);
    }
    bt_pipe_destroy(p);
}

static void a_sum_reaches_all(void **state) {
    (void)state;
    bt_pipe *p = NULL;
    double x[2] = {stage == 1 ? 2.5 : 0, stage == 2 ? -4 : 0};
    assert_int_equal(bt_pipe_create(&p, &mesh, &(bt_pipe_cfg){.elems = 4, .chunks = 1}, &err),
                     BT_OK);
    bt_span_reset();
    assert_int_equal(bt_pipe_sum(p, x, 2, &err), BT_OK);
    assert_true(x[0] == 2.5 && x[1] == -4);
    assert_true(bt_span_ns(BT_MR_WAIT) > 0);
    bt_pipe_destroy(p);
}

int main(void) {
    if (bt_comm_init(&err) != BT_OK || bt_comm_size(bt_comm_world()) != STAGES ||
        bt_kernels_select("generic", &err) != BT_OK || bt_threads_init(1, &err) != BT_OK ||
        bt_mesh_create(&mesh, &(bt_mesh_shape){STAGES, 1, 1, 1}, bt_comm_world(), &err) != BT_OK)
        return 1;
    stage = bt_comm_rank(mesh.pp);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chain_of_stages),
        cmocka_unit_test(a_ring_of_chunks),
        cmocka_unit_test(values_are_rounded_on_request),
        cmocka_unit_test(destroying_a_pipe_waits_for_messages),
        cmocka_unit_test(tables_pass_between_the_ends),
        cmocka_unit_test(a_sum_reaches_all),
    };
    alarm(30); /* A test that hangs is ended. */
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_mesh_release(&mesh);
    bt_threads_release();
    bt_comm_finalize();
    return failed;
}

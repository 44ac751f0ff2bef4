// ctest: ranks=4
/* The exchanges of a tensor-parallel group on 4 ranks and on 2 x 2, through shared memory and by messages, equal the
 * definitions in base/tp_group.h: row counts that the ranks do not divide, arrays larger than a buffer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/base/clock.h"
#include "engine/base/rng.h"
#include "engine/base/span.h"
#include "engine/base/testing/testing.h"
#include "engine/parallel/tp/tp_group_create.h"
#include "engine/parallel/tp/tp_group_internal.h"

enum { COLS = 24, LONG = 100003 };
static const size_t row_counts[] = {1, 2, 3, 7, 64, 1001};
enum { N_ROWS = sizeof row_counts / sizeof *row_counts, MOST_ROWS = 1001 };

static bt_comm *axis;
static int me, n;

static float value_of_rank(size_t i, int rank) {
    return (float)(bt_rng_unit(3, (uint64_t)rank, i) - 0.5);
}
static float tree_sum(size_t i, int first, int many) {
    int left = many > 1 ? bt_tp_left(many) : 0;
    return many == 1 ? value_of_rank(i, first)
                     : tree_sum(i, first, left) + tree_sum(i, first + left, many - left);
}
static unsigned char byte_of(size_t i, int rank) {
    return (unsigned char)bt_rng_u64(4, (uint64_t)rank, i);
}

static bt_tp_group *tp_group_of(bool messages) {
    bt_err err = BT_ERR_INIT;
    bt_tp_group *t = NULL;
    bt_testing_tp_messages = messages;
    if (bt_tp_group_create(&t, axis, MOST_ROWS, COLS, &err) != BT_OK) fail_msg("%s", err.msg);
    assert_int_equal(t->rank, me);
    assert_int_equal(t->size, n);
    return t;
}

static void check_gathers(bt_tp_group *t, size_t rows) {
    unsigned char *a = malloc(rows * 5);
    float *b = t->common;
    size_t first = bt_tp_first_row(rows, me, n), end = bt_tp_first_row(rows, me + 1, n);
    memset(a, 0, rows * 5);
    for (size_t i = first * 5; i < end * 5; i++) a[i] = byte_of(i, me);
    float *c = calloc(rows * COLS, sizeof *c);
    for (size_t i = first * COLS; i < end * COLS; i++) b[i] = c[i] = value_of_rank(i, me);
    bt_tp_rows both[] = {{a, 5}, {c, COLS * sizeof(float)}}, one = {b, COLS * sizeof(float)};
    uint64_t before = bt_comm_bytes_wire();
    t->all_gather_rows(t, both, 2, rows);
    assert_true(bt_comm_bytes_wire() - before ==
                (uint64_t)(n - 1) * (end - first) * (5 + COLS * sizeof(float)));
    t->all_gather_rows(t, &one, 1, rows);
    for (int k = 0; k < n; k++) {
        for (size_t r = bt_tp_first_row(rows, k, n); r < bt_tp_first_row(rows, k + 1, n); r++) {
            for (size_t i = r * 5; i < (r + 1) * 5; i++) assert_int_equal(a[i], byte_of(i, k));
            for (size_t i = r * COLS; i < (r + 1) * COLS; i++)
                assert_true(b[i] == value_of_rank(i, k) && c[i] == value_of_rank(i, k));
        }
    }
    free(a);
    free(c);
}

/* A row is as long as a message, so there are more messages than may be in flight, and some ranks have one message
 * less. */
static void gathers_wide(bt_tp_group *t) {
    enum { ROWS = 41, WIDE = 256 << 10 };
    unsigned char *x[2] = {calloc(ROWS, WIDE), calloc(ROWS, WIDE)}, *want = malloc(WIDE);
    const size_t first = bt_tp_first_row(ROWS, me, n), end = bt_tp_first_row(ROWS, me + 1, n);
    for (size_t k = 0; k < 2; k++)
        for (size_t r = first; r < end; r++) memset(x[k] + r * WIDE, (int)(1 + r + 100 * k), WIDE);
    const bt_tp_rows both[] = {{x[0], WIDE}, {x[1], WIDE}};
    t->all_gather_rows(t, both, 2, ROWS);
    for (size_t k = 0; k < 2; k++)
        for (size_t r = 0; r < ROWS; r++) {
            memset(want, (int)(1 + r + 100 * k), WIDE);
            assert_memory_equal(x[k] + r * WIDE, want, WIDE);
        }
    free(x[0]);
    free(x[1]);
    free(want);
}

static void check_reductions(bt_tp_group *t, size_t rows) {
    for (size_t i = 0; i < rows * COLS; i++) t->partial[i] = value_of_rank(i, me);
    t->reduce_scatter_rows(t, rows, COLS);
    for (size_t i = bt_tp_first_row(rows, me, n) * COLS;
         i < bt_tp_first_row(rows, me + 1, n) * COLS; i++) {
        float sum = tree_sum(i, 0, n);
        assert_true(t->partial[i] == sum);
    }
}

static void shares_and_sums(bt_tp_group *t, size_t count) {
    float *mine = malloc(count * sizeof *mine), *all = malloc((size_t)n * count * sizeof *all);
    for (size_t i = 0; i < count; i++) mine[i] = value_of_rank(i, me);
    t->all_gather(t, mine, all, count * sizeof *mine);
    for (int k = 0; k < n; k++)
        for (size_t i = 0; i < count; i++)
            assert_true(all[(size_t)k * count + i] == value_of_rank(i, k));
    for (int group = n; group >= 1; group /= 2) {
        for (size_t i = 0; i < count; i++) mine[i] = value_of_rank(i, me);
        t->all_reduce(t, mine, count, group);
        for (size_t i = 0; i < count; i++) {
            int first = me / group * group;
            float sum = tree_sum(i, first, group);
            assert_true(mine[i] == sum);
        }
    }
    free(mine);
    free(all);
}

/* The time of an exchange is charged to its phases; it counts as waiting time if the arrival of the other ranks is
 * known. */
static void check_charged_phases(bt_tp_group *t, bool messages) {
    enum { LATE_NS = 100000000 };
    shares_and_sums(t, 1);
    bt_span_reset();
    bt_span_begin(BT_MR_FWD);
    if (me == 0) bt_sleep_ns(LATE_NS);
    int64_t forward_ns = bt_span_ns(BT_MR_FWD);
    float mine = 0, all[4];
    t->all_gather(t, &mine, all, sizeof mine);
    int64_t wait_ns = bt_span_ns(BT_MR_WAIT), exposed_ns = bt_span_ns(BT_MR_COMM_EXPOSED);
    assert_true(exposed_ns > 0 && (wait_ns > 0) == !messages);
    if (me > 0) assert_true((messages ? exposed_ns : wait_ns) > LATE_NS / 10);
    if (me == 0) assert_true(forward_ns >= LATE_NS);
    bt_span_end();
}

/* Messages are counted by sender, as a rank of the world; exchanges through shared memory are not counted. */
static void counts_senders(bt_tp_group *t, bool messages) {
    enum { BYTES = 100 };
    unsigned char mine[BYTES] = {0}, all[4 * BYTES];
    const int world = bt_comm_rank(bt_comm_world()), first = world - me;
    bt_pairs_reset();
    t->all_gather(t, mine, all, sizeof mine);
    for (int r = 0; r < bt_comm_size(bt_comm_world()); r++) {
        const bool sends = messages && r != world && r >= first && r < first + n;
        assert_int_equal(bt_pair_get(r)->messages, sends);
        assert_int_equal(bt_pair_get(r)->bytes, sends ? BYTES : 0);
    }
}

static void check_exchanges(bool messages) {
    bt_err err = BT_ERR_INIT;
    bt_tp_group *t = tp_group_of(messages);
    for (size_t k = 0; k < 2 * N_ROWS; k++) {
        size_t rows = row_counts[k % N_ROWS];
        uint64_t before = bt_comm_bytes_wire();
        check_reductions(t, rows);
        size_t own = bt_tp_first_row(rows, me + 1, n) - bt_tp_first_row(rows, me, n);
        assert_true(bt_comm_bytes_wire() - before == (rows - own) * COLS * sizeof(float));
        check_gathers(t, rows);
        shares_and_sums(t, rows);
        assert_true(bt_tp_group_take_busy_ns(t) > 0 && bt_tp_group_take_busy_ns(t) == 0);
    }
    gathers_wide(t);
    counts_senders(t, messages);
    shares_and_sums(t, LONG);
    check_charged_phases(t, messages);
    assert_int_equal(bt_tp_group_check(t, &err), BT_OK);
    bt_tp_group_destroy(t);
}

/* Returns the bytes of this process's mappings whose line contains the word. */
static size_t mapped_bytes(const char *word) {
    char line[4400];
    size_t bytes = 0, from, to;
    FILE *f = fopen("/proc/self/maps", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        if (strstr(line, word) && sscanf(line, "%zx-%zx", &from, &to) == 2) bytes += to - from;
    fclose(f);
    return bytes;
}

/* The memory of a group equals its plan and is freed with the group. */
static void memory_is_freed(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    enum { ROWS = 3, WIDE = 20000, PAGE = 4096 };
    bt_tp_group *t = NULL;
    assert_int_equal(mapped_bytes("bitrain-tp"), 0);
    bt_testing_tp_messages = false;
    if (bt_tp_group_create(&t, axis, ROWS, WIDE, &err) != BT_OK) fail_msg("%s", err.msg);
    assert_in_range(mapped_bytes("bitrain-tp"), bt_tp_group_shm_bytes(n, ROWS, WIDE),
                    bt_tp_group_shm_bytes(n, ROWS, WIDE) + 2 * PAGE);
    for (size_t i = 0; i < (size_t)ROWS * WIDE; i++) t->partial[i] = 1;
    t->reduce_scatter_rows(t, ROWS, WIDE);
    for (size_t i = bt_tp_first_row(ROWS, me, n) * WIDE;
         i < bt_tp_first_row(ROWS, me + 1, n) * WIDE; i++)
        assert_true(t->partial[i] == (float)n);
    bt_tp_group_destroy(t);
    assert_int_equal(mapped_bytes("bitrain-tp"), 0);
}

static void through_memory(void **state) {
    (void)state;
    check_exchanges(false);
}
static void through_messages(void **state) {
    (void)state;
    check_exchanges(true);
}

static int run_tests_on_axis(bt_comm *c) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(through_memory),
                                       cmocka_unit_test(through_messages),
                                       cmocka_unit_test(memory_is_freed)};
    axis = c;
    me = bt_comm_rank(c);
    n = bt_comm_size(c);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void) {
    bt_err err = BT_ERR_INIT;
    bt_comm *half = NULL;
    if (bt_comm_init(&err) != BT_OK || bt_comm_size(bt_comm_world()) != 4) return 1;
    if (bt_comm_split(&half, bt_comm_world(), bt_comm_rank(bt_comm_world()) / 2,
                      bt_comm_rank(bt_comm_world()), &err) != BT_OK)
        return 1;
    int failed = run_tests_on_axis(bt_comm_world()) + run_tests_on_axis(half);
    if (failed) bt_comm_abort(1);
    bt_comm_free(half);
    bt_comm_finalize();
    return failed;
}

/* test_parts.c - what a checkpoint is made with, each part alone: names of its files, blocks of rows,
 * values that are finite, bytes to and from a file. */
#include "tests/engine/ckpt/ckpt_world.h"

#include <float.h>
#include <math.h>
#include <sys/mman.h>

#include "engine/ckpt/format.h"
#include "engine/ckpt/save_steps.h"

static void test_names(void **state) {
    (void)state;
    assert_true(ckpt_file_name_ok("data-00000-0123456789abcdef.btck"));
    assert_true(ckpt_file_name_ok("data-123456-0123456789abcdef.btck"));
    const char *bad[] = {"",
                         "data-00000-0123456789abcdef.btck/x",
                         "../data-00000-0123456789abcdef.btck",
                         "data-0-0123456789abcdef.btck",
                         "data-00000-0123456789ABCDEF.btck",
                         "data--0001-0123456789abcdef.btck",
                         "data-00000-0123456789abcdef.btck.tmp",
                         "/etc/passwd"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_false(ckpt_file_name_ok(bad[i]));
}

/* elements from the first to the last of a block's rows; 0: it is no block */
static void test_span(void **state) {
    (void)state;
    assert_int_equal(ckpt_span(7, 0, 0), 7);
    assert_int_equal(ckpt_span(7, 0, 1), 0);
    assert_int_equal(ckpt_span(12, 4, 10), 24);
    assert_int_equal(ckpt_span(4, 4, 4), 4);
    assert_int_equal(ckpt_span(0, 4, 10), 0);
    assert_int_equal(ckpt_span(13, 4, 10), 0);
    assert_int_equal(ckpt_span(12, 11, 10), 0);
    /* no wrap: the last row would end beyond what 64 bits count */
    assert_int_equal(ckpt_span((UINT64_C(1) << 40) + 1, 1, 1 << 24), 0);
    assert_true(ckpt_span(UINT64_C(1) << 40, 1, 1 << 24) == UINT64_MAX - (1 << 24) + 2);
}

/* whatever is not a number, wherever it is: no checkpoint; bits of another type are none of floats */
static void test_finite(void **state) {
    (void)state;
    enum { N = 100 };
    static const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    static const size_t places[] = {0, 1, N / 2, N - 1};
    float good[N], x[N];
    for (int i = 0; i < N; i++) good[i] = i % 2 ? -FLT_MAX : (float)i;
    memcpy(x, good, sizeof x);
    bt_ckpt_slice s[] = {
        {.tensor = "a", .state = "weight", .count = N, .data = good, .type = BT_CKPT_F32},
        {.tensor = "none", .state = "weight", .count = N, .data = NULL, .type = BT_CKPT_F32},
        {.tensor = "b", .state = "exp_avg", .count = N, .data = x, .type = BT_CKPT_F32}};
    bt_err err = BT_ERR_INIT;
    check_ok(ckpt_check_finite(s, 3, &err), &err);
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
        for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
            x[places[i]] = bad[k];
            assert_int_equal(ckpt_check_finite(s, 3, &err), BT_DAMAGED);
            assert_non_null(strstr(err.msg, "'b' (exp_avg)"));
            x[places[i]] = good[places[i]];
        }
    x[7] = NAN;
    s[2].type = BT_CKPT_U8;
    err = (bt_err)BT_ERR_INIT;
    check_ok(ckpt_check_finite(s, 3, &err), &err);
    /* the last byte is written, and read, like the others */
    char one = 0;
    int fd = memfd_create("byte", MFD_CLOEXEC);
    assert_true(fd >= 0);
    check_ok(ckpt_write_all(fd, "xy", 1, 3, "byte", &err), &err);
    assert_int_equal(lseek(fd, 0, SEEK_END), 4);
    check_ok(ckpt_read_all(fd, &one, 1, 3, "byte", &err), &err);
    assert_int_equal(one, 'x');
    close(fd);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_span),
        cmocka_unit_test(test_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

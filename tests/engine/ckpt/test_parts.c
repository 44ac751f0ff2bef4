/* test_parts.c - components of a checkpoint: names of files, blocks of rows, finite values, reading and writing of
 * files, file heads, and the newest valid manifest of a folder. */
#include "tests/engine/ckpt/ckpt_world.h"

#include <dirent.h>
#include <fcntl.h>
#include <float.h>
#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/ckpt/format.h"
#include "engine/ckpt/save_steps.h"

static void test_file_names(void **state) {
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

/* ckpt_span returns the number of elements from the first to the last of a block's rows, and 0 for an invalid block. */
static void test_span_of_rows(void **state) {
    (void)state;
    assert_int_equal(ckpt_span(7, 0, 0), 7);
    assert_int_equal(ckpt_span(7, 0, 1), 0);
    assert_int_equal(ckpt_span(12, 4, 10), 24);
    assert_int_equal(ckpt_span(4, 4, 4), 4);
    assert_int_equal(ckpt_span(0, 4, 10), 0);
    assert_int_equal(ckpt_span(13, 4, 10), 0);
    assert_int_equal(ckpt_span(12, 11, 10), 0);
    /* The product does not overflow: the last row would end beyond 64 bits. */
    assert_int_equal(ckpt_span((UINT64_C(1) << 40) + 1, 1, 1 << 24), 0);
    assert_true(ckpt_span(UINT64_C(1) << 40, 1, 1 << 24) == UINT64_MAX - (1 << 24) + 2);
}

/* A value that is not finite, at any position, makes a checkpoint invalid; other types of elements are not checked. */
static void test_infinite_values_are_found(void **state) {
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
    char one = 0;
    int fd = memfd_create("byte", MFD_CLOEXEC);
    assert_true(fd >= 0);
    check_ok(ckpt_write_all(fd, "xy", 1, 3, "byte", &err), &err);
    assert_int_equal(lseek(fd, 0, SEEK_END), 4);
    check_ok(ckpt_read_all(fd, &one, 1, 3, "byte", &err), &err);
    assert_int_equal(one, 'x');
    close(fd);
}

/* The check finds a value that is not finite at any index and length, and reads nothing beyond the last element. */
static void test_finite_in_few_bytes(void **state) {
    (void)state;
    static const struct {
        bt_ckpt_type type;
        bt_moment_form form;
    } forms[] = {{BT_CKPT_BF16, BT_MOMENT_BF16},
                 {BT_CKPT_LOG8, BT_MOMENT_LOG8},
                 {BT_CKPT_ULOG8, BT_MOMENT_ULOG8}};
    static const size_t counts[] = {1, 1023, 1024, 1025, 2048, 3000};
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++)
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            const size_t n = counts[c];
            bt_err err = BT_ERR_INIT;
            float *x = malloc(n * sizeof *x);
            uint16_t *few = malloc((n + 1024) * sizeof *few);
            assert_true(x && few);
            /* The elements after the array are NaN. */
            memset(few, 0xff, (n + 1024) * sizeof *few);
            for (size_t i = 0; i < n; i++) x[i] = (float)i / 4;
            bt_moment_convert(few, forms[f].form, x, BT_MOMENT_F32, n);
            const bt_ckpt_slice s = {.tensor = "few",
                                     .state = "exp_avg",
                                     .count = n,
                                     .data = few,
                                     .type = forms[f].type};
            check_ok(ckpt_check_finite(&s, 1, &err), &err);
            for (size_t i = 0; i < n && forms[f].type == BT_CKPT_BF16; i++) {
                const uint16_t was = few[i];
                few[i] = i % 2 ? 0x7f80 : 0xffc1; /* infinity; NaN */
                if (ckpt_check_finite(&s, 1, &err) != BT_DAMAGED) fail_msg("%zu of %zu", i, n);
                assert_non_null(strstr(err.msg, "'few' (exp_avg)"));
                few[i] = was;
            }
            free(x);
            free(few);
        }
}

/* A save of a value that is not finite fails, blocking or not. */
static void test_nothing_infinite_is_saved(void **state) {
    world *s = *state;
    bt_err err = BT_ERR_INIT;
    bt_ckpt_meta meta;
    fill_meta(&meta, 100, 0);
    s->m[N_W - 1] = INFINITY;
    assert_int_equal(save_world(s, &meta, 4, NULL, &err), BT_DAMAGED);
    s->m[N_W - 1] = 1;
    check_ok(save_world(s, &meta, 4, NULL, &err), &err);
    bt_ckpt_meta_release(&meta);
}

static void save_at(world *s, int64_t step, int attempt, char *path) {
    bt_err err = BT_ERR_INIT;
    bt_ckpt_meta meta;
    bt_ckpt_saved saved;
    fill_meta(&meta, step, attempt);
    check_ok(save_world(s, &meta, 4, &saved, &err), &err);
    bt_ckpt_meta_release(&meta);
    strcpy(path, saved.path);
}

/* Reserved bytes are 0, so that a later version can use them. */
static void test_reserved_bytes_of_the_head(void **state) {
    world *s = *state;
    bt_err err = BT_ERR_INIT;
    char path[PATH_MAX], name[2 * PATH_MAX];
    file_head head;
    save_at(s, 100, 0, path);
    DIR *d = opendir(path);
    assert_non_null(d);
    int files = 0;
    for (struct dirent *e; (e = readdir(d));) {
        if (!ckpt_file_name_ok(e->d_name)) continue;
        snprintf(name, sizeof name, "%s/%s", path, e->d_name);
        const int fd = open(name, O_RDONLY);
        assert_true(fd >= 0);
        check_ok(ckpt_read_all(fd, &head, sizeof head, 0, name, &err), &err);
        close(fd);
        assert_memory_equal(head.magic, CKPT_FILE_MAGIC, 8);
        assert_int_equal(head.step, 100);
        assert_true(head.reserved == 0);
        files++;
    }
    closedir(d);
    assert_int_equal(files, 1);
}

/* A path that contains a per cent sign can be used for a checkpoint. */
static void test_a_path_with_a_per_cent_sign(void **state) {
    world *s = *state;
    bt_err err = BT_ERR_INIT;
    char path[PATH_MAX], odd[PATH_MAX], found[PATH_MAX];
    save_at(s, 100, 0, path);
    snprintf(odd, sizeof odd, "%s/50%%done", s->dir);
    assert_int_equal(symlink(path, odd), 0);
    check_ok(bt_ckpt_find(bt_comm_world(), odd, found, sizeof found, NULL, NULL, &err), &err);
    assert_string_equal(found, odd);
}

/* Folders with a missing or damaged manifest are skipped. */
static void test_damaged_folders_are_skipped(void **state) {
    world *s = *state;
    char path[PATH_MAX], name[PATH_MAX + 16];
    int attempt = -1;
    int64_t step = -1;
    assert_false(bt_ckpt_peek(s->dir, &attempt, &step));
    save_at(s, 100, 1, path);
    assert_true(bt_ckpt_peek(s->dir, &attempt, &step));
    assert_true(attempt == 1 && step == 100);
    for (int k = 0; k < 2; k++) {
        save_at(s, 200 + 100 * k, 2, path);
        assert_true(bt_ckpt_peek(s->dir, &attempt, &step));
        assert_true(attempt == 2 && step == 200 + 100 * k);
        snprintf(name, sizeof name, "%s/manifest.json", path);
        assert_int_equal(k ? truncate(name, 20) : unlink(name), 0);
        assert_true(bt_ckpt_peek(s->dir, &attempt, &step));
        assert_true(attempt == 1 && step == 100);
    }
    assert_false(bt_ckpt_peek("/nowhere", &attempt, &step));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_file_names),
        cmocka_unit_test(test_span_of_rows),
        cmocka_unit_test(test_infinite_values_are_found),
        cmocka_unit_test(test_finite_in_few_bytes),
        cmocka_unit_test_setup_teardown(test_nothing_infinite_is_saved, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_reserved_bytes_of_the_head, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_path_with_a_per_cent_sign, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_damaged_folders_are_skipped, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

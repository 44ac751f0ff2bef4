/* test_limits.c - values at their limits and just beyond them: slices and sections at the ends of tensors, names, data
 * computed while they are written, folders, file sizes, and attempt numbers. */
#include "tests/engine/ckpt/ckpt_world.h"

#include <sys/stat.h>

#include "engine/base/clock.h"
#include "engine/base/system/folders.h"
#include "engine/ckpt/ckpt_list.h"
#include "engine/ckpt/format.h"
#include "engine/ckpt/save_async.h"

static void sections_end_with_their_tensor(void **state) {
    (void)state;
    static const struct {
        uint64_t elems, first, count;
        uint32_t width, stride;
        uint16_t type, bytes;
        uint64_t room;
        bool possible;
    } rows[] = {
        {100, 40, 60, 0, 0, BT_CKPT_F32, 4, 240, true},
        {100, 40, 60, 0, 0, BT_CKPT_F32, 4, 239, false},
        {100, 40, 61, 0, 0, BT_CKPT_F32, 4, 999, false},
        {100, 41, 60, 0, 0, BT_CKPT_F32, 4, 999, false},
        {100, 100, 0, 0, 0, BT_CKPT_F32, 4, 0, true},
        {100, 101, 0, 0, 0, BT_CKPT_F32, 4, 999, false},
        {100, 0, 100, 0, 0, BT_CKPT_BF16, 2, 200, true},
        {100, 0, 100, 0, 0, BT_CKPT_BF16, 4, 999, false},
        {100, 0, 100, 0, 0, BT_CKPT_ULOG8, 1, 100, true},
        {100, 0, 100, 0, 0, BT_CKPT_TYPES, 1, 999, false},
        {100, 45, 30, 5, 10, BT_CKPT_F32, 4, 120, true}, /* six rows, the last without a gap */
        {100, 46, 30, 5, 10, BT_CKPT_F32, 4, 999, false},
        {100, 45, 31, 5, 10, BT_CKPT_F32, 4, 999, false}, /* not a whole number of rows */
        {100, 0, 10, 10, 10, BT_CKPT_F32, 4, 40, true},
        {100, 0, 11, 11, 10, BT_CKPT_F32, 4, 999, false},
        {100, 0, 0, 11, 10, BT_CKPT_F32, 4, 999, false},
        {100, 0, 10, 0, 10, BT_CKPT_F32, 4, 999, false},
        {UINT64_MAX, 0, CKPT_SECTION_ELEMS, 0, 0, BT_CKPT_U8, 1, UINT64_MAX, true},
        {UINT64_MAX, 0, CKPT_SECTION_ELEMS + 1, 0, 0, BT_CKPT_U8, 1, UINT64_MAX, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        section_head h = {.elem_bytes = rows[i].bytes,
                          .type = rows[i].type,
                          .tensor = "w",
                          .state = "weight",
                          .tensor_elems = rows[i].elems,
                          .first = rows[i].first,
                          .count = rows[i].count,
                          .width = rows[i].width,
                          .stride = rows[i].stride};
        if (ckpt_section_possible(&h, rows[i].room) != rows[i].possible) fail_msg("row %zu", i);
        h.tensor[sizeof h.tensor - 1] = 'x'; /* a name without a terminator */
        assert_false(ckpt_section_possible(&h, rows[i].room));
        h.tensor[sizeof h.tensor - 1] = '\0';
        h.state[sizeof h.state - 1] = 'x';
        assert_false(ckpt_section_possible(&h, rows[i].room));
    }
}

static bt_code save_slice(world *s, const bt_ckpt_job *how, const bt_ckpt_slice *slice, char *path,
                          bt_err *err) {
    bt_ckpt_meta meta;
    bt_ckpt_saved saved = {.path = ""};
    bt_ckpt_job job = *how;
    fill_meta(&meta, 7, 0);
    job.dir = s->dir, job.meta = &meta, job.slices = slice, job.n = 1, job.keep = 1;
    *err = (bt_err)BT_ERR_INIT;
    const bt_code code = bt_ckpt_save(bt_comm_world(), &job, &saved, err);
    bt_ckpt_meta_release(&meta);
    if (path) strcpy(path, saved.path);
    return code;
}

static void slices_end_with_their_tensor(void **state) {
    world *s = *state;
    bt_err err;
    static const struct {
        uint64_t first, count;
        uint32_t width, stride;
        bool possible;
    } rows[] = {{40, 60, 0, 0, true},  {41, 60, 0, 0, false},  {40, 61, 0, 0, false},
                {99, 1, 0, 0, true},   {100, 1, 0, 0, false},  {101, 0, 0, 0, false},
                {45, 30, 5, 10, true}, {46, 30, 5, 10, false}, {45, 29, 5, 10, false},
                {0, 10, 0, 10, false}, {0, 100, 10, 10, true}, {0, 11, 11, 10, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char says[80];
        const bt_ckpt_slice slice = {"w",           "weight", 100,           rows[i].first,
                                     rows[i].count, s->embed, rows[i].width, rows[i].stride,
                                     BT_CKPT_F32,   false};
        const bt_code code = save_slice(s, &(bt_ckpt_job){0}, &slice, NULL, &err);
        if (code != (rows[i].possible ? BT_OK : BT_ARG)) fail_msg("row %zu: %s", i, err.msg);
        snprintf(says, sizeof says, "slice %d+%d of 'w' exceeds its 100 elements",
                 (int)rows[i].first, (int)rows[i].count);
        if (code != BT_OK) assert_string_equal(err.msg, says);
    }
}

static void names_fit_their_fields(void **state) {
    world *s = *state;
    bt_err err;
    char name[80], path[PATH_MAX];
    float got[10];
    for (int of_state = 0; of_state < 2; of_state++) {
        const size_t most = of_state ? 31 : 55;
        for (size_t n = most; n < most + 2; n++) {
            memset(name, 'n', n);
            name[n] = '\0';
            bt_ckpt_slice slice = {of_state ? "w" : name,
                                   of_state ? name : "weight",
                                   10,
                                   0,
                                   10,
                                   s->embed,
                                   0,
                                   0,
                                   BT_CKPT_F32,
                                   false};
            const bt_code code = save_slice(s, &(bt_ckpt_job){0}, &slice, path, &err);
            assert_int_equal(code, n == most ? BT_OK : BT_ARG);
            slice.data = got;
            if (code == BT_OK) {
                check_ok(bt_ckpt_load(path, &slice, 1, &err), &err);
                assert_memory_equal(got, s->embed, sizeof got);
            } else {
                assert_non_null(strstr(err.msg, "is too long for a checkpoint"));
            }
        }
    }
}

static uint64_t most_made;

static bt_code create_at_limit(void *ctx, const bt_ckpt_slice *slice, uint64_t first,
                               uint64_t count, void *out, bt_err *err) {
    float *x = out;
    assert_string_equal(slice->tensor, "w");
    if (count > most_made) most_made = count;
    for (uint64_t i = 0; i < count; i++) x[i] = (float)(first + i);
    return *(bool *)ctx ? bt_fail(err, BT_NOMEM, "cannot make it") : BT_OK;
}

/* The callback computes one section at a time and receives its position in the tensor. */
static void data_are_computed_while_they_are_written(void **state) {
    world *s = *state;
    bt_err err;
    bool fails = false;
    char path[PATH_MAX];
    enum { FIRST = 1000, MORE = 77 };
    const uint64_t count = CKPT_SECTION_ELEMS + MORE, all = FIRST + count;
    bt_ckpt_slice slice = {"w", "weight", all, FIRST, count, NULL, 0, 0, BT_CKPT_F32, false};
    const bt_ckpt_job job = {.produce = create_at_limit, .produce_ctx = &fails};
    assert_int_equal(save_slice(s, &(bt_ckpt_job){0}, &slice, NULL, &err), BT_ARG);
    assert_string_equal(err.msg, "slice of 'w' has no data");
    check_ok(save_slice(s, &job, &slice, path, &err), &err);
    assert_true(most_made == CKPT_SECTION_ELEMS);
    float *x = malloc(count * sizeof *x);
    assert_non_null(x);
    slice.data = x;
    check_ok(bt_ckpt_load(path, &slice, 1, &err), &err);
    for (uint64_t i = 0; i < count; i++)
        if (x[i] != (float)(FIRST + i)) fail_msg("element %llu", (unsigned long long)i);
    free(x);
    fails = true;
    slice.data = NULL;
    assert_int_equal(save_slice(s, &job, &slice, NULL, &err), BT_NOMEM);
    assert_string_equal(err.msg, "cannot make it");
    fails = false;
    slice.width = slice.stride = 1; /* A block of columns cannot be computed. */
    assert_int_equal(save_slice(s, &job, &slice, NULL, &err), BT_ARG);
}

static bt_code start_beside(bt_ckpt_async *a, const char *dir, const bt_ckpt_slice *slice,
                            bt_err *err) {
    bt_ckpt_meta meta;
    fill_meta(&meta, 8, 0);
    const bt_ckpt_job job = {.dir = dir, .meta = &meta, .slices = slice, .n = 1, .keep = 1};
    *err = (bt_err)BT_ERR_INIT;
    const bt_code code = bt_ckpt_async_start(a, bt_comm_world(), &job, &meta, err);
    bt_ckpt_meta_release(&meta);
    return code;
}

/* A save that fails to begin does not block the next save, here of an array that is copied in several parts. */
static void a_save_that_cannot_begin_does_not_block_the_next(void **state) {
    world *s = *state;
    enum { N = (9 << 20) / 4 + 3 };
    bt_err err;
    bt_ckpt_async *a;
    bt_ckpt_saved saved = {.path = ""};
    bool finished = false;
    char longest[PATH_MAX];
    float *x = malloc(N * sizeof *x), *y = malloc(N * sizeof *y);
    assert_true(x && y);
    for (int i = 0; i < N; i++) x[i] = (float)i;
    bt_ckpt_slice one = {"w", "weight", N, 0, N, x, 0, 0, BT_CKPT_F32, false}, more = one;
    check_ok(bt_ckpt_async_create(&a, bt_ckpt_copy_bytes(&one, 1), &err), &err);
    more.tensor_elems = more.count = N + 1000;
    assert_int_equal(start_beside(a, s->dir, &more, &err), BT_NOMEM);
    assert_non_null(strstr(err.msg, "the copy of the state needs "));
    assert_false(bt_ckpt_async_pending(a) || bt_ckpt_async_busy(a));
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    assert_int_equal(start_beside(a, longest, &one, &err), BT_ARG);
    assert_false(bt_ckpt_async_pending(a) || bt_ckpt_async_busy(a));
    check_ok(start_beside(a, s->dir, &one, &err), &err);
    x[0] = x[N - 1] = -1; /* Training overwrites the array. */
    while (!finished) {
        assert_true(bt_ckpt_async_pending(a));
        while (bt_ckpt_async_busy(a)) bt_sleep_ns(100000);
        check_ok(bt_ckpt_async_advance(a, &finished, &saved, &err), &err);
    }
    assert_false(bt_ckpt_async_pending(a));
    one.data = y;
    check_ok(bt_ckpt_load(saved.path, &one, 1, &err), &err);
    for (int i = 0; i < N; i++) assert_true(y[i] == (float)i);
    bt_ckpt_async_destroy(a);
    free(x);
    free(y);
}

static void nested_folders_are_created(void **state) {
    world *s = *state;
    bt_err err = BT_ERR_INIT;
    char path[PATH_MAX], longest[PATH_MAX + 1];
    struct stat st;
    snprintf(path, sizeof path, "%s/a/b//c/", s->dir);
    for (int again = 0; again < 2; again++) check_ok(bt_make_folders(path, &err), &err);
    assert_true(stat(path, &st) == 0 && S_ISDIR(st.st_mode));
    snprintf(path, sizeof path, "%s/a/file", s->dir);
    fclose(fopen(path, "w"));
    assert_int_equal(bt_make_folders(path, &err), BT_IO);
    strcat(path, "/below");
    assert_int_equal(bt_make_folders(path, &err), BT_IO);
    assert_int_equal(bt_make_folders("", &err), BT_ARG);
    memset(longest, 'x', PATH_MAX);
    longest[PATH_MAX] = '\0';
    assert_int_equal(bt_make_folders(longest, &err), BT_ARG);
    longest[PATH_MAX - 1] = '\0'; /* The name fits the buffer, and the system refuses it. */
    assert_int_equal(bt_make_folders(longest, &err), BT_IO);
}

static void files_are_read_up_to_a_limit(void **state) {
    world *s = *state;
    bt_err err = BT_ERR_INIT;
    char path[PATH_MAX], *data = NULL;
    size_t n = 9;
    check_ok(ckpt_replace_file(s->dir, "five", "12345", 5, NULL, NULL, &err), &err);
    snprintf(path, sizeof path, "%s/five", s->dir);
    check_ok(ckpt_slurp(path, 5, &data, &n, &err), &err);
    assert_int_equal(n, 5);
    assert_string_equal(data, "12345");
    free(data);
    assert_int_equal(ckpt_slurp(path, 4, &data, &n, &err), BT_FORMAT);
    assert_true(!data && n == 0);
    assert_non_null(strstr(err.msg, "has 5 bytes, more than the limit of 4"));
    assert_int_equal(ckpt_slurp(s->dir, 4, &data, &n, &err), BT_FORMAT);
    strcat(path, ".none");
    assert_int_equal(ckpt_slurp(path, 4, &data, &n, &err), BT_NOTFOUND);
    /* A path beyond PATH_MAX is refused. */
    char longest[PATH_MAX + 1];
    bt_ckpt_reader *r = (bt_ckpt_reader *)(void *)&err;
    memset(longest, 'x', PATH_MAX);
    longest[PATH_MAX] = '\0';
    assert_int_equal(bt_ckpt_reader_open(&r, longest, &err), BT_ARG);
    assert_null(r);
    assert_int_equal(strncmp(err.msg, "path 'xxx", 9), 0);
    longest[PATH_MAX - 1] = '\0';
    /* The path of its manifest is too long. */
    assert_int_equal(bt_ckpt_reader_open(&r, longest, &err), BT_ARG);
    assert_null(r);
}

static void expect_attempt(world *s, const char *text) {
    bt_err err = BT_ERR_INIT;
    check_ok(ckpt_replace_file(s->dir, "attempt", text, strlen(text), NULL, NULL, &err), &err);
}

static void attempts_count_up(void **state) {
    world *s = *state;
    bt_err err = BT_ERR_INIT;
    bt_ckpt_meta meta;
    assert_int_equal(bt_ckpt_next_attempt(s->dir, 0), 0);
    assert_int_equal(bt_ckpt_next_attempt(s->dir, 5), 5);
    check_ok(bt_ckpt_begin(s->dir, 3, &err), &err);
    for (int least = -1; least <= 4; least++)
        assert_int_equal(bt_ckpt_next_attempt(s->dir, least), 4);
    assert_int_equal(bt_ckpt_next_attempt(s->dir, 5), 5);
    check_ok(bt_ckpt_begin(s->dir, 3, &err), &err); /* the same attempt again */
    /* If the attempt file is missing or older, the attempt number in the checkpoints is used. */
    check_ok(bt_ckpt_check(s->dir, true, &err), &err);
    fill_meta(&meta, 10, 8);
    check_ok(save_world(s, &meta, 1, NULL, &err), &err);
    bt_ckpt_meta_release(&meta);
    assert_int_equal(bt_ckpt_next_attempt(s->dir, 0), 9);
    expect_attempt(s, "no number");
    assert_int_equal(bt_ckpt_next_attempt(s->dir, 0), 9);
    assert_int_equal(bt_ckpt_begin(s->dir, 9, &err), BT_FORMAT);
    assert_non_null(strstr(err.msg, "does not contain the number of an attempt"));
    static const char *const bad[] = {"-1", "2147483648", "7x", ""};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        expect_attempt(s, bad[i]);
        assert_int_equal(bt_ckpt_begin(s->dir, 9, &err), BT_FORMAT);
    }
    expect_attempt(s, "2147483647");
    assert_int_equal(bt_ckpt_begin(s->dir, 9, &err), BT_BUSY);
    expect_attempt(s, "0");
    check_ok(bt_ckpt_begin(s->dir, 0, &err), &err);
}

static void a_fresh_folder_holds_no_checkpoint(void **state) {
    world *s = *state;
    bt_err err = BT_ERR_INIT;
    char dir[PATH_MAX];
    bt_ckpt_meta meta;
    snprintf(dir, sizeof dir, "%s/new", s->dir);
    check_ok(bt_ckpt_check(dir, true, &err), &err);
    assert_int_equal(access(dir, F_OK), -1);
    check_ok(bt_ckpt_prepare(dir, true, &err), &err);
    assert_int_equal(access(dir, F_OK), 0);
    fill_meta(&meta, 10, 0);
    check_ok(save_world(s, &meta, 1, NULL, &err), &err);
    bt_ckpt_meta_release(&meta);
    check_ok(bt_ckpt_prepare(s->dir, false, &err), &err);
    assert_int_equal(bt_ckpt_prepare(s->dir, true, &err), BT_BUSY);
    assert_int_equal(bt_ckpt_check(s->dir, true, &err), BT_BUSY);
    assert_non_null(strstr(err.msg, "already contains checkpoints"));
}

/* Removing an absent folder succeeds, and files that do not belong to the checkpoint remain. */
static void foreign_files_in_a_checkpoint_folder_remain(void **state) {
    world *s = *state;
    bt_err err = BT_ERR_INIT;
    bt_ckpt_meta meta;
    bt_ckpt_saved saved;
    char path[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/none", s->dir);
    ckpt_remove(path, &err);
    assert_int_equal(err.code, BT_IO);
    ckpt_remove(path, NULL);
    ckpt_remove_other_generations(path, 1);
    fill_meta(&meta, 10, 0);
    for (int mine = 0; mine < 2; mine++) {
        check_ok(save_world(s, &meta, 1, &saved, &err), &err);
        snprintf(path, sizeof path, "%s/notes", saved.path);
        if (mine) fclose(fopen(path, "w"));
        err = (bt_err)BT_ERR_INIT;
        ckpt_remove(saved.path, &err);
        assert_int_equal(err.code, mine ? BT_IO : BT_OK);
        assert_int_equal(access(path, F_OK), mine ? 0 : -1);
        assert_int_equal(access(saved.path, F_OK), mine ? 0 : -1);
    }
    bt_ckpt_meta_release(&meta);
}

int main(void) {
    bt_err err = BT_ERR_INIT;
    if (bt_comm_init(&err) != BT_OK) return 1;
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {cmocka_unit_test(sections_end_with_their_tensor),
                                       TEST(slices_end_with_their_tensor),
                                       TEST(names_fit_their_fields),
                                       TEST(data_are_computed_while_they_are_written),
                                       TEST(a_save_that_cannot_begin_does_not_block_the_next),
                                       TEST(nested_folders_are_created),
                                       TEST(files_are_read_up_to_a_limit),
                                       TEST(foreign_files_in_a_checkpoint_folder_remain),
                                       TEST(attempts_count_up),
                                       TEST(a_fresh_folder_holds_no_checkpoint)};
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_comm_finalize();
    return failed;
}

/* test_read_faults.c - a checkpoint is found and loaded while one system call fails, is interrupted, returns fewer
 * bytes than requested, none, or a flipped bit: the result is an error that contains the name of a file, or all
 * elements as saved. A save that reads back wrong data is not committed. The test replaces the system calls, as
 * test_save_faults.c does. */
#include "tests/engine/ckpt/ckpt_world.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "engine/ckpt/format.h"

typedef enum { NONE, BROKEN, NOTHING, OTHER_BIT, SHORT, SIGNAL } fault_kind;
static fault_kind kind;
static long countdown, calls;
static bool armed, at_reads; /* at_reads: only reads count */

ssize_t pread(int fd, void *data, size_t n, off_t at);
int fstat(int fd, struct stat *st);

static fault_kind fail_this_call(void) {
    if (!armed) return NONE;
    calls++;
    return --countdown == 0 ? kind : NONE;
}

int fstat(int fd, struct stat *st) {
    if (!at_reads && fail_this_call() == BROKEN) return errno = EIO, -1;
    return (int)syscall(SYS_newfstatat, fd, "", st, 0x1000 /* AT_EMPTY_PATH */);
}

ssize_t pread(int fd, void *data, size_t n, off_t at) {
    const fault_kind now = fail_this_call();
    if (now == BROKEN) return errno = EIO, -1;
    if (now == SIGNAL) return errno = EINTR, -1;
    if (now == NOTHING) return 0;
    const ssize_t k = syscall(SYS_pread64, fd, data, now == SHORT && n > 1 ? n / 2 : n, at);
    if (now == OTHER_BIT && k > 0) ((unsigned char *)data)[k / 2] ^= 16;
    return k;
}

static void run_with_fault(fault_kind k, long n) {
    kind = k;
    countdown = n;
    calls = 0;
    armed = true;
}

/* Loads halves of one tensor and the whole of another, in another order than saved. */
static bt_code load_all(world *s, const char *folder, bt_err *err) {
    static float embed[N_EMBED], w[N_W];
    memset(embed, 0, sizeof embed);
    memset(w, 0, sizeof w);
    const bt_ckpt_slice want[] = {
        {"layers.0.attn_q", "weight", N_W, 0, N_W, w, 0, 0, BT_CKPT_F32, false},
        {"embed", "weight", N_EMBED, 300, 700, embed + 300, 0, 0, BT_CKPT_F32, false},
        {"embed", "weight", N_EMBED, 0, 300, embed, 0, 0, BT_CKPT_F32, false},
    };
    const bt_code code = bt_ckpt_load(folder, want, 3, err);
    armed = false;
    if (code == BT_OK) {
        assert_memory_equal(embed, s->embed, sizeof embed);
        assert_memory_equal(w, s->w, sizeof w);
    }
    return code;
}

static bt_code find_saved_checkpoint(world *s, char *path, bt_err *err) {
    bt_ckpt_meta meta;
    const bt_code code = find(s, path, &meta, NULL, err);
    armed = false;
    if (code == BT_OK) {
        assert_int_equal(meta.step, 100);
        bt_ckpt_meta_release(&meta);
    }
    return code;
}

static bt_code find_or_load(world *s, bool loads, char *path, bt_err *err) {
    return loads ? load_all(s, path, err) : find_saved_checkpoint(s, path, err);
}

static void save_one(world *s, char *path) {
    bt_err err = BT_ERR_INIT;
    bt_ckpt_meta meta;
    bt_ckpt_saved saved;
    fill_meta(&meta, 100, 0);
    check_ok(save_world(s, &meta, 4, &saved, &err), &err);
    bt_ckpt_meta_release(&meta);
    strcpy(path, saved.path);
}

static void a_fault_is_an_error_or_changes_nothing(void **state) {
    world *s = *state;
    char path[PATH_MAX];
    save_one(s, path);
    for (int loads = 0; loads < 2; loads++) {
        bt_err err = BT_ERR_INIT;
        run_with_fault(NONE, 0);
        check_ok(find_or_load(s, loads, path, &err), &err);
        const long total = calls;
        assert_true(total >= 8);
        for (fault_kind k = BROKEN; k <= SIGNAL; k++)
            for (long n = 1; n <= total; n++) {
                err = (bt_err)BT_ERR_INIT;
                run_with_fault(k, n);
                const bt_code code = find_or_load(s, loads, path, &err);
                if (k >= SHORT && code != BT_OK)
                    fail_msg("kind %d at call %ld of %ld: %s", (int)k, n, total, err.msg);
                /* A manifest that could not be read for the list is read again. */
                if (k == BROKEN && code == BT_OK && loads)
                    fail_msg("call %ld of %ld fails without an error", n, total);
                if (code != BT_OK && !strstr(err.msg, "'data-") && !strstr(err.msg, s->dir))
                    fail_msg("kind %d at call %ld: '%s' names no file", (int)k, n, err.msg);
                if (code != BT_OK && loads && code != (k == BROKEN ? BT_IO : BT_FORMAT))
                    fail_msg("kind %d at call %ld: %s: %s", (int)k, n, bt_code_name(code), err.msg);
            }
    }
}

/* A save reads manifests to decide which checkpoints to remove: twice BEFORE it, because the disk may be full, and
 * twice after it. These reads do not concern the saved data. */
enum { BEFORE = 2, LISTED = 2 };

static void wrong_data_are_not_committed(void **state) {
    world *s = *state;
    char path[PATH_MAX], found[PATH_MAX];
    bt_err err = BT_ERR_INIT;
    bt_ckpt_meta meta;
    save_one(s, path);
    fill_meta(&meta, 200, 0);
    long total = LISTED;
    at_reads = true;
    for (long n = 0; n <= total - LISTED; n++) { /* 0: no call fails */
        err = (bt_err)BT_ERR_INIT;
        run_with_fault(n ? OTHER_BIT : NONE, n);
        const bt_code code = save_world(s, &meta, 4, NULL, &err);
        armed = false;
        if (n <= BEFORE) {
            check_ok(code, &err);
            if (n == 0) total = calls;
            assert_true(total > 8 + BEFORE + LISTED);
            char cmd[PATH_MAX + 64];
            snprintf(cmd, sizeof cmd, "rm -r '%s/step-000000000200'", s->dir);
            assert_int_equal(system(cmd), 0);
            continue;
        }
        if (code == BT_OK) fail_msg("read %ld of %ld gives another bit, and it is saved", n, total);
        check_ok(find_saved_checkpoint(s, found, &err), &err);
        assert_string_equal(found, path);
    }
    at_reads = false;
    bt_ckpt_meta_release(&meta);
}

/* All slices of a file are read through one descriptor, so the file may be replaced meanwhile. */
static void a_file_is_opened_once(void **state) {
    world *s = *state;
    char path[PATH_MAX], name[2 * PATH_MAX];
    bt_err err = BT_ERR_INIT;
    ckpt_manifest m = {0};
    bt_ckpt_reader *r;
    float w[N_W];
    save_one(s, path);
    check_ok(ckpt_manifest_read(path, &m, &err), &err);
    snprintf(name, sizeof name, "%s/%s", path, m.files[0].name);
    check_ok(bt_ckpt_reader_open(&r, path, &err), &err);
    bt_ckpt_slice want = {"layers.0.attn_q", "weight", N_W, 0, N_W, w, 0, 0, BT_CKPT_F32, false};
    check_ok(bt_ckpt_reader_read(r, &want, &err), &err);
    assert_int_equal(unlink(name), 0);
    want.state = "exp_avg";
    check_ok(bt_ckpt_reader_read(r, &want, &err), &err);
    assert_memory_equal(w, s->m, sizeof w);
    bt_ckpt_reader_close(r);
    ckpt_manifest_release(&m);
    assert_int_equal(bt_ckpt_reader_open(&r, path, &err), BT_FORMAT);
    assert_null(r);
}

int main(void) {
    bt_err err = BT_ERR_INIT;
    if (bt_comm_init(&err) != BT_OK) return 1;
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {TEST(a_fault_is_an_error_or_changes_nothing),
                                       TEST(wrong_data_are_not_committed),
                                       TEST(a_file_is_opened_once)};
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_comm_finalize();
    return failed;
}

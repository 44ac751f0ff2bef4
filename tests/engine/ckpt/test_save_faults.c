/* test_save_faults.c - a save is interrupted at every system call it makes: by SIGKILL (in a child), a full disk, an
 * I/O error, a short write, a signal, a write of zero bytes. In each case a committed checkpoint loads bit for bit, and
 * a failed save leaves no files; this holds for blocking saves and for saves by threads. The test replaces the system
 * calls, which the statically linked engine then uses instead of libc's. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/ckpt/ckpt.h"
#include "engine/ckpt/format.h"
#include "engine/ckpt/save_async.h"

typedef enum { NONE, KILL, FULL, BROKEN, NOTHING, SHORT, SIGNAL, UNABLE } fault_kind;
static fault_kind kind;
static long countdown, calls;

int fsync(int fd);
int rename(const char *from, const char *to);
int posix_fallocate(int fd, off_t offset, off_t length);
ssize_t pwrite(int fd, const void *data, size_t n, off_t at);
int mkdir(const char *path, mode_t mode);

/* Returns true and sets errno if this call has to fail. */
static int should_call_fail(void) {
    calls++;
    if (kind == NONE || --countdown != 0) return 0;
    if (kind == KILL) syscall(SYS_kill, getpid(), SIGKILL);
    errno = kind == FULL ? ENOSPC : EIO;
    return kind == FULL || kind == BROKEN;
}

/* files with data after their last fsync, which a power cut may lose although the name of the file remains */
enum { MAX_FILES = 256 };
static struct {
    ino_t inode;
    int dirty;
} * files; /* shared with the child */

static void mark_unsynced(int fd, int dirty) {
    struct stat st;
    if (!files || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) return;
    int i = 0;
    while (i < MAX_FILES - 1 && files[i].inode && files[i].inode != st.st_ino) i++;
    files[i].inode = st.st_ino;
    files[i].dirty = dirty;
}

int fsync(int fd) {
    if (should_call_fail()) return -1;
    mark_unsynced(fd, 0);
    return (int)syscall(SYS_fsync, fd);
}
int rename(const char *from, const char *to) {
    return should_call_fail() ? -1 : (int)syscall(SYS_rename, from, to);
}
int mkdir(const char *path, mode_t mode) {
    return should_call_fail() ? -1 : (int)syscall(SYS_mkdir, path, mode);
}
int posix_fallocate(int fd, off_t offset, off_t length) {
    /* the two errors of a file system that cannot reserve space */
    const int unable = kind == UNABLE && countdown == 1 ? (calls % 2 ? EINVAL : EOPNOTSUPP) : 0;
    if (should_call_fail()) return errno;
    return unable ? unable : (syscall(SYS_fallocate, fd, 0, offset, length) == 0 ? 0 : errno);
}
ssize_t pwrite(int fd, const void *data, size_t n, off_t at) {
    const fault_kind now = countdown == 1 ? kind : NONE;
    const int shorter = now == SHORT && n > 1;
    if (should_call_fail()) return -1;
    if (now == NOTHING) return 0;
    if (now == SIGNAL) return errno = EINTR, -1;
    mark_unsynced(fd, 1);
    return (ssize_t)syscall(SYS_pwrite64, fd, data, shorter ? n / 2 : n, at);
}

enum { N = 3000 };
static char dir[64];
static float x[N];

static void fill_arrays(int64_t step) {
    for (int i = 0; i < N; i++) x[i] = (float)(step * 100000 + i);
}

/* Simulates a training that changes the arrays between the stages of a save. */
static bt_code save_beside(const bt_ckpt_job *job, bt_ckpt_meta *meta, bt_err *err) {
    bt_ckpt_async *a;
    bt_ckpt_saved saved = {0};
    bool finished = false;
    bt_code code = bt_ckpt_async_create(&a, bt_ckpt_copy_bytes(job->slices, job->n), err);
    if (code == BT_OK) code = bt_ckpt_async_start(a, bt_comm_world(), job, meta, err);
    for (int i = 0; i < N; i++) x[i] = -1;
    while (code == BT_OK && !finished) {
        assert_true(bt_ckpt_async_pending(a));
        while (bt_ckpt_async_busy(a)) usleep(20);
        code = bt_ckpt_async_advance(a, &finished, &saved, err);
    }
    assert_false(bt_ckpt_async_pending(a));
    bt_ckpt_async_destroy(a);
    return code;
}

static bool beside; /* false: blocking saves; true: saves by threads */

static bt_code save_step_now(int64_t step, bt_err *err) {
    bt_ckpt_meta meta;
    fill_arrays(step);
    bt_ckpt_slice slices[] = {{"embed", "weight", N, 0, 1000, x, 0, 0, BT_CKPT_F32, false},
                              {"embed", "weight", N, 1000, N - 1000, x + 1000, 0, 0, BT_CKPT_F32,
                               false}};
    memset(&meta, 0, sizeof meta);
    meta.step = step;
    strcpy(meta.run, "faults");
    bt_ckpt_job job = {.dir = dir, .meta = &meta, .slices = slices, .n = 2, .keep = 2};
    bt_code code = beside ? save_beside(&job, &meta, err)
                          : bt_ckpt_save(bt_comm_world(), &job, NULL, err);
    bt_ckpt_meta_release(&meta);
    return code;
}

/* Returns the step of the newest checkpoint after comparing its contents with those saved at that step. */
static int64_t load_newest(void) {
    bt_ckpt_meta meta;
    bt_err err = BT_ERR_INIT;
    char path[PATH_MAX];
    float y[N];
    if (bt_ckpt_find(bt_comm_world(), dir, path, sizeof path, &meta, NULL, &err) != BT_OK)
        fail_msg("nothing loads: %s", err.msg);
    bt_ckpt_slice want = {"embed", "weight", N, 0, N, y, 0, 0, BT_CKPT_F32, false};
    if (bt_ckpt_load(path, &want, 1, &err) != BT_OK) fail_msg("load: %s", err.msg);
    fill_arrays(meta.step);
    assert_memory_equal(x, y, sizeof x);
    const int64_t step = meta.step;
    bt_ckpt_meta_release(&meta);
    return step;
}

static int found;
static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw) {
    (void)st, (void)type, (void)ftw;
    return remove(path);
}
static void remove_all(void) { nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS); }

/* Counts files and folders that belong to no committed checkpoint. */
static int count_if_leftover(const char *path, const struct stat *st, int type, struct FTW *ftw) {
    (void)st;
    char manifest[PATH_MAX + 32], *text = NULL;
    size_t n = 0;
    const char *name = path + ftw->base;
    if (ftw->level == 0 || (type == FTW_F && ftw->level == 1)) return 0;
    snprintf(manifest, sizeof manifest, "%.*s/manifest.json",
             type == FTW_D ? (int)strlen(path) : ftw->base - 1, path);
    if (ckpt_slurp(manifest, 1 << 20, &text, &n, NULL) != BT_OK ||
        (type == FTW_F && strcmp(name, "manifest.json") != 0 && !strstr(text, name)))
        found++;
    free(text);
    return 0;
}

static int count_leftovers(void) {
    found = 0;
    nftw(dir, count_if_leftover, 8, FTW_PHYS);
    return found;
}

static void begin_with_checkpoint(int64_t step) {
    bt_err err = BT_ERR_INIT;
    kind = NONE;
    remove_all();
    if (bt_ckpt_begin(dir, 0, &err) != BT_OK || save_step_now(step, &err) != BT_OK)
        fail_msg("%s", err.msg);
}

static long count_calls(int64_t step) {
    bt_err err = BT_ERR_INIT;
    begin_with_checkpoint(10);
    calls = 0;
    assert_int_equal(save_step_now(step, &err), BT_OK);
    return calls;
}

static void test_errors(void **state) {
    (void)state;
    /* a new step, then an existing one */
    const int64_t steps[] = {20, 10};
    for (int s = 0; s < 2; s++) {
        const long total = count_calls(steps[s]);
        assert_true(total >= 10);
        for (fault_kind k = FULL; k <= UNABLE; k++)
            for (long n = 1; n <= total; n++) {
                bt_err err = BT_ERR_INIT;
                begin_with_checkpoint(10);
                kind = k;
                countdown = n;
                bt_code code = save_step_now(steps[s], &err);
                kind = NONE;
                if (k >= SHORT && code != BT_OK)
                    fail_msg("kind %d at call %ld fails the save: %s", (int)k, n, err.msg);
                if (code != BT_OK && code != BT_IO)
                    fail_msg("call %ld: code %s", n, bt_code_name(code));
                const int64_t newest = load_newest();
                if (code == BT_OK && newest != steps[s])
                    fail_msg("call %ld: a good save does not load", n);
                if (code != BT_OK && newest != steps[s] && count_leftovers())
                    fail_msg("kind %d, call %ld of %ld: a failed save leaves files", (int)k, n,
                             total);
                if (bt_ckpt_begin(dir, 0, &err) != BT_OK || count_leftovers())
                    fail_msg("kind %d, call %ld of %ld: the next attempt leaves files", (int)k, n,
                             total);
                if (save_step_now(30, &err) != BT_OK || load_newest() != 30)
                    fail_msg("call %ld: the next save fails: %s", n, err.msg);
            }
    }
}

static void test_kill(void **state) {
    (void)state;
    const int64_t steps[] = {20, 10};
    for (int s = 0; s < 2; s++) {
        const long total = count_calls(steps[s]);
        int fresh = 0;
        for (long n = 1; n <= total; n++) {
            bt_err err = BT_ERR_INIT;
            int status = 0;
            begin_with_checkpoint(10);
            fflush(NULL);
            pid_t child = fork();
            if (child == 0) {
                kind = KILL;
                countdown = n;
                (void)!save_step_now(steps[s], &err);
                _exit(0);
            }
            waitpid(child, &status, 0);
            assert_true(WIFSIGNALED(status));
            fresh += load_newest() == steps[s];
            if (bt_ckpt_begin(dir, 1, &err) != BT_OK) fail_msg("%s", err.msg);
            if (count_leftovers())
                fail_msg("killed at call %ld: the next attempt leaves a half-written folder", n);
        }
        /* The commit is one of the last calls. */
        if (steps[s] == 20) assert_true(fresh >= 1 && fresh < total);
    }
}

static int lose_unsynced(const char *path, const struct stat *st, int type, struct FTW *ftw) {
    (void)ftw;
    for (int i = 0; type == FTW_F && i < MAX_FILES && files[i].inode; i++)
        if (files[i].inode == st->st_ino && files[i].dirty && truncate(path, 0) != 0) return 1;
    return 0;
}

/* The kernel may write names before data: all renames survive a power cut, data without fsync do not. */
static void test_power_cut(void **state) {
    (void)state;
    const int64_t steps[] = {20, 10};
    files = mmap(NULL, MAX_FILES * sizeof *files, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(files != MAP_FAILED);
    for (int s = 0; s < 2; s++) {
        const long total = count_calls(steps[s]);
        for (long n = 1; n <= total + 1; n++) {
            int status = 0;
            begin_with_checkpoint(10);
            memset(files, 0, MAX_FILES * sizeof *files);
            fflush(NULL);
            pid_t child = fork();
            if (child == 0) {
                bt_err err = BT_ERR_INIT;
                kind = KILL;
                countdown = n;
                (void)!save_step_now(steps[s], &err);
                _exit(0);
            }
            waitpid(child, &status, 0);
            assert_true(n > total ? WIFEXITED(status) : WIFSIGNALED(status));
            assert_int_equal(nftw(dir, lose_unsynced, 8, FTW_PHYS), 0);
            const int64_t newest = load_newest();
            /* The save was acknowledged, so it must survive. */
            if (n > total) assert_int_equal(newest, steps[s]);
        }
    }
    munmap(files, MAX_FILES * sizeof *files);
    files = NULL;
}

int main(void) {
    /* The folder is in memory if possible, because thousands of fsync calls are slow. */
    strcpy(dir,
           access("/dev/shm", W_OK) == 0 ? "/dev/shm/bt-faults-XXXXXX" : "/tmp/bt-faults-XXXXXX");
    if (!mkdtemp(dir)) return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_errors), cmocka_unit_test(test_kill),
                                       cmocka_unit_test(test_power_cut)};
    int rc = cmocka_run_group_tests_name("training waits", tests, NULL, NULL);
    beside = true;
    rc += cmocka_run_group_tests_name("beside training", tests, NULL, NULL);
    remove_all();
    return rc;
}

/* test_refused_calls.c - system calls that fail when a run starts: creating a process, a lock, or space in /dev/shm.
 * The error contains the cause, and no files remain. The test replaces the system calls. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "monitor/job/launch/detach.h"
#include "monitor/job/launch/job_dirs.h"
#include "monitor/job/launch/server_guard.h"
#include "tests/message.h"

static char dir[64];
static int locks; /* number of locks granted */
static uint64_t room;
static bool no_room_known, not_ours;

pid_t fork(void) { return errno = EAGAIN, -1; }

int flock(int fd, int how) {
    if (locks-- > 0) return (int)syscall(SYS_flock, fd, how);
    return errno = ENOLCK, -1;
}

int statvfs(const char *restrict path, struct statvfs *restrict v) {
    (void)path;
    if (no_room_known) return errno = EIO, -1;
    *v = (struct statvfs){.f_frsize = 1, .f_bavail = room};
    return 0;
}

int access(const char *path, int how) {
    if (not_ours && strcmp(path, "/dev/shm") == 0) return errno = EACCES, -1;
    return (int)syscall(SYS_faccessat, AT_FDCWD, path, how, 0);
}

static int open_descriptors(void) {
    int n = 0;
    for (int fd = 0; fd < 256; fd++) n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* Returns whether the message is about the lock of a folder in `base` that was removed. */
static bool lock_of_gone(const char *message, const char *base) {
    char want[120], folder[200];
    snprintf(want, sizeof want, "cannot lock '%.60s/bitrain-%u-", base, (unsigned)getuid());
    if (strncmp(message, want, strlen(want)) != 0) return false;
    const char *from = strchr(message, '\'') + 1, *end = strstr(from, "/lock': No locks available");
    if (!end) return false;
    snprintf(folder, sizeof folder, "%.*s", (int)(end - from), from);
    return access(folder, F_OK) != 0;
}

static void without_a_process(void **state) {
    (void)state;
    static const char *const words[] = {"train"};
    const int before = open_descriptors();
    bt_err err = BT_ERR_INIT;
    bt_guarded *shared;
    int status;
    assert_int_equal(bt_job_detach(1, words, 1, &err), BT_IO);
    message_has(err.msg, "cannot start a run: Resource temporarily");
    assert_int_equal(open_descriptors(), before);
    assert_int_equal(bt_guard_begin(&shared, 3, NULL, &status, &err), BT_IO);
    message_has(err.msg, "cannot start a second process");
    assert_null(shared);
    assert_false(bt_job_aside((void (*)(const void *))abort, NULL));
}

static void without_a_lock(void **state) {
    (void)state;
    const int before = open_descriptors();
    bt_err err = BT_ERR_INIT;
    bt_job_dirs d;
    if (access("/dev/shm", W_OK) != 0) skip();
    room = UINT64_MAX;
    /* The call is refused for the first folder, then for the second. */
    for (int granted = 0; granted < 2; granted++) {
        locks = granted;
        assert_int_equal(bt_job_dirs_create(&d, 2, &err), BT_IO);
        assert_true(lock_of_gone(err.msg, granted ? "/dev/shm" : dir));
        assert_int_equal(open_descriptors(), before);
        assert_true(d.lock == -1 && d.shm_lock == -1);
    }
    locks = 100;
}

/* Ranks need 5 MiB each in /dev/shm; if it has less, shared memory is placed beside the other files. */
static void memory_where_there_is_room(void **state) {
    (void)state;
    static const struct {
        uint64_t room;
        int ranks;
        bool unknown, not_ours, there;
    } rows[] = {{10 << 20, 2, false, false, true},   {(10 << 20) - 1, 2, false, false, false},
                {UINT64_MAX, 2, true, false, false}, {UINT64_MAX, 2, false, true, false},
                {0, 1, false, false, false},         {UINT64_MAX, 2, false, false, true}};
    if (access("/dev/shm", W_OK) != 0) skip();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bt_err err = BT_ERR_INIT;
        bt_job_dirs d;
        room = rows[i].room;
        no_room_known = rows[i].unknown;
        not_ours = rows[i].not_ours;
        if (bt_job_dirs_create(&d, rows[i].ranks, &err) != BT_OK) fail_msg("%s", err.msg);
        assert_int_equal(
            strncmp(d.shm, rows[i].there ? "/dev/shm/" : dir, rows[i].there ? 9 : strlen(dir)), 0);
        assert_int_equal(d.shm_lock >= 0, rows[i].there);
        /* Every attempt chooses again, because the space may have been used meanwhile. */
        char tmp[280], shm[280];
        room = 0;
        if (bt_job_dirs_attempt(&d, rows[i].ranks, 1, tmp, shm, &err) != BT_OK)
            fail_msg("%s", err.msg);
        assert_int_equal(strncmp(shm, dir, strlen(dir)), 0);
        bt_job_dirs_remove(&d);
    }
    not_ours = no_room_known = false;
}

int main(void) {
    strcpy(dir, "/tmp/bt_refused_XXXXXX");
    if (!mkdtemp(dir) || setenv("TMPDIR", dir, 1) != 0) return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(without_a_process),
                                       cmocka_unit_test(without_a_lock),
                                       cmocka_unit_test(memory_where_there_is_room)};
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return rmdir(dir) != 0 || failed;
}

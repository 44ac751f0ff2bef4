/* One job per run: the error contains the job that holds the lock; a running job is refused at once, and the end of an
 * ending job is awaited. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "monitor/job/run_lock.h"
#include "tests/message.h"

static char dir[64], path[96], host[64];

static void read_lock_text(char *out, size_t size) {
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    out[fread(out, 1, size - 1, f)] = '\0';
    fclose(f);
}

static void write_file(const char *text) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static void the_lock_is_signed_and_released(void **state) {
    (void)state;
    char got[256], want[256];
    int fd = 7;
    bt_err err = BT_ERR_INIT;
    write_file("pid 123456789 on a host with a name that is long, and a second line\nhere\n");
    assert_int_equal(bt_run_lock(&fd, dir, "r", 0, &err), BT_OK);
    assert_true(fd >= 0 && (fcntl(fd, F_GETFD) & FD_CLOEXEC));
    read_lock_text(got, sizeof got);
    snprintf(want, sizeof want, "pid %d on %s\n", (int)getpid(), host);
    assert_string_equal(got, want);
    close(fd);
    struct stat st; /* any process that may open the file could hold the lock forever */
    const mode_t mask = umask(0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(bt_run_lock(&fd, dir, "r", 0, &err), BT_OK);
    umask(mask);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    close(fd);
    /* Permissions of a lock file of an older version are removed for other users as well. */
    assert_int_equal(chmod(path, 0644), 0);
    assert_int_equal(bt_run_lock(&fd, dir, "r", 0, &err), BT_OK);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    close(fd);
}

/* The text of the lock while it is held, and the message about it. */
static void a_holder_is_named(void **state) {
    (void)state;
    char own[128], other[128], more[201];
    memset(more, 'x', 200); /* longer than the message */
    more[200] = '\0';
    snprintf(own, sizeof own, "pid %d on %s\nrest", (int)getpid(), host);
    snprintf(other, sizeof other, "pid %d on %sx", (int)getpid(), host);
    const struct {
        const char *text;
        double wait_s;
    } rows[] = {{own, 1000}, {other, 0}, {"", 0}, {"pid 0 on here", 0}, {"nonsense", 0}, {more, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char want[256], who[128];
        int fd = 7;
        bt_err err = BT_ERR_INIT;
        write_file(rows[i].text);
        const int held = open(path, O_RDWR);
        assert_int_equal(flock(held, LOCK_EX | LOCK_NB), 0);
        assert_int_equal(bt_run_lock(&fd, dir, "the_run", rows[i].wait_s, &err), BT_BUSY);
        snprintf(who, sizeof who, "%.*s", (int)strcspn(rows[i].text, "\n"),
                 rows[i].text); /* 127 bytes */
        snprintf(want, sizeof want, "run 'the_run' is being trained by %s in '%s'",
                 who[0] ? who : "another process", dir);
        assert_string_equal(err.msg, want);
        assert_int_equal(fd, -1);
        char got[256];
        read_lock_text(got, sizeof got);
        assert_string_equal(got, rows[i].text); /* Only the holder of the lock writes its text. */
        close(held);
    }
}

static char told[512]; /* lines of the log */
static void keep_line(void *ctx, bt_log_level level, const char *line) {
    (void)ctx, (void)level;
    snprintf(told + strlen(told), sizeof told - strlen(told), "%s\n", line);
}

/* The supervisor died and its ranks still hold the lock while they exit; a wait of more than a second is reported
 * once. */
static void an_ending_holder_is_awaited(void **state) {
    (void)state;
    static const int64_t holds_ns[] = {100000000, 1300000000};
    bt_log_set(keep_line, NULL, BT_LOG_WARN);
    for (int i = 0; i < 2; i++) {
        char text[128], go = 0;
        int ready[2], fd = -1, status;
        bt_err err = BT_ERR_INIT;
        assert_int_equal(pipe(ready), 0);
        const pid_t gone = fork();
        if (gone == 0) _exit(0);
        assert_int_equal(waitpid(gone, NULL, 0), gone);
        snprintf(text, sizeof text, "pid %d on %s\n", (int)gone, host);
        write_file(text);
        const pid_t rank = fork();
        if (rank == 0) {
            const int held = open(path, O_RDWR);
            go = flock(held, LOCK_EX) == 0 ? 'y' : 'n';
            if (write(ready[1], &go, 1) != 1) _exit(1);
            bt_sleep_ns(holds_ns[i]);
            _exit(0);
        }
        assert_int_equal(read(ready[0], &go, 1), 1);
        assert_int_equal(go, 'y');
        told[0] = '\0';
        const int64_t began = bt_now_ns();
        assert_int_equal(bt_run_lock(&fd, dir, "r", 60, &err), BT_OK);
        if (bt_now_ns() - began < 1000000000) assert_string_equal(told, "");
        if (told[0])
            assert_string_equal(
                told, "waiting for the ranks of run 'r' that lost their supervisor: they save and "
                      "end\n");
        assert_true(fd >= 0);
        close(fd);
        close(ready[0]);
        close(ready[1]);
        assert_int_equal(waitpid(rank, &status, 0), rank);
        assert_int_equal(status, 0);
    }
    bt_log_set(NULL, NULL, BT_LOG_WARN);
}

static void a_folder_that_cannot_be_used(void **state) {
    (void)state;
    static char deep[5000];
    int fd = 7;
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_run_lock(&fd, "/proc/nothing", "r", 0, &err), BT_IO);
    message_has(err.msg, "cannot write to '/proc/nothing'");
    assert_int_equal(fd, -1);
    memset(deep, 'x', 4096);
    assert_int_equal(bt_run_lock(&fd, deep, "r", 0, &err), BT_ARG);
}

int main(void) {
    char cmd[96];
    strcpy(dir, "/tmp/bt_lock_XXXXXX");
    if (!mkdtemp(dir) || gethostname(host, sizeof host - 1) != 0) return 1;
    snprintf(path, sizeof path, "%s/run.lock", dir);
    alarm(30); /* a test that hangs is ended */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_lock_is_signed_and_released),
        cmocka_unit_test(a_holder_is_named),
        cmocka_unit_test(an_ending_holder_is_awaited),
        cmocka_unit_test(a_folder_that_cannot_be_used),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", dir);
    return failed + system(cmd);
}

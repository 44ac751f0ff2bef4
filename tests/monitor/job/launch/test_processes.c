/* Programs started beside a run: a viewer whose lines are read, a background program, this program started again
 * without a terminal, a function in a child. Each has the descriptors, signals and session that its header
 * documents. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/base/clock.h"
#include "engine/base/system/start_process.h"
#include "monitor/job/launch/detach.h"
#include "monitor/job/launch/viewer_process.h"
#include "tests/message.h"

static char self[1024], dir[64];

/* The started process describes itself. */

static bool same_file(int a, int b) {
    struct stat x, y;
    return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static bool is_null(int fd) {
    const int null = open("/dev/null", O_RDONLY);
    const bool is = same_file(fd, null);
    close(null);
    return is;
}

static int count_descriptors(void) {
    int n = 0;
    for (int fd = 0; fd < 256; fd++) n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* Formats "session 1 null 1 files 3 blocked 0 usr1 0 pipe 0 death 15". */
static void describe_self(char *out, size_t size) {
    sigset_t set;
    struct sigaction usr1, pipe_;
    int blocked = 0, death = 0;
    sigprocmask(SIG_BLOCK, NULL, &set);
    for (int s = 1; s < 32; s++) blocked += sigismember(&set, s);
    sigaction(SIGUSR1, NULL, &usr1);
    sigaction(SIGPIPE, NULL, &pipe_);
    prctl(PR_GET_PDEATHSIG, &death);
    snprintf(out, size, "session %d null %d files %d blocked %d usr1 %d pipe %d death %d",
             getsid(0) == getpid(), is_null(0), count_descriptors(), blocked,
             usr1.sa_handler != SIG_DFL, pipe_.sa_handler != SIG_DFL, death);
}

static int act_as_started(int argc, char **argv) {
    char text[256];
    const char *what = argv[1];
    if (strcmp(what, "tells") == 0) {
        describe_self(text, sizeof text);
        printf("%s\n", text);
        fprintf(stderr, "and says %s\n", argc > 2 ? argv[2] : "nothing");
    } else if (strcmp(what, "long") == 0) {
        for (int i = 0; i < 700; i++) putchar('a' + i % 26);
        printf("\n\nlast without end");
    } else if (strcmp(what, "sleeps") == 0) {
        puts("here");
        fflush(stdout);
        sleep(60);
    } else if (strcmp(what, "deaf") == 0) {
        signal(SIGTERM, SIG_IGN);
        puts("here");
        fflush(stdout);
        sleep(60);
    } else if (strcmp(what, "fails") == 0) {
        for (int i = 0; i < 5000; i++) puts("many lines before it");
        fputs("\x1b[31mthe reason\x1b[0m of it\n\n\n", stdout);
        return 3;
    } else if (strcmp(what, "silent") == 0) {
        return 1;
    } else if (strcmp(what, "killed") == 0) {
        puts("before the signal");
        fflush(stdout);
        kill(getpid(), SIGKILL);
    }
    return 0;
}

static const char *line_of(bt_viewer *v, bool *ended) {
    for (const int64_t until = bt_now_ns() + (int64_t)20e9; bt_now_ns() < until;
         bt_sleep_ns(1000000)) {
        const char *line = bt_viewer_line(v, ended);
        if (line || *ended) return line;
    }
    fail_msg("no message arrived");
    return NULL;
}

static void a_viewer_is_read_line_by_line(void **state) {
    (void)state;
    const char *const tells[] = {self, "tells", "dash", NULL}, *const longs[] = {self, "long",
                                                                                 NULL};
    bt_viewer v;
    bt_err err = BT_ERR_INIT;
    bool ended;
    assert_int_equal(bt_viewer_start(&v, tells, &err), BT_OK);
    assert_true(v.pid > 0 && v.out >= 0);
    assert_true(fcntl(v.out, F_GETFL) & O_NONBLOCK);
    assert_true(fcntl(v.out, F_GETFD) & FD_CLOEXEC);
    assert_string_equal(line_of(&v, &ended), "and says dash"); /* The line is not buffered. */
    assert_false(ended);
    assert_string_equal(line_of(&v, &ended),
                        "session 1 null 1 files 3 blocked 0 usr1 0 pipe 0 death 15");
    assert_null(line_of(&v, &ended));
    assert_true(ended);
    assert_int_equal(v.out, -1);
    assert_null(bt_viewer_line(&v, &ended)); /* The end is reported once. */
    assert_false(ended);
    bt_viewer_stop(&v);
    assert_true(v.pid == 0 && v.out == -1);
    bt_viewer_stop(&v); /* A second stop has no effect. */

    char want[512];
    for (int i = 0; i < 511; i++) want[i] = (char)('a' + i % 26);
    want[511] = '\0';
    assert_int_equal(bt_viewer_start(&v, longs, &err), BT_OK);
    assert_string_equal(line_of(&v, &ended), want); /* truncated to the size of the buffer */
    assert_string_equal(line_of(&v, &ended), "");
    assert_null(line_of(&v, &ended)); /* A line without a newline is not returned. */
    assert_true(ended);
    bt_viewer_stop(&v);
}

static void a_viewer_is_stopped(void **state) {
    (void)state;
    static const char *const whats[] = {"sleeps", "deaf"};
    for (int i = 0; i < 2; i++) {
        const char *const argv[] = {self, whats[i], NULL};
        bt_viewer v;
        bt_err err = BT_ERR_INIT;
        bool ended;
        assert_int_equal(bt_viewer_start(&v, argv, &err), BT_OK);
        const pid_t pid = v.pid;
        assert_string_equal(line_of(&v, &ended), "here");
        /* The call returns although the program writes nothing more. */
        assert_null(bt_viewer_line(&v, &ended));
        assert_false(ended);
        bt_viewer_stop(&v);
        assert_true(v.pid == 0 && v.out == -1);
        assert_true(kill(pid, 0) == -1 && errno == ESRCH); /* The process was reaped. */
    }
    const char *const none[] = {"/nowhere/program", NULL};
    bt_viewer v;
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_viewer_start(&v, none, &err), BT_IO);
    message_has(err.msg, "cannot start '/nowhere/program'");
    assert_true(v.pid == 0 && v.out == -1);
}

static void read_all(const char *path, char *out, size_t size) {
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    out[fread(out, 1, size - 1, f)] = '\0';
    fclose(f);
}

static void a_program_receives_what_it_is_given(void **state) {
    (void)state;
    char log[128], got[1024];
    const char *const tells[] = {self, "tells", NULL}, *const none[] = {"/nowhere/program", NULL},
                      *const unknown[] = {"no-such-program", NULL};
    pid_t pid;
    int status;
    sigset_t two;
    snprintf(log, sizeof log, "%s/log", dir);
    const int out = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600),
              kept = open("/dev/null", O_RDONLY | O_CLOEXEC), before = count_descriptors();
    sigemptyset(&two);
    sigaddset(&two, SIGINT);
    sigaddset(&two, SIGTERM);
    const bt_start rows[] = {
        {.argv = tells, .out = out, .err = out, .session = true, .parent_signal = SIGTERM},
        {.argv = tells, .out = out, .err = out, .keep = &kept, .n_keep = 1, .blocked = &two}};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(bt_process_start(&pid, &rows[i]), 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    read_all(log, got, sizeof got);
    assert_string_equal(
        got, "and says nothing\nsession 1 null 1 files 3 blocked 0 usr1 0 pipe 0 death 15\n"
             "and says nothing\nsession 0 null 1 files 4 blocked 2 usr1 0 pipe 0 death 0\n");
    /* Starting a missing program is an error. */
    assert_int_equal(bt_process_start(&pid, &(bt_start){.argv = none}), ENOENT);
    assert_int_equal(pid, -1);
    assert_int_equal(bt_process_start(&pid, &(bt_start){.argv = unknown, .orphan = true}), ENOENT);
    assert_true(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
    assert_int_equal(count_descriptors(), before);
    close(out);
    close(kept);
}

static bt_code start_detached(const char *what, double patience_s, bt_err *err) {
    const char *const argv[] = {what};
    return bt_job_detach(1, argv, patience_s, err);
}

static void a_run_that_ends_at_once_reports_its_error(void **state) {
    (void)state;
    static const struct {
        const char *what;
        bt_code code;
        const char *says;
    } rows[] = {{"fails", BT_ARG, "[31mthe reason[0m of it"},
                {"silent", BT_ARG, "the run ended at once"},
                {"killed", BT_ARG, "before the signal"},
                {"tells", BT_OK, ""}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bt_err err = BT_ERR_INIT;
        assert_int_equal(start_detached(rows[i].what, 20, &err), rows[i].code);
        assert_string_equal(err.msg, rows[i].says);
    }
}

/* A program that continues is not ended, and it is reaped at the next start. */
static void a_run_that_continues_is_left_alone(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    char name[64], line[512];
    int status;
    pid_t left = 0;
    assert_int_equal(start_detached("sleeps", 0.05, &err), BT_OK);
    DIR *d = opendir("/proc");
    for (const struct dirent *e; (e = readdir(d));) { /* finds the only child */
        int ppid = 0;
        snprintf(name, sizeof name, "/proc/%.20s/stat", e->d_name);
        FILE *f = fopen(name, "r");
        if (f && fgets(line, sizeof line, f) && strrchr(line, ')') &&
            sscanf(strrchr(line, ')') + 1, " %*c %d", &ppid) == 1 && ppid == getpid())
            left = atoi(e->d_name);
        if (f) fclose(f);
    }
    closedir(d);
    assert_true(left > 0 && getsid(left) == left);
    assert_int_equal(kill(left, SIGKILL), 0);
    while (kill(left, 0) == 0 && start_detached("tells", 20, &err) == BT_OK) continue;
    assert_true(waitpid(-1, &status, WNOHANG) == -1 && errno == ECHILD);
}

static void write_description(const void *ctx) {
    char text[256];
    describe_self(text, sizeof text);
    const int fd = open(ctx, O_WRONLY | O_CREAT | O_EXCL, 0600);
    const bool quiet = is_null(1) && is_null(2);
    if (fd >= 0 && dprintf(fd, "%s quiet %d", text, quiet) > 0) close(fd);
}

static void a_function_runs_without_inherited_state(void **state) {
    (void)state;
    char path[128], got[512];
    int status;
    snprintf(path, sizeof path, "%s/aside", dir);
    const int ours = open("/proc/self/status", O_RDONLY | O_CLOEXEC), kept[] = {dup(1), dup(2)};
    for (int k = 0; k < 2; k++) dup2(ours, k + 1);
    const bool began = bt_job_aside(write_description, path);
    for (int k = 0; k < 2; k++) {
        dup2(kept[k], k + 1);
        close(kept[k]);
    }
    close(ours);
    assert_true(began);
    assert_true(wait(&status) > 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    read_all(path, got, sizeof got);
    /* Standard output and error of the child are /dev/null. */
    assert_string_equal(got, "session 1 null 1 files 3 blocked 0 usr1 0 pipe 0 death 0 quiet 1");
}

static int open_dir(void **state) {
    (void)state;
    strcpy(dir, "/tmp/bt_proc_XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int close_dir(void **state) {
    char cmd[96];
    (void)state;
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", dir);
    return system(cmd);
}

static void on_usr1(int sig) { (void)sig; }

int main(int argc, char **argv) {
    sigset_t some;
    if (argc > 1) return act_as_started(argc, argv);
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n < 0) return 1;
    self[n] = '\0';
    closefrom(3); /* The parent process may have left files open. */
    if (close(0) != 0 || open("/proc/self/status", O_RDONLY) != 0) return 1;
    /* properties of this process that started ones must not inherit */
    signal(SIGUSR1, on_usr1);
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&some);
    sigaddset(&some, SIGHUP);
    sigaddset(&some, SIGTERM);
    sigprocmask(SIG_BLOCK, &some, NULL);
    alarm(30); /* A test that hangs is ended. */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_viewer_is_read_line_by_line),
        cmocka_unit_test(a_viewer_is_stopped),
        cmocka_unit_test(a_program_receives_what_it_is_given),
        cmocka_unit_test(a_run_that_ends_at_once_reports_its_error),
        cmocka_unit_test(a_run_that_continues_is_left_alone),
        cmocka_unit_test(a_function_runs_without_inherited_state),
    };
    return cmocka_run_group_tests(tests, open_dir, close_dir);
}

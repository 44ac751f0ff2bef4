/* test_child.c - this program as its own child: arguments, launcher, log, cores, process group and signals; the child
 * ends with its parent; the last line of a log. */
#include "monitor/job/launch/child.h"

#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/base/clock.h"
#include "tests/message.h"

static char folder[64], logged[96];

static int make(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/bt_child.XXXXXX");
    if (!mkdtemp(folder)) return 1;
    snprintf(logged, sizeof logged, "%s/log", folder);
    return 0;
}

static int drop(void **state) {
    (void)state;
    unlink(logged);
    return rmdir(folder);
}

static pid_t start_child(const bt_child_cfg *cfg) {
    pid_t pid = -1;
    bt_err err = BT_ERR_INIT;
    if (bt_child_start(&pid, cfg, &err) != BT_OK) fail_msg("%s", err.msg);
    return pid;
}

/* Waits for the end of the process and returns its status. */
static int status_at_end(pid_t pid) {
    int status = -1;
    for (int i = 0; !bt_child_ended(pid, &status); i++) {
        if (i == 2000) fail_msg("the child still runs after 20 s");
        bt_sleep_ns(10000000);
    }
    return status;
}

static void log_text(char *out, size_t size) {
    const int fd = open(logged, O_RDONLY);
    assert_true(fd >= 0);
    const ssize_t n = read(fd, out, size - 1);
    out[n > 0 ? n : 0] = 0;
    close(fd);
}

static void a_child_has_its_arguments_log_and_group(void **state) {
    (void)state;
    static const char *const words[] = {"tell", "two words", ""};
    char text[1024];
    for (int turn = 0; turn < 2; turn++) {
        const bt_child_cfg cfg = {.words = words, .n_words = 3, .log = logged};
        const int status = status_at_end(start_child(&cfg));
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    }
    log_text(text, sizeof text); /* the second output is appended */
    assert_string_equal(text, "2 [two words] [] own group, input ends, SEEN none\non stderr\n"
                              "2 [two words] [] own group, input ends, SEEN none\non stderr\n");
}

static void a_launcher_precedes_the_program(void **state) {
    (void)state;
    static const char *const words[] = {"tell", "x"}, *const launcher[] = {"env", "SEEN=yes"};
    char text[1024];
    const bt_child_cfg cfg = {
        .words = words, .n_words = 2, .log = logged, .launcher = launcher, .n_launcher = 2};
    const int status = status_at_end(start_child(&cfg));
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 2);
    log_text(text, sizeof text);
    assert_string_equal(text, "1 [x] own group, input ends, SEEN yes\non stderr\n");

    static const char *const nobody[] = {"/nowhere/launcher"};
    pid_t none = -1;
    bt_err err = BT_ERR_INIT;
    const bt_child_cfg without = {
        .words = words, .n_words = 2, .log = logged, .launcher = nobody, .n_launcher = 1};
    assert_int_equal(bt_child_start(&none, &without, &err), BT_IO);
    message_has(err.msg, "cannot start '/nowhere/launcher'");
}

/* The two parts are disjoint and as large as possible; if there are more parts than cores, each part is all cores. */
static void parts_divide_the_cores(void **state) {
    (void)state;
    static const char *const words[] = {"cores"};
    cpu_set_t all, sum;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    const int count = CPU_COUNT(&all);
    for (int parts = 1; parts <= count + 1;
         parts += parts < 3 || parts >= count ? 1 : count - parts) {
        CPU_ZERO(&sum);
        for (int part = 0; part < parts; part++) {
            cpu_set_t mine, both;
            unlink(logged);
            (void)status_at_end(start_child(&(bt_child_cfg){
                .words = words, .n_words = 1, .log = logged, .part = part, .parts = parts}));
            const int fd = open(logged, O_RDONLY);
            assert_int_equal(read(fd, &mine, sizeof mine), sizeof mine);
            close(fd);
            const int n = CPU_COUNT(&mine);
            if (parts > count) {
                assert_true(CPU_EQUAL(&mine, &all));
                continue;
            }
            assert_true(n == count / parts || n == (count + parts - 1) / parts);
            CPU_AND(&both, &mine, &sum);
            assert_int_equal(CPU_COUNT(&both), 0);
            CPU_OR(&sum, &sum, &mine);
        }
        if (parts <= count) assert_true(CPU_EQUAL(&sum, &all));
    }
}

static void a_log_that_cannot_be_created_is_reported(void **state) {
    (void)state;
    static const char *const words[] = {"tell"};
    pid_t pid = -1;
    bt_err err = BT_ERR_INIT;
    const bt_child_cfg cfg = {.words = words, .n_words = 1, .log = "/nowhere/log"};
    assert_int_equal(bt_child_start(&pid, &cfg, &err), BT_IO);
    assert_non_null(strstr(err.msg, "cannot open '/nowhere/log'"));
    assert_non_null(strstr(err.msg, "No such file"));
}

/* If the process between parent and child dies, the child, now a child of this test, receives TERM. */
static void a_child_ends_with_its_parent(void **state) {
    (void)state;
    static const char *const words[] = {"stay"};
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    int tell[2];
    assert_int_equal(pipe(tell), 0);
    const pid_t between = fork();
    if (between == 0) {
        pid_t pid = -1;
        bt_err err = BT_ERR_INIT;
        const bt_child_cfg cfg = {.words = words, .n_words = 1, .log = logged};
        if (bt_child_start(&pid, &cfg, &err) != BT_OK) _exit(1);
        char line[32] = "";
        /* The loop waits until the child has written "ready". */
        for (int i = 0; i < 2000 && strcmp(line, "ready") != 0; i++) {
            bt_sleep_ns(10000000);
            bt_child_last_line(logged, line, sizeof line);
        }
        _exit(write(tell[1], &pid, sizeof pid) == sizeof pid ? 0 : 1);
    }
    pid_t child = -1;
    assert_int_equal(read(tell[0], &child, sizeof child), sizeof child);
    assert_int_equal(status_at_end(between), 0);
    const int status = status_at_end(child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    close(tell[0]);
    close(tell[1]);
    prctl(PR_SET_CHILD_SUBREAPER, 0);
}

static void ignored_signals_reach_the_child(void **state) {
    (void)state;
    static const char *const words[] = {"stay"};
    sigset_t usr1;
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    sigprocmask(SIG_BLOCK, &usr1, NULL);
    signal(SIGUSR2, SIG_IGN);
    static const int each[] = {SIGUSR1, SIGUSR2};
    for (int i = 0; i < 2; i++) {
        const pid_t pid = start_child(&(bt_child_cfg){.words = words, .n_words = 1, .log = logged});
        char line[32] = "";
        while (strcmp(line, "ready") != 0) {
            bt_sleep_ns(1000000);
            bt_child_last_line(logged, line, sizeof line);
        }
        bt_child_signal(pid, each[i]);
        const int status = status_at_end(pid);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == each[i]);
        unlink(logged);
    }
    signal(SIGUSR2, SIG_DFL);
    sigprocmask(SIG_UNBLOCK, &usr1, NULL);
}

static void signals_are_remembered_once(void **state) {
    (void)state;
    static const int all[] = {SIGINT, SIGTERM, SIGHUP};
    assert_int_equal(bt_child_signals(true), 0);
    assert_int_equal(bt_child_signals(false), 0);
    for (int i = 0; i < 3; i++) {
        raise(all[i]);
        assert_int_equal(bt_child_signals(false), all[i]);
        assert_int_equal(bt_child_signals(false), 0);
    }
    raise(SIGINT);
    assert_int_equal(bt_child_signals(true), 0); /* Earlier signals are forgotten. */
    for (int i = 0; i < 3; i++) signal(all[i], SIG_DFL);
}

static void write_log(const char *text, size_t n) {
    const int fd = open(logged, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_int_equal(write(fd, text, n), n);
    close(fd);
}

static void the_last_line_is_returned_as_plain_text(void **state) {
    (void)state;
    static char much[9000];
    char line[200];
    static const struct {
        const char *text, *want;
    } each[] = {{"", ""},
                {"\n\n", ""},
                {"one", "one"},
                {"one\ntwo\n", "two"},
                {"one\ntwo\n\n\n", "two"},
                {"one\n\033[31mred\a", "[31mred"}};
    bt_child_last_line("/nowhere/log", line, sizeof line);
    assert_string_equal(line, "");
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        write_log(each[i].text, strlen(each[i].text));
        bt_child_last_line(logged, line, sizeof line);
        if (i < 5)
            assert_string_equal(line, each[i].want);
        else
            assert_true(strstr(line, "red") && !strchr(line, '\033') && !strchr(line, '\a'));
    }
    memset(much, 'x', sizeof much); /* longer than the read of a file */
    memcpy(much + sizeof much - 6, "\nlast\n", 6);
    write_log(much, sizeof much);
    bt_child_last_line(logged, line, sizeof line);
    assert_string_equal(line, "last");
    static const size_t lengths[] = {4094, 4095, 4096, 4097, sizeof much};
    /* The read ends at the end of the file. */
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        memcpy(much + lengths[i] - 4, "\nABC", 4);
        write_log(much, lengths[i]);
        bt_child_last_line(logged, line, sizeof line);
        assert_string_equal(line, "ABC");
    }
    memset(much, 'y', sizeof much);
    write_log(much, sizeof much);
    bt_child_last_line(logged, line, sizeof line);
    assert_int_equal(strspn(line, "y"), sizeof line - 1);
    assert_int_equal(strlen(line), sizeof line - 1);
}

static int print_descriptor_count(int argc, char **argv) {
    char none;
    printf("%d", argc - 2);
    for (int i = 2; i < argc; i++) printf(" [%s]", argv[i]);
    printf(" %s group, input %s, SEEN %s\n", getpgrp() == getpid() ? "own" : "the parent's",
           read(STDIN_FILENO, &none, 1) == 0 ? "ends" : "goes on",
           getenv("SEEN") ? getenv("SEEN") : "none");
    fflush(stdout);
    fprintf(stderr, "on stderr\n");
    return argc - 1;
}

static int print_own_cores(void) {
    cpu_set_t mine;
    if (sched_getaffinity(0, sizeof mine, &mine) != 0) return 1;
    return fwrite(&mine, sizeof mine, 1, stdout) != 1;
}

static int run_until_signal(void) {
    puts("ready");
    fflush(stdout);
    for (int i = 0; i < 60; i++) sleep(1);
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "tell") == 0) return print_descriptor_count(argc, argv);
    if (argc > 1 && strcmp(argv[1], "cores") == 0) return print_own_cores();
    if (argc > 1 && strcmp(argv[1], "stay") == 0) return run_until_signal();
    signal(SIGHUP, SIG_DFL); /* a parent such as nohup may leave the signal ignored */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_child_has_its_arguments_log_and_group, make, drop),
        cmocka_unit_test_setup_teardown(a_launcher_precedes_the_program, make, drop),
        cmocka_unit_test_setup_teardown(parts_divide_the_cores, make, drop),
        cmocka_unit_test_setup_teardown(a_log_that_cannot_be_created_is_reported, make, drop),
        cmocka_unit_test_setup_teardown(a_child_ends_with_its_parent, make, drop),
        cmocka_unit_test_setup_teardown(ignored_signals_reach_the_child, make, drop),
        cmocka_unit_test_setup_teardown(signals_are_remembered_once, make, drop),
        cmocka_unit_test_setup_teardown(the_last_line_is_returned_as_plain_text, make, drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

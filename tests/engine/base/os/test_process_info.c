/* test_process_info.c - states, names, times and memory of processes, read while and after they run. */
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/base/clock.h"
#include "engine/base/os/own_process.h"
#include "engine/base/os/process_info.h"
#include "engine/base/os/process_usage.h"

/* Reads a process until it is in a state, for at most 10 s. */
static bt_process_info read_in_state(pid_t pid, char state) {
    bt_process_info info = {0};
    for (int i = 0; i < 2000 && info.state != state; i++) {
        if (i) bt_sleep_ns(5000000);
        assert_true(bt_process_info_read(pid, &info));
    }
    assert_int_equal(info.state, state);
    return info;
}

static void test_states(void **state) {
    (void)state;
    const pid_t child = fork();
    if (child == 0) {
        bt_signal_at_parent_end(SIGKILL);
        for (;;) pause();
    }
    bt_process_info info = read_in_state(child, 'S');
    assert_int_equal(info.pid, child);
    assert_int_equal(info.parent, getpid());
    assert_int_equal(info.session, getsid(0));
    assert_int_equal(info.end_status, 0);
    kill(child, SIGSTOP);
    read_in_state(child, 'T');
    kill(child, SIGKILL);
    info = read_in_state(child, 'Z');
    assert_true(WIFSIGNALED(info.end_status) && WTERMSIG(info.end_status) == SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_false(bt_process_info_read(child, &info));
    assert_false(bt_process_info_read(0, &info) || bt_process_info_read(-1, &info));
}

static void test_scan(void **state) {
    (void)state;
    bt_process_scan scan = {NULL};
    pid_t before = 0;
    bool found = false;
    for (pid_t pid; (pid = bt_process_scan_next(&scan)) > 0; before = pid) {
        assert_true(pid > before);
        found |= pid == getpid();
    }
    bt_process_scan_end(&scan);
    assert_true(found);
}

/* The environment and arguments are those with which this program started. */
static void test_start(void **state) {
    (void)state;
    char text[4096], *value = getenv("PATH");
    assert_true(bt_process_words(getpid(), text, sizeof text) > strlen("process_info"));
    assert_non_null(strstr(text, "process_info"));
    if (value) {
        assert_true(bt_process_variable(getpid(), "PATH", text, sizeof text));
        assert_string_equal(text, value);
    }
    assert_false(bt_process_variable(getpid(), "PAT", text, sizeof text));
    const int fd = open(bt_program_file(), O_RDONLY);
    assert_true(fd >= 0);
    close(fd);
    assert_true(bt_loaded_library("/libc.so", text, sizeof text) && access(text, R_OK) == 0);
    assert_false(bt_loaded_library("/no such library", text, sizeof text));
}

static void test_usage(void **state) {
    (void)state;
    enum { BYTES = 8 << 20 };
    size_t all, resident, more;
    bt_process_info before, after;
    bt_process_schedule times;
    assert_true(bt_process_memory(0, &all, &resident) && resident > 0 && all >= resident);
    unsigned char *x = malloc(BYTES);
    assert_non_null(x);
    assert_true(bt_process_info_read(getpid(), &before));
    for (size_t i = 0; i < BYTES; i += 512) ((volatile unsigned char *)x)[i] = 1;
    assert_true(bt_process_memory(getpid(), &all, &more) && more >= resident + BYTES / 2);
    const int64_t until = bt_cpu_ns() + 60000000;
    while (bt_cpu_ns() < until) {}
    assert_true(bt_process_info_read(getpid(), &after));
    assert_true(after.cpu_s >= before.cpu_s + 0.03); /* in units of the scheduler's ticks */
    assert_true(after.page_faults > before.page_faults);
    assert_true(bt_process_schedule_read(getpid(), &times) && times.runs);
    assert_true(bt_process_switches(getpid()) >= 0);
    assert_true(isnan(bt_process_switches(-1)));
    assert_false(bt_process_schedule_read(-1, &times) || bt_process_memory(-1, &all, &more));
    free(x);
}

static void test_io(void **state) {
    (void)state;
    enum { BYTES = 1 << 16 };
    static char bytes[BYTES];
    bt_process_io before, after;
    const int fd = open("/dev/null", O_WRONLY);
    assert_true(bt_process_io_read(getpid(), &before));
    assert_int_equal(write(fd, bytes, BYTES), BYTES);
    assert_true(bt_process_io_read(getpid(), &after));
    assert_true(after.written >= before.written + BYTES);
    close(fd);
    assert_false(bt_process_io_read(0, &after));
}

static volatile sig_atomic_t taken_in_main;
static pthread_t main_thread;
static void note_thread(int sig) {
    taken_in_main = pthread_equal(pthread_self(), main_thread) ? sig : 0;
}

static void *signal_main(void *sent) {
    *(bool *)sent = bt_signal_main_thread(SIGUSR1);
    return NULL;
}

static void test_threads(void **state) {
    (void)state;
    bool sent = false;
    pthread_t thread;
    main_thread = pthread_self();
    signal(SIGUSR1, note_thread);
    assert_false(bt_signal_main_thread(SIGUSR1));
    assert_int_equal(taken_in_main, 0);
    assert_int_equal(pthread_create(&thread, NULL, signal_main, &sent), 0);
    pthread_join(thread, NULL);
    assert_true(sent);
    for (int i = 0; i < 2000 && !taken_in_main; i++) bt_sleep_ns(5000000);
    assert_int_equal(taken_in_main, SIGUSR1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_states), cmocka_unit_test(test_scan), cmocka_unit_test(test_start),
        cmocka_unit_test(test_usage),  cmocka_unit_test(test_io),   cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

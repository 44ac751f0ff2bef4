/* test_descriptors.c - sets of descriptors, wake-ups, signals, processes and peers of sockets as poll() shows them. */
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/base/os/poll_set.h"
#include "engine/base/os/process_fd.h"
#include "engine/base/os/signal_fd.h"
#include "engine/base/os/wake_fd.h"

static bool is_readable(int fd, int wait_ms) {
    struct pollfd p = {fd, POLLIN, 0};
    return poll(&p, 1, wait_ms) == 1;
}

static void test_wake(void **state) {
    (void)state;
    const int fd = bt_wake_fd_create();
    assert_true(fd >= 0);
    assert_false(is_readable(fd, 0));
    assert_true(bt_wake_fd_clear(fd)); /* does not wait */
    assert_true(bt_wake_fd_notify(fd));
    assert_true(bt_wake_fd_notify(fd));
    assert_true(is_readable(fd, 0));
    assert_true(bt_wake_fd_clear(fd)); /* clears both */
    assert_false(is_readable(fd, 0));
    close(fd);
    assert_false(bt_wake_fd_notify(fd));
    assert_false(bt_wake_fd_clear(fd));
}

static void test_poll_set(void **state) {
    (void)state;
    const int set = bt_poll_set_create(), a = bt_wake_fd_create(), b = bt_wake_fd_create();
    uint64_t tag = 0;
    assert_true(bt_poll_set_add(set, a, 1) && bt_poll_set_add(set, b, UINT64_MAX));
    assert_false(bt_poll_set_add(set, a, 3)); /* is a member already */
    assert_false(bt_poll_set_ready(set, &tag) || is_readable(set, 0));
    bt_wake_fd_notify(b);
    assert_true(is_readable(set, 0));
    assert_true(bt_poll_set_ready(set, &tag) && tag == UINT64_MAX);
    bt_poll_set_remove(set, b);
    assert_false(bt_poll_set_ready(set, &tag) || is_readable(set, 0));
    bt_wake_fd_notify(a);
    assert_true(bt_poll_set_ready(set, &tag) && tag == 1);
    close(a); /* leaves the set */
    assert_false(is_readable(set, 0));
    close(b);
    close(set);
}

static void test_signals(void **state) {
    (void)state;
    sigset_t set, before;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    sigprocmask(SIG_BLOCK, &set, &before);
    const int fd = bt_signal_fd_create(&set);
    assert_true(fd >= 0);
    assert_int_equal(bt_signal_fd_take(fd), 0);
    raise(SIGUSR2);
    assert_true(is_readable(fd, 0));
    assert_int_equal(bt_signal_fd_take(fd), SIGUSR2);
    assert_int_equal(bt_signal_fd_take(fd), 0);
    close(fd);
    sigprocmask(SIG_SETMASK, &before, NULL);
}

static void test_process(void **state) {
    (void)state;
    const pid_t child = fork();
    if (child == 0)
        for (;;) pause();
    const int fd = bt_process_fd_open(child);
    if (fd < 0) { /* The kernel lacks these descriptors. */
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        skip();
    }
    assert_false(is_readable(fd, 0));
    assert_true(bt_process_fd_signal(fd, SIGTERM));
    assert_true(is_readable(fd, 10000)); /* not reaped yet */
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    assert_false(bt_process_fd_signal(fd, SIGTERM));
    close(fd);
    assert_int_equal(bt_process_fd_open(child), -1);
}

static void test_peer(void **state) {
    (void)state;
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    assert_true(bt_local_peer_is_ours(ends[0]));
    assert_int_equal(bt_local_peer_pid(ends[0]), getpid());
    close(ends[0]);
    close(ends[1]);
    assert_false(bt_local_peer_is_ours(ends[0]));
    assert_int_equal(bt_local_peer_pid(ends[0]), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wake),    cmocka_unit_test(test_poll_set),
        cmocka_unit_test(test_signals), cmocka_unit_test(test_process),
        cmocka_unit_test(test_peer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_spare_socket.c - waiting ranks of a hot spare start on request, or end with their supervisor; a dead one is
 * detected before it is used. */
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
#include "monitor/job/spare_socket.h"

static char folder[64], path[96];

static int set_up(void **state) {
    (void)state;
    strcpy(folder, "/tmp/bt-spare-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/spare", folder);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    unlink(path);
    return rmdir(folder);
}

/* Starts a process that exits with 7 after the right message, with 3 if it is not needed, otherwise with 1. */
static pid_t start_waiter(void) {
    pid_t pid = fork();
    if (pid != 0) return pid;
    bt_spare_go go;
    bt_err err = BT_ERR_INIT;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* kills the processes of a failed test */
    bt_code code = bt_spare_wait(path, &go, &err);
    const bool right = code == BT_OK && go.attempt == 4 && go.fence == 9 &&
                       strcmp(go.resume_from, "/dev/shm/states") == 0;
    _exit(right ? 7 : code == BT_STOPPED ? 3 : 1);
}

static int end_of(pid_t pid) {
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void wait_for(bt_spare_socket *s, int n) {
    for (int i = 0; i < 5000 && s->n < n; i++) {
        assert_true(bt_spare_accept(s));
        bt_sleep_ns(2000000);
    }
    assert_int_equal(s->n, n);
}

static bt_spare_go start_message(void) {
    bt_spare_go go = {.attempt = 4, .fence = 9};
    strcpy(go.resume_from, "/dev/shm/states");
    return go;
}

static void test_a_spare_starts_on_request(void **state) {
    (void)state;
    bt_spare_socket s;
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_spare_listen(&s, path, &err), BT_OK);
    const pid_t a = start_waiter(), b = start_waiter();
    wait_for(&s, 2);
    assert_true((bt_spare_pid(&s, 0) == a && bt_spare_pid(&s, 1) == b) ||
                (bt_spare_pid(&s, 0) == b && bt_spare_pid(&s, 1) == a));
    const bt_spare_go go = start_message();
    assert_true(bt_spare_send(&s, &go));
    bt_spare_close(&s);
    assert_int_equal(s.listen, -1);
    assert_int_equal(end_of(a), 7);
    assert_int_equal(end_of(b), 7);
}

static void test_not_needed(void **state) {
    (void)state;
    bt_spare_socket s;
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_spare_listen(&s, path, &err), BT_OK);
    const pid_t a = start_waiter();
    wait_for(&s, 1);
    bt_spare_close(&s);
    assert_int_equal(end_of(a), 3);
    bt_spare_go go;
    assert_int_equal(bt_spare_wait(path, &go, &err), BT_IO); /* Nothing listens any more. */
}

static void test_a_dead_spare_is_detected(void **state) {
    (void)state;
    bt_spare_socket s;
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_spare_listen(&s, path, &err), BT_OK);
    const pid_t a = start_waiter(), b = start_waiter();
    wait_for(&s, 2);
    kill(a, SIGKILL);
    assert_int_equal(end_of(a), 128 + SIGKILL);
    assert_false(bt_spare_accept(&s));
    const bt_spare_go go = start_message();
    assert_false(bt_spare_send(&s, &go));
    bt_spare_close(&s);
    (void)end_of(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_spare_starts_on_request, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_not_needed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_dead_spare_is_detected, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

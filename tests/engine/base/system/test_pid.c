/* test_pid.c - a zombie and an unused process id do not count as living processes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/base/system/pid.h"

static void an_ended_process_is_not_alive(void **state) {
    (void)state;
    assert_true(bt_pid_lives(getpid()));
    assert_true(bt_pid_lives(1));
    assert_false(bt_pid_lives(0));
    assert_false(bt_pid_lives(-1));
    const pid_t child = fork();
    if (child == 0) _exit(0);
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
    assert_false(bt_pid_lives(child)); /* a zombie */
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_false(bt_pid_lives(child));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(an_ended_process_is_not_alive)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_pid.c - a process that runs, one that has ended and was not waited for, and none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/base/system/pid.h"

static void who_has_ended_is_not_there(void **state) {
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(who_has_ended_is_not_there)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

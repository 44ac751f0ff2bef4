/* test_reserve.c - disk space for a file is reserved although signals arrive meanwhile. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/base/system/reserve.h"

static int calls, ends_at, others;

static void count_signal(int number) { others += number == SIGUSR1; }

/* Replaces libc's function: Linux before 6.18 returns EINTR in tmpfs and reserves nothing. */
int posix_fallocate(int fd, off_t at, off_t n) {
    sigset_t held;
    raise(SIGUSR1);
    assert_int_equal(others, 0);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &held), 0);
    assert_int_equal(sigismember(&held, SIGTERM), 1);
    if (++calls < ends_at) return EINTR;
    return n > 1 << 30 ? ENOSPC : ftruncate(fd, at + n) == 0 ? 0 : errno;
}

static void signals_do_not_interrupt(void **state) {
    char path[] = "/tmp/bt-reserve-XXXXXX";
    struct sigaction act = {.sa_handler = count_signal}, before;
    const int fd = mkstemp(path);
    (void)state;
    assert_true(fd >= 0);
    unlink(path);
    assert_int_equal(sigaction(SIGUSR1, &act, &before), 0);
    ends_at = 3;
    assert_int_equal(bt_file_reserve(fd, 4096), 0);
    assert_int_equal(calls, 3);
    assert_int_equal(others, 1); /* The signal was delivered after the call. */
    assert_int_equal(lseek(fd, 0, SEEK_END), 4096);
    others = 0;
    assert_int_equal(bt_file_reserve(fd, (uint64_t)1 << 40), ENOSPC);
    assert_int_equal(sigaction(SIGUSR1, &before, NULL), 0);
    close(fd);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(signals_do_not_interrupt)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

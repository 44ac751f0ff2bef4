/* memory_wait.c - futex(2). */
#include "engine/base/os/memory_wait.h"

#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void bt_memory_wait(_Atomic uint32_t *word, uint32_t seen, int64_t timeout_ns,
                    bt_wait_scope scope) {
    const struct timespec t = {.tv_sec = timeout_ns / 1000000000,
                               .tv_nsec = timeout_ns % 1000000000};
    (void)syscall(SYS_futex, word, scope == BT_WAIT_SHARED ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE, seen,
                  timeout_ns > 0 ? &t : NULL, NULL, 0);
}

void bt_memory_wake(_Atomic uint32_t *word, bt_wait_scope scope) {
    (void)syscall(SYS_futex, word, scope == BT_WAIT_SHARED ? FUTEX_WAKE : FUTEX_WAKE_PRIVATE,
                  INT32_MAX, NULL, NULL, 0);
}

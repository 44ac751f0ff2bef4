/* Idle hooks of the thread pool: called while the training thread waits, each once however often it
 * is put in, until it is taken out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/base/threads.h"

static atomic_int polled[2];
static void hook(void *ctx) { atomic_fetch_add((atomic_int *)ctx, 1); }

/* the other thread's part ends when both hooks were called meanwhile: a pool that does not call
 * them never returns */
static void until_polled(void *ctx, int thread, size_t begin, size_t end) {
    (void)ctx, (void)begin, (void)end;
    while (thread == 1 && !(atomic_load(&polled[0]) > 0 && atomic_load(&polled[1]) > 0)) continue;
}

static void hooks_are_called_while_waiting(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_threads_init(2, &err), BT_OK);
    bt_threads_on_idle(hook, &polled[0]);
    bt_threads_on_idle(hook, &polled[1]);
    bt_parallel_for(2, 1, until_polled, NULL);
    bt_threads_off_idle(hook, &polled[0]);
    bt_threads_off_idle(hook, &polled[1]);
    bt_threads_release();
}

static void a_hook_is_there_once(void **state) {
    (void)state;
    atomic_store(&polled[0], 0);
    atomic_store(&polled[1], 0);
    assert_int_equal(bt_threads_poll(), 0);
    for (int i = 0; i < 9; i++) bt_threads_on_idle(hook, &polled[0]);
    bt_threads_on_idle(hook, &polled[1]);
    assert_int_equal(bt_threads_poll(), 2);
    assert_int_equal(atomic_load(&polled[0]), 1);
    bt_threads_off_idle(hook, &polled[0]);
    bt_threads_off_idle(hook, &polled[0]);
    assert_int_equal(bt_threads_poll(), 1);
    assert_int_equal(atomic_load(&polled[0]), 1);
    assert_int_equal(atomic_load(&polled[1]), 2);
    bt_threads_off_idle(hook, &polled[1]);
    assert_int_equal(bt_threads_poll(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(hooks_are_called_while_waiting),
                                       cmocka_unit_test(a_hook_is_there_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

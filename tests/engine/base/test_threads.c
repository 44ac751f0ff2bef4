/* The thread pool processes every element once, and free threads take over the work of a delayed thread. Idle hooks are
 * called while the training thread waits: each once, even if it was added twice, until it is removed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <time.h>

#include <cmocka.h>

#include "engine/base/threads.h"

static atomic_int polled[2];
static void count_hook_calls(void *ctx) { atomic_fetch_add((atomic_int *)ctx, 1); }

/* The worker returns only after both hooks were called. */
static void wait_for_both_hooks(void *ctx, int thread, size_t begin, size_t end) {
    (void)ctx, (void)begin, (void)end;
    while (thread == 1 && !(atomic_load(&polled[0]) > 0 && atomic_load(&polled[1]) > 0)) continue;
}

static void hooks_are_called_while_waiting(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_threads_init(2, &err), BT_OK);
    bt_threads_on_idle(count_hook_calls, &polled[0]);
    bt_threads_on_idle(count_hook_calls, &polled[1]);
    bt_parallel_for(2, 1, wait_for_both_hooks, NULL);
    bt_threads_off_idle(count_hook_calls, &polled[0]);
    bt_threads_off_idle(count_hook_calls, &polled[1]);
    bt_threads_release();
}

static void a_hook_is_added_once(void **state) {
    (void)state;
    atomic_store(&polled[0], 0);
    atomic_store(&polled[1], 0);
    assert_int_equal(bt_threads_poll(), 0);
    for (int i = 0; i < 9; i++) bt_threads_on_idle(count_hook_calls, &polled[0]);
    bt_threads_on_idle(count_hook_calls, &polled[1]);
    assert_int_equal(bt_threads_poll(), 2);
    assert_int_equal(atomic_load(&polled[0]), 1);
    bt_threads_off_idle(count_hook_calls, &polled[0]);
    bt_threads_off_idle(count_hook_calls, &polled[0]);
    assert_int_equal(bt_threads_poll(), 1);
    assert_int_equal(atomic_load(&polled[0]), 1);
    assert_int_equal(atomic_load(&polled[1]), 2);
    bt_threads_off_idle(count_hook_calls, &polled[1]);
    assert_int_equal(bt_threads_poll(), 0);
}

enum { ELEMS = 4099 };
static atomic_int seen[ELEMS];

static void count_seen(void *ctx, int thread, size_t begin, size_t end) {
    (void)ctx, (void)thread;
    for (size_t i = begin; i < end; i++) atomic_fetch_add(&seen[i], 1);
}

static void every_element_is_done_once(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    /* There are more threads than cores, so some start late. */
    assert_int_equal(bt_threads_init(5, &err), BT_OK);
    for (size_t round = 0; round < 3000; round++) {
        const size_t n = 1 + round * 7919 % ELEMS, grain = 1 + round % 13;
        for (size_t i = 0; i < n; i++) atomic_store_explicit(&seen[i], 0, memory_order_relaxed);
        bt_parallel_for(n, grain, count_seen, NULL);
        for (size_t i = 0; i < n; i++) assert_int_equal(atomic_load(&seen[i]), 1);
    }
    bt_threads_release();
}

static void sleep_ms(long ms) { nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL); }

static void thread_1_is_slow(void *ctx, int thread, size_t begin, size_t end) {
    (void)begin, (void)end;
    if (thread != 1) return;
    sleep_ms(20);
    atomic_fetch_add((atomic_int *)ctx, 1);
}

/* HELD: at most half of a thread's span is taken at a time */
enum { UNITS = 64, HELD = UNITS / 2 / 2, SLOW = 10 };
static atomic_int done_units, held_up;

/* Thread 1 returns only when all other units are done, which is impossible if each thread has a fixed share. */
static void wait_for_all_other_units(void *ctx, int thread, size_t begin, size_t end) {
    (void)ctx;
    if (thread == 1 && atomic_fetch_add(&held_up, 1) == 0)
        while (atomic_load(&done_units) < UNITS - HELD) sleep_ms(1);
    atomic_fetch_add(&done_units, (int)(end - begin));
}

static void free_threads_do_the_work_of_a_delayed_one(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_threads_init(2, &err), BT_OK);
    atomic_int slow = 0; /* A late thread 1 may receive no work. */
    while (atomic_load(&slow) < SLOW) bt_parallel_for(2, 1, thread_1_is_slow, &slow);
    atomic_store(&done_units, 0);
    bt_parallel_for(UNITS, 1, wait_for_all_other_units, NULL);
    assert_int_equal(atomic_load(&done_units), UNITS);
    bt_threads_release();
}

static void check_one_call_per_thread(void *ctx, int thread, size_t begin, size_t end) {
    assert_int_equal(begin, thread);
    assert_int_equal(end, begin + 1);
    if (thread == 1) sleep_ms(2);
    atomic_fetch_add((atomic_int *)ctx + thread, 1);
}

static void each_thread_is_called_once(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    atomic_int calls[4] = {0};
    assert_int_equal(bt_threads_init(4, &err), BT_OK);
    for (int i = 0; i < 20; i++) bt_threads_each(check_one_call_per_thread, calls);
    for (int k = 0; k < 4; k++) assert_int_equal(atomic_load(&calls[k]), 20);
    bt_threads_release();
    bt_threads_each(check_one_call_per_thread, calls);
    assert_int_equal(atomic_load(&calls[0]), 21);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(hooks_are_called_while_waiting),
                                       cmocka_unit_test(a_hook_is_added_once),
                                       cmocka_unit_test(every_element_is_done_once),
                                       cmocka_unit_test(free_threads_do_the_work_of_a_delayed_one),
                                       cmocka_unit_test(each_thread_is_called_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_simulate_islands.c - simulated islands against arithmetic that can be done by hand: common rounds,
 * a full link, bounds, overlap, failures. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/plan/simulate_islands.h"

static bt_islands_time played(const bt_islands_sim *s) {
    bt_islands_time t;
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_islands_simulate(s, &t, &err), BT_OK);
    return t;
}

/* seconds of a round once all is under way */
static double round_s(bt_islands_sim s) {
    s.rounds = 40;
    const double first = played(&s).seconds;
    s.rounds = 80;
    return (played(&s).seconds - first) / 40;
}

static const bt_islands_sim equal = {.n = 8,
                                     .inner = 10,
                                     .step_s = 0.5,
                                     .up_bytes = 1e6,
                                     .down_bytes = 1e6,
                                     .island_rate = 1e8,
                                     .hub_rate = 1e8,
                                     .seed = 1};

static void common_rounds_cost_the_queue_at_the_hub(void **state) {
    (void)state;
    bt_islands_sim s = equal;
    s.update_s = 0.25;
    /* answers leave one after another, so the last island begins last; its update meets no queue */
    assert_true(fabs(round_s(s) - (10 * 0.5 + 0.25 + (8 + 1) * 0.01)) < 1e-9);
    s.n = 1;
    s.latency_s = 0.1;
    s.add_s = 0.5;
    assert_true(fabs(round_s(s) - (5 + 0.5 + 0.25 + 2 * (0.01 + 0.1))) < 1e-9);
    s.island_rate = 1e6; /* its own link is the slow one */
    assert_true(fabs(round_s(s) - (5 + 0.5 + 0.25 + 2 * (1 + 0.1))) < 1e-9);
    const bt_islands_time t = played(&s);
    assert_true(fabs(t.held_frac - (round_s(s) - 5) / round_s(s)) < 0.01);
    assert_int_equal(t.staleness_most, 0);
}

static void a_full_link_decides(void **state) {
    (void)state;
    bt_islands_sim s = equal;
    s.bound = -1;
    s.n = 64;
    s.hub_rate = 1e6; /* a second an update; 64 islands make one every 5/64 s */
    s.down_bytes = 2e6;
    const bt_islands_time t = played(&s);
    assert_true(fabs(t.steps_per_s - 10 / 2.0) < 0.15);
    assert_true(t.out_frac > 0.95 && t.in_frac < 0.6);
    assert_true(t.held_frac > 0.9);
    /* all others come between an island's answer and its next update */
    assert_true(t.staleness_mean > 60 && t.staleness_most < 128);
}

static void bounds_hold_the_fast_ones(void **state) {
    (void)state;
    bt_islands_sim s = equal;
    s.spread = 1;
    s.up_bytes = s.down_bytes = 1;
    s.bound = -1;
    const bt_islands_time free = played(&s);
    assert_true(free.held_frac < 1e-3);
    s.bound = 20;
    const bt_islands_time bound = played(&s);
    s.bound = 0;
    const bt_islands_time together = played(&s);
    /* a bound lets nobody train faster than the slowest for long */
    assert_true(bound.steps_per_s < 0.95 * free.steps_per_s);
    assert_true(together.steps_per_s <= 1.001 * bound.steps_per_s);
    assert_true(bound.held_frac > 0.1);
}

static void overlap_hides_the_exchange(void **state) {
    (void)state;
    bt_islands_sim s = equal;
    s.latency_s = 0.4; /* an exchange of 0.8 s and the queue, 0.09 s */
    assert_true(round_s(s) > 5.8);
    s.overlap = 2; /* one second of steps */
    assert_true(fabs(round_s(s) - 5) < 1e-9);
    s.overlap = 1;
    assert_true(fabs(round_s(s) - (5 + 0.8 + 0.09 - 0.5)) < 1e-9);
}

static void failures_lose_what_was_not_sent(void **state) {
    (void)state;
    bt_islands_sim s = equal;
    s.n = 64;
    s.bound = -1;
    s.up_bytes = s.down_bytes = 1;
    s.mtbf_s = 20;
    s.restart_s = 3;
    s.rounds = 300;
    const bt_islands_time t = played(&s);
    /* a round of C needs exp(C / M) - 1 failures on average, each of which costs the restart, and
     * M (exp(C / M) - 1) of running time */
    const double fails = expm1(5.0 / 20), round = fails * (20 + 3);
    assert_true(fabs(t.steps_per_s / (64 * 10 / round) - 1) < 0.03);
    assert_true(fabs((double)t.failures / t.rounds / fails - 1) < 0.05);
    assert_true(fabs(t.lost_frac - (1 - 5 / round)) < 0.03);
    /* common rounds go on without who is away */
    s.bound = 0;
    assert_true(played(&s).steps_per_s < t.steps_per_s);
    s.mtbf_s = 1; /* rounds hardly ever end: no hang */
    s.rounds = 1;
    assert_true(played(&s).failures > 64);
}

/* one island, exchanges that take a second, four steps to warm up: rounds of 1 1 1 1, then of half the steps before
 * them, 2 3 4 6 9, then of all ten, and of what is left */
static void rounds_grow_with_the_steps_before_them(void **state) {
    (void)state;
    bt_islands_sim s = equal;
    s.n = 1;
    s.up_bytes = s.down_bytes = 1;
    s.update_s = 1;
    s.steps = 40;
    s.warmup = 4;
    s.ramp = 0.5;
    bt_islands_time t = played(&s);
    assert_true(fabs(t.rounds - 11) < 1e-9);
    assert_true(fabs(t.seconds - (40 * 0.5 + 10)) <
                1e-3); /* the last one's answer is not waited for */
    assert_true(fabs(t.steps_per_s - 40 / t.seconds) < 1e-9);
    /* while they warm up all are together, whatever bound says; afterwards nobody waits */
    s.n = 2;
    s.bound = -1;
    s.warmup = 40;
    assert_int_equal(played(&s).staleness_most, 0);
    s.warmup = 4;
    assert_true(played(&s).staleness_most > 0);
    /* of a run that would take too long to play it is the later part */
    s.steps = 100000000;
    assert_true(fabs(played(&s).steps_per_s - 2 * 10 / 6.0) < 0.1);
}

/* the hub writes before it answers */
static void the_disk_of_the_hub_holds_all_up(void **state) {
    (void)state;
    bt_islands_sim s = equal;
    s.update_s = 0.25;
    const double without = round_s(s);
    s.keep_s = 3;
    assert_true(fabs(round_s(s) - without - 3) < 1e-9);
    assert_true(fabs(played(&s).disk_frac - 3 / (without + 3)) < 0.01);
    s.bound = -1; /* an update of each island is one record */
    s.keep_s = 30;
    const bt_islands_time t = played(&s);
    assert_true(t.disk_frac > 0.95 && fabs(t.steps_per_s - 10 / 30.25) < 0.02);
}

/* one island by itself: both ends code at the same time; eight of them queue at the hub's one thread, each way */
static void coding_is_one_threads_work_at_the_hub(void **state) {
    (void)state;
    bt_islands_sim s = equal;
    s.hub_rate = s.island_rate = 1e15;
    s.coding_s = 1e-8; /* 0.01 s a transfer */
    s.n = 1;
    s.island_s = 0.25;
    assert_true(fabs(round_s(s) - (5 + 0.25 + 2 * 0.01)) < 1e-6);
    s.n = 8; /* answers one after another; the last island's update then meets no queue */
    assert_true(fabs(round_s(s) - (5 + 0.25 + (8 + 1) * 0.01)) < 1e-6);
    s.answer_s = 0.1; /* so does what the hub does for each */
    assert_true(fabs(round_s(s) - (5 + 0.25 + 8 * 0.1 + 0.01 + 0.01)) < 1e-6);
}

/* islands that share cores take as many times as long as they are more than these, whether they wait for each other
 * or not; a hub that works beside them takes its share */
static void cores_are_shared_by_all_that_compute(void **state) {
    (void)state;
    bt_islands_sim s = equal;
    s.hub_rate = s.island_rate = 1e15;
    s.cores = 8;
    assert_true(fabs(round_s(s) - 5) < 1e-6);
    s.cores = 2;
    assert_true(fabs(round_s(s) - 4 * 5) < 1e-6);
    s.bound = -1;
    assert_true(fabs(round_s(s) - 4 * 5) < 1e-6);
    s.threads = 2;
    assert_true(fabs(round_s(s) - 8 * 5) < 1e-6);
    /* one core: a round of two islands, and of the hub a second for each */
    s = equal;
    s.n = 2;
    s.hub_rate = s.island_rate = 1e15;
    s.bound = -1;
    s.cores = 1;
    s.update_s = 1;
    const double took = round_s(s);
    assert_true(took > 2 * 5 + 1 && took < 2 * 5 + 2 + 0.1);
    s.update_s = 0; /* what the hub waits for its disk takes no core */
    s.keep_s = 1;
    assert_true(round_s(s) < 2 * 5 + 1 + 1e-6);
}

static void what_cannot_be_is_refused(void **state) {
    (void)state;
    bt_islands_time t;
    bt_err err = BT_ERR_INIT;
    bt_islands_sim s = equal;
    s.n = BT_SIM_ISLANDS_MOST + 1;
    assert_int_equal(bt_islands_simulate(&s, &t, &err), BT_ARG);
    s.n = 0;
    assert_int_equal(bt_islands_simulate(&s, &t, &err), BT_ARG);
    s = equal;
    s.inner = 0;
    assert_int_equal(bt_islands_simulate(&s, &t, &err), BT_ARG);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(common_rounds_cost_the_queue_at_the_hub),
        cmocka_unit_test(a_full_link_decides),
        cmocka_unit_test(bounds_hold_the_fast_ones),
        cmocka_unit_test(overlap_hides_the_exchange),
        cmocka_unit_test(failures_lose_what_was_not_sent),
        cmocka_unit_test(rounds_grow_with_the_steps_before_them),
        cmocka_unit_test(the_disk_of_the_hub_holds_all_up),
        cmocka_unit_test(coding_is_one_threads_work_at_the_hub),
        cmocka_unit_test(cores_are_shared_by_all_that_compute),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

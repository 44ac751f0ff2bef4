/* test_step_simulator.c - a simulated training step compared with textbook formulas and with a plain simulation of one
 * exchange. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine/plan/step_simulator/step_simulator.h"

enum { STAGES_MOST = 16, CHUNKS_MOST = 4 };

static bt_step_time simulated_step(const bt_step_simulation *w) {
    bt_step_time t;
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_simulate_step(w, &t, &err), BT_OK);
    return t;
}

static void near(double a, double b) { assert_true(fabs(a - b) <= 1e-12 * fmax(1, fabs(b))); }

static void phases_add_up(const bt_step_time *t) {
    double sum = 0;
    for (int p = 0; p < BT_PHASE_COUNT; p++) sum += t->phase_s[p];
    near(sum, t->step_s);
}

/* m micro-batches on P equal stages, if messages cost nothing, have a bubble of (P - 1) / (m + P - 1), whatever forward
 * and backward cost. */
static void the_bubble_follows_the_textbook_formula(void **state) {
    static const double costs[][2] = {{1, 1}, {1, 2}, {0.25, 3}};
    (void)state;
    for (int pp = 1; pp <= STAGES_MOST; pp++) {
        for (int64_t m = 1; m <= 40; m += 3) {
            for (int c = 0; c < 3; c++) {
                bt_stage_work work[STAGES_MOST];
                memset(work, 0, sizeof work);
                for (int k = 0; k < pp; k++) {
                    work[k].fwd_s = costs[c][0];
                    work[k].bwd_s = costs[c][1];
                }
                const bt_step_simulation w = {.pp = pp, .dp = 1, .micros = m, .stage = work};
                bt_step_time t = simulated_step(&w);
                near(t.bubble_frac, (pp - 1.0) / ((double)m + pp - 1));
                near(t.step_s, ((double)m + pp - 1) * (costs[c][0] + costs[c][1]));
                near(t.phase_s[BT_PH_WAIT], (pp - 1) * (costs[c][0] + costs[c][1]));
                phases_add_up(&t);
            }
        }
    }
}

/* v chunks of layers per stage have a bubble of (P - 1) / (v m + P - 1), because the pipeline fills and drains v times
 * as fast. */
static void the_interleaved_bubble_follows_the_textbook_formula(void **state) {
    static const double costs[][2] = {{1, 1}, {1, 2}, {0.25, 3}};
    (void)state;
    for (int pp = 2; pp <= 8; pp++) {
        for (int v = 2; v <= CHUNKS_MOST; v++) {
            for (int64_t m = pp; m <= 4 * pp; m += pp) {
                for (int c = 0; c < 3; c++) {
                    bt_stage_work work[8 * CHUNKS_MOST];
                    memset(work, 0, sizeof work);
                    for (int k = 0; k < v * pp; k++) {
                        work[k].fwd_s = costs[c][0] / v;
                        work[k].bwd_s = costs[c][1] / v;
                    }
                    const bt_step_simulation w = {
                        .pp = pp, .dp = 1, .chunks = v, .micros = m, .stage = work};
                    const double both = costs[c][0] + costs[c][1], fills = (pp - 1.0) / v;
                    bt_step_time t = simulated_step(&w);
                    near(t.bubble_frac, (pp - 1.0) / (v * (double)m + pp - 1));
                    near(t.step_s, ((double)m + fills) * both);
                    near(t.phase_s[BT_PH_WAIT], fills * both);
                    near(t.processor_s[BT_PH_FWD], (double)m * costs[c][0]);
                    near(t.processor_s[BT_PH_BWD], (double)m * costs[c][1]);
                    phases_add_up(&t);
                }
            }
        }
    }
}

/* Two stages of two chunks, two micro-batches: gradients of the upper chunk are sent while the lower one still
 * computes. */
static void gradients_of_the_upper_chunk_are_sent_first(void **state) {
    (void)state;
    bt_stage_work work[4];
    memset(work, 0, sizeof work);
    for (int k = 0; k < 4; k++) work[k] = (bt_stage_work){.fwd_s = 1, .bwd_s = 2};
    bt_step_simulation w = {
        .pp = 2, .dp = 1, .chunks = 2, .micros = 2, .stage = work, .overlap = true};
    const double alone = simulated_step(&w).step_s;
    /* four buckets of each stage, completed two at a time in the last two units of each chunk's last pass */
    for (int k = 0; k < 2; k++) work[k].buckets = 4, work[k].bucket_wire_s = 1;
    near(simulated_step(&w).step_s, alone + 1);
    w.overlap = false;
    near(simulated_step(&w).step_s, alone + 4);
}

/* If nothing is computed, the wire sends one bucket after the other, followed by the latency of its rounds. */
static void exchange_alone_is_rounds_and_bytes(void **state) {
    (void)state;
    const double n = 8, bytes = 4e6, rate = 1e9, latency = 5e-6;
    bt_stage_work work = {.buckets = 1,
                          .bucket_wire_s = 2 * (n - 1) / n * bytes / rate,
                          .bucket_latency_s = 2 * latency};
    const bt_step_simulation w = {.pp = 1, .dp = 1, .micros = 1, .stage = &work, .overlap = true};
    bt_step_time t = simulated_step(&w);
    near(t.step_s, 2 * (n - 1) / n * bytes / rate + 2 * latency);
    near(t.exchange_s, t.step_s);
    near(t.phase_s[BT_PH_COMM_EXPOSED], t.step_s);
    work.buckets = 3; /* latencies overlap, transfers do not */
    t = simulated_step(&w);
    near(t.step_s, 3 * work.bucket_wire_s + 2 * latency);
    /* If the latency exceeds the transfer time, four buckets are in flight. */
    work = (bt_stage_work){.buckets = 8, .bucket_wire_s = 1, .bucket_latency_s = 100};
    t = simulated_step(&w);
    near(t.step_s, 205);
}

static void buckets_hide_behind_backward(void **state) {
    (void)state;
    bt_stage_work work = {.fwd_s = 1, .bwd_s = 10, .buckets = 10, .bucket_wire_s = 0.5};
    bt_step_simulation w = {.pp = 1, .dp = 1, .micros = 1, .stage = &work, .overlap = true};
    bt_step_time t = simulated_step(&w);
    /* Each bucket is sent when it is complete, so only the last transfer remains. */
    near(t.step_s, 11.5);
    near(t.exchange_s, 0.5);
    w.overlap = false;
    t = simulated_step(&w);
    near(t.step_s, 16);
    /* If the wire is slower than the backward pass, it is busy from the first bucket on. */
    work.bucket_wire_s = 2;
    w.overlap = true;
    t = simulated_step(&w);
    near(t.step_s, 1 + 1 + 20);
    /* If there are several micro-batches, only the gradients of the last one are sent. */
    work.bucket_wire_s = 0.5;
    w.micros = 4;
    t = simulated_step(&w);
    near(t.step_s, 44.5);
    phases_add_up(&t);
}

static void ranks_wait_for_the_slowest(void **state) {
    (void)state;
    const double slow[] = {1, 1.5, 1, 1};
    bt_stage_work work = {.fwd_s = 1, .bwd_s = 3, .buckets = 4, .bucket_wire_s = 0.25};
    const bt_step_simulation w = {
        .pp = 1, .dp = 4, .micros = 2, .stage = &work, .overlap = true, .slow = slow};
    bt_step_time t = simulated_step(&w);
    near(t.step_s, 12 + 0.25);
    near(t.phase_s[BT_PH_WAIT], 3 * 4.0 / 4);
    phases_add_up(&t);
}

/* Two stages, one micro-batch: the step waits for the message in each direction. */
static void messages_cost_both_sides(void **state) {
    (void)state;
    bt_stage_work work[] = {{.fwd_s = 1, .bwd_s = 2}, {.fwd_s = 1, .bwd_s = 2}};
    const bt_step_simulation w = {
        .pp = 2, .dp = 1, .micros = 1, .stage = work, .copy_s = 0.125, .flight_s = 0.5};
    bt_step_time t = simulated_step(&w);
    near(t.step_s, 6 + 2 * (0.125 + 0.5 + 0.125));
    phases_add_up(&t);
}

/* Two stages on a slow link between hosts, two micro-batches: the second message waits for the first one in each
 * direction; in shared memory it does not. */
static void messages_follow_each_other_on_a_link(void **state) {
    (void)state;
    bt_stage_work work[] = {{.fwd_s = 1, .bwd_s = 1}, {.fwd_s = 1, .bwd_s = 1}};
    bt_step_simulation w = {.pp = 2, .dp = 1, .micros = 2, .stage = work, .flight_s = 3};
    near(simulated_step(&w).step_s, 12);
    /* Forward messages sent at 1 and 2 arrive at 4 and 7; gradients sent at 6 and 9 arrive at 9 and 12. */
    w.wire_s = 3;
    bt_step_time t = simulated_step(&w);
    near(t.step_s, 13);
    phases_add_up(&t);
}

/* The last stage sends the tied embedding's gradients and blocks until the first stage receives them. */
static void tied_embedding_is_sent_and_returned(void **state) {
    (void)state;
    bt_stage_work work[] = {{.fwd_s = 1, .bwd_s = 2}, {.fwd_s = 1, .bwd_s = 2}};
    bt_step_simulation w = {.pp = 2, .dp = 1, .micros = 3, .stage = work, .tied_s = 0};
    double without = simulated_step(&w).step_s;
    w.tied_s = w.tied_back_s = 0.25;
    near(simulated_step(&w).step_s, without + 0.5);
}

/* Between hosts the gradients of a tied embedding are sent while the first stage computes, with any number of chunks
 * per stage; it waits for the new values. */
static void a_tied_embedding_travels_while_the_first_stage_computes(void **state) {
    (void)state;
    for (int chunks = 1; chunks <= 2; chunks++) {
        bt_stage_work work[6];
        memset(work, 0, sizeof work);
        for (int k = 0; k < 3 * chunks; k++) work[k] = (bt_stage_work){.fwd_s = 1, .bwd_s = 2};
        bt_step_simulation w = {.pp = 3, .dp = 1, .chunks = chunks, .micros = 3, .stage = work};
        const double without = simulated_step(&w).step_s;
        w.tied_wired = true;
        w.tied_s =
            /* The first stage's last pass begins at least two after the end of the last stage's. */
            2;
        w.tied_back_s = 0.5;
        bt_step_time t = simulated_step(&w);
        assert_true(fabs(t.step_s - without - 0.5) < 1e-9);
        phases_add_up(&t);
        w.tied_s = 100; /* the part that the passes do not hide */
        t = simulated_step(&w);
        assert_true(t.step_s > without + 50 && t.step_s < without + 100);
        /* none of it is processor time */
        near(t.processor_s[BT_PH_COMM_EXPOSED], 0);
        w.tied_wired = false;
        assert_true(simulated_step(&w).step_s > t.step_s);
    }
}

/* Messages of passes use half of the link and delay the tied embedding. */
static void a_tied_embedding_shares_the_link(void **state) {
    (void)state;
    bt_stage_work work[4];
    memset(work, 0, sizeof work);
    for (int k = 0; k < 4; k++) work[k] = (bt_stage_work){.fwd_s = 1, .bwd_s = 2};
    bt_step_simulation w = {.pp = 2,
                            .dp = 1,
                            .chunks = 2,
                            .micros = 2,
                            .stage = work,
                            .flight_s = 0.25,
                            .wire_s = 0.25};
    const double without = simulated_step(&w).step_s;
    w.tied_wired = true;
    w.tied_s = 1000;
    /* The last stage sends two more messages after it: from the last pass of its last chunk and from that of its first
     * chunk. */
    const double tied = simulated_step(&w).step_s, alone = 1000;
    assert_true(tied > without + alone - 12 && tied < without + alone);
    w.wire_s = w.flight_s = 0;
    const double free = simulated_step(&w).step_s;
    assert_true(tied > free);
}

/* Ranks that share cores compute proportionally longer. */
static void shared_cores_slow_all_work(void **state) {
    (void)state;
    bt_stage_work work[] = {{.fwd_s = 1, .bwd_s = 2}, {.fwd_s = 1, .bwd_s = 2}};
    bt_step_simulation w = {.pp = 2, .dp = 1, .micros = 3, .stage = work};
    const double alone = simulated_step(&w).step_s;
    w.crowd = 2;
    bt_step_time t = simulated_step(&w);
    near(t.step_s, 2 * alone);
    near(t.processor_s[BT_PH_FWD], 3);
    phases_add_up(&t);
}

/* The time for which a tensor-parallel group waits for its last rank counts as waiting, not as bubble. */
static void tensor_parallel_synchronization_is_waiting(void **state) {
    (void)state;
    bt_stage_work work[] = {{.fwd_s = 1, .bwd_s = 2, .fwd_tp_wait_s = 0.25, .bwd_tp_wait_s = 0.5},
                            {.fwd_s = 1, .bwd_s = 2, .fwd_tp_wait_s = 0.25, .bwd_tp_wait_s = 0.5}};
    const bt_step_simulation w = {.pp = 2, .dp = 1, .micros = 3, .stage = work};
    bt_step_time t = simulated_step(&w);
    assert_true(fabs(t.step_s - 4 * 3.75) < 1e-9);
    assert_true(fabs(t.bubble_frac - 1.0 / 4) < 1e-9);
    assert_true(fabs(t.phase_s[BT_PH_WAIT] - 3.75 - 3 * 0.75) < 1e-9);
    assert_true(fabs(t.processor_s[BT_PH_FWD] - 3) < 1e-9);
    phases_add_up(&t);
}

/* Sums and copies of buckets that are sent early are part of the backward pass. */
static void early_buckets_cost_backward(void **state) {
    (void)state;
    bt_stage_work work = {.fwd_s = 1, .bwd_s = 2, .buckets = 4, .bucket_cpu_s = 0.25};
    bt_step_simulation w = {.pp = 1, .dp = 1, .micros = 1, .stage = &work, .overlap = true};
    bt_step_time t = simulated_step(&w);
    near(t.step_s, 4);
    near(t.phase_s[BT_PH_BWD], 2.75);
    near(t.phase_s[BT_PH_COMM_EXPOSED], 0.25);
    near(t.processor_s[BT_PH_BWD], 2.75);
    w.overlap = false;
    t = simulated_step(&w);
    near(t.phase_s[BT_PH_BWD], 2);
    near(t.phase_s[BT_PH_COMM_EXPOSED], 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bubble_follows_the_textbook_formula),
        cmocka_unit_test(the_interleaved_bubble_follows_the_textbook_formula),
        cmocka_unit_test(gradients_of_the_upper_chunk_are_sent_first),
        cmocka_unit_test(exchange_alone_is_rounds_and_bytes),
        cmocka_unit_test(buckets_hide_behind_backward),
        cmocka_unit_test(ranks_wait_for_the_slowest),
        cmocka_unit_test(messages_cost_both_sides),
        cmocka_unit_test(messages_follow_each_other_on_a_link),
        cmocka_unit_test(tied_embedding_is_sent_and_returned),
        cmocka_unit_test(a_tied_embedding_travels_while_the_first_stage_computes),
        cmocka_unit_test(a_tied_embedding_shares_the_link),
        cmocka_unit_test(shared_cores_slow_all_work),
        cmocka_unit_test(tensor_parallel_synchronization_is_waiting),
        cmocka_unit_test(early_buckets_cost_backward),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

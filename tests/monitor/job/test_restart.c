/* test_restart.c - each way in which an attempt can end is recognized and leads to the right next action. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "monitor/job/health/restart.h"

#define EXIT(code) ((code) << 8)

static bt_end_facts facts_of_exit(int wait_status) {
    return (bt_end_facts){.wait_status = wait_status,
                          .started = true,
                          .rank = -1,
                          .step = 7,
                          .message = "",
                          .last_line = "what mpirun said"};
}

static void test_kinds(void **state) {
    (void)state;
    const struct {
        int status;
        int signal; /* signal of a rank whose death was reported; 0: none */
        bool finished;
        bt_end_kind kind;
    } rows[] = {
        {EXIT(0), 0, true, BT_END_DONE},
        {EXIT(0), 0, false, BT_END_OTHER}, /* Open MPI 5 after the loss of a host */
        {EXIT(137), 9, false, BT_END_SIGNAL},
        {EXIT(139), 11, false, BT_END_SIGNAL},
        {EXIT(143), 15, false, BT_END_SIGNAL},
        {EXIT(137), 0, false, BT_END_OTHER},
        {EXIT(141), 0, false, BT_END_OTHER},
        {EXIT(183), 0, false, BT_END_OTHER}, /* Open MPI 5: the program is not executable */
        {EXIT(192), 0, false, BT_END_OTHER},
        {EXIT(255), 0, false, BT_END_OTHER},
        {EXIT(128), 0, false, BT_END_OTHER},
        {EXIT(205), 0, false, BT_END_NODE_LOST},
        {EXIT(110), 0, false, BT_END_HUNG},
        {EXIT(1), 0, false, BT_END_OTHER},
        {9 /* mpirun was killed */, 0, false, BT_END_SIGNAL},
        /* No rank exits with these codes. */
        {EXIT(75), 0, false, BT_END_OTHER},
        {EXIT(76), 0, false, BT_END_OTHER},
        {EXIT(78), 0, false, BT_END_OTHER},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bt_end_facts f = facts_of_exit(rows[i].status);
        f.signal = rows[i].signal;
        f.finished = rows[i].finished;
        const bt_end e = bt_end_classify(&f);
        if (e.kind != rows[i].kind)
            fail_msg("status %x is '%s', expected '%s'", (unsigned)rows[i].status,
                     bt_end_name(e.kind), bt_end_name(rows[i].kind));
    }
    bt_end_facts f = facts_of_exit(9); /* mpirun was killed, as a shell reports it. */
    assert_int_equal(bt_end_classify(&f).status, 137);
    /* The run is not finished, and the reason is the text that mpirun printed. */
    f = facts_of_exit(EXIT(0));
    bt_end early = bt_end_classify(&f);
    char text[640];
    assert_string_equal(bt_end_describe(&early, text, sizeof text),
                        "mpirun ended with exit code 0 after step 8, before rank 0 had finished "
                        "the run: what mpirun said");
    assert_int_equal(bt_end_exit_code(&early), 1);
    f.lost_node = "node2";
    early = bt_end_classify(&f);
    assert_int_equal(early.kind, BT_END_NODE_LOST);
    assert_string_equal(bt_end_describe(&early, text, sizeof text),
                        "node node2 was lost after step 8");
    f.started = false; /* A host that cannot be reached at first does not count as lost. */
    assert_int_equal(bt_end_classify(&f).kind, BT_END_LAUNCH);
    f = facts_of_exit(EXIT(137));
    f.oom = true;
    assert_int_equal(bt_end_classify(&f).kind, BT_END_OOM);
    f = facts_of_exit(EXIT(137));
    f.hung = true;
    assert_int_equal(bt_end_classify(&f).kind, BT_END_HUNG);
    f = facts_of_exit(EXIT(143));
    f.stop_now = true;
    assert_int_equal(bt_end_classify(&f).kind, BT_END_STOPPED_NOW);
    f = facts_of_exit(EXIT(1));
    f.started = false;
    bt_end e = bt_end_classify(&f);
    assert_int_equal(e.kind, BT_END_LAUNCH);
    assert_string_equal(e.message, "what mpirun said");
    f = facts_of_exit(EXIT(6));
    f.reported = true;
    f.code = BT_FORMAT;
    f.rank = 1;
    f.message = "shard is damaged";
    e = bt_end_classify(&f);
    assert_int_equal(e.kind, BT_END_ERROR);
    assert_int_equal(bt_end_exit_code(&e), 6);
    assert_int_equal(e.rank, 1);
}

static bt_end end_of(int status, int64_t step) {
    bt_end_facts f = facts_of_exit(status);
    const int code = WEXITSTATUS(status);
    if (code > 128 && code < 160) f.signal = code - 128; /* mpirun reports the death of a rank */
    f.step = step;
    return bt_end_classify(&f);
}

static bt_restart decide_after_end(bt_restart_history *h, int status, int64_t step, int64_t from,
                                   int64_t most) {
    bt_end e = end_of(status, step);
    return bt_restart_decide(h, &e, from, most);
}

enum { KILLED = EXIT(137), CRASHED = EXIT(139), NODE_LOST = EXIT(205) };

static void a_second_equal_crash_ends_the_run(void **state) {
    (void)state;
    bt_restart_history h = {0};
    bt_restart r = decide_after_end(&h, CRASHED, 40, 0, 3);
    assert_true(r.again);
    assert_true(r.delay_s == 0); /* There was progress, so the restart is immediate. */
    assert_true(decide_after_end(&h, CRASHED, 55, 40, 3).again);
    r = decide_after_end(&h, CRASHED, 55, 40, 3);
    assert_false(r.again);
    assert_non_null(strstr(r.why, "same failure"));
}

/* Before the first step every failure is at step -1. */
static void a_foreign_signal_may_occur_twice(void **state) {
    (void)state;
    bt_restart_history h = {0};
    assert_true(decide_after_end(&h, KILLED, -1, 0, 3).again);
    assert_true(decide_after_end(&h, KILLED, -1, 0, 3).again);
    assert_true(decide_after_end(&h, EXIT(143), -1, 0, 3).again);
    h = (bt_restart_history){0};
    for (int i = 0; i < 3; i++) assert_true(decide_after_end(&h, KILLED, 55, 40, 3).again);
}

static void waits_grow_without_a_new_step(void **state) {
    (void)state;
    bt_restart_history h = {0};
    assert_true(decide_after_end(&h, KILLED, -1, 10, 9).delay_s == 1);
    assert_true(decide_after_end(&h, CRASHED, -1, 10, 9).delay_s == 2);
    assert_true(decide_after_end(&h, NODE_LOST, -1, 10, 9).delay_s == 4);
    assert_true(decide_after_end(&h, NODE_LOST, 12, 10, 9).delay_s ==
                0); /* beyond the previous step */
    assert_true(decide_after_end(&h, NODE_LOST, 12, 10, 9).delay_s == 2); /* the same steps again */
    /* The first step of the first attempt counts as new. */
    for (int steps = 0; steps < 3; steps++) {
        h = (bt_restart_history){0};
        assert_true(decide_after_end(&h, KILLED, 9 + steps, 10, 9).delay_s == !steps);
    }
}

static void the_budget_refills_with_new_steps(void **state) {
    (void)state;
    bt_restart_history h = {0};
    for (int i = 0; i < 100; i++) assert_true(decide_after_end(&h, KILLED, 10 + i, 5, 3).again);
    /* The steps are repeated without progress: crashes permit three tries. */
    for (int i = 0; i < 2; i++) assert_true(decide_after_end(&h, CRASHED, 100 + i, 90, 3).again);
    bt_restart r = decide_after_end(&h, CRASHED, 103, 90, 3);
    assert_false(r.again);
    assert_string_equal(r.why, "3 restarts in a row brought no new step (launch.max_restarts)");
    h = (bt_restart_history){0};
    r = decide_after_end(&h, KILLED, 30, 5, 0);
    assert_false(r.again);
    assert_string_equal(r.why, "0 restarts are allowed (launch.max_restarts)");
}

/* Kills by other processes end a run after minutes, not after seconds, also with a larger launch.max_restarts. */
static void kills_from_outside_have_a_limit_in_time(void **state) {
    (void)state;
    for (int most = 1; most <= 20; most += 19) {
        bt_restart_history h = {0};
        double waited = 0;
        int tries = 0;
        bt_restart r;
        while ((r = decide_after_end(&h, KILLED, -1, 0, most)).again && tries < 100)
            waited += r.delay_s, tries++;
        assert_int_equal(tries, most < 12 ? 12 : 20);
        assert_true(waited > 300);
        assert_string_equal(r.why, most < 12 ? "12 restarts in a row brought no new step"
                                             : "20 restarts in a row brought no new step "
                                               "(launch.max_restarts)");
    }
}

static bt_end assert_restart_refused(bt_code code, int64_t step) {
    bt_end_facts f = facts_of_exit(EXIT(1));
    f.reported = true;
    f.code = code;
    f.step = step;
    f.message = "cannot write 'x': No space left on device";
    return bt_end_classify(&f);
}

/* If the machine refuses a restart, it is tried again for an hour after a run has trained; at the first start a refusal
 * ends the run. */
static void a_refused_restart_is_tried_again(void **state) {
    (void)state;
    static const bt_code codes[] = {BT_IO, BT_MPI, BT_DB, BT_NOMEM};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        bt_restart_history h = {0};
        const bt_end e = assert_restart_refused(codes[i], -1);
        assert_false(bt_restart_decide(&h, &e, 0, 3).again);
        h = (bt_restart_history){0};
        assert_true(decide_after_end(&h, KILLED, 20, 0, 3).again);
        double waited = 0;
        int tries = 0;
        for (bt_restart r; (r = bt_restart_decide(&h, &e, 20, 3)).again && tries < 100; tries++)
            waited += r.delay_s;
        assert_true(waited > 3000 && waited < 4500);
    }
    bt_restart_history h = {0};
    const bt_end never = assert_restart_refused(BT_FORMAT, -1);
    assert_true(decide_after_end(&h, KILLED, 20, 0, 3).again);
    assert_false(bt_restart_decide(&h, &never, 20, 3).again);
}

static bt_end out_of_memory(int64_t step) {
    bt_end_facts f = facts_of_exit(EXIT(137));
    f.oom = true;
    f.step = step;
    return bt_end_classify(&f);
}

/* A model that was in memory for many steps fits again; a model that never fitted is not retried forever. */
static void one_end_by_lack_of_memory_is_retried(void **state) {
    (void)state;
    static const struct {
        int64_t steps[3]; /* newest step at each end; each attempt begins 10 steps before */
        bool again[3];
    } rows[] = {{{200, 400, 600}, {true, true, true}},
                {{200, 299, 0}, {true, false, false}},
                {{200, 300, 350}, {true, true, false}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bt_restart_history h = {0};
        for (int k = 0; k < 3 && rows[i].steps[k]; k++) {
            const bt_end e = out_of_memory(rows[i].steps[k]);
            const bt_restart r = bt_restart_decide(&h, &e, rows[i].steps[k] - 10, 3);
            if (r.again != rows[i].again[k]) fail_msg("row %zu, end %d", i, k);
            assert_true(!r.again || r.delay_s >= 1);
            if (!r.again) assert_string_equal(r.why, "the memory ran out twice within 100 steps");
        }
    }
    bt_restart_history h = {0};
    const bt_end first = out_of_memory(-1);
    assert_string_equal(bt_restart_decide(&h, &first, 0, 3).why, "a restart would not help");
}

/* Ranks that hang are ended by the supervisor's own SIGKILL, which does not count as a foreign signal. */
static void a_second_hang_ends_the_run(void **state) {
    (void)state;
    bt_restart_history h = {0};
    bt_end_facts f = facts_of_exit(KILLED);
    f.hung = true;
    f.signal = 9;
    const bt_end e = bt_end_classify(&f);
    assert_int_equal(e.kind, BT_END_HUNG);
    assert_true(bt_restart_decide(&h, &e, 0, 3).again);
    const bt_restart r = bt_restart_decide(&h, &e, 0, 3);
    assert_false(r.again);
    assert_string_equal(r.why, "the same failure came twice at the same step");
}

/* On other machines the restart is immediate, with the full number of tries. */
static void other_machines_restart_the_count(void **state) {
    (void)state;
    bt_restart_history h = {0};
    for (int i = 0; i < 12; i++) assert_true(decide_after_end(&h, KILLED, -1, 0, 3).again);
    const bt_restart r = bt_restart_elsewhere(&h);
    assert_true(r.again && r.delay_s == 0 && !r.why[0]);
    for (int i = 0; i < 12; i++) {
        const bt_restart more = decide_after_end(&h, KILLED, -1, 0, 3);
        assert_true(more.again && more.delay_s == (i < 6 ? 1 << i : 60));
    }
    assert_false(decide_after_end(&h, KILLED, -1, 0, 3).again);
}

static bt_end launch_failure(void) {
    bt_end_facts f = facts_of_exit(EXIT(1));
    f.started = false;
    f.step = -1;
    return bt_end_classify(&f);
}

/* The supervisor waits for a machine that was in use and is unreachable, but not for one that never responded. */
static void a_lost_machine_is_waited_for(void **state) {
    (void)state;
    bt_restart_history h = {0};
    bt_end e = launch_failure();
    assert_false(bt_restart_decide(&h, &e, 0, 3).again);
    h = (bt_restart_history){0};
    assert_true(decide_after_end(&h, NODE_LOST, 20, 0, 3).again);
    double waited = 0;
    int tries = 0;
    for (bt_restart r = bt_restart_decide(&h, &e, 20, 3); r.again && tries < 100; tries++) {
        waited += r.delay_s;
        r = bt_restart_decide(&h, &e, 20, 3);
    }
    assert_int_equal(tries, 11);
    assert_true(waited > 300 && waited < 600);
    h = (bt_restart_history){0};
    assert_false(decide_after_end(&h, NODE_LOST, 20, 0, 0).again);
    /* If no rank had started, only the launch is tried again. */
    bt_end_facts no_memory = facts_of_exit(EXIT(137));
    no_memory.oom = true;
    no_memory.step = -1;
    e = bt_end_classify(&no_memory);
    h = (bt_restart_history){0};
    assert_true(decide_after_end(&h, KILLED, 20, 0, 3).again);
    assert_false(bt_restart_decide(&h, &e, 0, 3).again);
}

static void test_errors_are_not_looped(void **state) {
    (void)state;
    const struct {
        bt_code code;
        int64_t step;
        bool again;
    } rows[] = {
        {BT_FORMAT, 20, false},   {BT_ARG, 20, false},   {BT_NOMEM, 20, false},
        {BT_NOTFOUND, 20, false}, {BT_BUSY, 20, false},  {BT_IO, 20, true},
        {BT_MPI, 20, true},       {BT_DB, 20, true},     {BT_IO, -1, false},
        {BT_IO, 9, false},        {BT_CHECK, 20, false}, {BT_UNSUPPORTED, -1, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bt_restart_history h;
        memset(&h, 0, sizeof h);
        bt_end_facts f = facts_of_exit(EXIT(1));
        f.reported = true;
        f.code = rows[i].code;
        f.step = rows[i].step;
        f.message = "x";
        const bt_end e = bt_end_classify(&f);
        if (bt_restart_decide(&h, &e, 10, 3).again != rows[i].again) fail_msg("row %zu", i);
    }
    /* The same text at another step is the same failure; another text is another failure. */
    static const char *const words[][2] = {{"b", "a"}, {"b", "c"}, {"b", "b"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        bt_restart_history h;
        memset(&h, 0, sizeof h);
        for (int k = 0; k < 2; k++) {
            bt_end_facts f = facts_of_exit(EXIT(1));
            f.reported = true;
            f.code = BT_IO;
            f.step = 20 + 5 * k;
            f.message = words[i][k];
            const bt_end e = bt_end_classify(&f);
            if (bt_restart_decide(&h, &e, 10, 3).again != (k == 0 || i < 2))
                fail_msg("'%s' after '%s'", words[i][1], words[i][0]);
        }
    }
    /* Ranks that disagree, or have different weights: the exit code is that of the error. */
    const struct {
        bt_code code;
        int exit_code;
    } never[] = {{BT_ARG, 2}, {BT_UNSUPPORTED, 1}, {BT_BUSY, 4}, {BT_CHECK, 5}};
    for (size_t i = 0; i < sizeof never / sizeof *never; i++) {
        bt_restart_history h;
        memset(&h, 0, sizeof h);
        bt_end_facts f = facts_of_exit(EXIT(never[i].exit_code));
        f.reported = true;
        f.code = never[i].code;
        f.step = 20;
        const bt_end e = bt_end_classify(&f);
        assert_false(bt_restart_decide(&h, &e, 0, 3).again);
        assert_int_equal(bt_end_exit_code(&e), never[i].exit_code);
    }
}

static void test_messages(void **state) {
    (void)state;
    char buf[640];
    bt_end_facts f = facts_of_exit(EXIT(137));
    f.rank = 3;
    f.signal = 9;
    const bt_end e = bt_end_classify(&f);
    assert_string_equal(bt_end_describe(&e, buf, sizeof buf),
                        "rank 3 was ended by signal 9 (Killed) after step 8");
    bt_end first = e; /* an error of the first rank, after the first step */
    first.step = 0;
    first.rank = 0;
    assert_string_equal(bt_end_describe(&first, buf, sizeof buf),
                        "rank 0 was ended by signal 9 (Killed) after step 1");
    static const struct {
        bt_end_kind kind;
        const char *says;
    } kinds[] = {
        {BT_END_DONE, "done"},
        {BT_END_ERROR, "rank 3 failed after step 8: what mpirun said"},
        {BT_END_OOM,
         "rank 3 was killed after step 8 because its memory ran out (limit of its group or of "
         "the machine; a smaller --micro-batch or --recompute full needs less)"},
        {BT_END_NODE_LOST, "a node was lost after step 8"},
        {BT_END_HUNG, "no progress after step 8"},
        {BT_END_LAUNCH, "mpirun could not start the ranks (exit code 137)"},
        {BT_END_STOPPED_NOW, "stopped at once on request after step 8"},
        {BT_END_OTHER, "mpirun ended with exit code 137 after step 8"}};
    static const char *const names[] = {"done", "error",  "out of memory", "node lost",
                                        "hung", "launch", "stopped now",   "unknown"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        assert_string_equal(bt_end_name(kinds[i].kind), names[i]);
        bt_end other = e;
        other.kind = kinds[i].kind;
        bt_end_describe(&other, buf, sizeof buf);
        if (strncmp(buf, kinds[i].says, strlen(kinds[i].says)) != 0)
            fail_msg("kind %d is shown as '%s'", (int)kinds[i].kind, buf);
    }
    bt_end lost = e; /* a host with a short name */
    lost.kind = BT_END_NODE_LOST;
    memcpy(lost.host, "n", 2);
    assert_string_equal(bt_end_describe(&lost, buf, sizeof buf), "node n was lost after step 8");
    bt_end none = e;
    none.step = -1;
    none.rank = -1;
    assert_string_equal(bt_end_describe(&none, buf, sizeof buf),
                        "a rank was ended by signal 9 (Killed) before the first step");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kinds),
                                       cmocka_unit_test(a_second_equal_crash_ends_the_run),
                                       cmocka_unit_test(a_foreign_signal_may_occur_twice),
                                       cmocka_unit_test(a_second_hang_ends_the_run),
                                       cmocka_unit_test(other_machines_restart_the_count),
                                       cmocka_unit_test(waits_grow_without_a_new_step),
                                       cmocka_unit_test(the_budget_refills_with_new_steps),
                                       cmocka_unit_test(kills_from_outside_have_a_limit_in_time),
                                       cmocka_unit_test(a_refused_restart_is_tried_again),
                                       cmocka_unit_test(one_end_by_lack_of_memory_is_retried),
                                       cmocka_unit_test(a_lost_machine_is_waited_for),
                                       cmocka_unit_test(test_errors_are_not_looped),
                                       cmocka_unit_test(test_messages)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// ctest: timeout=60
/* Views show the known properties of synthetic runs. With arguments the program creates databases for tests of commands
 * and screens: t.store.synth_runs FILE NAME [ranks=4] [steps=200] [straggler=1] [phase=data_ms] [excess=0.2]
 * [fail_at=120] [resume_from=100] [down_s=3] [slow=1] [jitter=0] [pace_ms=0] [planned=0], or t.store.synth_runs FILE
 * --kinds for one run of each kind. */
#include "kinds_of_runs.h"
#include "store_test.h"
#include "synth_run.h"

static void the_slow_rank_is_the_one_that_waits_least(void **state) {
    const bt_tmp *t = *state;
    bt_synth s = bt_synth_default("s");
    s.ranks = 64;
    s.straggler = 5;
    s.excess = 0.2; /* 20 % of 10 ms */
    OK(bt_synth_make(t->db, &s, err));
    assert_true(bt_number(t->db,
                          "SELECT rank FROM rank_steps WHERE run = ?1 GROUP BY rank ORDER BY "
                          "avg(step_ms - wait_ms) DESC LIMIT 1",
                          "s") == 5);
    assert_true(bt_number(t->db,
                          "SELECT rank FROM rank_steps WHERE run = ?1 GROUP BY rank ORDER BY "
                          "avg(wait_ms) LIMIT 1",
                          "s") == 5);
    assert_true(fabs(bt_number(t->db, "SELECT avg(step_ms) FROM steps WHERE run = ?1", "s") - 115) <
                1e-9);
    assert_true(
        fabs(bt_number(t->db, "SELECT avg(wait_ms) FROM rank_steps WHERE run = ?1 AND rank <> 5",
                       "s") -
             2) < 1e-9);
    assert_true(fabs(bt_number(t->db, "SELECT max(data_ms) FROM rank_steps WHERE run = ?1", "s") -
                     12) < 1e-9);
    assert_true(
        bt_number(t->db,
                  "SELECT max(abs(step_ms - data_ms - fwd_ms - bwd_ms - comm_exposed_ms - wait_ms "
                  "- optim_ms - ckpt_ms - monitor_ms - other_ms)) FROM rank_steps WHERE run = ?1",
                  "s") < 1e-9);
    assert_true(fabs(bt_number(t->db, "SELECT avg(overlap) FROM steps WHERE run = ?1", "s") - 0.5) <
                1e-12);
}

static void goodput_counts_first_time_steps_only(void **state) {
    const bt_tmp *t = *state;
    bt_synth s = bt_synth_default("s");
    s.fail_at = 120;
    s.resume_from = 100;
    s.down_s = 5;
    OK(bt_synth_make(t->db, &s, err));
    double step_s = 0.113, elapsed = 220 * step_s + 5;
    assert_true(fabs(bt_number(t->db, "SELECT productive_s FROM runs WHERE run = ?1", "s") -
                     (200 * step_s - 0.08)) < 1e-6);
    assert_true(fabs(bt_number(t->db, "SELECT redone_s FROM runs WHERE run = ?1", "s") -
                     20 * step_s) < 1e-6);
    assert_true(
        fabs(bt_number(t->db, "SELECT duration_s FROM runs WHERE run = ?1", "s") - elapsed) < 1e-6);
    assert_true(fabs(bt_number(t->db, "SELECT goodput FROM runs WHERE run = ?1", "s") -
                     (200 * step_s - 0.08) / elapsed) < 1e-9);
    assert_true(fabs(bt_number(t->db, "SELECT checkpoint_s FROM runs WHERE run = ?1", "s") - 0.08) <
                1e-6);
    assert_true(fabs(bt_number(t->db, "SELECT lost_s FROM runs WHERE run = ?1", "s") - 5) < 1e-6);
    assert_true(bt_number(t->db, "SELECT count(*) FROM steps WHERE run = ?1", "s") == 200);
    assert_true(bt_number(t->db, "SELECT from_step FROM attempts WHERE run = ?1 AND attempt = 1",
                          "s") == 100);
    assert_true(
        bt_number(t->db,
                  "SELECT sum(step BETWEEN 100 AND 119) FROM all_steps WHERE run = ?1 AND NOT live",
                  "s") == 20);
    assert_string_equal(
        bt_word(t->db, "SELECT exit_kind FROM attempts WHERE run = ?1 AND attempt = 0", "s"),
        "rank 1 died (signal 9)");
}

static int make(int argc, char **argv) {
    bt_synth s = bt_synth_default(argv[2]);
    bt_err err = BT_ERR_INIT;
    for (int i = 3; i < argc; i++) {
        char *eq = strchr(argv[i], '=');
        if (!eq) continue;
        double v = atof(eq + 1);
        size_t n = (size_t)(eq - argv[i]);
        if (strncmp(argv[i], "ranks", n) == 0)
            s.ranks = (int)v;
        else if (strncmp(argv[i], "steps", n) == 0)
            s.steps = (int64_t)v;
        else if (strncmp(argv[i], "straggler", n) == 0)
            s.straggler = (int)v;
        else if (strncmp(argv[i], "excess", n) == 0)
            s.excess = v;
        else if (strncmp(argv[i], "fail_at", n) == 0)
            s.fail_at = (int64_t)v;
        else if (strncmp(argv[i], "resume_from", n) == 0)
            s.resume_from = (int64_t)v;
        else if (strncmp(argv[i], "down_s", n) == 0)
            s.down_s = v;
        else if (strncmp(argv[i], "slow", n) == 0)
            s.slow = v;
        else if (strncmp(argv[i], "jitter", n) == 0)
            s.jitter = v;
        else if (strncmp(argv[i], "load", n) == 0)
            s.load = v;
        else if (strncmp(argv[i], "planned", n) == 0)
            s.planned = v > 0;
        else if (strncmp(argv[i], "live", n) == 0)
            s.live = v > 0;
        else if (strncmp(argv[i], "pace_ms", n) == 0)
            s.pace_ms = v;
        else if (strncmp(argv[i], "phase", n) == 0) {
            for (int m = 0; m < BT_MR_COUNT; m++) {
                if (strcmp(bt_rank_metrics[m].key, eq + 1) == 0) s.phase = (bt_rank_metric)m;
            }
        } else {
            fprintf(stderr, "unknown word '%s'\n", argv[i]);
            return 2;
        }
    }
    if (bt_synth_make(argv[1], &s, &err) == BT_OK) return 0;
    fprintf(stderr, "%s\n", err.msg);
    return 1;
}

int main(int argc, char **argv) {
    if (argc > 2 && strcmp(argv[2], "--kinds") == 0) {
        bt_kinds_of_runs(argv[1]);
        return 0;
    }
    if (argc > 2) return make(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_slow_rank_is_the_one_that_waits_least, bt_tmp_make,
                                        bt_tmp_drop),
        cmocka_unit_test_setup_teardown(goodput_counts_first_time_steps_only, bt_tmp_make,
                                        bt_tmp_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

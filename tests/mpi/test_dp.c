// ctest: ranks=2
/* Data parallelism: loss, weights, bytes and controls on two ranks equal those of one rank with the same global
 * batch. */
#include <pthread.h>

#include "tests/mpi/layouts.h"

static const char *const *no_words = NULL;

static void same_records_as_one_rank(void **state) {
    (void)state;
    static const char *const cuts[][8] = {
        {NULL},
        {"--micro-batch", "1", NULL},
        {"--micro-batch", "2", "--set", "train.overlap=false", NULL},
        {"--set", "train.bucket_bytes=4096", "--threads", "2", NULL},
    };
    for (size_t k = 0; k < sizeof cuts / sizeof cuts[0]; k++) {
        bt_train_result r = layout_run(&together, cuts[k], NULL);
        layout_compare(1e-4);
        layout_conserves();
        layout_traffic();
        /* Gradients are sent to the owners of parts, and the sums are sent back. */
        layout_pairs(2.0 * (bt_comm_size(bt_comm_world()) - 1) * 4 * (double)r.params, k == 3);
        const double *g = layout_op("all_reduce", "dp", 1);
        assert_non_null(g);
        assert_true(g[BT_MC_BUSY] > 0 && g[BT_MC_CALLS] >= 4 &&
                    g[BT_MC_BYTES_LOGICAL] > 4 * 4 * 1000);
        /* On a busy machine the speed of the link may be unknown; the run then reports that. */
        const bool hidden = fake_fact(&together, "link.dp.measured") != NULL;
        const char *rate = fake_fact(&together, "link.dp.bytes_per_s");
        assert_true(hidden ? !rate && isnan(g[BT_MC_MODEL])
                           : g[BT_MC_MODEL] > 0 && isfinite(g[BT_MC_MODEL]) && atof(rate) > 0);
    }
}

static void ranks_end_with_the_same_weights(void **state) {
    (void)state;
    float *mine = NULL;
    bt_err err = BT_ERR_INIT;
    bt_train_result r = layout_run(&together, no_words, &mine);
    size_t n = (size_t)r.params;
    float *low = malloc(n * sizeof *low), *high = malloc(n * sizeof *high);
    memcpy(low, mine, n * sizeof *low);
    memcpy(high, mine, n * sizeof *high);
    assert_int_equal(bt_all_reduce_f32(bt_comm_world(), low, n, BT_MIN, &err), BT_OK);
    assert_int_equal(bt_all_reduce_f32(bt_comm_world(), high, n, BT_MAX, &err), BT_OK);
    assert_memory_equal(low, high, n * sizeof *low);
    free(mine);
    free(low);
    free(high);
}

/* Gradients are sent once a step for any number of micro-batches: 2 (n-1)/n of the array, and a few bytes for notes and
 * meters. */
static void gradients_travel_on_the_last_micro_batch_only(void **state) {
    (void)state;
    int n = bt_comm_size(bt_comm_world());
    static const char *const once[] = {"--micro-batch", "4", NULL}, *const often[] = {
                                                                        "--micro-batch", "1", NULL};
    double bytes[2];
    for (int k = 0; k < 2; k++) {
        bt_train_result r = layout_run(&together, k ? often : once, NULL);
        double ring = 2.0 * (n - 1) / n * 4.0 * (double)r.params;
        bytes[k] = r.step_ms[BT_MR_BYTES_LOGICAL];
        assert_true(bytes[k] >= ring && bytes[k] < 1.03 * ring + 1024);
    }
    assert_true(bytes[0] == bytes[1]);
}

static bt_request_box box;
static pthread_t resumer;

static void *resume_when_paused(void *arg) {
    (void)arg;
    while (atomic_load(&box.bits) & BT_REQ_PAUSE) bt_sleep_ns(1000000);
    bt_sleep_ns(50000000);
    atomic_fetch_or(&box.bits, BT_REQ_RESUME);
    return NULL;
}

static void ask_on_rank_zero(void *arg, const bt_step_record *r) {
    (void)arg;
    if (r->step == 2) {
        atomic_fetch_or(&box.bits, BT_REQ_PAUSE);
        if (pthread_create(&resumer, NULL, resume_when_paused, NULL) != 0) bt_comm_abort(1);
    }
    if (r->step == 7) atomic_fetch_or(&box.bits, BT_REQ_STOP);
}

static void a_pause_and_a_stop_reach_every_rank_at_the_same_step(void **state) {
    (void)state;
    bt_run_cfg cfg;
    TINY(&cfg, "--steps", "40");
    memset(&together, 0, sizeof together);
    together.on_step = ask_on_rank_zero;
    bt_trainer *t = tiny_create(&cfg, &together, bt_comm_rank(bt_comm_world()) == 0 ? &box : NULL,
                                "");
    bt_train_result r;
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_trainer_run(t, &r, &err), BT_OK);
    bt_trainer_destroy(t);
    if (bt_comm_rank(bt_comm_world()) == 0) {
        pthread_join(resumer, NULL);
        assert_int_equal(fake_events_of(&together, "paused"), 1);
        assert_int_equal(fake_events_of(&together, "continued"), 1);
        /* The supervisor, which forwards the request, records its sender. */
        assert_int_equal(fake_events_of(&together, "control"), 0);
    }
    double least = (double)r.steps, most = (double)r.steps;
    assert_int_equal(bt_all_reduce_f64(bt_comm_world(), &least, 1, BT_MIN, &err), BT_OK);
    assert_int_equal(bt_all_reduce_f64(bt_comm_world(), &most, 1, BT_MAX, &err), BT_OK);
    assert_true(least == most && most < 40 && r.stopped);
}

static void a_failing_rank_fails_all_ranks(void **state) {
    (void)state;
    bt_run_cfg cfg;
    TINY(&cfg, "--steps", "2");
    if (bt_comm_rank(bt_comm_world()) == 1)
        snprintf(cfg.data.path, sizeof cfg.data.path, "/nowhere/text-%d.txt", 1);
    bt_trainer_setup s = {.cfg = &cfg, .resume_dir = "", .attempt = 1};
    bt_trainer *t = NULL;
    bt_err err = BT_ERR_INIT;
    assert_int_not_equal(bt_trainer_create(&t, &s, &err), BT_OK);
    assert_null(t);
    assert_int_equal(err.rank, 1);
    assert_non_null(strstr(err.msg, "/nowhere/text-1.txt"));
}

int main(void) {
    layout_run(&alone, no_words, NULL);
    if (!layout_begin(0)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_records_as_one_rank),
        cmocka_unit_test(ranks_end_with_the_same_weights),
        cmocka_unit_test(gradients_travel_on_the_last_micro_batch_only),
        cmocka_unit_test(a_pause_and_a_stop_reach_every_rank_at_the_same_step),
        cmocka_unit_test(a_failing_rank_fails_all_ranks),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    /* Other ranks may wait for this rank, so the job is aborted. */
    if (failed) bt_comm_abort(1);
    bt_comm_finalize();
    return failed;
}

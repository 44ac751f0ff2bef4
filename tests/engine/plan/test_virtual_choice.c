/* test_virtual_choice.c - the planner chooses several chunks of layers per stage only if they save more than their
 * messages cost, and explains the choice. Rates are given, so every machine makes the same choice. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine/config/run_cfg.h"
#include "engine/kernels/table/kernels.h"
#include "engine/plan/layout_why.h"
#include "engine/plan/simulate.h"

enum { LAYERS = 16, STAGES = 4 };
static const double FWD_S = 0.02, BWD_S = 0.04; /* times of a layer and sequence */

static bt_opts opts;
static bt_run_cfg cfg;
static bt_rates rates;

/* Four sequences a step; measured shapes of a layer and of a head of negligible cost, as on one rank of each host. */
static void read_settings_of(char *vocab) {
    char *words[] = {"--set",          "model.layers=16",
                     "--set",          "model.d_model=1024",
                     "--set",          "model.heads=16",
                     "--set",          "model.kv_heads=16",
                     "--set",          "model.d_ff=4096",
                     "--set",          vocab,
                     "--seq-len",      "512",
                     "--batch-tokens", "2048",
                     "--threads",      "1",
                     "--set",          "ckpt.minutes=0"};
    bt_err err = BT_ERR_INIT;
    bool help;
    if (bt_run_cfg_read(&opts, &cfg, sizeof words / sizeof *words, words, &help, &err) != BT_OK)
        fail_msg("%s", err.msg);
    assert_int_equal(bt_kernels_select("auto", &err), BT_OK);
    bt_run_cfg one = cfg;
    one.train.micro_batch = 1;
    assert_int_equal(bt_run_cfg_resolve(&one, 1, &err), BT_OK);
    memset(&rates, 0, sizeof rates);
    rates.codec[0].wire_bytes = 4;
    const bt_part_rate layer = {.shape = bt_part_layer(&one, 1), .fwd_s = FWD_S, .bwd_s = BWD_S},
                       head = {.shape = bt_part_head(&one, 1), .fwd_s = 1e-4, .bwd_s = 2e-4};
    bt_rates_put_part(&rates, &layer);
    bt_rates_put_part(&rates, &head);
}

static void read_settings(void) { read_settings_of("model.vocab=256"); }

static bt_layout_search search_of(double bytes_per_s, double latency_s) {
    return (bt_layout_search){.cfg = &cfg,
                              .may = bt_layout_freedom_of(&opts),
                              .cluster = {.ranks = STAGES,
                                          .ranks_per_host = 1,
                                          .simulated = true,
                                          .bytes_per_s = bytes_per_s,
                                          .latency_s = latency_s}};
}

/* Returns the best of all layouts and the best of those that the user may choose. */
static bt_sim_point plan_layouts(const bt_layout_search *all) {
    bt_sim_point p, quick;
    bt_err err = BT_ERR_INIT;
    bt_layout_search s = *all;
    if (bt_sim_point_of(&p, &s, &rates, &err) != BT_OK) fail_msg("%s", err.msg);
    assert_string_equal(p.refused, "");
    s.choice_only = true;
    if (bt_sim_point_of(&quick, &s, &rates, &err) != BT_OK) fail_msg("%s", err.msg);
    assert_true(bt_layout_same_mesh(&p.layout, &quick.layout));
    assert_int_equal(p.layout.virtual_stages, quick.layout.virtual_stages);
    assert_int_equal(p.layout.micro_batch, quick.layout.micro_batch);
    assert_true(p.layout.time.step.step_s == quick.layout.time.step.step_s);
    assert_string_equal(p.why, quick.why);
    return p;
}

static void check_choice(const bt_sim_point *p, int stages, int64_t micros, int chunks) {
    char words[160];
    if (p->layout.shape.pp != stages || p->layout.accum != micros ||
        p->layout.virtual_stages != chunks)
        fail_msg("%s, %.4f s: %s", bt_layout_words(&p->layout, words, sizeof words),
                 p->layout.time.step.step_s, p->why);
}

/* Few micro-batches, a deep pipeline, and a link on which gradients would take longer than a step while messages are
 * cheap: the bubble of one chunk is 3/7 of the step, of four chunks 3/19. */
static void a_fast_link_and_few_micro_batches_favour_chunks(void **state) {
    (void)state;
    read_settings();
    const bt_layout_search s = search_of(4e8, 1e-5);
    const bt_sim_point p = plan_layouts(&s);
    const double work_s = (FWD_S + BWD_S) *
                          LAYERS; /* work of a stage: four sequences, a quarter of the layers */
    check_choice(&p, STAGES, 4, 4);
    /* The bubble of (P - 1) / (v m) of the work, and the messages, are added. */
    assert_true(p.layout.time.step.step_s > work_s * (1 + 3.0 / 16));
    assert_true(p.layout.time.step.step_s < work_s * (1 + 3.0 / 16) * 1.15);
    if (!strstr(p.why, "with one chunk of layers a stage instead of 4 it takes "))
        fail_msg("message: %s", p.why);
    if (!strstr(p.why, ", and waits ")) fail_msg("message: %s", p.why);
}

/* A tied embedding of 134 MB is sent over a link of 400 MB/s twice a step. Its gradients are sent while the first stage
 * computes, so it does not count against chunks. */
static void a_tied_embedding_does_not_count_against_chunks(void **state) {
    (void)state;
    read_settings_of("model.vocab=32768");
    const bt_layout_search s = search_of(4e8, 1e-5);
    const bt_sim_point p = plan_layouts(&s);
    check_choice(&p, STAGES, 4, 4);
}

/* Messages take longer than a chunk's work, so four times as many cost more than the bubble. */
static void a_slow_link_keeps_one_chunk(void **state) {
    (void)state;
    read_settings();
    const bt_layout_search s = search_of(12.5e6, 2e-4);
    const bt_sim_point p = plan_layouts(&s);
    check_choice(&p, STAGES, p.layout.accum, 1);
    if (!strstr(p.why, " chunks of layers a stage ")) fail_msg("message: %s", p.why);
}

/* A number of chunks set by the user is not changed, and no explanation is given. */
static void given_chunks_are_kept(void **state) {
    (void)state;
    read_settings();
    cfg.parallel.virtual_stages = 1;
    bt_layout_search s = search_of(4e8, 1e-5);
    s.may.virtual_stages = false;
    const bt_sim_point p = plan_layouts(&s);
    assert_int_equal(p.layout.virtual_stages, 1);
    assert_null(strstr(p.why, "chunk"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fast_link_and_few_micro_batches_favour_chunks),
        cmocka_unit_test(a_tied_embedding_does_not_count_against_chunks),
        cmocka_unit_test(a_slow_link_keeps_one_chunk),
        cmocka_unit_test(given_chunks_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

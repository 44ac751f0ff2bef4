// ctest: timeout=60
/* All parts of the view model for runs with known properties, compared with files in golden/ (BT_UPDATE=1 rewrites
 * them). */
#include <jansson.h>

#include "../golden_json.h"
#include "hub_record.h"
#include "view_test.h"

enum { BEGAN_S = 1700000000, STEP_MS = 113 };

/* Records these runs. base: rank 2 loads data slowly; the run failed after 200 of 300 steps and resumed from step 180;
 * it has a prediction. noisy: eight ranks on crowded machines, rank 5 slow in the backward pass, 700 steps of varying
 * duration. other: the losses of base without a straggler. live: 60 steps, not ended. */
static void make_runs(const char *db) {
    bt_synth s = bt_synth_default("base");
    s.planned = true;
    s.straggler = 2;
    s.excess = 4;
    s.steps = 300;
    s.fail_at = 200;
    s.resume_from = 180;
    s.down_s = 4;
    OK(bt_synth_make(db, &s, err));
    s = bt_synth_default("noisy");
    s.ranks = 8;
    s.straggler = 5;
    s.phase = BT_MR_BWD;
    s.excess = 0.5;
    s.jitter = 0.3;
    s.load = 3;
    s.steps = 700;
    s.start_us += 1000000;
    OK(bt_synth_make(db, &s, err));
    s = bt_synth_default("other");
    s.slow = 0.9;
    s.start_us += 2000000;
    OK(bt_synth_make(db, &s, err));
    s = bt_synth_default("live");
    s.steps = 60;
    s.live = true;
    s.start_us += 3000000;
    OK(bt_synth_make(db, &s, err));
}

/* Records the run `rich`: sixteen ranks of a mesh 2 x 2 x 2 x 2 on two hosts, every setting and fact of the first page,
 * an event of each kind, and three sample texts. */
static void make_rich(const char *db) {
    static const char *const facts[][2] = {
        {"params", "3144384"},          {"isa", "avx2"},
        {"data.tokens", "1000000"},     {"data.epoch_tokens", "900000"},
        {"batch_tokens", "8192"},       {"steps_total", "400"},
        {"link.dp.latency_s", "2e-05"}, {"link.dp.bytes_per_s", "80000000"},
        {"link.tp.latency_s", "1e-06"}};
    bt_run_start start = bt_fake_run("rich");
    bt_fake f;
    bt_rank_info ranks[16];
    bt_writer *w = NULL;
    int attempt;
    start.host = "node0";
    start.note = "a note";
    start.pid = 1;
    start.world_size = 16;
    start.started_us = INT64_C(1000000) * (BEGAN_S + 4);
    start.config_json =
        "{\"model.preset\":{\"value\":\"nano\",\"origin\":\"preset\",\"where\":\"\"},"
        "\"data.path\":{\"value\":[\"/corpora/"
        "a.txt\",\"b.txt\"],\"origin\":\"file\",\"where\":\"run.toml:3\"},"
        "\"optim.schedule\":{\"value\":\"cosine\",\"origin\":\"default\",\"where\":\"\"},"
        "\"optim.lr\":{\"value\":0.002,\"origin\":\"preset\",\"where\":\"preset nano\"},"
        "\"model.seq_len\":{\"value\":256,\"origin\":\"default\",\"where\":\"\"},"
        "\"mesh.zero\":{\"value\":3,\"origin\":\"flag\",\"where\":\"--zero\"},"
        "\"parallel.virtual_stages\":{\"value\":2,\"origin\":\"flag\",\"where\":\"--virtual-"
        "stages\"},"
        "\"train.batch_tokens\":{\"value\":4096,\"origin\":\"default\",\"where\":\"\"},"
        "\"train.steps\":{\"value\":500,\"origin\":\"flag\",\"where\":\"--steps\"}}";
    OK(bt_writer_open(&w, db, 10, err));
    OK(bt_writer_begin(w, &start, &attempt, err));
    const bt_sink *to = bt_writer_sink(w);
    for (int r = 0; r < 16; r++) {
        ranks[r] = (bt_rank_info){.rank = r,
                                  .pid = 100 + r,
                                  .threads = 3,
                                  .isa = "avx2",
                                  .pp = r / 8,
                                  .dp_replicate = r / 4 % 2,
                                  .dp_shard = r / 2 % 2,
                                  .tp = r % 2};
        snprintf(ranks[r].host, sizeof ranks[r].host, "node%d", r / 8);
    }
    to->ranks(to->ctx, ranks, 16);
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
        to->fact(to->ctx, facts[i][0], facts[i][1]);
    for (int64_t step = 0; step < 40; step++) {
        bt_fake_step(&f, step, 16);
        f.values[BT_MS_SKIPPED] = step % 7 == 3;
        f.r.wall_us = start.started_us + 1000 * 250 * (step + 1);
        to->step(to->ctx, &f.r);
    }
    for (int k = 0; k < BT_EVENT_COUNT; k++)
        to->event(to->ctx, &(bt_event){.kind = (bt_event_kind)k,
                                       .step = k % 5 ? k % 40 : -1,
                                       .rank = k % 3 ? k % 16 : -1,
                                       .wall_us = start.started_us + 1000 * 200 * (k + 1),
                                       .title = bt_events[k].name});
    static const char *const bodies[] = {
        "{\"prompt\":\"once\",\"text\":\"upon\"}",
        "{\"prompt\":\"The\",\"text\":\"cat\\u0007 sat\\non a mat\"}", "no JSON",
        "{\"prompt\":\"The\",\"text\":\"dog\"}"};
    for (int k = 0; k < 4; k++)
        to->event(to->ctx, &(bt_event){.kind = BT_EVENT_SAMPLE,
                                       .step = 10 * k,
                                       .rank = -1,
                                       .wall_us = start.started_us + 9000000 + k,
                                       .title = "sample",
                                       .body = bodies[k]});
    OK(bt_writer_end(w, "stopped", "asked to", 0, err));
    bt_writer_close(w);
    run_sql(db, "UPDATE run SET ended_us = last_us, tags = 'a b' WHERE name = 'rich'");
}

/* Records the run `young`, which began five seconds after `base` and has no step yet. */
static void make_young(const char *db) {
    bt_run_start start = bt_fake_run("young");
    bt_writer *w = NULL;
    int attempt;
    start.host = "nodes";
    start.started_us = INT64_C(1000000) * (BEGAN_S + 5);
    OK(bt_writer_open(&w, db, 10, err));
    OK(bt_writer_begin(w, &start, &attempt, err));
    OK(bt_writer_flush(w, err));
    bt_writer_close(w);
}

static const struct row {
    const char *golden;
    bt_view_request ask;
} rows[] = {
    {"base",
     {.parts = BT_VIEW_HEAD | BT_VIEW_RANKS | BT_VIEW_COMM | BT_VIEW_EVENTS | BT_VIEW_SETTINGS,
      .run = "base"}},
    {"base_at_150",
     {.parts = BT_VIEW_HEAD | BT_VIEW_RANKS | BT_VIEW_COMM | BT_VIEW_EVENTS,
      .run = "base",
      .at_step = 150,
      .window = 40}},
    {"base_layers", {.parts = BT_VIEW_LAYERS, .run = "base"}},
    {"base_distribution",
     {.parts = BT_VIEW_DISTRIBUTION, .run = "base", .tensor = "ffn_up", .step0 = 20, .step1 = 200}},
    {"base_panel", {.parts = BT_VIEW_PANEL, .run = "base", .panel = BT_PANEL_COUNT, .samples = 6}},
    {"base_panel_comm",
     {.parts = BT_VIEW_PANEL, .run = "base", .panel = BT_PANEL_COMM, .step0 = 40, .step1 = 160}},
    {"noisy",
     {.parts = BT_VIEW_HEAD | BT_VIEW_RANKS | BT_VIEW_COMM | BT_VIEW_EVENTS,
      .run = "noisy",
      .max_events = 3}},
    {"noisy_at_300", {.parts = BT_VIEW_HEAD | BT_VIEW_RANKS, .run = "noisy", .at_step = 300}},
    {"live",
     {.parts = BT_VIEW_ALL & ~(BT_VIEW_PANEL | BT_VIEW_LAYERS | BT_VIEW_DISTRIBUTION),
      .run = "live",
      .columns = 4,
      .heat_columns = 4}},
    {"rich",
     {.parts = BT_VIEW_HEAD | BT_VIEW_EVENTS | BT_VIEW_SETTINGS | BT_VIEW_COMM, .run = "rich"}},
    {"rich_ranks", {.parts = BT_VIEW_RANKS, .run = "rich", .at_step = 20}},
    {"young", {.parts = BT_VIEW_ALL & ~BT_VIEW_PANEL, .run = "young"}},
    {"hub", {.parts = BT_VIEW_HEAD | BT_VIEW_ISLANDS | BT_VIEW_EVENTS, .run = "hub"}},
    {"runs", {.parts = BT_VIEW_RUNS}},
    {"two_runs", {.parts = BT_VIEW_RUNS, .max_runs = 2}},
};

/* Adds the answer to a request under the given key. */
static void add_answer(bt_view *v, const bt_view_request *ask, bt_json *j, const char *key) {
    OK(bt_view_load(v, ask, err));
    bt_view_json(v, ask->parts, j, key);
}

static void begin_recorded_run(bt_text *out, bt_json *j) {
    bt_text_init(out);
    bt_json_begin(j, out);
}

/* Compares the JSON with a golden file after replacing the name of the temporary folder. */
static void compare_with_golden(bt_text *out, const bt_tmp *t, const char *golden) {
    char file[120];
    snprintf(file, sizeof file, "store/golden/%s.txt", golden);
    bt_golden_json(file, bt_text_str(out), t->dir, "");
    bt_text_release(out);
}

static void every_part_of_the_view(void **state) {
    const bt_tmp *t = *state;
    bt_db *db = NULL;
    bt_text out;
    bt_json j;
    make_runs(t->db);
    make_rich(t->db);
    make_young(t->db);
    record_hub(t->db);
    run_sql(t->db, "UPDATE run SET host = 'nodes'");
    bt_view *v = open_view(t->db, &db);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bt_view_request ask = rows[i].ask;
        ask.now_us = INT64_C(1000000) * (BEGAN_S + 600);
        if (ask.at_step == 0) ask.at_step = -1;
        begin_recorded_run(&out, &j);
        add_answer(v, &ask, &j, NULL);
        compare_with_golden(&out, t, rows[i].golden);
    }
    bt_view_close(v);
    bt_db_close(db);
}

/* Requests series of the run, of a rank and of a baseline on each axis, for all steps, for some steps, and for a time
 * span. */
static void series_on_every_axis(void **state) {
    const bt_tmp *t = *state;
    bt_db *db = NULL;
    bt_text out;
    bt_json j;
    make_runs(t->db);
    bt_view *v = open_view(t->db, &db);
    begin_recorded_run(&out, &j);
    bt_json_object(&j, NULL);
    for (int x = 0; x < BT_X_COUNT; x++) {
        bt_view_request ask = {.parts = BT_VIEW_SERIES,
                               .run = "base",
                               .baseline = "other",
                               .at_step = -1,
                               .now_us = INT64_C(1000000) * (BEGAN_S + 600),
                               .x = (bt_x_axis)x,
                               .columns = 12,
                               .n_series = 2,
                               .series = {{-1, BT_MS_LOSS}, {2, BT_MR_STEP_TIME}}};
        add_answer(v, &ask, &j, bt_x_axis_name((bt_x_axis)x));
    }
    bt_view_request ask = {
        .parts = BT_VIEW_SERIES,
        .run = "noisy",
        .at_step = 650,
        .now_us = INT64_C(1000000) * (BEGAN_S + 600),
        .columns = 9,
        .span_s = 20,
        .n_series = 3,
        .series = {{-1, BT_MS_VAL_LOSS}, {-1, BT_MS_STEP_TIME}, {5, BT_MR_WAIT}}};
    add_answer(v, &ask, &j, "of_20_s");
    ask.span_s = 0;
    ask.step0 = 600;
    ask.step1 = 606;
    add_answer(v, &ask, &j, "of_7_steps");
    bt_json_end(&j, '}');
    compare_with_golden(&out, t, "series");
    bt_view_close(v);
    bt_db_close(db);
}

static void heat_of_every_value(void **state) {
    const bt_tmp *t = *state;
    bt_db *db = NULL;
    bt_text out;
    bt_json j;
    make_runs(t->db);
    bt_view *v = open_view(t->db, &db);
    begin_recorded_run(&out, &j);
    bt_json_object(&j, NULL);
    for (int k = 0; k < BT_HEAT_VALUES; k++) {
        bt_view_request ask = {.parts = BT_VIEW_HEAT,
                               .run = "noisy",
                               .at_step = -1,
                               .now_us = INT64_C(1000000) * (BEGAN_S + 600),
                               .heat = (bt_heat_value)k,
                               .heat_columns = 7};
        add_answer(v, &ask, &j, bt_heat_value_name((bt_heat_value)k));
    }
    bt_view_request ask = {.parts = BT_VIEW_HEAT,
                           .run = "base",
                           .baseline = "other",
                           .at_step = -1,
                           .now_us = INT64_C(1000000) * (BEGAN_S + 600),
                           .step0 = 100,
                           .step1 = 250,
                           .heat = BT_HEAT_STEP,
                           .heat_columns = 10};
    add_answer(v, &ask, &j, "against_other");
    ask.baseline = NULL;
    ask.step0 = ask.step1 = 0;
    ask.span_s = 5;
    add_answer(v, &ask, &j, "of_5_s");
    bt_json_end(&j, '}');
    compare_with_golden(&out, t, "heat");
    bt_view_close(v);
    bt_db_close(db);
}

/* A view that follows a run shows the same as a newly opened view, whatever it showed in between. */
static void following_equals_opening(void **state) {
    static const int chunks[] = {1, 7, 60, 200, 257, 3, 90, 250, 255, 200, 200, 1};
    const bt_tmp *t = *state;
    bt_synth s = bt_synth_default("long");
    bt_run_start start = bt_fake_run("long");
    bt_writer *w = NULL;
    bt_db *db = NULL, *db2 = NULL;
    int attempt;
    s.ranks = 3;
    s.jitter = 0.2;
    s.straggler = 1;
    s.excess = 0.5;
    s.layers_every = 30;
    start.host = "nodes";
    start.world_size = 3;
    start.started_us = s.start_us;
    OK(bt_writer_open(&w, t->db, 10, err));
    OK(bt_writer_begin(w, &start, &attempt, err));
    bt_view *v = open_view(t->db, &db);
    int64_t from = 0, clock_us = s.start_us;
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        bt_text followed, opened;
        bt_json j;
        clock_us = bt_synth_attempt(&s, w, from, from + chunks[i], clock_us);
        from += chunks[i];
        OK(bt_writer_flush(w, err));
        bt_view_request ask = ask_all("long");
        ask.now_us = clock_us + 1000000;
        ask.columns = 16;
        ask.heat_columns = 8;
        begin_recorded_run(&followed, &j);
        add_answer(v, &ask, &j, NULL);
        bt_view *fresh = open_view(t->db, &db2);
        begin_recorded_run(&opened, &j);
        add_answer(fresh, &ask, &j, NULL);
        assert_string_equal(bt_text_str(&followed), bt_text_str(&opened));
        bt_text_release(&followed);
        bt_text_release(&opened);
        bt_view_close(fresh);
        bt_db_close(db2);
        if (i == 1 || i == 3) { /* then back to the previous position */
            ask.at_step = from / 2;
            OK(bt_view_load(v, &ask, err));
        }
    }
    bt_view_close(v);
    bt_db_close(db);
    bt_writer_close(w);
}

/* The smoothing weight of a step is keep^distance, measured from the middle of its bucket; a bucket of three steps
 * counts three times. */
static void averages_of_buckets(void **state) {
    (void)state;
    const double mean[] = {2, NAN, 4, 8};
    const int64_t count[] = {20, 1, 3, 1}, step[] = {0, 1, 4, 5};
    const bt_view_series s = {
        .n = 4, .mean = mean, .min = mean, .max = mean, .count = count, .step = step};
    double out[4];
    bt_view_smooth(&s, 0, out);
    for (int i = 0; i < 4; i++)
        assert_true(i == 1 ? isnan(out[i]) : fabs(out[i] - mean[i]) < 1e-12);
    bt_view_smooth(&s, 0.5, out);
    const double half = sqrt(0.125), first = 1 - pow(0.5, 20), above_before = 0.5 * first * 2,
                 before = 0.5 * first;
    assert_true(isnan(out[1]));
    NEAR(out[2], (half * (above_before + 0.5 * 8) + 2 * (1 - half) * 4) /
                     (half * (before + 0.5) + 2 * (1 - half)));
    assert_true(bt_view_keep(0, 100) <= 0 && bt_view_keep(0.1, 10) <= 0 &&
                bt_view_keep(0.1, 1000) > 0.9);
}

static void times_and_steps(void **state) {
    const bt_tmp *t = *state;
    bt_db *db = NULL;
    int64_t step = 0;
    make_runs(t->db);
    bt_view *v = open_view(t->db, &db);
    static const struct {
        double time_s;
        int64_t step;
    } at[] = {{0, -1}, {0.1529, -1}, {0.1531, 0}, {1.531, 9}, {30.61, 179}, {1e6, 299}};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        OK(bt_view_step_at(v, "base", at[i].time_s, &step, err));
        assert_int_equal(step, at[i].step);
    }
    NEAR(bt_view_time_of(v, "base", 9), 1.53);
    NEAR(bt_view_time_of(v, "base", 0), 0.153);
    assert_true(isnan(bt_view_time_of(v, "base", -1)) && isnan(bt_view_time_of(v, "base", 300)) &&
                isnan(bt_view_time_of(v, "nobody", 1)));
    static const struct {
        int64_t step;
        int dir;
        int64_t at;
    } next[] = {{99, -1, -1}, {100, -1, 99}, {98, 1, 99},
                {99, 1, 179}, {299, 1, -1},  {1000, -1, 299}};
    for (size_t i = 0; i < sizeof next / sizeof *next; i++) {
        OK(bt_view_event_step(v, "base", next[i].step, next[i].dir, &step, err));
        assert_int_equal(step, next[i].at);
    }
    bt_view_close(v);
    bt_db_close(db);
}

int main(void) {
#define T(f) cmocka_unit_test_setup_teardown(f, bt_tmp_make, bt_tmp_drop)
    const struct CMUnitTest tests[] = {
        T(every_part_of_the_view),
        T(series_on_every_axis),
        T(heat_of_every_value),
        T(following_equals_opening),
        cmocka_unit_test(averages_of_buckets),
        T(times_and_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// ctest: timeout=60
/* The view model names the slow rank and its cause in synthetic runs with known properties: ranking, blame, phase,
 * estimate without the delay, verdicts, heat map. */
#include "view_test.h"

static void the_slow_rank_is_named_with_its_phase(void **state) {
    const bt_tmp *t = *state;
    bt_synth s = slow_five();
    bt_db *db = NULL;
    OK(bt_synth_make(t->db, &s, err));
    bt_view *v = open_view(t->db, &db);
    bt_view_request a = ask_all("s");
    OK(bt_view_load(v, &a, err));
    const bt_view_ranks *r = &v->ranks;
    assert_int_equal(r->n, 8);
    assert_int_equal(r->steps, BT_VIEW_WINDOW);
    assert_int_equal(r->order[0], 5);
    const bt_view_rank *x = &r->rank[5];
    NEAR(x->busy_p50_ms, 115);
    NEAR(r->rank[0].busy_p50_ms, 113);
    NEAR(r->busy_median_ms, 113);
    NEAR(x->excess_ms, 2);
    NEAR(x->score, 113.0 / 115);
    NEAR(x->blame_frac, 1);
    NEAR(x->lost_s, 2e-3 * BT_VIEW_WINDOW);
    assert_int_equal(x->fault, BT_PH_DATA);
    NEAR(x->fault_frac, 1);
    NEAR(r->step_ms, 115);
    NEAR(x->what_if_ms, 113);
    NEAR(r->skew_p50_ms, 2);
    NEAR(r->skew_p95_ms, 2);
    NEAR(x->late_p95_ms, 2);
    NEAR(r->rank[0].late_p50_ms, 0);
    NEAR(r->rank[0].what_if_ms, 115);
    NEAR(v->head.wait_frac, 7 * 2 / (8 * 115.0));
    NEAR(v->head.overlap, 0.5);
    NEAR(v->head.step_p50_ms, 115);
    const int two[] = {5, 0}, none[] = {0, 1};
    NEAR(bt_view_what_if(v, two, 2), 113);
    NEAR(bt_view_what_if(v, none, 2), 115);
    for (int k = 0; k < 8; k++) {
        double sum = 0;
        for (int p = 0; p < BT_PHASE_COUNT; p++) sum += r->rank[k].mean[bt_phases[p].metric];
        NEAR(sum, r->rank[k].mean[BT_MR_STEP_TIME]);
    }
    bt_view_close(v);
    bt_db_close(db);
}

/* Before the first step, the list contains the ranks in order of their numbers. */
static void ranks_without_a_step(void **state) {
    const bt_tmp *t = *state;
    bt_synth s = bt_synth_default("s");
    s.steps = 0;
    s.live = true;
    bt_db *db = NULL;
    OK(bt_synth_make(t->db, &s, err));
    bt_view *v = open_view(t->db, &db);
    bt_view_request a = ask_all("s");
    OK(bt_view_load(v, &a, err));
    assert_int_equal(v->ranks.n, 4);
    assert_int_equal(v->ranks.steps, 0);
    for (int k = 0; k < 4; k++) assert_int_equal(v->ranks.order[k], k);
    bt_view_close(v);
    bt_db_close(db);
}

/* Two ranks are slow in one phase each, then one rank alone. The breakdown is the mean over ranks, then over steps, so
 * that the phases add up to the step. */
static void parts_of_a_step_add_up(void **state) {
    const bt_tmp *t = *state;
    bt_writer *w = NULL;
    bt_db *db = NULL;
    double values[BT_MS_COUNT], rv[2 * BT_MR_COUNT] = {0};
    OK(bt_writer_open(&w, t->db, 1, err));
    int64_t clock_us = bt_wall_us();
    for (int i = 0; i < BT_MS_COUNT; i++) values[i] = NAN;
    for (int attempt = 0, step = 0; attempt < 2; attempt++) {
        int number;
        bt_run_start s = bt_fake_run("a");
        s.resume = attempt > 0;
        s.from_step = step;
        s.world_size = 2 - attempt;
        OK(bt_writer_begin(w, &s, &number, err));
        const bt_sink *sink = bt_writer_sink(w);
        for (int n = 0; n < (attempt ? 32 : 96); n++, step++) {
            double *v = rv;
            v[BT_MR_FWD] = attempt ? 4 : 1;
            v[BT_MR_BWD] = attempt ? 0 : 59;
            v[BT_MR_WAIT] = 0;
            v[BT_MR_STEP_TIME] = values[BT_MS_STEP_TIME] = attempt ? 4 : 60;
            v += BT_MR_COUNT;
            v[BT_MR_FWD] = 3;
            v[BT_MR_WAIT] = 55;
            v[BT_MR_STEP_TIME] = 58;
            clock_us += (int64_t)(values[BT_MS_STEP_TIME] * 1e3);
            sink->step(sink->ctx, &(bt_step_record){.step = step,
                                                    .wall_us = clock_us,
                                                    .values = values,
                                                    .n_ranks = s.world_size,
                                                    .rank_values = rv});
        }
        OK(bt_writer_end(w, "stopped", "x", 0, err));
    }
    bt_writer_close(w);
    bt_view *v = open_view(t->db, &db);
    bt_view_request a = ask_all("a");
    OK(bt_view_load(v, &a, err));
    const bt_view_ranks *r = &v->ranks;
    assert_int_equal(r->steps, 128);
    assert_int_equal(r->ranks_least, 1);
    assert_int_equal(r->ranks_most, 2);
    NEAR(r->mean_ms, (96 * 59 + 32 * 4) / 128.0);
    NEAR(r->phase_ms[BT_PH_FWD], (96 * 2 + 32 * 4) / 128.0);
    NEAR(r->phase_ms[BT_PH_BWD], 96 * 29.5 / 128.0);
    NEAR(r->phase_ms[BT_PH_WAIT], 96 * 27.5 / 128.0);
    double sum = 0;
    for (int p = 0; p < BT_PHASE_COUNT; p++) sum += r->phase_ms[p];
    NEAR(sum, r->mean_ms);
    NEAR(v->head.wait_frac, r->phase_ms[BT_PH_WAIT] / r->mean_ms);
    bt_view_close(v);
    bt_db_close(db);
}

/* After a restart the ranks of the previous attempt are shown until the new attempt records some. */
static void ranks_of_a_new_attempt_take_their_place(void **state) {
    const bt_tmp *t = *state;
    bt_synth s = bt_synth_default("s");
    bt_db *db = NULL;
    bt_writer *w = NULL;
    int attempt;
    s.ranks = 2;
    s.live = true;
    OK(bt_synth_make(t->db, &s, err));
    bt_view *v = open_view(t->db, &db);
    bt_view_request a = ask_all("s");
    OK(bt_view_load(v, &a, err));
    bt_run_start again = bt_fake_run("s");
    again.resume = true;
    again.from_step = 200;
    again.world_size = 2;
    OK(bt_writer_open(&w, t->db, 1, err));
    OK(bt_writer_begin(w, &again, &attempt, err));
    OK(bt_view_load(v, &a, err));
    const int before = v->ranks.rank[1].pid;
    const bt_rank_info now[] = {{.rank = 0, .threads = 1, .pid = 70001, .host = "here"},
                                {.rank = 1, .threads = 1, .pid = 70002, .host = "here"}};
    const bt_sink *sink = bt_writer_sink(w);
    sink->ranks(sink->ctx, now, 2);
    OK(bt_writer_end(w, "done", "ok", 0, err));
    bt_writer_close(w);
    OK(bt_view_load(v, &a, err));
    assert_int_not_equal(before, 70002);
    assert_int_equal(v->ranks.rank[1].pid, 70002);
    bt_view_close(v);
    bt_db_close(db);
}

/* Returns the milliseconds of the forward pass; the other phases take no time. */
typedef double (*busy_fn)(int64_t step, int rank);

static void write_busy(const char *path, const char *name, int ranks, int per_host, int64_t steps,
                       busy_fn busy) {
    bt_writer *w = NULL;
    bt_run_start start = bt_fake_run(name);
    int attempt;
    double values[BT_MS_COUNT], *rv = calloc((size_t)ranks * BT_MR_COUNT, sizeof *rv);
    bt_rank_info *info = calloc((size_t)ranks, sizeof *info);
    start.world_size = ranks;
    OK(bt_writer_open(&w, path, 1, err));
    OK(bt_writer_begin(w, &start, &attempt, err));
    const bt_sink *sink = bt_writer_sink(w);
    for (int r = 0; r < ranks; r++) {
        info[r] = (bt_rank_info){.rank = r, .threads = 1};
        snprintf(info[r].host, sizeof info[r].host, "node%d", r / per_host);
    }
    sink->ranks(sink->ctx, info, (size_t)ranks);
    int64_t clock_us = bt_wall_us();
    for (int64_t s = 0; s < steps; s++) {
        double most = 0;
        for (int r = 0; r < ranks; r++) most = fmax(most, busy(s, r));
        for (int r = 0; r < ranks; r++) {
            double *v = rv + r * BT_MR_COUNT;
            v[BT_MR_FWD] = busy(s, r);
            v[BT_MR_STEP_TIME] = most;
            v[BT_MR_WAIT] = most - busy(s, r);
        }
        for (int i = 0; i < BT_MS_COUNT; i++) values[i] = NAN;
        values[BT_MS_STEP_TIME] = most;
        values[BT_MS_LOSS] = 1;
        clock_us += (int64_t)(most * 1e3);
        sink->step(sink->ctx, &(bt_step_record){.step = s,
                                                .wall_us = clock_us,
                                                .values = values,
                                                .n_ranks = ranks,
                                                .rank_values = rv});
    }
    OK(bt_writer_end(w, "done", "test", 0, err));
    bt_writer_close(w);
    free(rv);
    free(info);
}

static double busy_steady(int64_t s, int r) { return r == 1 && s >= 160 ? 150 : 100; }
static double busy_bursty(int64_t s, int r) { return r == 2 && s >= 176 && s < 188 ? 180 : 100; }
static double busy_recovering(int64_t s, int r) { return r == 0 && s < 176 ? 140 : 100; }
static double busy_node(int64_t s, int r) { return r >= 4 && s >= 100 ? 130 : 100; }
static double busy_two(int64_t s, int r) { return r == 1 ? 150 + (double)(s % 2) : 100; }

static bt_view_rank verdict_of(const char *path, const char *run, int rank) {
    bt_db *db = NULL;
    bt_view *v = open_view(path, &db);
    bt_view_request a = ask_all(run);
    OK(bt_view_load(v, &a, err));
    bt_view_rank x = v->ranks.rank[rank];
    for (size_t k = 0; k < v->ranks.n && strcmp(run, "node") != 0; k++)
        if ((int)k != rank) assert_int_equal(v->ranks.rank[k].verdict, BT_VERDICT_OK);
    bt_view_close(v);
    bt_db_close(db);
    return x;
}

static void verdicts_distinguish_patterns(void **state) {
    const bt_tmp *t = *state;
    write_busy(t->db, "steady", 4, 4, 240, busy_steady);
    write_busy(t->db, "bursty", 4, 4, 240, busy_bursty);
    write_busy(t->db, "recovering", 4, 4, 240, busy_recovering);
    write_busy(t->db, "node", 8, 4, 240, busy_node);
    write_busy(t->db, "two", 2, 2, 240, busy_two);
    bt_view_rank x = verdict_of(t->db, "steady", 1);
    assert_int_equal(x.verdict, BT_VERDICT_STEADY);
    assert_in_range(x.since_step, 150, 170);
    assert_int_equal(x.fault, BT_PH_FWD);
    NEAR(x.score_own, 100.0 / 150);
    assert_non_null(strstr(x.says, "rank 1 has been slow since step 1"));
    assert_non_null(strstr(x.says, "; 100 % of its delay is in fwd"));
    assert_int_equal(verdict_of(t->db, "bursty", 2).verdict, BT_VERDICT_BURSTY);
    assert_int_equal(verdict_of(t->db, "recovering", 0).verdict, BT_VERDICT_RECOVERING);
    x = verdict_of(t->db, "node", 6);
    assert_int_equal(x.verdict, BT_VERDICT_NODE_WIDE);
    assert_non_null(strstr(x.says, "all ranks of node1 "));
    /* The median of two ranks is the faster rank. */
    x = verdict_of(t->db, "two", 1);
    NEAR(x.excess_ms, 50);
    NEAR(x.what_if_ms, 100);
}

static void heat_map_shows_who_and_when(void **state) {
    const bt_tmp *t = *state;
    bt_db *db = NULL;
    write_busy(t->db, "steady", 4, 4, 240, busy_steady);
    bt_view *v = open_view(t->db, &db);
    bt_view_request a = ask_all("steady");
    a.heat_columns = 24;
    OK(bt_view_load(v, &a, err));
    assert_int_equal(v->heat.rows, 4);
    assert_int_equal(v->heat.cols, 24);
    assert_true(v->heat.exact);
    for (size_t k = 0; k < 4; k++)
        for (size_t c = 0; c < 24; c++) NEAR(v->heat.cell[k * 24 + c], k == 1 && c >= 16 ? 1.5 : 1);
    a.heat = BT_HEAT_WAIT;
    OK(bt_view_load(v, &a, err));
    NEAR(v->heat.cell[0 * 24 + 20], 50);
    NEAR(v->heat.cell[1 * 24 + 20], 0);
    bt_view_close(v);
    bt_db_close(db);
}

static double busy_turns(int64_t s, int r) {
    return r == 0 && s < 180 ? 300 : r == 2 && s >= 220 ? 150 : 100;
}

/* Rank 0 has lost most time in total, but rank 2 is slow at present; 20 steps suffice for the verdict. */
static void present_delays_precede_earlier_ones(void **state) {
    const bt_tmp *t = *state;
    bt_db *db = NULL;
    write_busy(t->db, "turns", 4, 4, 240, busy_turns);
    bt_view *v = open_view(t->db, &db);
    bt_view_request a = ask_all("turns");
    OK(bt_view_load(v, &a, err));
    assert_int_equal(v->ranks.order[0], 2);
    assert_int_equal(v->ranks.order[1], 0);
    assert_true(v->ranks.rank[0].lost_s > v->ranks.rank[2].lost_s);
    assert_int_equal(v->ranks.rank[0].verdict, BT_VERDICT_RECOVERING);
    assert_int_equal(v->ranks.rank[2].fault, BT_PH_FWD);
    bt_view_close(v);
    bt_db_close(db);
}

static double busy_eighty(int64_t s, int r) {
    (void)s;
    return r == 3 ? 160 : 80;
}

/* Cells are compared by rank and step, with the median rank if the numbers of ranks differ, and with the mean if the
 * baseline lacks these steps. */
static void heat_map_against_a_baseline(void **state) {
    const bt_tmp *t = *state;
    bt_db *db = NULL;
    write_busy(t->db, "steady", 4, 4, 240, busy_steady);
    write_busy(t->db, "base", 4, 4, 200, busy_eighty);
    write_busy(t->db, "small", 2, 2, 240, busy_eighty);
    bt_view *v = open_view(t->db, &db);
    bt_view_request a = ask_all("steady");
    a.heat_columns = 24;
    a.heat = BT_HEAT_BUSY;
    a.baseline = "base";
    OK(bt_view_load(v, &a, err));
    assert_true(v->heat.against);
    for (size_t k = 0; k < 4; k++)
        for (size_t c = 0; c < 24; c++)
            NEAR(v->heat.cell[k * 24 + c], (k == 1 && c >= 16 ? 150 : 100) / (k == 3 ? 160. : 80.));
    a.heat = BT_HEAT_FWD;
    a.baseline = "small";
    OK(bt_view_load(v, &a, err));
    assert_true(v->heat.against);
    NEAR(v->heat.cell[3 * 24 + 2], 1.25);
    NEAR(v->heat.cell[1 * 24 + 20], 150 / 80.);
    a.step0 = 210;
    a.step1 = 239;
    a.baseline = "base";
    OK(bt_view_load(v, &a, err));
    /* The cells are milliseconds if there is no baseline. */
    assert_false(v->heat.against);
    NEAR(v->heat.cell[0], 100);
    a.baseline = NULL;
    a.step1 = 0;
    OK(bt_view_load(v, &a, err));
    assert_false(v->heat.against);
    bt_view_close(v);
    bt_db_close(db);
}

int main(void) {
#define T(f) cmocka_unit_test_setup_teardown(f, bt_tmp_make, bt_tmp_drop)
    const struct CMUnitTest tests[] = {
        T(the_slow_rank_is_named_with_its_phase),
        T(ranks_without_a_step),
        T(verdicts_distinguish_patterns),
        T(heat_map_shows_who_and_when),
        T(heat_map_against_a_baseline),
        T(present_delays_precede_earlier_ones),
        T(ranks_of_a_new_attempt_take_their_place),
        T(parts_of_a_step_add_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

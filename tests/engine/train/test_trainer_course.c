/* test_trainer_course.c - the course of a trainer made by hand from its announcement to its result: which parts of a
 * step follow each other, when it ends, what is saved and told at the end, what a failure leaves behind, and each field
 * of the result. What the parts do is defined here. */
#include <math.h>

#include "engine/base/clock.h"
#include "engine/base/tables/derived.h"
#include "engine/base/threads.h"
#include "engine/kernels/table/kernels.h"
#include "engine/train/data/run_data.h"
#include "tests/engine/train/said.h"

#include "engine/train/parts/island/island_part.h"
#include "engine/train/trainer_impl.h"

static bt_trainer t;
static bt_err err;
static bt_train_result r;
static char object; /* one at which nobody looks */

/* ---- in the place of the parts ------------------------------------------------------------------------ */

static struct {
    int rank, size, threads;
    const char *fails;
    bt_code code;
    int64_t stops_after, leaves_at, now_ns; /* -1: never */
    bt_model_counts counts;
} world;

static bt_code done(const char *what, bt_err *e) {
    return said_or_fails(what, world.fails, world.code, e);
}

int64_t bt_now_ns(void) { return world.now_ns += 250000000; }
int bt_comm_rank(const bt_comm *c) {
    (void)c;
    return world.rank;
}
int bt_comm_size(const bt_comm *c) {
    (void)c;
    return world.size;
}
bt_code bt_barrier(bt_comm *c, bt_err *e) {
    (void)c;
    return done("barrier", e);
}
bt_code bt_all_reduce_f64(bt_comm *c, double *x, size_t n, bt_reduce_op op, bt_err *e) {
    (void)c;
    for (size_t i = 0; i < n; i++) x[i] = op == BT_SUM ? x[i] * world.size : x[i] + 1;
    said("%s of %zu", op == BT_SUM ? "sum" : "most", n);
    return done("reduce", e);
}
const bt_model_cfg *bt_model_config(const bt_model *m) {
    (void)m;
    return &t.setup.model.cfg;
}
bt_model_counts bt_model_count(const bt_model_cfg *c) {
    (void)c;
    return world.counts;
}
int bt_threads_count(void) { return world.threads; }
const char *bt_kernels_isa(void) { return "abacus"; }
void bt_run_data_tell(const bt_telemetry *of, const bt_loader *l, const bt_run_cfg *c,
                      int64_t step) {
    assert_true(of == &t.telemetry && l == t.loader && c == &t.cfg);
    said("data at %d", (int)step);
}
void bt_run_data_notes(const bt_telemetry *of, const char *source, const char *notes,
                       int64_t step) {
    assert_true(of == &t.telemetry);
    said("%s%s at %d", source, notes, (int)step);
}
const char *bt_evaluator_notes(const bt_evaluator *e) { return e == t.evaluator ? "notes" : ""; }
void bt_run_data_shares(const bt_telemetry *of, const bt_loader *l, int64_t steps) {
    assert_true(of == &t.telemetry && l == t.loader);
    said("shares of %d", (int)steps);
}
double bt_memory_peak_mib(void) {
    said("peak");
    return 10;
}
void bt_profile_step(bt_profile *p, int64_t n, int64_t all, double step_ms) {
    assert_ptr_equal(p, &t.profile);
    said("profile %d of %d: %g", (int)n, (int)all, step_ms);
}
void bt_profile_close(bt_profile *p, bt_prec prec) {
    assert_true(p == &t.profile && prec == BT_PREC_FP16);
    for (int i = 0; i < BT_PHASE_COUNT; i++) p->processor_ms[i] = i;
    p->rows[0].name = "gemm", p->rows[1].name = "other";
    p->n = 2;
    said("close");
}
int bt_profile_text(char *out, size_t size, const bt_profile_row *row) {
    return snprintf(out, size, "row of %s, 50 %%", row->name);
}
void bt_observer_begin(bt_observer *o, int64_t step) {
    assert_ptr_equal(o, t.observer);
    said("observe from %d", (int)step);
}
void bt_meter_open(bt_meter *m) {
    assert_ptr_equal(m, &t.meter);
    said("meter");
}
void bt_meter_set(bt_meter *m, bt_rank_metric metric, double value) {
    assert_true(m == &t.meter && metric == BT_MR_ENERGY && value == 4);
    said("energy");
}
void bt_meter_close(bt_meter *m, double out[BT_MR_COUNT]) {
    assert_ptr_equal(m, &t.meter);
    out[BT_MR_STEP_TIME] = 1000.0 * (double)t.at.step;
}
double bt_energy_take(bt_energy *e) { return e == &t.energy ? 4 : 0; }
bt_code bt_trainer_phase(bt_trainer *x, bt_err *e) {
    assert_ptr_equal(x, &t);
    return done("phase", e);
}
bt_code bt_trainer_ramp(bt_trainer *x, bool first, bt_err *e) {
    assert_ptr_equal(x, &t);
    return done(first ? "first ramp" : "ramp", e);
}
bt_code bt_trainer_bigram(bt_trainer *x, bt_err *e) {
    assert_ptr_equal(x, &t);
    return done("bigram", e);
}
bt_code bt_train_step(bt_trainer *x, bt_step_outcome *out, bt_err *e) {
    *out = (bt_step_outcome){.left = x->at.step == world.leaves_at};
    if (!out->left) x->at.step++;
    return done("step", e);
}
bt_code bt_after_step(bt_trainer *x, bt_step_outcome *o, bt_err *e) {
    assert_true(o->rank_values[BT_MR_STEP_TIME] == 1000.0 * (double)x->at.step);
    if (x->at.step == world.stops_after) x->stop = true;
    return done("after", e);
}
bt_code bt_telemetry_flush(bt_telemetry *of, bt_err *e) {
    assert_ptr_equal(of, &t.telemetry);
    return done("flush", e);
}
double bt_telemetry_median(const bt_telemetry *of, bt_rank_metric m) {
    (void)of;
    return m == BT_MR_STEP_TIME ? 500 : (double)m + 1;
}
void bt_telemetry_extremes(const bt_telemetry *of, bt_rank_metric m, double *least, double *most) {
    assert_true(of == &t.telemetry && m == BT_MR_STEP_TIME);
    *least = 400, *most = 900;
}
bool bt_trainer_at_end(const bt_trainer *x) { return x->at.step >= x->cfg.steps; }
bt_code bt_saver_start(bt_saver *s, bt_err *e) {
    assert_ptr_equal(s, &t.saver);
    return done("start", e);
}
bt_code bt_saver_finish(bt_saver *s, bt_err *e) {
    assert_ptr_equal(s, &t.saver);
    return done("finish", e);
}
bt_code bt_trainer_save(bt_trainer *x, bool best, bool wait, bt_err *e) {
    assert_true(x == &t && !best && wait);
    return done("save", e);
}
bt_code bt_trainer_evaluate(bt_trainer *x, bt_err *e) {
    x->validation.nats = 2;
    return done("evaluate", e);
}
bt_code bt_record_facts(bt_trainer *x, bool goes_on, bt_err *e) {
    assert_ptr_equal(x, &t);
    return done(goes_on ? "facts go on" : "facts", e);
}
bt_code bt_trainer_island_end(bt_trainer *x, bt_err *e) {
    assert_ptr_equal(x, &t);
    return done("island", e);
}
void bt_memory_saver_forget(bt_trainer *x) {
    assert_ptr_equal(x, &t);
    said("forget");
}
void bt_memory_state_drop(const char *dir) { said("drop %s", dir); }

/* ---- a trainer ------------------------------------------------------------------------------------------ */

static void begin(int64_t step, int64_t steps) {
    memset(&t, 0, sizeof t);
    world.rank = 0, world.size = 1, world.threads = 1;
    world.fails = NULL, world.code = BT_IO;
    world.stops_after = world.leaves_at = -1;
    world.counts = (bt_model_counts){.params = 1234567};
    t.at.step = step;
    t.cfg.steps = steps;
    t.number = 1;
    t.place = &t.own_place;
    t.saver.step = -1;
    t.validation = (bt_eval_result){.nats = NAN, .bits_per_byte = NAN};
    t.step_tokens = 100;
    err = (bt_err)BT_ERR_INIT;
    bt_text_clear(&heard);
}

#define STEP "phase\nramp\nbigram\nstep\nenergy\nafter\n"
#define FIRST "phase\nfirst ramp\nbigram\nstep\nenergy\nafter\n"
#define RESULT "peak\nsum of 1\nreduce\n"

static void runs(const char *want) {
    if (bt_trainer_run(&t, &r, &err) != BT_OK) fail_msg("%s", err.msg);
    heard_is(want);
}

/* ---- from begin to end ------------------------------------------------------------------------------------ */

static void a_run_to_its_end(void **state) {
    (void)state;
    begin(0, 3);
    runs("start\nfacts\nstarted -1 training 1.23 M parameters for 3 steps on 1 rank x 1 thread, "
         "abacus "
         "kernels\ndata at -1\nobserve from -1\nmeter\n" FIRST STEP STEP
         "flush\nfinish\nshares of 3\nstopped 2 finished: 3 of 3 steps\nisland\nforget\n" RESULT);
    assert_int_equal(t.own_place.at, BT_AT_END);
    assert_int_equal(t.own_place.step, 3);
    assert_false(r.stopped);
    /* the first step counts, each next one by an eighth: of 1, 2 and 3 seconds */
    assert_true(t.step_s == 1.125 + 0.125 * (3 - 1.125));
    begin(3, 3); /* nothing is left to do */
    runs("start\nfacts go on\nresumed 2 resumed after step 3 from '' on 1 rank\ndata at 2\n"
         "observe from 2\nmeter\nflush\nfinish\nshares of 3\nstopped 2 finished: 3 of 3 steps\n"
         "island\nforget\n" RESULT);
}

static void how_it_is_announced(void **state) {
    (void)state;
    static const bt_isa_agreement isa = {.note = "rank 1 gives up"};
    begin(0, 1);
    world.size = 4, world.threads = 6;
    world.counts = (bt_model_counts){.params = 2000000000, .adapters = 5000};
    t.ckpt_copy_too_large = true;
    t.isa = &isa;
    t.number = 2; /* of a run that was recorded before */
    runs(
        "start\nfacts go on\n"
        "warning -1 no memory for a copy of the state: training stands still while a checkpoint is "
        "written\nkernels -1 rank 1 gives up\n"
        "started -1 training 5.00 k parameters of adapters, beside 2.00 G that stay as they are, "
        "for 1 "
        "steps "
        "on 4 ranks x 6 threads, abacus kernels\ndata at -1\nobserve from -1\nmeter\n" FIRST
        "flush\nfinish\nshares of 1\nstopped 0 finished: 1 of 1 steps\nisland\nforget\n" RESULT);
    static const char *const from[] = {"'/out/step-7'", "memory"};
    for (int memory = 0; memory < 2; memory++) {
        char want[600];
        begin(7, 8);
        world.size = 2;
        t.from_memory = memory;
        strcpy(t.saver.path, "/out/step-7");
        snprintf(
            want, sizeof want,
            "start\nfacts go on\nresumed 6 resumed after step 7 from %s on 2 ranks\ndata at 6\n"
            "observe from 6\nmeter\n" FIRST
            "flush\nfinish\nshares of 8\nstopped 7 finished: 8 of 8 steps\nisland\nforget\n" RESULT,
            from[memory]);
        runs(want);
        assert_string_equal(r.checkpoint, "/out/step-7");
    }
}

/* ---- ends before ------------------------------------------------------------------------------------------ */

static void what_ends_it_before(void **state) {
    (void)state;
#define BEGIN \
    "start\nfacts go on\nresumed 3 resumed after step 4 from '' on 1 rank\ndata at 3\n" \
    "observe from 3\nmeter\n"
    begin(4, 20); /* so many steps of an attempt */
    t.cfg.stop_after = 2;
    runs(BEGIN FIRST STEP
         "flush\nfinish\nshares of 6\nstopped 5 stopped after step 6 of 20\nisland\n"
         "forget\n" RESULT);
    assert_true(r.stopped && r.steps == 6);
    begin(4, 5); /* of which there are fewer */
    t.cfg.stop_after = 2;
    runs(BEGIN FIRST
         "flush\nfinish\nshares of 5\nstopped 4 finished: 5 of 5 steps\nisland\nforget\n" RESULT);
    assert_false(r.stopped);
    for (int saved = 0; saved < 2; saved++) { /* asked to stop: saved, where it is not */
        char want[600];
        begin(4, 20);
        world.stops_after = 5;
        t.saver.step = saved ? 5 : 4;
        snprintf(want, sizeof want,
                 BEGIN FIRST "flush\nfinish\n%sshares of 5\nstopped 4 stopped after step 5 of 20\n"
                             "island\nforget\n" RESULT,
                 saved ? "" : "save\n");
        runs(want);
        assert_true(r.stopped);
    }
    begin(4, 20); /* in the middle of a step, which did not happen */
    world.leaves_at = 5;
    runs(BEGIN FIRST "phase\nramp\nbigram\nstep\nflush\nfinish\nshares of 5\n"
                     "stopped 4 stopped after step 5 of 20\nisland\nforget\n" RESULT);
    begin(4, 20); /* it was to stop before it began */
    t.stop = true;
    t.saver.step = 4;
    runs(BEGIN "flush\nfinish\nshares of 4\nstopped 3 stopped after step 4 of "
               "20\nisland\nforget\n" RESULT);
}

static void a_validation_belongs_to_the_end(void **state) {
    (void)state;
    static const struct {
        bool evaluator, stops;
        double known;
        bool wanted;
    } rows[] = {{true, false, NAN, true},
                {true, false, 3, false},
                {false, false, NAN, false},
                {true, true, NAN, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        begin(4, rows[i].stops ? 9 : 5);
        t.stop_at = 0;
        t.cfg.stop_after = rows[i].stops ? 1 : 0;
        t.evaluator = rows[i].evaluator ? (bt_evaluator *)(void *)&object : NULL;
        t.validation.nats = rows[i].known;
        assert_int_equal(bt_trainer_run(&t, &r, &err), BT_OK);
        assert_int_equal(strstr(bt_text_str(&heard), "evaluate\nshares") != NULL, rows[i].wanted);
        const double want = rows[i].wanted ? 2 : rows[i].known;
        assert_true(isnan(want) ? isnan(r.val_loss) : r.val_loss == want);
        bt_text_clear(&heard);
    }
}

/* a checkpoint that failed: the states in memory stay */
static void trouble_keeps_the_states_in_memory(void **state) {
    (void)state;
    begin(4, 5);
    strcpy(t.saver.trouble, "x");
    runs(BEGIN FIRST
         "flush\nfinish\nshares of 5\nstopped 4 finished: 5 of 5 steps\nisland\n" RESULT);
    assert_string_equal(r.trouble, "x");
}

/* ---- failures --------------------------------------------------------------------------------------------- */

static void a_failure_is_told(void **state) {
    (void)state;
    static const struct {
        const char *fails, *behind; /* of what is heard; NULL: the run has not begun */
    } rows[] = {{"start", NULL},        {"facts go on", NULL},
                {"phase", "phase\n"},   {"first ramp", "first ramp\n"},
                {"bigram", "bigram\n"}, {"step", "step\n"},
                {"after", "after\n"},   {"flush", "flush\n"},
                {"finish", "finish\n"}, {"save", "save\n"},
                {"island", "island\n"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int damaged = 0; damaged < 3;
             damaged++) { /* of memory as well; seen by another rank */
            char want[100], says[40];
            begin(4, 20);
            world.stops_after = 5;
            world.fails = rows[i].fails;
            world.code = damaged ? BT_DAMAGED : BT_IO;
            world.rank = damaged == 2;
            t.memory_dir = "/shared";
            assert_int_equal(bt_trainer_run(&t, &r, &err), world.code);
            snprintf(says, sizeof says, "%s fails", rows[i].fails);
            assert_string_equal(err.msg, says);
            if (!rows[i].behind) {
                assert_null(strstr(bt_text_str(&heard), "failure"));
                continue;
            }
            snprintf(want, sizeof want, "%s%sfailure %d %s\n", rows[i].behind,
                     damaged == 1 ? "drop /shared\n" : "", (int)t.at.step, says);
            const size_t n = heard.len, m = strlen(want);
            if (n < m || strcmp(bt_text_str(&heard) + n - m, want) != 0)
                fail_msg("%s: %s", rows[i].fails, bt_text_str(&heard));
        }
    static const char *const nowhere[] = {NULL, ""}; /* there are no states in memory */
    for (int i = 0; i < 2; i++) {
        begin(4, 20);
        world.fails = "step", world.code = BT_DAMAGED;
        t.memory_dir = nowhere[i];
        assert_int_equal(bt_trainer_run(&t, &r, NULL), BT_DAMAGED);
        assert_null(strstr(bt_text_str(&heard), "drop"));
        char want[80]; /* without words the code has a name */
        snprintf(want, sizeof want, "failure 5 %s\n", bt_code_name(BT_DAMAGED));
        assert_non_null(strstr(bt_text_str(&heard), want));
    }
}

/* ---- profile, result, steps alone -------------------------------------------------------------------------- */

static void a_profile_is_recorded_by_rank_0(void **state) {
    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        char want[800];
        begin(4, 6);
        world.size = 4, world.rank = rank;
        t.cfg.profile = true;
        t.cfg.precision = BT_PREC_FP16;
        snprintf(
            want, sizeof want,
            "start\nfacts go on\nresumed 3 resumed after step 4 from '' on 4 ranks\ndata at 3\n"
            "observe from 3\nmeter\nphase\nfirst ramp\nbigram\nstep\nenergy\nprofile 1 of 2: "
            "5000\nafter\n"
            "phase\nramp\nbigram\nstep\nenergy\nprofile 2 of 2: 6000\nafter\n"
            "peak\nclose\nsum of %d\nreduce\n%sflush\nfinish\nshares of 6\n"
            "stopped 5 finished: 6 of 6 steps\nisland\nforget\nsum of 1\nreduce\n",
            BT_PHASE_COUNT,
            rank ? "" : "profile 5 row of gemm, 50 %\nprofile 5 row of other, 50 %\n");
        runs(want);
        /* the mean of ranks alike is that of one */
        for (int i = 0; i < BT_PHASE_COUNT; i++) assert_true(r.profile.processor_ms[i] == i);
        assert_true(r.profile.n == 2 && r.memory_mib == 40);
    }
}

static void the_result_has_all_fields(void **state) {
    (void)state;
    for (int fp16 = 0; fp16 < 2; fp16++) {
        begin(4, 5);
        world.size = 3;
        t.at.tokens = 900, t.at.updates = 3;
        t.telemetry.flop_token = 6e3, t.telemetry.peak_flops = 1e7, t.telemetry.last_loss = 1.5;
        t.evaluator = (bt_evaluator *)(void *)&object;
        t.validation = (bt_eval_result){.nats = 2.5, .bits_per_byte = 1.25};
        t.loss_scale = (bt_loss_scale){.on = fp16, .value = 64};
        strcpy(t.saver.path, "/out/step-5");
        memset(&r, 0x5a, sizeof r);
        assert_int_equal(bt_trainer_run(&t, &r, &err), BT_OK);
        bt_text_clear(&heard);
        assert_true(r.steps == 5 && r.tokens == 900 && r.loss == 1.5 && r.val_loss == 2.5 &&
                    r.val_bits_per_byte == 1.25);
        /* 100 tokens a step of half a second */
        assert_true(r.tokens_per_s == 200 && fabs(r.mfu - 200 * 6e3 / 1e7) < 1e-12);
        for (int m = 0; m < BT_MR_COUNT; m++)
            assert_true(r.step_ms[m] == (m == BT_MR_STEP_TIME ? 500 : m + 1));
        assert_true(r.step_ms_min == 400 && r.step_ms_max == 900);
        assert_true(r.flop_token == 6e3 && r.peak_flops == 1e7);
        assert_true(fp16 ? r.loss_scale == 64 : isnan(r.loss_scale));
        assert_true(r.skipped == 2 && r.memory_mib == 30 && r.params == 1234567 && !r.stopped);
        assert_string_equal(r.checkpoint, "/out/step-5");
        assert_string_equal(r.trouble, "");
        assert_int_equal(r.profile.n, 0);
    }
    begin(4, 5);
    world.fails = "reduce";
    assert_int_equal(bt_trainer_run(&t, &r, &err), BT_IO);
}

static void steps_alone_are_timed(void **state) {
    (void)state;
    double step_s = 0;
    begin(4, 20);
    assert_int_equal(bt_trainer_steps(&t, 2, &step_s, &err), BT_OK);
    heard_is("barrier\nobserve from 3\nmeter\n" FIRST STEP "flush\nmost of 1\nreduce\n");
    assert_true(t.at.step == 6 && t.first_step == 4);
    assert_true(step_s ==
                0.25 / 2 + 1); /* a quarter of a second; another rank's was a second more */
    static const char *const faults[] = {"barrier", "step", "reduce"};
    for (int i = 0; i < 3; i++) {
        begin(4, 20);
        world.fails = faults[i];
        assert_int_equal(bt_trainer_steps(&t, 2, &step_s, &err), BT_IO);
    }
}

int main(void) {
    bt_text_init(&heard);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_to_its_end),
        cmocka_unit_test(how_it_is_announced),
        cmocka_unit_test(what_ends_it_before),
        cmocka_unit_test(a_validation_belongs_to_the_end),
        cmocka_unit_test(trouble_keeps_the_states_in_memory),
        cmocka_unit_test(a_failure_is_told),
        cmocka_unit_test(a_profile_is_recorded_by_rank_0),
        cmocka_unit_test(the_result_has_all_fields),
        cmocka_unit_test(steps_alone_are_timed),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_text_release(&heard);
    return failed;
}

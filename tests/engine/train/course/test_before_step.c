/* test_before_step.c - what may change before a step: layers that become ternary, steps and sequences that grow,
 * attention that comes in; when, in which order, with which words, and what becomes of weights and of failures. The
 * parts are defined here. */
#include <stdlib.h>

#include "engine/config/tune_cfg.h"
#include "tests/engine/train/said.h"

#include "engine/train/trainer_impl.h"

enum { TENSORS = 3 };

static bt_trainer t;
static bt_err err;
static char things[3]; /* at which nobody looks */
static float weights[4], moment[2];
static bt_payload_tensor payload[TENSORS];
static bt_micro_schedule schedule;
static struct {
    const char *fails;
    int alone_fails, agreements; /* the how-manyth agreement another rank comes to with an error */
    bool dense;
    int64_t bigram_steps;
    size_t more;     /* elements that the new model has besides */
    bool plain_anew; /* of the new setup's tensors the last */
} world;

static bt_code done(const char *what, bt_err *e) {
    return said_or_fails(what, world.fails, BT_IO, e);
}
bt_code(bt_agree)(bt_comm *c, bt_code mine, bt_err *e) {
    assert_ptr_equal(c, t.mesh.world);
    said("agree%s", mine == BT_OK ? "" : ": failed");
    return ++world.agreements == world.alone_fails && mine == BT_OK
               ? bt_fail(e, BT_CHECK, "another rank fails")
               : mine;
}
void bt_guard_forget(bt_guard *g) { said(g == &t.guard ? "guard forgets" : "?"); }
bt_code bt_trainer_make_reducer(bt_trainer *x, bt_err *e) {
    assert_ptr_equal(x, &t);
    return done("reducer", e);
}

/* ---- phase */
size_t bt_ckpt_type_bytes(bt_ckpt_type type) { return type == BT_CKPT_BF16 ? 2 : 4; }
bool bt_run_cfg_dense(const bt_run_cfg *c, int64_t step) {
    assert_true(c == &t.cfg && step == t.at.step);
    return world.dense;
}
bt_code bt_saver_finish(bt_saver *s, bt_err *e) {
    assert_ptr_equal(s, &t.saver);
    return done("finish", e);
}
void bt_memory_saver_close(bt_memory_saver *m) { said(m == &t.memory ? "close states" : "?"); }
bt_code bt_memory_saver_open(bt_trainer *x, const char *dir, const bt_memory_id *from, bt_err *e) {
    assert_true(x == &t && strcmp(dir, "/m") == 0 && !from);
    return done("open states", e);
}
void bt_update_add_state(bt_update *u, bt_state *s) {
    assert_ptr_equal(u, &t.update);
    s->n = 2;
}
bt_code bt_state_slices(const bt_state *s, bt_state_use use, bt_slices *out, bt_err *e) {
    assert_true(s->n == 2 && use == BT_STATE_RESUME);
    out->at = calloc(2, sizeof *out->at);
    out->n = 2;
    out->at[0] = (bt_ckpt_slice){.data = weights, .count = 4 + world.more, .type = BT_CKPT_F32};
    out->at[1] = (bt_ckpt_slice){.data = moment, .count = 4, .type = BT_CKPT_BF16};
    return done("slices", e);
}
void bt_slices_release(bt_slices *l) {
    free(l->at);
    *l = (bt_slices){0};
}
void bt_trainer_release_compute(bt_trainer *x) {
    assert_ptr_equal(x, &t);
    memset(weights, 0, sizeof weights);
    memset(moment, 0, sizeof moment);
    memset(payload, 0, sizeof payload);
    said("release");
}
bt_code bt_trainer_build_compute(bt_trainer *x, bt_err *e) {
    assert_int_equal(x->now.linear, x->cfg.linear);
    payload[TENSORS - 1].plain = world.plain_anew;
    x->model = (bt_model *)(void *)&things[1];
    return done("build", e);
}
bt_code bt_trainer_build_observer(bt_trainer *x, bt_err *e) {
    assert_ptr_equal(x, &t);
    return done("observer", e);
}
bt_code bt_update_meet(bt_update *u, bt_err *e) {
    assert_ptr_equal(u, &t.update);
    return done("meet", e);
}
void bt_trainer_meet_teacher(bt_trainer *x) { said(x == &t ? "teacher" : "?"); }
bt_code bt_update_quantise(bt_update *u, bt_err *e) {
    assert_ptr_equal(u, &t.update);
    return done("quantise", e);
}
static bt_code tie(bt_micro_schedule *s, bt_model *m, bt_err *e) {
    assert_true(s == &schedule && m == t.model);
    return done("tie", e);
}
void bt_observer_begin(bt_observer *o, int64_t step) {
    assert_ptr_equal(o, t.observer);
    said("observe from %d", (int)step);
}

/* ---- ramp */
bt_code bt_loader_resize(bt_loader *l, const bt_loader_steps *s, bt_err *e) {
    assert_ptr_equal(l, t.loader);
    said("data at %d, origin %d: %d from %d of %d", (int)s->step, (int)s->origin, s->n_sequences,
         s->first_sequence, s->sequences_per_step);
    return done("data", e);
}
void bt_micro_plan_resize(bt_micro_plan *p, int64_t sequences, int64_t micro_batch) {
    assert_ptr_equal(p, &t.micro_plan);
    said("plan of %d by %d", (int)sequences, (int)micro_batch);
    p->sequences = sequences;
    p->micros = sequences / micro_batch;
    p->n = p->micros / 2, p->first = p->n;
}

/* ---- bigram */
bt_loader_cfg bt_trainer_loader_cfg(const bt_trainer *x) {
    return (bt_loader_cfg){.B = x == &t ? 7 : 0};
}
bt_code bt_followers_count(bt_followers *out, const bt_loader_cfg *c, bt_err *e) {
    assert_true(out == &t.followers && c->B == 7);
    out->at = (void *)things;
    return done("count", e);
}
void bt_followers_release(bt_followers *f) {
    f->at = NULL;
    said("forget followers");
}
void bt_model_shares(bt_model *m, bt_shares how) {
    assert_ptr_equal(m, t.model);
    said("shares %.9g%s%s", (double)how.weight, how.attention ? " with attention" : "",
         how.followers == &t.followers ? "" : ", of nothing");
}
bool bt_run_cfg_bigram(const bt_run_cfg *c, int64_t step) {
    return c == &t.cfg && step < world.bigram_steps;
}
void bt_telemetry_forget(bt_telemetry *x) {
    assert_ptr_equal(x, &t.telemetry);
    said("history forgets");
}
bt_model_counts bt_tune_count(const bt_run_cfg *c) {
    assert_ptr_equal(c, &t.cfg);
    return (bt_model_counts){.flop_token = 600, .flop_bigram = 400};
}

static void begin(void) {
    memset(&t, 0, sizeof t);
    memset(&world, 0, sizeof world);
    t.model = (bt_model *)(void *)&things[0];
    t.schedule = &schedule;
    schedule = (bt_micro_schedule){.tie = tie};
    t.memory_dir = "/m";
    t.at.step = 40;
    t.setup.params.n = TENSORS;
    t.setup.payload_tensors = payload;
    for (int i = 0; i < 4; i++) weights[i] = (float)(i + 1);
    moment[0] = 5, moment[1] = 6;
    for (int i = 0; i < TENSORS; i++) payload[i].plain = i == 1;
    err = (bt_err)BT_ERR_INIT;
    bt_text_clear(&heard);
}

/* ---- layers that become ternary -------------------------------------------------------------- */

#define TURN \
    "finish\nclose states\nslices\nagree\nrelease\nbuild\nobserver\nagree\nmeet\nslices\nagree\n" \
    "teacher\nreducer\nquantise\ntie\nopen states\nobserve from 39\nguard forgets\n"

static void layers_turn_when_dense_steps_are_done(void **state) {
    (void)state;
    begin(); /* nothing changes */
    t.cfg.linear = t.now.linear = BT_LIN_BITNET1;
    assert_int_equal(bt_trainer_phase(&t, &err), BT_OK);
    t.now.linear = BT_LIN_DENSE;
    world.dense = true; /* not yet */
    assert_int_equal(bt_trainer_phase(&t, &err), BT_OK);
    heard_is("");
    for (int binary = 0; binary < 2; binary++) {
        begin();
        t.cfg.linear = binary ? BT_LIN_BITNET1 : BT_LIN_BITNET158;
        t.now.linear = BT_LIN_DENSE;
        world.plain_anew = true;
        assert_int_equal(bt_trainer_phase(&t, &err), BT_OK);
        heard_is(binary ? TURN "ramp 39 from step 41 on linear layers are binary\n"
                        : TURN "ramp 39 from step 41 on linear layers are ternary\n");
        /* what was learned is there again; what was sent as fp32 stays so */
        for (int i = 0; i < 4; i++) assert_true(weights[i] == (float)(i + 1));
        assert_true(moment[0] == 5 && moment[1] == 6);
        assert_true(!payload[0].plain && payload[1].plain && payload[2].plain);
        assert_true(t.micro.model == t.model && t.model == (bt_model *)(void *)&things[1]);
    }
}

static void what_fails_at_the_turn_is_told(void **state) {
    (void)state;
    static const char *const parts[] = {"finish",  "slices",   "build", "observer",   "meet",
                                        "reducer", "quantise", "tie",   "open states"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char says[40];
        begin();
        t.cfg.linear = BT_LIN_BITNET158, t.now.linear = BT_LIN_DENSE;
        world.fails = parts[i];
        assert_int_equal(bt_trainer_phase(&t, &err), BT_IO);
        snprintf(says, sizeof says, "%s fails", parts[i]);
        assert_string_equal(err.msg, says);
        assert_null(strstr(bt_text_str(&heard), "guard forgets"));
        snprintf(says, sizeof says, "%s%s\n", parts[i],
                 i == 1 || i == 2 || i == 3 ? "\nagree: failed" : "");
        const size_t n = strlen(says);
        assert_string_equal(bt_text_str(&heard) + heard.len - n, says);
    }
    for (int k = 1; k <= 3; k++) {
        begin();
        t.cfg.linear = BT_LIN_BITNET158, t.now.linear = BT_LIN_DENSE;
        world.alone_fails = k;
        assert_int_equal(bt_trainer_phase(&t, &err), BT_CHECK);
        assert_string_equal(bt_text_str(&heard) + heard.len - 6, "agree\n");
    }
    bt_text_clear(&heard);
}

/* ---- steps and sequences that grow ----------------------------------------------------------- */

/* twice as many tokens from step 20 and 40 on, of 2048; sequences of 64 from step 10 on */
static void grow(void) {
    begin();
    t.cfg.batch_tokens = 2048, t.cfg.seq_len = 64, t.cfg.micro_batch = 2, t.cfg.ramp_steps = 80;
    strcpy(t.cfg.batch_ramp, "0.25,0.5");
    strcpy(t.cfg.seq_ramp, "0.125");
    assert_int_equal(bt_trainer_ramp_read(&t, &err), BT_OK);
    assert_true(t.step_tokens == 2048 && t.batch_ramp.n == 2 && t.seq_ramp.n == 1);
    assert_true(t.batch_ramp.at[0] == 20 && t.batch_ramp.at[1] == 40 && t.seq_ramp.at[0] == 10);
}

static void before(int64_t step, bool first, const char *want) {
    t.at.step = step;
    if (bt_trainer_ramp(&t, first, &err) != BT_OK) fail_msg("%s", err.msg);
    heard_is(want);
}

static void steps_and_sequences_grow(void **state) {
    (void)state;
    grow();
    t.at.step = 0;
    before(0, true,
           "plan of 8 by 2\ndata at 0, origin 0: 4 from 4 of 8\ndata\n"
           "ramp -1 from step 1 on a step has 512 tokens and attention sees stretches of "
           "32\n");
    assert_true(t.step_tokens == 512 && t.telemetry.step_tokens == 512 && t.micro.stretch == 32);
    assert_false(bt_trainer_full_size(&t));
    assert_int_equal(bt_trainer_first_sequence(&t), 0);
    before(9, false, "");
    before(10, false,
           "ramp 9 from step 11 on a step has 512 tokens and attention sees stretches of "
           "64\n");
    before(19, false, "");
    t.setup.units = 4; /* reproducible: other units */
    before(20, false,
           "plan of 16 by 2\nreducer\ndata at 20, origin -160: 8 from 8 of 16\ndata\n"
           "ramp 19 from step 21 on a step has 1024 tokens and attention sees stretches "
           "of 64\n");
    assert_int_equal(t.setup.units, 8);
    assert_int_equal(bt_trainer_first_sequence(&t), 160);
    assert_false(bt_trainer_full_size(&t));
    before(40, false,
           "plan of 32 by 2\nreducer\ndata at 40, origin -800: 16 from 16 of 32\ndata\n"
           "ramp 39 from step 41 on a step has 2048 tokens and attention sees stretches "
           "of 64\n");
    assert_true(bt_trainer_full_size(&t));
    t.micro.stretch = 32;
    assert_false(bt_trainer_full_size(&t));
    t.seq_ramp.n = 0; /* sequences are whole always */
    assert_true(bt_trainer_full_size(&t));
    before(50, true,
           "plan of 32 by 2\nreducer\ndata at 50, origin -800: 16 from 16 of 32\ndata\n"
           "ramp 49 from step 51 on a step has 2048 tokens and attention sees stretches "
           "of 64\n"); /* a resumed run */
    static const char *const parts[] = {"reducer", "data"};
    for (int i = 0; i < 2; i++) {
        grow();
        t.setup.units = 4;
        world.fails = parts[i];
        assert_int_equal(bt_trainer_ramp(&t, true, &err), BT_IO);
        assert_null(strstr(bt_text_str(&heard), "ramp"));
    }
    begin(); /* none grows */
    assert_int_equal(bt_trainer_ramp_read(&t, &err), BT_OK);
    assert_int_equal(bt_trainer_ramp(&t, true, &err), BT_OK);
    heard_is("");
    for (int i = 0; i < 2; i++) {
        begin();
        strcpy(i ? t.cfg.seq_ramp : t.cfg.batch_ramp, "x");
        assert_int_equal(bt_trainer_ramp_read(&t, &err), BT_ARG);
        assert_non_null(strstr(err.msg, i ? "train.seq_ramp" : "train.batch_ramp"));
    }
}

/* ---- without attention at first -------------------------------------------------------------- */

static void bigram(int64_t step, const char *want) {
    t.at.step = step;
    if (bt_trainer_bigram(&t, &err) != BT_OK) fail_msg("%s", err.msg);
    heard_is(want);
}

static void attention_comes_in(void **state) {
    (void)state;
    begin();
    bigram(0, ""); /* from the beginning */
    t.cfg.bigram_steps = world.bigram_steps = 4, t.cfg.share_steps = 3;
    bigram(0, "count\nagree\nramp -1 up to step 7 the head learns all that follows a token in the "
              "data\nramp -1 up to step 4 the model has no attention\nshares 1\n");
    assert_true(t.telemetry.flop_token == 400);
    bigram(3, "shares 1\n");
    bigram(4, "history forgets\nguard forgets\nramp 3 from step 5 on the model has attention\n"
              "shares 0.899999976 with attention\n");
    assert_true(t.telemetry.flop_token == 600);
    bigram(5, "shares 0.600000024 with attention\n");
    bigram(6, "shares 0.300000012 with attention\n");
    bigram(7, "shares 0, of nothing\nforget followers\n");
    bigram(8, "");
    begin(); /* a run that is resumed behind it, and one that fades alone */
    t.cfg.bigram_steps = world.bigram_steps = 4, t.cfg.share_steps = 3;
    bigram(5, "count\nagree\nramp 4 up to step 7 the head learns all that follows a token in the "
              "data\nshares 0.600000024 with attention\n");
    assert_true(t.telemetry.flop_token == 0);
    begin();
    t.cfg.share_steps = 2;
    bigram(0, "count\nagree\nramp -1 up to step 2 the head learns all that follows a token in the "
              "data\nshares 0.899999976 with attention\n");
    for (int alone = 0; alone < 2; alone++) {
        begin();
        t.at.step = 0;
        t.cfg.share_steps = 2;
        world.fails = alone ? NULL : "count";
        world.alone_fails = alone;
        assert_int_equal(bt_trainer_bigram(&t, &err), alone ? BT_CHECK : BT_IO);
        heard_is(alone ? "count\nagree\n" : "count\nagree: failed\n");
    }
}

int main(void) {
    bt_text_init(&heard);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_turn_when_dense_steps_are_done),
        cmocka_unit_test(what_fails_at_the_turn_is_told),
        cmocka_unit_test(steps_and_sequences_grow),
        cmocka_unit_test(attention_comes_in),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_text_release(&heard);
    return failed;
}

/* one_step.h - a trainer made by hand and all that one step of it uses, defined here: each function adds a line to a
 * text, can be made to fail, and looks at what it is given. So no model is trained and no rank is started. For one test
 * program. */
#ifndef BT_TESTS_ONE_STEP_H
#define BT_TESTS_ONE_STEP_H

#include <inttypes.h>
#include <math.h>

#include "engine/base/span.h"
#include "engine/base/testing/testing.h"
#include "engine/config/tune_cfg.h"
#include "engine/parallel/tp/tp_group_create.h"
#include "tests/engine/train/said.h"

#include "engine/train/parts/island/island_part.h"
#include "engine/train/trainer_impl.h"

enum { MICROS = 4, TENSORS = 3, ELEMS = 9, STEP = 5, UPDATES = 3 };

static bt_trainer t;
static bt_err err;
static bt_step_outcome o;
static bt_micro_schedule schedule;
static bt_tensor tensors[TENSORS];
static double losses[MICROS];
static float grads[ELEMS];
static int64_t shares[1];
static char island, pipe_object; /* objects at which nobody looks */

/* ---- in the place of the parts --------------------------------------------------------------- */

static struct {
    int rank;
    const char *fails, *poisoned; /* poisoned: name of a tensor */
    int64_t counted, counted_of_island, learned;
    bt_control asked;
    int64_t theirs[NOTE_COUNT]; /* the largest notes of the other ranks */
    double loss, norm, lambda;  /* loss: of each micro-batch */
    int64_t spent_ns;           /* in computing, so far */
    bool due, busy, good, steps_at_hub, leaves, fades;
} world;

static bt_code done(const char *what, bt_err *e) {
    return said_or_fails(what, world.fails, BT_IO, e);
}

int64_t bt_now_ns(void) { return 1; }
int bt_comm_rank(const bt_comm *c) {
    assert_ptr_equal(c, t.mesh.world);
    return world.rank;
}
void bt_span_begin(int phase) { said("[%s", bt_rank_metrics[phase].key); }
void bt_span_end(void) { said("]"); }
void bt_span_transfer(int to, int64_t ns) { said("%d to %s", (int)ns, bt_rank_metrics[to].key); }
/* what was computed is data, forward and backward passes, each of another length */
int64_t bt_span_ns(int phase) {
    return phase == BT_MR_DATA  ? 1000000000 + world.spent_ns
           : phase == BT_MR_FWD ? 2000000000 + 2 * world.spent_ns
           : phase == BT_MR_BWD ? 4000000000 + 4 * world.spent_ns
                                : 1 << 30;
}
void bt_meter_set(bt_meter *m, bt_rank_metric metric, double value) {
    assert_ptr_equal(m, &t.meter);
    said("%s=%g", bt_rank_metrics[metric].key, value);
}
void bt_meter_busy(bt_meter *m, int64_t ns) {
    assert_ptr_equal(m, &t.meter);
    said("busy for %d", (int)ns);
}
bt_code bt_telemetry_poll(bt_telemetry *of, bt_err *e) {
    assert_ptr_equal(of, &t.telemetry);
    return done("poll", e);
}
void bt_telemetry_event_of(const bt_telemetry *of, bt_event_kind kind, int rank, int64_t step,
                           const char *body, const char *title) {
    assert_true(of == &t.telemetry && !body);
    said("%s of %d %d %s", bt_events[kind].name, rank, (int)step, title);
}
bool bt_testing_nan(int rank, int64_t step, const char *tensor) {
    assert_true(rank == world.rank && step == t.at.step);
    return world.poisoned && strcmp(tensor, world.poisoned) == 0;
}
void bt_testing_hang(int rank, int64_t step) {
    assert_true(rank == world.rank && step == t.at.step);
    said("may hang");
}

/* ---- the model, its data and its weights */
const bt_params *bt_model_params(const bt_model *m) {
    static bt_params p;
    assert_ptr_equal(m, t.model);
    p.tensors = tensors, p.n = TENSORS;
    return &p;
}
float *bt_model_grads(bt_model *m) {
    assert_ptr_equal(m, t.model);
    return grads;
}
bt_score bt_model_take_score(bt_model *m) {
    assert_ptr_equal(m, t.model);
    said("take score");
    return (bt_score){.n = 2, .right = 1, .margin = 0.5};
}
static bool rounds_attention; /* only while passes are made */
void bt_model_round_attention(bt_model *m, bool on) {
    assert_true(m == t.model && on != rounds_attention);
    rounds_attention = on;
}
void bt_model_lambda(bt_model *m, double lambda) {
    assert_ptr_equal(m, t.model);
    said("lambda %g", lambda);
}
int64_t bt_loader_counted(const bt_loader *l, int64_t step) {
    assert_ptr_equal(l, t.loader);
    said("counted at %d", (int)step);
    return world.counted;
}
double *bt_micro_loss(const bt_micro *m, int64_t i) {
    assert_ptr_equal(m, &t.micro);
    return &losses[t.micro_plan.first + i];
}
bt_code bt_weights_begin(bt_weights *w, bt_passes walk, const int64_t *micros, int64_t each,
                         bt_err *e) {
    assert_true(w == t.update.weights && walk == BT_PASSES_FORWARD_BACKWARD && micros == shares);
    assert_int_equal(each, 0);
    return done("weights begin", e);
}
bt_code bt_weights_drain_sends(bt_weights *w, bt_err *e) {
    assert_ptr_equal(w, t.update.weights);
    return done("weights drain", e);
}
bt_code bt_weights_end(bt_weights *w, bt_err *e) {
    assert_ptr_equal(w, t.update.weights);
    return done("weights end", e);
}
static bt_code run(bt_micro_schedule *s, bt_micro *m, double scale, bt_err *e) {
    assert_true(s == &schedule && m == &t.micro && m->counted == 0 && rounds_attention);
    said("run step %d times %.9g", (int)m->step, scale);
    for (int i = 0; i < t.micro_plan.n; i++) losses[t.micro_plan.first + i] = world.loss * (i + 1);
    m->counted = world.learned;
    world.spent_ns += 1000000000;
    return done("passes", e);
}
static bt_code tie(bt_micro_schedule *s, bt_model *m, bt_err *e) {
    assert_true(s == &schedule && m == t.model);
    return done("tie", e);
}

/* ---- exchanges */
bt_code bt_all_reduce_f64(bt_comm *c, double *x, size_t n, bt_reduce_op op, bt_err *e) {
    assert_true(c == t.mesh.dp && op == BT_SUM);
    bt_text line;
    bt_text_init(&line);
    for (size_t i = 0; i < n; i++) bt_text_printf(&line, " %g", x[i]);
    said("sum of%s", bt_text_str(&line));
    bt_text_release(&line);
    if (n == MICROS)
        x[0] += 7; /* another rank's micro-batch */
    else
        for (size_t i = 0; i < n; i++) x[i] *= 2;
    return done(n == MICROS ? "losses" : "scores", e);
}
bt_code bt_pipe_sum(bt_pipe *p, double *x, size_t n, bt_err *e) {
    assert_true(p == schedule.pipe && n == 3);
    for (size_t i = 0; i < n; i++) x[i] += 1;
    return done("pipe's scores", e);
}
int64_t bt_pipe_take_busy_ns(bt_pipe *p) {
    assert_ptr_equal(p, schedule.pipe);
    return 30;
}
void bt_reducer_begin(bt_reducer *r) {
    assert_ptr_equal(r, t.reducer);
    said("reducer");
}
/* every rank gets the largest of each note */
bt_code bt_reducer_finish(bt_reducer *r, int64_t *notes, size_t n, bt_reduce_times *times,
                          bt_err *e) {
    bt_text line;
    assert_true(r == t.reducer && n == NOTE_COUNT && t.own_place.at == BT_AT_EXCHANGE &&
                t.own_place.step == t.at.step);
    bt_text_init(&line);
    for (size_t i = 0; i < n; i++) {
        bt_text_printf(&line, " %" PRId64, notes[i]);
        if (world.theirs[i] > notes[i]) notes[i] = world.theirs[i];
    }
    said("notes%s", bt_text_str(&line));
    bt_text_release(&line);
    *times = (bt_reduce_times){.busy_ns = 11, .wait_ns = 12, .exposed_ns = 13};
    return done("finish", e);
}
void bt_codec_choice_took(bt_codec_choice *c, const bt_reduce_times *took) {
    assert_true(c == &t.codec && took->busy_ns == 11 && took->wait_ns == 12 &&
                took->exposed_ns == 13);
    said("took");
}
void bt_trainer_codec_begin(bt_trainer *x) {
    assert_ptr_equal(x, &t);
    said("codec");
}
bt_code bt_trainer_codec_agree(bt_trainer *x, bt_err *e) {
    assert_ptr_equal(x, &t);
    return done("codec agrees", e);
}
bt_control bt_control_take(bt_request_box *box) {
    assert_ptr_equal(box, t.requests);
    return world.asked;
}
bool bt_saver_due(const bt_saver *s) { return s == &t.saver && world.due; }
bool bt_saver_busy(const bt_saver *s) { return s == &t.saver && world.busy; }
int64_t bt_memory_saver_wish(const bt_memory_saver *m, double step_s) {
    assert_ptr_equal(m, &t.memory);
    return (int64_t)(step_s * 40);
}
void bt_memory_saver_settle(bt_trainer *x) {
    assert_ptr_equal(x, &t);
    said("memory settles");
}
void bt_memory_saver_met(bt_trainer *x) { said("met, every %d", (int)x->memory.every); }

/* ---- the update */
void bt_update_zero_grads(bt_update *u) {
    assert_ptr_equal(u, &t.update);
    said("zero");
}
bt_code bt_update_norm(bt_update *u, double unscale, double *norm, bt_err *e) {
    assert_true(u == &t.update && t.own_place.at == BT_AT_OPTIMIZER &&
                t.own_place.step == t.at.step);
    said("unscaled by %g", unscale);
    *norm = world.norm;
    return done("norm", e);
}
bt_code bt_update_apply(bt_update *u, const bt_optim_update *how, bt_err *e) {
    assert_ptr_equal(u, &t.update);
    said("update %d held at %d: gradients times %.6g, lr %.6g, decay %.6g", (int)how->t,
         (int)how->held_at, (double)how->grad_scale, (double)how->lr, (double)how->decay);
    return done("apply", e);
}
int64_t bt_update_take_busy_ns(bt_update *u) {
    assert_ptr_equal(u, &t.update);
    return 10;
}
int64_t bt_tp_group_take_busy_ns(bt_tp_group *g) {
    assert_ptr_equal(g, t.update.tp_group);
    said("take tp");
    return 20;
}
double bt_schedule_lr(const bt_lr_schedule *s, int64_t step) {
    assert_ptr_equal(s, &t.lr);
    return 0.125 * (double)step;
}
double bt_schedule_decay(const bt_lr_schedule *s, int64_t step) {
    assert_ptr_equal(s, &t.lr);
    return 0.25 * (double)step;
}
void bt_residual_undo(bt_residual *r) {
    assert_ptr_equal(r, &t.residual);
    said("owed again");
}
bt_code bt_bad_step(bt_trainer *x, bt_step_outcome *out, bool *apply, bt_err *e) {
    assert_true(x == &t && out == &o && *apply);
    *apply = world.good;
    return done("judge", e);
}
void bt_guard_good(bt_guard *g, const bt_step_facts *f) {
    assert_ptr_equal(g, &t.guard);
    said("good: loss %g, norm %g, finite %d", f->loss, f->grad_norm, f->loss_finite);
}
void bt_guard_forget(bt_guard *g) {
    assert_ptr_equal(g, &t.guard);
    said("forget");
}
double bt_tune_lambda(const bt_run_cfg *c, int64_t step) {
    assert_true(c == &t.cfg && step == t.at.step);
    return world.lambda;
}
bool bt_tune_fades(const bt_run_cfg *c) { return c == &t.cfg && world.fades; }
void bt_replica_check_test_flip(const bt_replica_check *c, int64_t step) {
    assert_ptr_equal(c, &t.replica_check);
    said("may flip at %d", (int)step);
}

/* ---- the hub */
bt_code bt_trainer_island_data(bt_trainer *x, bt_err *e) {
    assert_ptr_equal(x, &t);
    return done("hub's data", e);
}
int64_t bt_trainer_island_counted(const bt_trainer *x) {
    assert_ptr_equal(x, &t);
    return world.counted_of_island;
}
bool bt_trainer_island_steps_at_hub(const bt_trainer *x) { return x == &t && world.steps_at_hub; }
bt_code bt_trainer_island_exchange(bt_trainer *x, bt_step_outcome *out, bool apply, bt_err *e) {
    assert_true(x == &t && out == &o);
    out->left = world.leaves;
    return done(apply ? "hub gets it" : "hub gets nothing", e);
}

/* ---- a trainer ------------------------------------------------------------------------------- */

/* the second and the third of four micro-batches are this rank's, of 16 tokens each */
static void begin(void) {
    memset(&t, 0, sizeof t);
    memset(&world, 0, sizeof world);
    memset(&o, 0x5a, sizeof o);
    memset(grads, 0, sizeof grads);
    for (int i = 0; i < MICROS; i++) losses[i] = 100;
    for (size_t k = 0; k < TENSORS; k++) {
        snprintf(tensors[k].name, sizeof tensors[k].name, "tensor %zu", k);
        tensors[k].offset = 4 * k;
    }
    t.at = (bt_progress){.step = STEP, .updates = UPDATES, .tokens = 500, .lr_factor = 0.5};
    t.micro_plan = (bt_micro_plan){.micros = MICROS, .first = 1, .n = 2, .shares = shares};
    t.micro.losses = losses;
    t.micro.rows = 16;
    t.place = &t.own_place;
    t.step_tokens = 64;
    t.step_s = 0.5;
    t.schedule = &schedule;
    schedule = (bt_micro_schedule){.run = run, .tie = tie};
    t.model = (bt_model *)(void *)&island;
    bt_loss_scale_init(&t.loss_scale, false, 0, 3);
    t.codec.held_at = 2;
    t.lambda = world.lambda = 0.75;
    t.grad_fingerprint = 77;
    world.theirs[NOTE_GRAD_FINGERPRINT_NEG] = -77;
    world.counted = -1;
    world.loss = 8;
    world.norm = 4;
    world.good = true;
    world.theirs[NOTE_MEMORY_EVERY] = 3;
    err = (bt_err)BT_ERR_INIT;
    bt_text_clear(&heard);
}

#define ACCUMULATE(scale, loss, counted) \
    "[bwd_ms\nweights begin\nzero\ntake score\ncodec\nreducer\n]\nrun step 5 times " scale \
    "\npasses\ntake score\nweights drain\nloss=" loss "\ncounted=" counted "\nmicro_batches=2\n"
#define EXCHANGE(notes) \
    "may hang\npoll\nmemory settles\n[other_ms\nnotes " notes \
    "\nfinish\n13 to comm_exposed_ms\n12 to wait_ms\n]\nbusy for 11\ntook\nweights end\ncodec " \
    "agrees\n"
#define MET "met, every 20\n"
#define NORM "[optim_ms\nunscaled by 1\nnorm\n]\n"
#define END "]\nbusy for 10\ntake tp\nbusy for 20\nmay flip at 6\n"
/* the bits of a loss of 0.75: (8 + 16) over 32 tokens; a step of half a second wishes for 20 */
#define NOTES "0 0 0 0 4604930618986332160 77 -77 20 0"
#define PLAIN \
    "take tp\ncounted at 5\n" ACCUMULATE("0.015625", "0.75", "nan") EXCHANGE(NOTES) MET NORM

static void step(const char *want) {
    if (bt_train_step(&t, &o, &err) != BT_OK) fail_msg("%s", err.msg);
    heard_is(want);
}

/* the parts of the accumulation and of the exchange alone */
static void gradients(const char *want) {
    o = (bt_step_outcome){0};
    if (bt_step_gradients(&t, &o, &err) != BT_OK) fail_msg("%s", err.msg);
    heard_is(want);
}

static int64_t bits_of(double x) {
    int64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static void no_score_but(double n, double right, double margin) {
    assert_true(o.score.n == n && o.score.right == right && o.score.margin == margin);
}

#endif

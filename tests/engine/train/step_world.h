/* step_world.h - a trainer made by hand and all that the actions after a step use, defined here: each function adds a
 * line to a text, can be made to fail, and looks at what it is given. So no model is trained and no rank is started.
 * For one test program each. */
#ifndef BT_TESTS_STEP_WORLD_H
#define BT_TESTS_STEP_WORLD_H

#include <math.h>
#include <stdio.h>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/span.h"
#include "engine/config/tune_cfg.h"
#include "tests/engine/train/said.h"
#include "tests/log_said.h"

#include "engine/train/trainer_impl.h"

struct bt_sample_text {
    const char *prompt, *text;
    bt_sample_text *next;
};

enum { RANKS = 3, WAITS = 4 };

static bt_trainer t;
static bt_step_outcome o;
static bt_micro_schedule schedule;
static int64_t shares[2 * 300];

/* ---- in the place of others ---------------------------------------------------------------------- */

static struct {
    const char *fails; /* the function that fails; NULL: none */
    int rank;
    double gain, other_ns; /* of the next plan; what another rank's comparison took */
    bt_eval_result result;
    bool best, pending, full_size, fades;
    int64_t bigram_steps, every;
    bt_replica_blame blame;
    int which; /* of the two that are suspected */
    bt_code prompt;
    const char *asked;
    int64_t waits[WAITS]; /* what is asked for, wait after wait, while it pauses */
    int waited;
    int64_t now_ns;
} world;

static bt_code done(const char *what, bt_err *err) {
    return world.fails && strcmp(world.fails, what) == 0
               ? bt_fail(err, BT_IO, "%s fails by 50 %%", what)
               : BT_OK;
}

/* where the rank says that it is */
static const char *place(void) {
    static const char *const names[BT_AT_COUNT] = {[BT_AT_CHECKPOINT] = "checkpoint",
                                                   [BT_AT_EVALUATION] = "evaluation",
                                                   [BT_AT_RECORD] = "record",
                                                   [BT_AT_PAUSE] = "pause"};
    static char text[40];
    const char *name = names[t.own_place.at];
    snprintf(text, sizeof text, "at %s %d", name ? name : "nowhere", (int)t.own_place.step);
    return text;
}

int64_t bt_now_ns(void) { return world.now_ns += 1000000; }
int bt_comm_rank(const bt_comm *c) {
    (void)c;
    return world.rank;
}
void bt_span_begin(int phase) {
    if (phase == BT_SPAN_EXCLUDED)
        said("[excluded");
    else
        said("[%s", bt_rank_metrics[phase].key);
}
void bt_span_end(void) { said("]"); }
bt_code bt_all_reduce_f64(bt_comm *c, double *x, size_t n, bt_reduce_op op, bt_err *err) {
    (void)c;
    assert_true(n == 2 && op == BT_MAX);
    said("longest %g, shortest %g", x[0], -x[1]);
    if (world.other_ns > x[0]) x[0] = world.other_ns;
    return done("all_reduce", err);
}
void bt_telemetry_event_of(const bt_telemetry *of, bt_event_kind kind, int rank, int64_t step,
                           const char *body, const char *title) {
    assert_ptr_equal(of, &t.telemetry);
    said("%s of %d %d %s %s", bt_events[kind].name, rank, (int)step, title, body);
}
bt_code bt_telemetry_flush(bt_telemetry *of, bt_err *err) {
    assert_ptr_equal(of, &t.telemetry);
    said("flush");
    return done("flush", err);
}
bt_code bt_telemetry_post(bt_telemetry *of, int64_t step, const double values[BT_MS_COUNT],
                          const double rank_values[BT_MR_COUNT], bt_err *err) {
    bt_text line;
    bt_text_init(&line);
    assert_ptr_equal(of, &t.telemetry);
    assert_ptr_equal(rank_values, o.rank_values);
    for (int i = 0; i < BT_MS_COUNT; i++)
        if (!isnan(values[i])) bt_text_printf(&line, " %s=%g", bt_step_metrics[i].key, values[i]);
    said("post %d%s %s", (int)step, bt_text_str(&line), place());
    bt_text_release(&line);
    return done("post", err);
}
void bt_profile_hold(bool hold) { said(hold ? "hold" : "go on"); }

bt_code bt_codec_choice_step(bt_trainer *x, const bt_step_outcome *of, bt_err *err) {
    assert_true(x == &t && of == &o);
    said("codec");
    return done("codec", err);
}
bt_code bt_codec_choice_sample(bt_trainer *x, const bt_step_outcome *of, const double **ratio,
                               const double **bits, bt_err *err) {
    static const double ratios[] = {0.5}, widths[] = {8};
    assert_true(x == &t && of == &o);
    *ratio = ratios;
    *bits = widths;
    said("codec's sample %s", place());
    return done("codec_sample", err);
}
bt_code bt_micro_plan_adjust(bt_micro_plan *p, double seconds, double *gain, bt_err *err) {
    assert_ptr_equal(p, &t.micro_plan);
    said("adjust %g", seconds);
    *gain = world.gain;
    return done("adjust", err);
}
bt_code bt_trainer_make_reducer(bt_trainer *x, bt_err *err) {
    assert_ptr_equal(x, &t);
    said("reducer");
    return done("reducer", err);
}
bt_code bt_loader_move(bt_loader *l, int64_t step, int first, int n, bt_err *err) {
    assert_ptr_equal(l, t.loader);
    said("move %d: %d from %d", (int)step, n, first);
    return done("move", err);
}
bt_code bt_observer_sample(bt_observer *of, const bt_sample_step *s, bt_err *err) {
    assert_ptr_equal(of, t.observer);
    said("observe %d applied %d unscale %g residual %g bits %g", (int)s->step, s->applied,
         s->unscale, s->residual_ratio[0], s->grad_bits[0]);
    return done("observe", err);
}
bool bt_tune_fades(const bt_run_cfg *c) { return c == &t.cfg && world.fades; }
bool bt_trainer_full_size(const bt_trainer *x) { return x == &t && world.full_size; }
bool bt_run_cfg_bigram(const bt_run_cfg *c, int64_t step) {
    return c == &t.cfg && step < world.bigram_steps;
}
void bt_prediction_check_step(bt_prediction_check *c, const bt_telemetry *of, int64_t step) {
    assert_true(c == &t.prediction && of == &t.telemetry);
    said("prediction %d", (int)step);
}
bt_code bt_memory_saver_write(bt_trainer *x, bt_err *err) {
    assert_ptr_equal(x, &t);
    said("memory");
    return done("memory", err);
}
bt_code bt_trainer_mixture_now(bt_trainer *x, bt_err *err) {
    assert_ptr_equal(x, &t);
    said("mixture");
    return done("mixture", err);
}

/* ---- evaluation and samples */
bt_code bt_weights_begin(bt_weights *w, bt_passes walk, const int64_t *micros, int64_t each,
                         bt_err *err) {
    assert_true(w == t.update.weights && walk == BT_PASSES_FORWARD && !micros);
    said("weights for %d %s", (int)each, place());
    return done("weights", err);
}
bt_code bt_weights_check(const bt_weights *w, bt_err *err) {
    (void)w;
    said("weights are checked");
    return done("check", err);
}
bt_code bt_weights_end(bt_weights *w, bt_err *err) {
    (void)w;
    said("weights end");
    return done("end", err);
}
int64_t bt_weights_take_busy_ns(bt_weights *w) {
    (void)w;
    said("forget weights");
    return 1;
}
int64_t bt_pipe_take_busy_ns(bt_pipe *p) {
    assert_ptr_equal(p, schedule.pipe);
    said("forget pipe");
    return 1;
}
int64_t bt_evaluator_micros(const bt_evaluator *e) {
    assert_ptr_equal(e, t.evaluator);
    return 7;
}
bt_code bt_evaluator_run(bt_evaluator *e, bt_model *m, bt_pipe *pipe, bt_eval_result *out,
                         bt_err *err) {
    assert_true(e == t.evaluator && m == t.model && pipe == schedule.pipe);
    *out = world.result;
    said("evaluate");
    return done("evaluate", err);
}
bt_code bt_sample_text_run(bt_sample_text *s, bt_model *m, bt_pipe *pipe, bt_weights *w,
                           bt_text *prompt, bt_text *text, bt_err *err) {
    assert_true(m == t.model && pipe == schedule.pipe && w == t.update.weights);
    bt_text_put(prompt, s->prompt);
    bt_text_put(text, s->text);
    said("write %s", place());
    return done("write", err);
}
bt_sample_text *bt_sample_text_next(const bt_sample_text *s) { return s->next; }
void bt_sample_text_destroy(bt_sample_text *s) {
    if (s) said("done with '%s'", s->prompt);
}
bt_code bt_sample_text_for_prompt(bt_sample_text **out, const bt_run_cfg *cfg, bt_comm *c,
                                  const char *prompt, bt_err *err) {
    static bt_sample_text asked;
    assert_true(cfg == &t.cfg && c == t.mesh.world);
    said("prompt '%s' %s", prompt ? prompt : "(none)", place());
    *out = NULL;
    if (world.prompt != BT_OK) return bt_fail(err, world.prompt, "it cannot be");
    asked = (bt_sample_text){.prompt = prompt ? prompt : "", .text = "and so on"};
    asked.prompt = "as asked";
    *out = &asked;
    return BT_OK;
}

/* ---- replicas */
bt_code bt_replica_check_run(bt_replica_check *c, int64_t step, bt_replica_blame *blame,
                             bt_err *err) {
    assert_ptr_equal(c, &t.replica_check);
    said("compare %d", (int)step);
    *blame = world.blame;
    return world.blame.found ? bt_fail(err, BT_DAMAGED, "they differ") : done("compare", err);
}
int64_t bt_replica_check_every(double cost_ns, double step_ns) {
    said("every: %g for %g", cost_ns, step_ns);
    return world.every;
}
void bt_suspect_write(const char *dir, const bt_mesh *mesh, const bt_suspect *s) {
    assert_true(dir == t.cfg.out && mesh == &t.mesh);
    assert_memory_equal(&s->blame, &world.blame, sizeof s->blame);
    said("suspect %d", (int)s->step);
}
bt_code bt_suspect_settle(const char *dir, bt_suspect *s, const bt_replica_check *c, int *which,
                          bt_err *err) {
    assert_true(dir == t.cfg.out && s == &t.suspect && c == &t.replica_check);
    said("settle");
    *which = world.which;
    memset(&s->blame, 0, sizeof s->blame);
    return done("settle", err);
}

/* ---- checkpoints */
bool bt_saver_validated(bt_saver *s, double loss) {
    assert_ptr_equal(s, &t.saver);
    said("validated %g", loss);
    return world.best;
}
bool bt_saver_pending(const bt_saver *s) { return s == &t.saver && world.pending; }
bt_code bt_saver_advance(bt_saver *s, bt_err *err) {
    assert_ptr_equal(s, &t.saver);
    said("advance");
    return done("advance", err);
}
bt_code bt_saver_finish(bt_saver *s, bt_err *err) {
    assert_ptr_equal(s, &t.saver);
    said("finish");
    return done("finish", err);
}
bt_code bt_saver_save(bt_saver *s, bool best, bool wait, bt_err *err) {
    assert_ptr_equal(s, &t.saver);
    said("save%s%s %s", best ? " best" : "", wait ? " wait" : "", place());
    return done("save", err);
}
void bt_saver_check(bt_saver *s, bool idle) {
    assert_ptr_equal(s, &t.saver);
    said(idle ? "verify, idle" : "verify");
}

/* ---- requests */
char *bt_control_take_prompt(bt_request_box *box) {
    assert_ptr_equal(box, t.requests);
    return world.asked ? strdup(world.asked) : NULL;
}
double bt_control_lr_factor(const bt_control *c) { return (double)c->lr_bits / 8; }
bt_code bt_control_wait(bt_comm *c, bt_request_box *box, const bt_control_idle *idle,
                        bt_control *out, bt_err *err) {
    assert_true(c == t.mesh.world && box == t.requests);
    said("wait %s", place());
    idle->work(idle->ctx);
    world.now_ns += 1000000000;
    assert_true(world.waited < WAITS);
    *out = (bt_control){.verbs = world.waits[world.waited++], .lr_bits = 3};
    return done("wait", err);
}

/* ---- a trainer ------------------------------------------------------------------------------------ */

/* step 5 of 20 was applied, and nothing but its record is due */
static inline void begin(void) {
    memset(&t, 0, sizeof t);
    memset(&world, 0, sizeof world);
    memset(shares, 0, sizeof shares);
    t.at.step = 5;
    t.at.tokens = 640;
    t.cfg.steps = 20;
    t.cfg.log_every = 1;
    t.codec.ladder.n = 1;
    t.setup.dp = 1;
    t.suspect.step = t.checked_step = -1;
    t.lambda = 1;
    t.schedule = &schedule;
    schedule.pipe = NULL;
    t.place = &t.own_place;
    t.validation.nats = NAN;
    t.micro_plan.shares = shares;
    world.full_size = true;
    world.result = (bt_eval_result){.nats = 1.5,
                                    .bits_per_byte = 0.75,
                                    .tokens = 64,
                                    .accuracy = NAN,
                                    .margin = NAN,
                                    .macro_f1 = NAN};
    world.which = -1;
    o = (bt_step_outcome){.applied = true,
                          .counted = 128,
                          .global_loss = 2.5,
                          .grad_norm = 0.5,
                          .lr = 0.001,
                          .weight_decay = 0.1,
                          .loss_scale = 4,
                          .lambda = 0.25};
    bt_text_clear(&heard);
}

/* a pointer of some type becomes that of an object at which nobody looks */
static inline void fill(void *pointer) { memcpy(pointer, &(void *){&t}, sizeof(void *)); }

static inline bt_code follow(bt_err *err) {
    *err = (bt_err)BT_ERR_INIT;
    return bt_after_step(&t, &o, err);
}

/* and what is heard */
static inline void follows(const char *want) {
    bt_err err;
    if (follow(&err) != BT_OK) fail_msg("%s", err.msg);
    heard_is(want);
}

#define RECORD(before, skipped) \
    "tokens=640 loss=2.5 counted=128 " before \
    "grad_norm=0.5 lr=0.001 weight_decay=0.1 loss_scale=4 skipped=" skipped

#endif

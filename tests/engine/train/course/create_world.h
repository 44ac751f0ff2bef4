/* create_world.h - all that the making of a trainer uses, defined here: each function adds a line to a
 * text, can be made to fail, and looks at what it is given. So no model is made and no rank is
 * started. For one test program each. */
#ifndef BT_TESTS_CREATE_WORLD_H
#define BT_TESTS_CREATE_WORLD_H

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/testing/testing.h"
#include "engine/ckpt/ckpt.h"
#include "engine/config/tune_cfg.h"
#include "engine/interop/init_from.h"
#include "engine/kernels/table/kernels.h"
#include "engine/parallel/tp/tp_group_create.h"
#include "engine/plan/memory.h"
#include "engine/train/data/run_data.h"
#include "engine/train/measured.h"
#include "engine/train/parts/island/island_part.h"
#include "engine/train/trainer_impl.h"
#include "engine/tune/adapters_read.h"
#include "tests/heard.h"
#include "tests/log_said.h"

/* objects at which nobody looks */
typedef enum {
    WORLD,
    HOST,
    DP,
    TP,
    GROUP,
    MODEL,
    SCHEDULE,
    REDUCER,
    OBSERVER,
    LOADER,
    EVALUATOR,
    SAMPLE,
    LOGITS,
    ADAPTERS,
    ISLAND,
    FORM_CODEC,
    THINGS
} thing;
static char things[THINGS];
#define THE(type, which) ((type *)(void *)&things[which])

static bt_trainer *t; /* the one that is made */
static bt_err err;
static bt_run_cfg cfg;

/* a part of it; NULL before it is known */
#define THEIR(part) (t ? &t->part : NULL)

enum { ELEMS = 12, PLANNED = 3 }; /* PLANNED: the agreement about memory, which is asked of twice */

static struct {
    int rank, size, dp_size, here_size, here_rank;
    const char *fails;
    int alone_fails; /* the how-manyth agreement is one to which another rank comes with an error; 0: none */
    int agreements;
    bool dense, base, stale, room_for_memory, room_for_copy, room, shared;
    size_t base_bytes;
    const char *isa;
    const char *told; /* by whoever reads a model file */
    bt_teacher teacher;
    bt_memory_id from;
    bt_tensor tensors[3];
    bt_params params;
    float weights[ELEMS], grads[ELEMS];
    int64_t good;
    double scale;
    bt_state_row loss_scale; /* the row of this name */
    bt_progress resumed;
} world;

static bt_code done(const char *what, bt_err *e) {
    return said_or_fails(what, world.fails, BT_IO, e);
}

int64_t bt_now_ns(void) { return 1; }
const char *bt_kernels_isa(void) { return world.isa; }
const char *bt_testing_powercap(void) { return "/powercap"; }

/* ---- ranks */
bt_comm *bt_comm_world(void) { return THE(bt_comm, WORLD); }
int bt_comm_rank(const bt_comm *c) {
    return c == THE(bt_comm, HOST) ? world.here_rank : world.rank;
}
int bt_comm_size(const bt_comm *c) {
    return c == THE(bt_comm, HOST) ? world.here_size
           : c == THE(bt_comm, DP) ? world.dp_size
                                   : world.size;
}
int bt_comm_local_size(void) { return 5; }
int bt_comm_host(int rank) { return 40 + rank; }
bt_code bt_comm_split(bt_comm **out, bt_comm *parent, int color, int key, bt_err *e) {
    assert_ptr_equal(parent, THE(bt_comm, DP));
    said("split by %d as %d", color, key);
    *out = THE(bt_comm, HOST);
    return done("split", e);
}
void bt_comm_free(bt_comm *c) { said(c == THE(bt_comm, HOST) ? "free" : "free nothing"); }
/* another rank's error is told to this one, and its own holds */
bt_code(bt_agree)(bt_comm *c, bt_code mine, bt_err *e) {
    assert_true(c == THE(bt_comm, WORLD) || c == THE(bt_comm, HOST));
    said("agree%s%s", c == THE(bt_comm, HOST) ? " here" : "", mine == BT_OK ? "" : ": failed");
    const int n = ++world.agreements, k = world.alone_fails;
    if (mine == BT_OK && k && (n == k || (k == PLANNED && n == k + 1)))
        return bt_fail(e, BT_CHECK, "another rank fails");
    return mine;
}
bt_code bt_agree_value(bt_comm *c, const char *what, const char *value, bt_err *e) {
    assert_ptr_equal(c, THE(bt_comm, WORLD));
    said("same %s: %s", what, value);
    return done(what, e);
}
void bt_run_cfg_mesh(const bt_run_cfg *c, bt_mesh_shape *out) {
    t = (bt_trainer *)((uintptr_t)c - offsetof(bt_trainer, cfg));
    *out = (bt_mesh_shape){.pp = 1, .dp_replicate = 0, .dp_shard = 1, .tp = (int)c->tp};
}
bt_code bt_mesh_resolve(bt_mesh_shape *s, int size, bt_err *e) {
    assert_int_equal(size, world.size);
    s->dp_replicate = size / s->tp;
    return done("resolve", e);
}
bt_code bt_mesh_create(bt_mesh *m, const bt_mesh_shape *s, bt_comm *c, bt_err *e) {
    assert_ptr_equal(m, &t->mesh);
    *m = (bt_mesh){.shape = *s, .world = c, .dp = THE(bt_comm, DP), .tp = THE(bt_comm, TP)};
    said("mesh of %d x %d", s->dp_replicate, s->tp);
    return done("mesh", e);
}
void bt_mesh_release(bt_mesh *m) { said(m == THEIR(mesh) ? "release mesh" : "?"); }
bt_code bt_tp_group_create(bt_tp_group **out, bt_comm *tp, size_t rows, size_t cols, bt_err *e) {
    assert_ptr_equal(tp, THE(bt_comm, TP));
    said("group of %zu x %zu", rows, cols);
    *out = THE(bt_tp_group, GROUP);
    return done("group", e);
}
bt_code bt_tp_group_solo(bt_tp_group **out, size_t rows, size_t cols, bt_err *e) {
    said("solo of %zu x %zu", rows, cols);
    *out = THE(bt_tp_group, GROUP);
    return done("solo", e);
}
void bt_tp_group_destroy(bt_tp_group *g) { said(g ? "destroy group" : "no group"); }
bt_code bt_host_memory_create(bt_host_memory *m, bt_comm *c, size_t bytes, const char *name,
                              bt_err *e) {
    assert_true(m == &t->base_memory && c == THE(bt_comm, HOST));
    said("share %zu of %s", bytes, name);
    if (world.shared) m->at = (unsigned char *)things;
    return done("share", e);
}
void bt_host_memory_release(bt_host_memory *m) { m->at = NULL; }

/* ---- settings and plans */
bool bt_run_cfg_dense(const bt_run_cfg *c, int64_t step) {
    assert_true(c->seq_len == cfg.seq_len && step == 0);
    return world.dense;
}
void bt_run_cfg_make_dense(bt_run_cfg *c) { c->linear = 1; }
bt_lr_schedule bt_run_cfg_lr_schedule(const bt_run_cfg *c) {
    return (bt_lr_schedule){.lr = (double)c->seed};
}
double bt_tune_lambda(const bt_run_cfg *c, int64_t step) {
    assert_int_equal(c->seq_len, cfg.seq_len);
    return 0.25 + (double)step;
}
size_t bt_tune_widest(const bt_run_cfg *c) { return (size_t)c->seq_len * 3; }
bt_model_counts bt_tune_count(const bt_run_cfg *c) {
    return (bt_model_counts){.flop_token = 2.0 * (double)c->seq_len};
}
bt_dpo bt_tune_dpo(const bt_run_cfg *c) { return (bt_dpo){.beta = (double)c->seq_len}; }
void bt_memory_room_of(bt_memory_room *room) { *room = (bt_memory_room){.process = 123}; }
bt_code bt_memory_check(const bt_run_cfg *c, int rank, int local, const bt_memory_room *room,
                        bt_err *e) {
    assert_true(rank == world.rank && local == 5 && room->process == 123);
    assert_true(c == &t->cfg || c == &t->now);
    const bool memory = c->ckpt_memory == BT_CKPT_MEMORY_AUTO;
    said("fits%s%s%s", c == &t->now ? " now" : "", memory ? " with states in memory" : "",
         c->ckpt_async ? " and a copy" : "");
    if (world.fails && strcmp(world.fails, "fits") == 0) return bt_fail(e, BT_ARG, "fits fails");
    if (memory && !world.room_for_memory) return bt_fail(e, BT_NOMEM, "no 100 %% room for states");
    if (c->ckpt_async && !world.room_for_copy) return bt_fail(e, BT_NOMEM, "no room for a copy");
    return world.room ? BT_OK : bt_fail(e, BT_NOMEM, "no room");
}
bt_code bt_rank_setup_init(bt_rank_setup *s, const bt_run_cfg *c, int rank, bt_err *e) {
    assert_true(c == &t->now && rank == world.rank);
    *s = (bt_rank_setup){.cfg = c, .units = 6, .n_chunks = 2};
    s->params.total = ELEMS;
    s->chunks = (bt_range *)(void *)things;
    s->model.pairs = c->form == BT_FORMED_PREFERENCE;
    return done(s == &t->setup ? "setup" : "setup for the base", e);
}
void bt_rank_setup_release(bt_rank_setup *s) {
    said(s == &t->setup ? "release setup" : "release setup for the base");
}
size_t bt_model_base_bytes(const bt_model_setup *s) { return s ? world.base_bytes : 0; }
bt_code bt_trainer_ramp_read(bt_trainer *x, bt_err *e) {
    assert_ptr_equal(x, t);
    return done("ramp", e);
}
bt_code bt_micro_plan_create(bt_micro_plan *p, const bt_run_cfg *c, const bt_mesh *m, bt_err *e) {
    assert_true(p == &t->micro_plan && c == &t->cfg && m == &t->mesh);
    *p = (bt_micro_plan){.sequences = 24, .micros = 6, .first = 2, .n = 3};
    p->shares = (int64_t *)(void *)things;
    return done("plan", e);
}
void bt_micro_plan_release(bt_micro_plan *p) { said(p->shares ? "release plan" : "no plan"); }

/* ---- the model and what works on it */
bt_code bt_model_create(bt_model **out, const bt_model_setup *s, bt_err *e) {
    said("model%s%s%s", s->tp_group ? " of a group" : "", s->base_memory ? ", its base shared" : "",
         s->base_elsewhere ? " by another rank" : "");
    *out = THE(bt_model, MODEL);
    return done("model", e);
}
void bt_model_destroy(bt_model *m) { said(m ? "destroy model" : "no model"); }
void bt_model_dpo(bt_model *m, bt_dpo how) {
    assert_ptr_equal(m, THE(bt_model, MODEL));
    said("beta %g", how.beta);
}
void bt_model_distil(bt_model *m, bt_distil how) {
    assert_ptr_equal(m, THE(bt_model, MODEL));
    said("learn %d of a teacher", how.k);
}
const bt_params *bt_model_params(const bt_model *m) { return m ? &world.params : NULL; }
const bt_params *bt_model_base(const bt_model *m) {
    assert_ptr_equal(m, THE(bt_model, MODEL));
    return world.base ? &world.params : NULL;
}
const bt_model_cfg *bt_model_config(const bt_model *m) {
    assert_ptr_equal(m, THE(bt_model, MODEL));
    return &t->setup.model.cfg;
}
float *bt_model_weights(bt_model *m) { return m ? world.weights : NULL; }
float *bt_model_grads(bt_model *m) { return m ? world.grads : NULL; }
static bt_code tie(bt_micro_schedule *s, bt_model *m, bt_err *e) {
    assert_true(s == t->schedule && m == t->model);
    return done("tie", e);
}
static bt_micro_schedule schedule = {.tie = tie};
bt_code bt_micro_schedule_create(bt_micro_schedule **out, const bt_model_setup *s, const bt_mesh *m,
                                 bt_err *e) {
    assert_true(m == &t->mesh && s->tp_group == t->tp_group);
    *out = &schedule;
    return done("schedule", e);
}
void bt_micro_schedule_destroy(bt_micro_schedule *s) {
    said(s ? "destroy schedule" : "no schedule");
}
bt_code bt_update_create(bt_update *u, const bt_update_cfg *c, bt_err *e) {
    assert_true(u == &t->update && c->setup == &t->setup && c->model == t->model &&
                c->mesh == &t->mesh && c->tp_group == t->tp_group);
    return done("update", e);
}
bt_code bt_update_meet(bt_update *u, bt_err *e) {
    assert_ptr_equal(u, &t->update);
    return done("meet", e);
}
void bt_update_release(bt_update *u) { said(u == THEIR(update) ? "release update" : "?"); }
void bt_update_init_weights(bt_update *u, uint64_t seed) {
    assert_ptr_equal(u, &t->update);
    said("weights of seed %d", (int)seed);
}
bt_code bt_update_quantise(bt_update *u, bt_err *e) {
    assert_ptr_equal(u, &t->update);
    return done("quantise", e);
}
bt_code bt_replica_check_init(bt_replica_check *c, const bt_update *u, bt_err *e) {
    assert_true(c == &t->replica_check && u == &t->update);
    return done("check", e);
}
void bt_replica_check_release(bt_replica_check *c) {
    said(c == THEIR(replica_check) ? "release check" : "?");
}
bt_code bt_trainer_codec_create(bt_trainer *x, bt_err *e) {
    assert_ptr_equal(x, t);
    return done("codec", e);
}
void bt_trainer_codec_release(bt_trainer *x) { said(x == t ? "release codec" : "?"); }
bool bt_trainer_codec_stale(const bt_trainer *x) { return x == t && world.stale; }
bt_payload_form bt_trainer_codec_form(bt_trainer *x) {
    assert_ptr_equal(x, t);
    return (bt_payload_form){.codec = THE(bt_codec, FORM_CODEC)};
}
bt_code bt_micro_create(bt_micro *m, int64_t micros, bt_err *e) {
    assert_ptr_equal(m, &t->micro);
    said("micro: %d of %d tokens in sequences of %d, stretch %d, seed %d%s", (int)micros,
         (int)m->rows, (int)m->seq_len, (int)m->stretch, (int)m->seed,
         m->reproducible ? ", reproducible" : "");
    assert_true(m->model == t->model && m->update == &t->update && m->telemetry == &t->telemetry &&
                m->place == t->place && m->plan == &t->micro_plan);
    return done("micro", e);
}
void bt_micro_release(bt_micro *m) { said(m == THEIR(micro) ? "release micro" : "?"); }
bt_code bt_telemetry_init(bt_telemetry *x, bt_comm *c, const bt_sink *sink, bt_err *e) {
    assert_true(x == &t->telemetry && c == THE(bt_comm, WORLD));
    said("telemetry %s", sink ? "to a sink" : "to nobody");
    return done("telemetry", e);
}
void bt_telemetry_release(bt_telemetry *x) {
    said(x == THEIR(telemetry) ? "release telemetry" : "?");
}
bt_code bt_observer_create(bt_observer **out, const bt_observer_cfg *c, bt_err *e) {
    assert_true(c->setup == &t->setup && c->mesh == &t->mesh && c->model == t->model &&
                c->update == &t->update && c->telemetry == &t->telemetry);
    *out = THE(bt_observer, OBSERVER);
    return done("observer", e);
}
void bt_observer_destroy(bt_observer *o) { said(o ? "destroy observer" : "no observer"); }
bt_code bt_reducer_create(bt_reducer **out, const bt_reducer_cfg *c, bt_err *e) {
    assert_true(c->mesh == &t->mesh && c->grads == world.grads && c->n == ELEMS);
    assert_ptr_equal(c->form.codec, THE(bt_codec, FORM_CODEC));
    assert_true(c->state == t->residual.owed && c->shards == &t->update.shards && c->units == 6);
    assert_true(c->shares == t->micro_plan.shares && c->lanes == t->setup.chunks);
    assert_int_equal(c->n_lanes, 2);
    said("reducer of %zu bytes%s%s%s", c->bucket_bytes, c->overlap ? ", overlapped" : "",
         c->discard ? ", others discarded" : "", c->rounding == &t->rounding ? ", rounded" : "");
    *out = THE(bt_reducer, REDUCER);
    return done("reducer", e);
}
void bt_reducer_destroy(bt_reducer *r) { said(r ? "destroy reducer" : "no reducer"); }

/* ---- data */
bt_loader_cfg bt_run_data(const bt_run_cfg *c) {
    return (bt_loader_cfg){.seed = (uint64_t)c->seed};
}
bt_code bt_loader_open(bt_loader **out, const bt_loader_cfg *c, bt_err *e) {
    said("data of seed %d at %d: %d from %d of %d", (int)c->seed, (int)c->first_step,
         c->n_sequences, c->first_sequence, c->sequences_per_step);
    *out = THE(bt_loader, LOADER);
    return done("data", e);
}
void bt_loader_close(bt_loader *l) { said(l ? "close data" : "no data"); }
uint64_t bt_loader_hash(const bt_loader *l) { return l ? 0xabc : 0; }
bt_code bt_evaluator_open(bt_evaluator **out, const bt_loader_cfg *c, int64_t tokens, bt_comm *dp,
                          bt_err *e) {
    assert_ptr_equal(dp, THE(bt_comm, DP));
    said("validation of %d: %d from %d", (int)tokens, c->n_sequences, c->first_sequence);
    *out = THE(bt_evaluator, EVALUATOR);
    return done("validation", e);
}
void bt_evaluator_close(bt_evaluator *v) { said(v ? "close validation" : "no validation"); }
uint64_t bt_evaluator_hash(const bt_evaluator *v) { return v ? 0xdef0000000000001 : 0; }
const int32_t *bt_evaluator_tokens(const bt_evaluator *v, size_t *n) {
    assert_ptr_equal(v, THE(bt_evaluator, EVALUATOR));
    *n = 9;
    return (const int32_t *)(void *)things;
}
bt_code bt_sample_text_create(bt_sample_text **out, const bt_run_cfg *c, bt_comm *w,
                              const int32_t *beginning, size_t n, bt_err *e) {
    assert_true(c == &t->cfg && w == THE(bt_comm, WORLD) && n == 9);
    assert_ptr_equal(beginning, things);
    *out = THE(bt_sample_text, SAMPLE);
    return done("sample", e);
}
void bt_sample_text_destroy(bt_sample_text *s) { said(s ? "destroy sample" : "no sample"); }
void bt_followers_release(bt_followers *f) {
    said(f == THEIR(followers) ? "release followers" : "?");
}

/* ---- measuring */
bool bt_predicted_read(const char *text, bt_predicted *out) {
    assert_ptr_equal(out, &t->prediction.predicted);
    said("predicted '%s'", text);
    return true;
}
bool bt_energy_open(bt_energy *x, const char *root, char *why, size_t size) {
    assert_true(x == &t->energy && size == BT_ENERGY_WHY);
    why[0] = 0;
    said("energy of %s", root);
    return true;
}
void bt_energy_close(bt_energy *x) { said(x == THEIR(energy) ? "close energy" : "?"); }
bt_code bt_trainer_measure(bt_trainer *x, const char *dir, bool peak, bt_err *e) {
    assert_ptr_equal(x, t);
    said("measure in %s%s", dir ? dir : "(nothing)", peak ? " with the peak" : "");
    return done("measure", e);
}

/* ---- state */
void bt_state_add(bt_state *s, const bt_state_row *row) {
    assert_true(s == &t->saver.state && !row->slices);
    world.loss_scale = *row;
    said("row %s", row->name);
}
int64_t bt_state_int(const bt_state_values *v, const char *key, int64_t otherwise) {
    assert_null(v);
    assert_true(strcmp(key, "good") == 0 && otherwise == -1);
    return world.good;
}
double bt_state_real(const bt_state_values *v, const char *key, double otherwise) {
    assert_null(v);
    assert_true(strcmp(key, "value") == 0 && otherwise == 0);
    return world.scale;
}
bt_code bt_state_slices(const bt_state *s, bt_state_use use, bt_slices *out, bt_err *e) {
    assert_true(s == &t->saver.state && use == BT_STATE_WEIGHTS);
    out->n = 7;
    return done("slices", e);
}
void bt_slices_release(bt_slices *l) { said("release %zu slices", l->n); }
uint64_t bt_params_hash(const bt_params *p) { return p == &t->setup.params ? 77 : 0; }
void bt_saver_init(bt_saver *s) {
    assert_true(s == &t->saver && s->cfg == &t->cfg && s->world == THE(bt_comm, WORLD));
    assert_true(s->telemetry == &t->telemetry && s->at == &t->at && s->params_hash == 77 &&
                s->data_hash == 0xabc);
    said("saver");
}
void bt_saver_release(bt_saver *s) { said(s == THEIR(saver) ? "release saver" : "?"); }
void bt_update_add_state(bt_update *u, bt_state *s) {
    assert_true(u == &t->update && s == &t->saver.state);
    said("row update");
}
void bt_trainer_codec_state(bt_trainer *x, bt_state *s) {
    assert_true(x == t && s == &t->saver.state);
    said("row codec");
}
void bt_guard_add_state(bt_guard *g, bt_state *s) {
    assert_true(g == &t->guard && s == &t->saver.state);
    said("row guard");
}
void bt_skipped_add_state(bt_skipped *k, bt_state *s) {
    assert_true(k == &t->skipped && s == &t->saver.state);
    said("row skipped");
}
void bt_skipped_release(bt_skipped *k) { said(k == THEIR(skipped) ? "release skipped" : "?"); }
void bt_base_weights_add_state(bt_base_weights *b, bt_state *s) {
    assert_true(b == &t->base && s == &t->saver.state);
    said("row base");
}
void bt_trainer_data_state(bt_trainer *x, bt_state *s) {
    assert_true(x == t && s == &t->saver.state);
    said("row data");
}

/* ---- weights to begin with */
bt_code bt_ckpt_begin(const char *dir, int attempt, bt_err *e) {
    said("fence %s for %d", dir, attempt);
    return done("fence", e);
}
bt_code bt_base_weights_load(bt_base_weights *b, bt_model *m, const char *path, bt_text *told,
                             bt_err *e) {
    assert_true(b == &t->base && m == t->model);
    bt_text_put(told, world.told);
    b->hash = 5150;
    said("base %s", path);
    return done("base", e);
}
bt_code bt_base_weights_check(const bt_base_weights *b, const char *path, bt_err *e) {
    assert_ptr_equal(b, &t->base);
    said("trained beside '%s'", path);
    return done("trained beside", e);
}
bt_code bt_teacher_find(bt_teacher *x, const bt_run_cfg *c, const bt_model_setup *student,
                        bt_comm *w, bt_text *told, bt_err *e) {
    assert_true(x == &t->teacher && c == &t->cfg && w == THE(bt_comm, WORLD));
    assert_ptr_equal(student->tp_group, t->tp_group);
    bt_text_put(told, world.told);
    *x = world.teacher;
    return done("teacher", e);
}
bt_distil bt_teacher_distil(const bt_teacher *x, const bt_run_cfg *c) {
    assert_true(x == &t->teacher && c == &t->cfg);
    return (bt_distil){.k = 8};
}
bt_code bt_logit_file_batch(void *file, const bt_batch *b, bt_err *e) {
    (void)file, (void)b, (void)e;
    return BT_OK;
}
void bt_teacher_release(bt_teacher *x) { said(x == THEIR(teacher) ? "release teacher" : "?"); }
bt_code bt_adapters_open(bt_model_file **out, const char *path, const bt_model_cfg *model,
                         const bt_adapter_base *base, bt_err *e) {
    assert_ptr_equal(model, &t->setup.model.cfg);
    said("adapters %s beside %d", path, (int)base->hash);
    *out = THE(bt_model_file, ADAPTERS);
    return done("adapters", e);
}
bt_code bt_init_from_fill(bt_model_file *s, const bt_ckpt_slice *slices, size_t n, bt_err *e) {
    assert_true(s == THE(bt_model_file, ADAPTERS) && !slices && n == 7);
    return done("fill", e);
}
void bt_model_file_close(bt_model_file *s) { said(s ? "close adapters" : "no adapters"); }
bt_code bt_saver_resume(bt_saver *s, const char *dir, bt_err *e) {
    assert_ptr_equal(s, &t->saver);
    t->at = world.resumed;
    said("resume %s", dir);
    return done("resume", e);
}
bt_code bt_saver_resume_memory(bt_saver *s, const char *dir, bt_memory_id *id, bt_err *e) {
    assert_ptr_equal(s, &t->saver);
    t->at = world.resumed;
    *id = world.from;
    said("resume from memory %s", dir);
    return done("resume from memory", e);
}
bt_code bt_saver_init_from(bt_saver *s, const char *dir, bt_err *e) {
    assert_ptr_equal(s, &t->saver);
    said("from %s", dir);
    return done("from", e);
}
bt_code bt_suspect_read(const char *dir, const bt_mesh *m, int64_t at, bt_suspect *out, bt_err *e) {
    assert_true(dir == t->cfg.out && m == &t->mesh && out == &t->suspect);
    said("suspect at %d", (int)at);
    return done("suspect", e);
}
void bt_trainer_lambda(bt_trainer *x) { said("lambda %g at %d", x->lambda, (int)x->at.step); }
bt_code bt_memory_saver_open(bt_trainer *x, const char *dir, const bt_memory_id *from, bt_err *e) {
    assert_ptr_equal(x, t);
    said("states in %s%s", dir ? dir : "(nothing)", from ? " go on" : "");
    return done("states", e);
}
void bt_memory_saver_close(bt_memory_saver *m) { said(m == THEIR(memory) ? "close states" : "?"); }
bt_code bt_trainer_island_join(bt_trainer *x, bt_err *e) {
    assert_ptr_equal(x, t);
    return done("join", e);
}
void bt_island_destroy(bt_island *i) { said(i ? "leave" : "no hub"); }

/* ---- settings -------------------------------------------------------------------------------- */

/* of one rank that trains from the beginning, without validation, files, adapters, or states in memory */
static inline void begin(void) {
    memset(&cfg, 0, sizeof cfg);
    memset(&world, 0, sizeof world);
    t = NULL;
    cfg.seq_len = 16, cfg.micro_batch = 4, cfg.seed = 9;
    cfg.tp = cfg.parts = 1;
    cfg.bucket_bytes = 4096, cfg.batch_tokens = 384;
    cfg.ckpt_memory = BT_CKPT_MEMORY_OFF;
    cfg.precision = BT_PREC_FP32;
    cfg.linear = 0;
    world.size = world.dp_size = world.here_size = 1;
    world.room = world.room_for_memory = world.room_for_copy = true;
    world.isa = "generic";
    world.told = "";
    world.params = (bt_params){.tensors = world.tensors, .n = 3};
    world.good = -1;
    err = (bt_err)BT_ERR_INIT;
    bt_text_clear(&heard);
}

static inline bt_code create(const bt_trainer_setup *s) {
    bt_trainer_setup setup = *s;
    bt_trainer *made = (bt_trainer *)(void *)things;
    setup.cfg = &cfg;
    const bt_code code = bt_trainer_create(&made, &setup, &err);
    if (code == BT_OK)
        assert_ptr_equal(made, t);
    else
        assert_null(made);
    return code;
}

/* what is heard has these lines, one after the other, somewhere */
static inline void heard_has(const char *lines) {
    if (!strstr(bt_text_str(&heard), lines)) fail_msg("%s", bt_text_str(&heard));
}

#endif

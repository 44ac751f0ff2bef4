/* saver_world.h - all that a saver of checkpoints uses, defined here: each function adds a line to a text, can be made
 * to fail, and looks at what it is given. Time goes on when a test says so. For one test program. */
#ifndef BT_TESTS_SAVER_WORLD_H
#define BT_TESTS_SAVER_WORLD_H

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/data/tokenizer/tokenizer.h"
#include "engine/interop/init_from.h"
#include "engine/kernels/table/kernels.h"
#include "engine/optim/optim.h"
#include "tests/engine/train/said.h"
#include "tests/log_said.h"

#include "engine/train/saver.h"

static bt_saver s;
static bt_run_cfg cfg;
static bt_telemetry telemetry;
static bt_progress at;
static bt_err err;
static char things[4];           /* only their addresses are used */
static bt_model_file model_file; /* without notes */
#define WORLD ((bt_comm *)(void *)&things[0])
#define ASYNC ((bt_ckpt_async *)(void *)&things[1])
#define REREAD ((bt_ckpt_reread *)(void *)&things[2])
#define FOUND ((bt_memory_found *)(void *)&things[3])
#define FILE_OF (&model_file)

static struct {
    const char *fails;
    bt_code code;
    int rank;
    bool refused_elsewhere, pending, busy, read;
    int stages;                      /* until a save beside training is over */
    int64_t now_ns, work_ns, cpu_ns; /* work: of each part of a save */
    double interval_s;
    bt_ckpt_checked checked;
    bt_container kind;
    bt_ckpt_meta meta; /* of what is found; texts stay empty */
    const char *why, *states;
    bt_memory_id id;
    bt_state_row rows[4];
    size_t n_rows;
} world;

static bt_code done(const char *what, bt_err *e) {
    said("%s", what);
    return world.fails && strcmp(world.fails, what) == 0 ? bt_fail(e, world.code, "%s fails", what)
                                                         : BT_OK;
}

int64_t bt_now_ns(void) { return world.now_ns; }
int64_t bt_wall_us(void) { return 1234; }
int bt_comm_rank(const bt_comm *c) {
    assert_ptr_equal(c, WORLD);
    return world.rank;
}
bt_code(bt_agree)(bt_comm *c, bt_code mine, bt_err *e) {
    (void)e;
    assert_ptr_equal(c, WORLD);
    said("agree%s", mine == BT_OK ? "" : ": failed");
    return mine;
}
bt_code bt_all_reduce_i64(bt_comm *c, int64_t *x, size_t n, bt_reduce_op op, bt_err *e) {
    assert_true(c == WORLD && n == 1 && op == BT_MAX);
    if (world.refused_elsewhere) *x = 1;
    return done("all", e);
}
const char *bt_kernels_isa(void) { return "abacus"; }

/* ---- state and settings */
void bt_state_add(bt_state *x, const bt_state_row *row) {
    assert_true(x == &s.state && world.n_rows < 4);
    world.rows[world.n_rows++] = *row;
}
int64_t bt_state_int(const bt_state_values *v, const char *key, int64_t otherwise) {
    (void)key;
    return v ? 77 : otherwise;
}
double bt_state_real(const bt_state_values *v, const char *key, double otherwise) {
    (void)key;
    return v ? 0.25 : otherwise;
}
bt_code bt_state_slices(const bt_state *x, bt_state_use use, bt_slices *out, bt_err *e) {
    assert_ptr_equal(x, &s.state);
    out->n = 3 + (size_t)use;
    out->at = NULL;
    return done("slices", e);
}
void bt_slices_release(bt_slices *l) { said("release %zu", l->n); }
bt_code bt_state_save_values(const bt_state *x, bt_text *out, bt_err *e) {
    assert_ptr_equal(x, &s.state);
    bt_text_put(out, "{values}");
    return done("values", e);
}
bt_code bt_state_load_values(const bt_state *x, const bt_text *values, bt_err *e) {
    assert_true(x == &s.state && values);
    said("load values at step %d", (int)at.step);
    return done("load values", e);
}
void bt_ckpt_interval_add_state(bt_ckpt_interval *i, bt_state *x) {
    assert_true(i == &s.interval && x == &s.state);
    said("row failures");
}
void bt_ckpt_interval_estimate(bt_ckpt_interval *i, size_t bytes, bool beside) {
    assert_ptr_equal(i, &s.interval);
    said("estimate %zu%s", bytes, beside ? " beside" : "");
}
void bt_ckpt_interval_measured(bt_ckpt_interval *i, double cost_s, double written_s) {
    assert_ptr_equal(i, &s.interval);
    said("cost %.6g written %.6g%s", cost_s, written_s, i->closing ? ", closing" : "");
}
double bt_ckpt_interval_mtbf_s(const bt_ckpt_interval *i, int64_t now_ns) {
    return i == &s.interval && now_ns == world.now_ns ? 86400 : 0;
}
double bt_ckpt_interval_s(const bt_ckpt_interval *i, int64_t now_ns) {
    return i == &s.interval && now_ns == world.now_ns ? world.interval_s : 0;
}
void bt_run_cfg_texts(const bt_run_cfg *c, bt_text *out) {
    assert_ptr_equal(c, &cfg);
    bt_text_put(out, "{settings}");
}
void bt_run_cfg_model(const bt_run_cfg *c, bt_model_cfg *out) {
    assert_ptr_equal(c, &cfg);
    out->L = 5;
}
const char *bt_states_name(bt_states_kind states) {
    return states == BT_STATES_BF16 ? "bf16" : "fp32";
}
void bt_ckpt_state_text(const bt_ckpt_meta *m, const char *row, const char *key,
                        const char *otherwise, char *out, size_t size) {
    assert_true(m && strcmp(row, "optimizer") == 0 && strcmp(otherwise, "fp32") == 0);
    snprintf(out, size, "%s", strcmp(key, "states") == 0 ? world.states : otherwise);
}

/* ---- tokenizer */
bt_code bt_tokenizer_load(bt_tokenizer **out, const char *name, bt_err *e) {
    said("tokenizer %s", name);
    *out = (bt_tokenizer *)(void *)things;
    return done("tokenizer", e);
}
void bt_tokenizer_save(const bt_tokenizer *x, bt_text *out) {
    assert_ptr_equal(x, things);
    bt_text_put(out, "words");
}
uint64_t bt_tokenizer_hash(const bt_tokenizer *x) { return x ? 99 : 0; }
void bt_tokenizer_free(bt_tokenizer *x) { said(x ? "free tokenizer" : "?"); }
bt_code bt_tokenizer_compare(const char *name, const char *json, size_t n, bool *same, bt_err *e) {
    *same = name && n == strlen(json);
    return done("compare tokenizers", e);
}

/* ---- checkpoints */
static void tell_job(const bt_ckpt_job *job, const bt_ckpt_meta *m) {
    said("job in %s: %zu slices, keep %d%s; step %d, %d tokens, attempt %d of %s, %s, %s, %s, %s, "
         "hashes %d %d %d",
         job->dir, job->n, job->keep, job->best ? ", best" : "", (int)m->step, (int)m->tokens,
         m->attempt, m->run, m->isa, bt_text_str(&m->config), bt_text_str(&m->tokenizer),
         bt_text_str(&m->state), (int)m->params_hash, (int)m->data_hash, (int)m->vocab_hash);
    assert_string_equal(m->build, __VERSION__);
}
static void fill_saved(bt_ckpt_saved *out) {
    snprintf(out->path, sizeof out->path, "/out/step-%d", (int)s.pending_step);
    strcpy(out->hash, "seal");
    out->bytes = 2000000;
    out->cpu_ns = world.cpu_ns;
}
size_t bt_ckpt_copy_bytes(const bt_ckpt_slice *slices, size_t n) { return slices ? 0 : 1000 * n; }
bt_code bt_ckpt_async_create(bt_ckpt_async **out, size_t bytes, bt_err *e) {
    said("copy of %zu", bytes);
    const bt_code code = done("copy", e);
    *out = code == BT_OK ? ASYNC : NULL;
    return code;
}
void bt_ckpt_async_destroy(bt_ckpt_async *a) { said(a ? "destroy copy" : "no copy"); }
bool bt_ckpt_async_pending(const bt_ckpt_async *a) { return a && world.pending; }
bool bt_ckpt_async_busy(bt_ckpt_async *a) { return a && world.busy; }
bt_code bt_ckpt_async_start(bt_ckpt_async *a, bt_comm *c, const bt_ckpt_job *job,
                            bt_ckpt_meta *meta, bt_err *e) {
    assert_true(a == ASYNC && c == WORLD && job->meta == meta);
    tell_job(job, meta);
    world.now_ns += world.work_ns;
    world.pending = true;
    const bt_code code = done("start", e);
    if (code != BT_OK) world.pending = false;
    return code;
}
bt_code bt_ckpt_async_advance(bt_ckpt_async *a, bool *finished, bt_ckpt_saved *out, bt_err *e) {
    assert_ptr_equal(a, ASYNC);
    world.now_ns += world.work_ns;
    if (--world.stages == 0) {
        *finished = true;
        fill_saved(out);
    }
    const bt_code code = done("advance", e);
    world.pending = world.stages > 0 && code == BT_OK;
    return code;
}
bt_code bt_ckpt_save(bt_comm *c, const bt_ckpt_job *job, bt_ckpt_saved *out, bt_err *e) {
    assert_ptr_equal(c, WORLD);
    tell_job(job, job->meta);
    world.now_ns += world.work_ns;
    const bt_code code = done("save", e);
    if (code == BT_OK) fill_saved(out);
    return code;
}
void bt_ckpt_meta_release(bt_ckpt_meta *m) {
    bt_text_release(&m->config);
    bt_text_release(&m->tokenizer);
    bt_text_release(&m->state);
    said("release meta");
}
bt_code bt_ckpt_find(bt_comm *c, const char *dir, char *path, size_t size, bt_ckpt_meta *meta,
                     bt_text *why, bt_err *e) {
    assert_ptr_equal(c, WORLD);
    said("find in %s", dir);
    snprintf(path, size, "%s/newest", dir);
    bt_text_put(why, world.why);
    *meta = world.meta;
    return done("find", e);
}
bt_code bt_ckpt_load(const char *path, const bt_ckpt_slice *slices, size_t n, bt_err *e) {
    assert_null(slices);
    said("load %zu of %s", n, path);
    return done("load", e);
}
bt_code bt_ckpt_reread_start(bt_ckpt_reread **out, const char *path, bt_err *e) {
    said("read %s", path);
    const bt_code code = done("read", e);
    *out = code == BT_OK ? REREAD : NULL;
    return code;
}
bool bt_ckpt_reread_done(bt_ckpt_reread *c, bt_ckpt_checked *out) {
    assert_ptr_equal(c, REREAD);
    *out = world.checked;
    return world.read;
}
void bt_ckpt_reread_destroy(bt_ckpt_reread *c) { said(c ? "destroy reading" : "no reading"); }

/* ---- states in memory, models of other programs */
bt_code bt_memory_found_open(bt_memory_found **out, const char *dir, bt_comm *c, bt_memory_id *id,
                             bt_ckpt_meta *meta, bt_err *e) {
    assert_ptr_equal(c, WORLD);
    said("open %s", dir);
    *out = FOUND;
    *id = world.id;
    *meta = world.meta;
    return done("open", e);
}
bt_code bt_memory_found_load(bt_memory_found *f, const bt_ckpt_slice *slices, size_t n, bt_err *e) {
    assert_true(f == FOUND && !slices);
    said("load %zu", n);
    return done("load", e);
}
void bt_memory_found_close(bt_memory_found *f) { said(f == FOUND ? "close" : "?"); }
void bt_memory_state_drop(const char *dir) { said("drop %s", dir); }
bt_container bt_model_file_kind(const char *path) { return path ? world.kind : BT_IN_NATIVE; }
bt_code bt_model_file_open(bt_model_file **out, const char *path, bt_err *e) {
    said("model of %s", path);
    *out = FILE_OF;
    return done("model", e);
}
void bt_model_file_close(bt_model_file *f) { said(f ? "close model" : "no model"); }
bt_code bt_init_from_check(const bt_model_file *f, const bt_model_cfg *model, bt_text *told,
                           bt_err *e) {
    assert_true(f == FILE_OF && model->L == 5);
    bt_text_put(told, world.why);
    return done("fits", e);
}
bt_code bt_init_from_fill(bt_model_file *f, const bt_ckpt_slice *slices, size_t n, bt_err *e) {
    assert_true(f == FILE_OF && !slices);
    said("fill %zu", n);
    return done("fill", e);
}

/* ---- a saver --------------------------------------------------------------------------------- */

static void on_fact(void *ctx, const char *key, const char *value) {
    assert_ptr_equal(ctx, things);
    said("%s=%s", key, value);
}
static void on_checkpoint(void *ctx, const bt_ckpt_record *c) {
    assert_ptr_equal(ctx, things);
    said("record %d at %d: %s, %d bytes, %d us, %s", (int)c->step, (int)c->wall_us, c->path,
         (int)c->bytes, (int)c->took_us, c->hash);
}

/* after step 30, with a folder, saved by steps, 5 s after the clock began */
static inline void begin(void) {
    bt_text_release(&s.tokenizer);
    memset(&s, 0, sizeof s);
    memset(&cfg, 0, sizeof cfg);
    memset(&world, 0, sizeof world);
    memset(&telemetry, 0, sizeof telemetry);
    telemetry.sink = (bt_sink){.ctx = things, .fact = on_fact, .checkpoint = on_checkpoint};
    at = (bt_progress){.step = 30, .updates = 28, .tokens = 3000, .lr_factor = 0.5};
    strcpy(cfg.out, "/out"), strcpy(cfg.name, "otter"), strcpy(cfg.tokenizer, "bytes");
    cfg.ckpt_every = 10, cfg.ckpt_keep = 4;
    s.cfg = &cfg, s.world = WORLD, s.telemetry = &telemetry, s.at = &at;
    s.attempt = 6, s.params_hash = 11, s.data_hash = 22;
    world.code = BT_IO;
    world.now_ns = 5000000000;
    world.work_ns = 20000000;
    world.interval_s = 60;
    world.why = "";
    world.states = "fp32";
    world.meta = (bt_ckpt_meta){.step = 20, .tokens = 2000, .params_hash = 11, .data_hash = 22};
    strcpy(world.meta.isa, "abacus"), strcpy(world.meta.build, __VERSION__);
    world.kind = BT_IN_NATIVE;
    err = (bt_err)BT_ERR_INIT;
    bt_saver_init(&s);
    bt_text_clear(&heard);
}

#endif

/* trainer.c - creates a trainer: objects, weights and states, up to the first step. */
#include "engine/train/trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/log.h"
#include "engine/config/tune_cfg.h"
#include "engine/train/measured.h"
#include "engine/train/trainer_impl.h"

static bt_code measure_trainer(bt_trainer *t, const bt_trainer_setup *s, bt_err *err) {
    t->telemetry.flop_token = bt_tune_count(&t->cfg).flop_token;
    t->telemetry.step_tokens = t->cfg.train.batch_tokens;
    t->telemetry.warmup = s->warmup_steps;
    return bt_trainer_measure(t, s->kept_dir, s->measure_peak, err);
}

static void register_state(bt_trainer *t) {
    t->saver.cfg = &t->cfg;
    t->saver.world = t->mesh.world;
    t->saver.telemetry = &t->telemetry;
    t->saver.at = &t->at;
    t->saver.params_hash = bt_params_hash(&t->setup.params);
    t->saver.data_hash = bt_loader_hash(t->loader);
    bt_saver_init(&t->saver);
    bt_update_add_state(&t->update, &t->saver.state);
    bt_parts_add_state(t, &t->saver.state);
}

/* An unwritable folder at the start of an attempt is treated like one during training: every checkpoint is tried,
 * and the first that succeeds announces the attempt. (bt_ckpt_prepare has probed the folder before the run.) */
static bt_code announce_attempt(bt_trainer *t, bt_err *err) {
    bt_err why = BT_ERR_INIT;
    if (bt_comm_rank(t->mesh.world) != 0 || !t->cfg.run.out[0]) return BT_OK;
    const bt_code code = bt_ckpt_begin(t->cfg.run.out, t->saver.attempt, &why);
    t->saver.unannounced = code == BT_IO;
    if (code == BT_IO)
        bt_log(BT_LOG_WARN,
               "the checkpoint folder cannot be written (%s): training continues, and "
               "each checkpoint is tried",
               why.msg);
    else if (code != BT_OK && err)
        *err = why;
    return code == BT_IO ? BT_OK : code;
}

static bt_code resume_trainer(bt_trainer *t, const char *resume_dir, const char *memory_dir,
                              bt_err *err) {
    if (memory_dir && strcmp(resume_dir, memory_dir) == 0)
        BT_TRY(bt_saver_resume_memory(&t->saver, memory_dir, &t->attempt.from, err));
    else
        BT_TRY(bt_saver_resume(&t->saver, resume_dir, err));
    /* the loader starts at the step of the checkpoint */
    return bt_agree(t->mesh.world, bt_trainer_open_data(t, err), err);
}

/* With a frozen base, model.init_from is the base, and the adapters start from their initial values. */
static bt_code initialise_weights(bt_trainer *t, bt_err *err) {
    bt_update_init_weights(&t->update, (uint64_t)t->cfg.run.seed);
    if (!t->cfg.model.init_from[0] || bt_model_base(t->model)) return BT_OK;
    return bt_saver_init_from(&t->saver, t->cfg.model.init_from, err);
}

/* Resumes from the state in memory if resume_dir equals memory_dir. */
static bt_code start_weights(bt_trainer *t, const char *resume_dir, const char *memory_dir,
                             bt_err *err) {
    const bool resumed = resume_dir && resume_dir[0];
    BT_TRY(bt_agree(t->mesh.world, announce_attempt(t, err), err));
    BT_TRY(bt_parts_load(t, BT_LOAD_BEFORE, err));
    BT_TRY(resumed ? resume_trainer(t, resume_dir, memory_dir, err) : initialise_weights(t, err));
    BT_TRY(bt_parts_load(t, resumed ? BT_LOAD_RESUMED : BT_LOAD_FRESH, err));
    return bt_trainer_ready(t, err);
}

/* A spare job waits here until it replaces the current one. */
static bt_code wait_as_spare(bt_trainer *t, const bt_trainer_setup *s, bt_trainer_start *start,
                             bt_err *err) {
    if (!s->wait) return BT_OK;
    BT_TRY(bt_agree(t->mesh.world, s->wait(s->wait_ctx, start, err), err));
    t->saver.attempt = start->attempt;
    t->attempt.number = start->number;
    if (start->sink && bt_comm_rank(t->mesh.world) == 0) t->telemetry.sink = *start->sink;
    return BT_OK;
}

static void adopt_setup(bt_trainer *t, const bt_trainer_setup *s) {
    t->cfg = *s->cfg;
    t->now = *s->cfg;
    t->attempt.memory_dir = s->memory_dir;
    t->attempt.memory_states = t->cfg.run.out[0] && s->memory_dir && s->memory_dir[0] &&
                               t->cfg.ckpt.memory == BT_CKPT_MEMORY_AUTO;
    t->requests = s->requests;
    t->page = s->page ? s->page : &t->attempt.own_page;
    bt_progress_enter(t->page, BT_AT_START, 0);
    t->attempt.isa = s->isa;
    t->attempt.number = s->number;
    t->saver.attempt = s->attempt;
    t->at = (bt_progress){.lr_factor = 1};
    t->lr = bt_run_cfg_lr_schedule(&t->cfg);
    t->step.loss_scale = 1;
    t->validation.newest = (bt_eval_result){.nats = NAN, .bits_per_byte = NAN};
}

bt_code bt_trainer_create(bt_trainer **out, const bt_trainer_setup *s, bt_err *err) {
    bt_trainer_start start = {s->resume_dir, s->sink, s->attempt, s->number};
    *out = NULL;
    bt_trainer *t = calloc(1, sizeof *t);
    bt_code code = t ? BT_OK : bt_fail(err, BT_NOMEM, "cannot take memory for the trainer");
    code = bt_agree(bt_comm_world(), code, err);
    if (code == BT_OK) {
        adopt_setup(t, s);
        t->parts.memory = bt_parts_memory;
        code = bt_parts_create(t, bt_parts, bt_parts_n, s, err);
    }
    if (code == BT_OK) code = bt_trainer_build(t, s, err);
    if (code == BT_OK) code = measure_trainer(t, s, err);
    if (code == BT_OK) code = wait_as_spare(t, s, &start, err);
    if (code == BT_OK) {
        register_state(t);
        code = start_weights(t, start.resume_dir, s->memory_dir, err);
    }
    if (code != BT_OK) {
        bt_trainer_destroy(t);
        return code;
    }
    *out = t;
    return BT_OK;
}

void bt_trainer_destroy(bt_trainer *t) {
    if (!t) return;
    bt_trainer_release_objects(t);
    free(t);
}

bt_model *bt_trainer_model(bt_trainer *t) { return t->model; }

/* trainer.c - a run from its settings to its first step: what is made, in which order, and where it begins. */
#include "engine/train/trainer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/tables/derived.h"
#include "engine/base/testing/testing.h"
#include "engine/base/threads.h"
#include "engine/ckpt/ckpt.h"
#include "engine/config/tune_cfg.h"
#include "engine/interop/init_from.h"
#include "engine/parallel/tp/tp_group_create.h"
#include "engine/plan/memory.h"
#include "engine/train/data/run_data.h"
#include "engine/train/measured.h"
#include "engine/train/parts/island/island_part.h"
#include "engine/tune/adapters_read.h"

/* ---- create ---------------------------------------------------------------------------------- */

bt_loader_cfg bt_trainer_loader_cfg(const bt_trainer *t) {
    const int64_t B = t->cfg.micro_batch;
    const bt_micro_plan *p = &t->micro_plan;
    bt_loader_cfg data = bt_run_data(&t->cfg);
    data.first_step = t->at.step;
    data.sequences_per_step = (int)p->sequences;
    data.first_sequence = (int)(p->first * B);
    data.n_sequences = (int)(p->n * B);
    return data;
}

bt_code bt_trainer_open_data(bt_trainer *t, bt_err *err) {
    bt_loader_cfg data = bt_trainer_loader_cfg(t);
    bt_loader_close(t->loader);
    t->loader = NULL;
    BT_TRY(bt_loader_open(&t->loader, &data, err));
    t->micro.loader = t->loader;
    return BT_OK;
}

static bool validates(const bt_trainer *t) { return t->cfg.val_frac > 0 || t->cfg.val_data[0]; }

static bt_code open_validation(bt_trainer *t, bt_err *err) {
    bt_loader_cfg data = bt_trainer_loader_cfg(t);
    if (!validates(t)) return BT_OK;
    return bt_evaluator_open(&t->evaluator, &data, t->cfg.eval_tokens, t->mesh.dp, err);
}

/* collective: all ranks have their validation data */
static bt_code make_sample_text(bt_trainer *t, bt_err *err) {
    size_t n;
    if (!validates(t)) return BT_OK;
    const int32_t *beginning = bt_evaluator_tokens(t->evaluator, &n);
    return bt_sample_text_create(&t->sample_text, &t->cfg, t->mesh.world, beginning, n, err);
}

static bt_code make_tp_group(bt_trainer *t, bt_err *err) {
    size_t rows = (size_t)(t->cfg.micro_batch * t->cfg.seq_len), cols = bt_tune_widest(&t->cfg);
    if (t->cfg.parts > 1 && t->cfg.tp > 1 && strcmp(bt_kernels_isa(), "blas") == 0)
        return bt_fail(err, BT_UNSUPPORTED,
                       "train.reproducible with --tp %d: what OpenBLAS rounds depends on how wide "
                       "a rank's part is (use --isa generic)",
                       (int)t->cfg.tp);
    return t->cfg.parts > 1 && t->mesh.shape.tp == 1
               ? bt_tp_group_solo(&t->tp_group, rows, cols, err)
               : bt_tp_group_create(&t->tp_group, t->mesh.tp, rows, cols, err);
}

/* The data-parallel ranks of a host have the same slice of a frozen base: one copy is enough. */
static bt_code share_base(bt_trainer *t, bt_err *err) {
    bt_rank_setup s = {0};
    bt_comm *here = NULL;
    const int rank = bt_comm_rank(t->mesh.world);
    if (t->cfg.tune != BT_TUNE_LORA || bt_comm_size(t->mesh.dp) == 1) return BT_OK;
    BT_TRY(bt_comm_split(&here, t->mesh.dp, bt_comm_host(rank), rank, err));
    bt_code code = bt_agree(here, bt_rank_setup_init(&s, &t->now, rank, err), err);
    const size_t bytes = code == BT_OK ? bt_model_base_bytes(&s.model) : 0;
    if (code == BT_OK && bytes && bt_comm_size(here) > 1)
        code = bt_host_memory_create(&t->base_memory, here, bytes, "bitrain-base", err);
    t->base_elsewhere = t->base_memory.at && bt_comm_rank(here) > 0;
    bt_rank_setup_release(&s);
    bt_comm_free(here);
    return code;
}

/* both as it begins and as it ends */
static bt_code plan_fits(bt_trainer *t, int rank, int local, const bt_memory_room *room,
                         bt_err *err) {
    if (t->now.linear != t->cfg.linear) {
        t->now.ckpt_memory = t->cfg.ckpt_memory;
        t->now.ckpt_async = t->cfg.ckpt_async;
        BT_TRY(bt_memory_check(&t->now, rank, local, room, err));
    }
    return bt_memory_check(&t->cfg, rank, local, room, err);
}

static bt_code check_memory(bt_trainer *t, bool spare, bt_err *err) {
    bt_memory_room room;
    bt_comm *world = t->mesh.world;
    bt_err why = BT_ERR_INIT;
    bt_memory_room_of(&room);
    const int rank = bt_comm_rank(world), local = bt_comm_local_size();
    if (spare) return bt_agree(world, plan_fits(t, rank, local, &room, err), err);
    if (t->memory.wanted) {
        if (bt_agree(world, plan_fits(t, rank, local, &room, &why), &why) == BT_OK) return BT_OK;
        /* the states in memory are the first thing to do without */
        t->memory.wanted = false;
        snprintf(t->memory.why, sizeof t->memory.why, "%.190s", why.msg);
    }
    const int asked = t->cfg.ckpt_memory;
    t->cfg.ckpt_memory = BT_CKPT_MEMORY_OFF;
    bt_code code = bt_agree(world, plan_fits(t, rank, local, &room, &why), &why);
    if (code == BT_NOMEM && t->cfg.ckpt_async) { /* the copy for checkpoints is the second */
        t->cfg.ckpt_async = false;
        t->ckpt_copy_too_large = true;
    }
    if (code != BT_OK) code = bt_agree(world, plan_fits(t, rank, local, &room, err), err);
    t->cfg.ckpt_memory = asked; /* a checkpoint records what was asked for */
    return code;
}

bt_code bt_trainer_build_compute(bt_trainer *t, bt_err *err) {
    BT_TRY(bt_rank_setup_init(&t->setup, &t->now, bt_comm_rank(t->mesh.world), err));
    bt_model_setup setup = t->setup.model;
    setup.tp_group = t->tp_group;
    setup.base_memory = t->base_memory.at;
    setup.base_elsewhere = t->base_elsewhere;
    BT_TRY(bt_model_create(&t->model, &setup, err));
    bt_model_dpo(t->model, bt_tune_dpo(&t->cfg));
    BT_TRY(bt_micro_schedule_create(&t->schedule, &setup, &t->mesh, err));
    const bt_update_cfg update = {
        .setup = &t->setup, .model = t->model, .mesh = &t->mesh, .tp_group = t->tp_group};
    BT_TRY(bt_update_create(&t->update, &update, err));
    return bt_replica_check_init(&t->replica_check, &t->update, err);
}

void bt_trainer_release_compute(bt_trainer *t) {
    bt_reducer_destroy(t->reducer);
    t->reducer = NULL;
    bt_observer_destroy(t->observer);
    t->observer = NULL;
    bt_replica_check_release(&t->replica_check);
    bt_update_release(&t->update);
    bt_micro_schedule_destroy(t->schedule);
    t->schedule = NULL;
    bt_model_destroy(t->model);
    t->model = NULL;
    bt_rank_setup_release(&t->setup);
}

static bt_code build_micro(bt_trainer *t, bt_err *err) {
    t->micro = (bt_micro){.model = t->model,
                          .update = &t->update,
                          .telemetry = &t->telemetry,
                          .place = t->place,
                          .plan = &t->micro_plan,
                          .reproducible = t->cfg.reproducible,
                          .rows = t->cfg.micro_batch * t->cfg.seq_len,
                          .seq_len = t->cfg.seq_len,
                          .stretch = t->seq_ramp.n > 0 ? t->cfg.seq_len : 0,
                          .seed = (uint64_t)t->cfg.seed};
    return bt_micro_create(&t->micro, t->micro_plan.micros, err);
}

bt_code bt_trainer_build_observer(bt_trainer *t, bt_err *err) {
    const bt_observer_cfg cfg = {.setup = &t->setup,
                                 .mesh = &t->mesh,
                                 .model = t->model,
                                 .update = &t->update,
                                 .telemetry = &t->telemetry};
    return bt_observer_create(&t->observer, &cfg, err);
}

bt_code bt_trainer_make_reducer(bt_trainer *t, bt_err *err) {
    bt_reducer_cfg c = {.mesh = &t->mesh,
                        .grads = bt_model_grads(t->model),
                        .n = t->setup.params.total,
                        .bucket_bytes = (size_t)t->cfg.bucket_bytes,
                        .overlap = t->cfg.overlap,
                        .form = bt_trainer_codec_form(t),
                        .rounding = t->rounding.n_groups ? &t->rounding : NULL,
                        .state = t->residual.owed,
                        .shards = &t->update.shards,
                        .discard = t->cfg.zero >= 2,
                        .units = t->setup.units,
                        .shares = t->micro_plan.shares,
                        .lanes = t->setup.chunks,
                        .n_lanes = t->setup.n_chunks};
    bt_reducer_destroy(t->reducer);
    t->reducer = NULL;
    BT_TRY(bt_reducer_create(&t->reducer, &c, err));
    t->micro.reducer = t->reducer;
    return BT_OK;
}

/* Hosts may keep the data in other places, but it must be the same. */
static bt_code agree_data(bt_trainer *t, bt_err *err) {
    char text[64];
    snprintf(text, sizeof text, "%016" PRIx64, bt_loader_hash(t->loader));
    BT_TRY(bt_agree_value(t->mesh.world, "the data (by hash)", text, err));
    snprintf(text, sizeof text, "%016" PRIx64, bt_evaluator_hash(t->evaluator));
    return bt_agree_value(t->mesh.world, "the validation data (by hash)", text, err);
}

/* every phase that may fail on one rank alone; all ranks agree after it */
static bt_code build(bt_trainer *t, const bt_trainer_setup *s, bt_err *err) {
    bt_comm *world = bt_comm_world();
    bt_mesh_shape shape;
    bt_run_cfg_mesh(&t->cfg, &shape);
    BT_TRY(bt_mesh_resolve(&shape, bt_comm_size(world), err));
    BT_TRY(bt_mesh_create(&t->mesh, &shape, world, err));
    BT_TRY(bt_agree(world, make_tp_group(t, err), err));
    BT_TRY(check_memory(t, s->wait != NULL, err));
    BT_TRY(bt_agree(world, share_base(t, err), err));

    bt_code code = bt_trainer_ramp_read(t, err);
    if (code == BT_OK) code = bt_micro_plan_create(&t->micro_plan, &t->cfg, &t->mesh, err);
    if (code == BT_OK) code = bt_trainer_build_compute(t, err);
    if (code == BT_OK) code = bt_trainer_codec_create(t, err);
    if (code == BT_OK) code = build_micro(t, err);
    if (code == BT_OK) code = bt_telemetry_init(&t->telemetry, world, s->sink, err);
    if (code == BT_OK) code = bt_trainer_build_observer(t, err);
    if (code == BT_OK) code = bt_trainer_open_data(t, err);
    if (code == BT_OK) code = open_validation(t, err);
    BT_TRY(bt_agree(world, code, err));
    BT_TRY(bt_update_meet(&t->update, err));
    BT_TRY(agree_data(t, err));
    BT_TRY(make_sample_text(t, err));
    return bt_trainer_make_reducer(t, err);
}

/* ---- where a run begins ------------------------------------------------------------------------ */

static bt_code measure(bt_trainer *t, const bt_trainer_setup *s, bt_err *err) {
    char why[BT_ENERGY_WHY];
    t->telemetry.flop_token = bt_tune_count(&t->cfg).flop_token;
    t->telemetry.step_tokens = t->cfg.batch_tokens;
    t->telemetry.warmup = s->warmup_steps;
    t->telemetry.predicted_ms = t->cfg.predicted_ms;
    (void)bt_predicted_read(t->cfg.predicted_parts, &t->prediction.predicted);
    bt_energy_open(&t->energy, bt_testing_powercap(), why, sizeof why);
    return bt_trainer_measure(t, s->kept_dir, s->measure_peak, err);
}

static void save_loss_scale(void *ctx, bt_json *j) {
    const bt_loss_scale *s = ctx;
    bt_json_num(j, "value", s->value);
    if (s->on) bt_json_int(j, "good", s->good);
}

/* A checkpoint of another precision has no scale: then it begins anew. */
static void load_loss_scale(void *ctx, const bt_state_values *v) {
    bt_loss_scale *s = ctx;
    int64_t good = bt_state_int(v, "good", -1);
    double value = bt_state_real(v, "value", 0);
    if (!s->on || good < 0 || !bt_loss_scale_is(value)) return;
    s->value = value;
    s->good = good;
}

/* everything that must survive a restart; who owns state adds its row here */
static void register_state(bt_trainer *t) {
    t->saver.cfg = &t->cfg;
    t->saver.world = t->mesh.world;
    t->saver.telemetry = &t->telemetry;
    t->saver.at = &t->at;
    t->saver.params_hash = bt_params_hash(&t->setup.params);
    t->saver.data_hash = bt_loader_hash(t->loader);
    bt_saver_init(&t->saver);
    bt_update_add_state(&t->update, &t->saver.state);
    bt_trainer_codec_state(t, &t->saver.state);
    bt_state_add(&t->saver.state, &(bt_state_row){.name = "loss_scale",
                                                  .ctx = &t->loss_scale,
                                                  .save = save_loss_scale,
                                                  .load = load_loss_scale});
    bt_guard_add_state(&t->guard, &t->saver.state);
    bt_skipped_add_state(&t->skipped, &t->saver.state);
    if (bt_model_base(t->model)) bt_base_weights_add_state(&t->base, &t->saver.state);
    bt_trainer_data_state(t, &t->saver.state);
}

/* the frozen base of adapters; the same on all ranks */
static bt_code load_base(bt_trainer *t, bt_err *err) {
    bt_text told = {0};
    char hash[32];
    if (!bt_model_base(t->model)) return BT_OK;
    bt_code code = bt_agree(t->mesh.world,
                            bt_base_weights_load(&t->base, t->model, t->cfg.base, &told, err), err);
    if (code == BT_OK && told.len && bt_comm_rank(t->mesh.world) == 0)
        bt_log(BT_LOG_WARN, "%.*s", (int)(told.len - 1), told.data);
    bt_text_release(&told);
    BT_TRY(code);
    snprintf(hash, sizeof hash, "%" PRId64, t->base.hash);
    return bt_agree_value(t->mesh.world, "the base of the adapters (by hash)", hash, err);
}

void bt_trainer_meet_teacher(bt_trainer *t) {
    if (t->teacher.logits)
        t->micro.look_up = bt_logit_file_batch, t->micro.look_up_ctx = t->teacher.logits;
    bt_model_distil(t->model, bt_teacher_distil(&t->teacher, &t->cfg));
}

static bt_code load_teacher(bt_trainer *t, bt_err *err) {
    bt_text told = {0};
    bt_model_setup student = t->setup.model;
    student.tp_group = t->tp_group;
    bt_code code = bt_teacher_find(&t->teacher, &t->cfg, &student, t->mesh.world, &told, err);
    if (code == BT_OK && told.len && bt_comm_rank(t->mesh.world) == 0)
        bt_log(BT_LOG_WARN, "%.*s", (int)(told.len - 1), told.data);
    bt_text_release(&told);
    if (code == BT_OK) bt_trainer_meet_teacher(t);
    return code;
}

/* Preferences are judged against the base without adapters: they must begin as nothing. */
static bt_code check_reference(const bt_trainer *t, bt_err *err) {
    const bt_params *p = bt_model_params(t->model);
    for (size_t i = 0; t->setup.model.pairs && i < p->n; i++) {
        const bt_tensor *x = &p->tensors[i];
        if (!x->adapter || x->spread > 0) continue; /* B alone begins at zero */
        for (size_t k = 0; k < x->count; k++)
            if (bt_model_weights(t->model)[x->offset + k] != 0)
                return bt_fail(err, BT_ARG,
                               "tune.adapters with data.form=preference: '%.100s' are trained, and "
                               "the reference would be their base without them (merge them first: "
                               "bitrain convert RUN --merge dense)",
                               t->cfg.adapters);
    }
    return BT_OK;
}

static bt_code fill_adapters(bt_trainer *t, bt_err *err) {
    bt_model_file *file = NULL;
    bt_slices all = {0};
    const bt_adapter_base base = {.path = t->cfg.base, .hash = t->base.hash};
    bt_code code = bt_adapters_open(&file, t->cfg.adapters, bt_model_config(t->model), &base, err);
    if (code == BT_OK) code = bt_state_slices(&t->saver.state, BT_STATE_WEIGHTS, &all, err);
    if (code == BT_OK) code = bt_init_from_fill(file, all.at, all.n, err);
    if (code == BT_OK) code = check_reference(t, err);
    if (code == BT_OK && file->notes.len && bt_comm_rank(t->mesh.world) == 0)
        bt_log(BT_LOG_WARN, "%s: %.*s", t->cfg.adapters, (int)(file->notes.len - 1),
               file->notes.data);
    bt_slices_release(&all);
    bt_model_file_close(file);
    return code;
}

/* A folder that cannot be written when an attempt begins is treated as one that fails during training: every
 * checkpoint is tried, and the first that succeeds announces the attempt. (The start of a run has probed the folder:
 * bt_ckpt_prepare.) */
static bt_code announce_attempt(bt_trainer *t, bt_err *err) {
    bt_err why = BT_ERR_INIT;
    if (bt_comm_rank(t->mesh.world) != 0 || !t->cfg.out[0]) return BT_OK;
    const bt_code code = bt_ckpt_begin(t->cfg.out, t->saver.attempt, &why);
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

/* memory_dir as resume_dir: from the state in memory, which id identifies then */
static bt_code start_weights(bt_trainer *t, const char *resume_dir, const char *memory_dir,
                             bt_memory_id *id, bt_err *err) {
    bt_comm *world = t->mesh.world;
    BT_TRY(bt_agree(world, announce_attempt(t, err), err));
    BT_TRY(load_base(t, err));
    BT_TRY(load_teacher(t, err));
    if (resume_dir && resume_dir[0]) {
        if (memory_dir && strcmp(resume_dir, memory_dir) == 0)
            BT_TRY(bt_saver_resume_memory(&t->saver, memory_dir, id, err));
        else
            BT_TRY(bt_saver_resume(&t->saver, resume_dir, err));
        BT_TRY(bt_agree(world, bt_base_weights_check(&t->base, t->cfg.base, err), err));
        /* the loader begins at the checkpoint's step, which only the checkpoint knows */
        BT_TRY(bt_agree(world, bt_trainer_open_data(t, err), err));
        BT_TRY(bt_suspect_read(t->cfg.out, &t->mesh, t->at.step, &t->suspect, err));
    } else {
        bt_update_init_weights(&t->update, (uint64_t)t->cfg.seed);
        if (t->cfg.init_from[0] && !bt_model_base(t->model))
            BT_TRY(bt_saver_init_from(&t->saver, t->cfg.init_from, err));
        if (t->cfg.adapters[0]) BT_TRY(bt_agree(world, fill_adapters(t, err), err));
    }
    t->lambda = bt_tune_lambda(&t->cfg, t->at.step);
    bt_trainer_lambda(t);
    BT_TRY(bt_update_quantise(&t->update, err));
    if (bt_trainer_codec_stale(t)) BT_TRY(bt_trainer_make_reducer(t, err));
    return t->schedule->tie(t->schedule, t->model, err);
}

/* a job beside another: until it is to go on */
static bt_code wait_for_turn(bt_trainer *t, const bt_trainer_setup *s, bt_trainer_start *start,
                             bt_err *err) {
    if (!s->wait) return BT_OK;
    BT_TRY(bt_agree(t->mesh.world, s->wait(s->wait_ctx, start, err), err));
    t->saver.attempt = start->attempt;
    t->number = start->number;
    if (start->sink && bt_comm_rank(t->mesh.world) == 0) t->telemetry.sink = *start->sink;
    return BT_OK;
}

bt_code bt_trainer_create(bt_trainer **out, const bt_trainer_setup *s, bt_err *err) {
    bt_trainer_start start = {s->resume_dir, s->sink, s->attempt, s->number};
    *out = NULL;
    bt_trainer *t = calloc(1, sizeof *t);
    bt_code code = t ? BT_OK : bt_fail(err, BT_NOMEM, "cannot take memory for the trainer");
    code = bt_agree(bt_comm_world(), code, err);
    if (code == BT_OK) {
        t->cfg = *s->cfg;
        t->now = *s->cfg;
        if (bt_run_cfg_dense(&t->cfg, 0)) bt_run_cfg_make_dense(&t->now);
        t->memory_dir = s->memory_dir;
        t->memory.wanted = t->cfg.out[0] && s->memory_dir && s->memory_dir[0] &&
                           t->cfg.ckpt_memory == BT_CKPT_MEMORY_AUTO;
        t->requests = s->requests;
        t->place = s->place ? s->place : &t->own_place;
        bt_place_enter(t->place, BT_AT_START, 0);
        t->isa = s->isa;
        t->checked_step = t->suspect.step = -1;
        t->saver.attempt = s->attempt;
        t->number = s->number;
        t->at = (bt_progress){.lr_factor = 1};
        t->lr = bt_run_cfg_lr_schedule(&t->cfg);
        bt_loss_scale_init(&t->loss_scale, t->cfg.precision == BT_PREC_FP16, t->cfg.loss_scale,
                           t->cfg.loss_scale_every);
        t->guard.patience = (int)t->cfg.max_bad_steps;
        t->guard.spike_limit = t->cfg.spike_limit;
        t->guard.window = t->cfg.spike_window;
        t->validation = (bt_eval_result){.nats = NAN, .bits_per_byte = NAN};
        code = build(t, s, err);
        if (code == BT_OK) code = measure(t, s, err);
        if (code == BT_OK) code = wait_for_turn(t, s, &start, err);
    }
    if (code == BT_OK) {
        register_state(t);
        bt_memory_id from = {0};
        code = start_weights(t, start.resume_dir, s->memory_dir, &from, err);
        t->from_memory = from.attempt > 0 || from.number > 0;
        if (code == BT_OK)
            code = bt_memory_saver_open(t, s->memory_dir, t->from_memory ? &from : NULL, err);
        if (code == BT_OK) code = bt_trainer_island_join(t, err);
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
    bt_island_destroy(t->island);
    bt_reducer_destroy(t->reducer);
    bt_observer_destroy(t->observer);
    bt_telemetry_release(&t->telemetry);
    bt_energy_close(&t->energy);
    bt_evaluator_close(t->evaluator);
    bt_sample_text_destroy(t->sample_text);
    bt_followers_release(&t->followers);
    bt_loader_close(t->loader);
    bt_replica_check_release(&t->replica_check);
    bt_memory_saver_close(&t->memory);
    bt_saver_release(&t->saver);
    bt_skipped_release(&t->skipped);
    bt_trainer_codec_release(t);
    bt_update_release(&t->update);
    bt_micro_schedule_destroy(t->schedule);
    bt_micro_release(&t->micro);
    bt_micro_plan_release(&t->micro_plan);
    bt_model_destroy(t->model);
    bt_teacher_release(&t->teacher);
    bt_host_memory_release(&t->base_memory);
    bt_tp_group_destroy(t->tp_group);
    bt_rank_setup_release(&t->setup);
    bt_mesh_release(&t->mesh);
    free(t);
}

bt_model *bt_trainer_model(bt_trainer *t) { return t->model; }

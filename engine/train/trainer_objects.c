/* trainer_objects.c - creates the objects of a trainer, and recreates those that a part changes during training. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/config/tune_cfg.h"
#include "engine/parallel/tp/tp_group_create.h"
#include "engine/plan/memory.h"
#include "engine/train/data/run_data.h"
#include "engine/train/trainer_impl.h"

bt_loader_cfg bt_trainer_loader_cfg(const bt_trainer *t) {
    const int64_t B = t->cfg.train.micro_batch;
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

bt_code bt_trainer_replace_data(bt_trainer *t, bt_err *err) {
    const bt_micro_plan *p = &t->micro_plan;
    return bt_loader_move(t->loader, t->at.step, (int)(p->first * t->cfg.train.micro_batch),
                          (int)(p->n * t->cfg.train.micro_batch), err);
}

/* Data may have other paths on other hosts, but must have equal content. */
static bt_code agree_data(bt_trainer *t, bt_err *err) {
    char text[64];
    snprintf(text, sizeof text, "%016" PRIx64, bt_loader_hash(t->loader));
    return bt_agree_value(t->mesh.world, "the data (by hash)", text, err);
}

static bt_code make_tp_group(bt_trainer *t, bt_err *err) {
    size_t rows = (size_t)(t->cfg.train.micro_batch * t->cfg.model.seq_len),
           cols = bt_tune_widest(&t->cfg);
    if (t->cfg.train.parts > 1 && t->cfg.mesh.tp > 1 && strcmp(bt_kernels_isa(), "blas") == 0)
        return bt_fail(err, BT_UNSUPPORTED,
                       "train.reproducible with --tp %d: the rounding of OpenBLAS depends on the "
                       "width of a rank's part (use --isa generic)",
                       (int)t->cfg.mesh.tp);
    return t->cfg.train.parts > 1 && t->mesh.shape.tp == 1
               ? bt_tp_group_solo(&t->tp_group, rows, cols, err)
               : bt_tp_group_create(&t->tp_group, t->mesh.tp, rows, cols, err);
}

/* Checks the plan of the first model, and that of the last one if it differs. */
static bt_code plan_fits(bt_trainer *t, int rank, int local, const bt_memory_room *room,
                         bt_err *err) {
    if (t->now.model.linear != t->cfg.model.linear) {
        t->now.ckpt.memory = t->cfg.ckpt.memory;
        t->now.ckpt.async = t->cfg.ckpt.async;
        BT_TRY(bt_memory_check(&t->now, rank, local, t->parts.memory, room, err));
    }
    return bt_memory_check(&t->cfg, rank, local, t->parts.memory, room, err);
}

static bt_code check_memory(bt_trainer *t, bool spare, bt_err *err) {
    bt_memory_room room;
    bt_comm *world = t->mesh.world;
    bt_err why = BT_ERR_INIT;
    bt_memory_room_of(&room);
    const int rank = bt_comm_rank(world), local = bt_comm_local_size();
    if (spare) return bt_agree(world, plan_fits(t, rank, local, &room, err), err);
    if (t->attempt.memory_states) {
        if (bt_agree(world, plan_fits(t, rank, local, &room, &why), &why) == BT_OK) return BT_OK;
        /* If memory is short, states in memory are given up first, */
        t->attempt.memory_states = false;
        snprintf(t->attempt.no_memory_states, sizeof t->attempt.no_memory_states, "%.190s",
                 why.msg);
    }
    const int asked = t->cfg.ckpt.memory;
    t->cfg.ckpt.memory = BT_CKPT_MEMORY_OFF;
    bt_code code = bt_agree(world, plan_fits(t, rank, local, &room, &why), &why);
    if (code == BT_NOMEM && t->cfg.ckpt.async) { /* then the copy for asynchronous checkpoints */
        t->cfg.ckpt.async = false;
        t->attempt.ckpt_copy_too_large = true;
    }
    if (code != BT_OK) code = bt_agree(world, plan_fits(t, rank, local, &room, err), err);
    t->cfg.ckpt.memory = asked; /* checkpoints record the setting as given */
    return code;
}

static bt_code build_compute(bt_trainer *t, bt_err *err) {
    BT_TRY(bt_rank_setup_init(&t->setup, &t->now, bt_comm_rank(t->mesh.world), err));
    bt_model_setup setup = t->setup.model;
    setup.tp_group = t->tp_group;
    bt_parts_model_setup(t, &setup);
    BT_TRY(bt_model_create(&t->model, &setup, err));
    bt_model_dpo(t->model, bt_tune_dpo(&t->cfg));
    BT_TRY(bt_micro_schedule_create(&t->schedule, &setup, &t->mesh, err));
    const bt_update_cfg update = {
        .setup = &t->setup, .model = t->model, .mesh = &t->mesh, .tp_group = t->tp_group};
    BT_TRY(bt_update_create(&t->update, &update, err));
    t->micro.model = t->model;
    return bt_parts_model_made(t, err);
}

static void release_compute(bt_trainer *t) {
    bt_reducer_destroy(t->reducer);
    t->reducer = NULL;
    bt_observer_destroy(t->observer);
    t->observer = NULL;
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
                          .page = t->page,
                          .plan = &t->micro_plan,
                          .reproducible = t->cfg.train.reproducible,
                          .rows = t->cfg.train.micro_batch * t->cfg.model.seq_len,
                          .seq_len = t->cfg.model.seq_len,
                          .stretch = t->micro.stretch,
                          .loaded = bt_parts_change_batch,
                          .before_pass = bt_parts_before_pass,
                          .ctx = t,
                          .seed = (uint64_t)t->cfg.run.seed};
    return bt_micro_create(&t->micro, t->micro_plan.micros, err);
}

static bt_code build_observer(bt_trainer *t, bt_err *err) {
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
                        .bucket_bytes = (size_t)t->cfg.train.bucket_bytes,
                        .overlap = t->cfg.train.overlap,
                        .form = bt_rank_setup_form(&t->setup),
                        .shards = &t->update.shards,
                        .discard = t->cfg.mesh.zero >= 2,
                        .units = t->setup.units,
                        .shares = t->micro_plan.shares,
                        .lanes = t->setup.chunks,
                        .n_lanes = t->setup.n_chunks};
    bt_parts_reducer_cfg(t, &c);
    bt_reducer_destroy(t->reducer);
    t->reducer = NULL;
    BT_TRY(bt_reducer_create(&t->reducer, &c, err));
    t->micro.reducer = t->reducer;
    return BT_OK;
}

bt_code bt_trainer_build(bt_trainer *t, const bt_trainer_setup *s, bt_err *err) {
    bt_comm *world = bt_comm_world();
    bt_mesh_shape shape;
    bt_run_cfg_mesh(&t->cfg, &shape);
    BT_TRY(bt_mesh_resolve(&shape, bt_comm_size(world), err));
    BT_TRY(bt_mesh_create(&t->mesh, &shape, world, err));
    BT_TRY(bt_agree(world, make_tp_group(t, err), err));
    BT_TRY(check_memory(t, s->wait != NULL, err));
    BT_TRY(bt_parts_prepare(t, err));

    bt_code code = bt_micro_plan_create(&t->micro_plan, &t->cfg.train, t->cfg.model.seq_len,
                                        t->cfg.parallel.balance, &t->mesh, err);
    if (code == BT_OK) code = build_compute(t, err);
    if (code == BT_OK) code = build_micro(t, err);
    if (code == BT_OK) code = bt_telemetry_init(&t->telemetry, world, s->sink, err);
    if (code == BT_OK) code = build_observer(t, err);
    if (code == BT_OK) code = bt_trainer_open_data(t, err);
    BT_TRY(bt_agree(world, code, err));
    BT_TRY(bt_update_synchronise(&t->update, err));
    BT_TRY(agree_data(t, err));
    BT_TRY(bt_parts_build(t, err));
    return bt_trainer_make_reducer(t, err);
}

bt_code bt_trainer_remake_model(bt_trainer *t, bt_err *err) {
    release_compute(t);
    t->now = t->cfg;
    bt_code code = build_compute(t, err);
    if (code == BT_OK) code = build_observer(t, err);
    BT_TRY(bt_agree(t->mesh.world, code, err));
    return bt_update_synchronise(&t->update, err);
}

bt_code bt_trainer_ready(bt_trainer *t, bt_err *err) {
    BT_TRY(bt_update_quantise(&t->update, err));
    BT_TRY(t->schedule->tie(t->schedule, t->model, err));
    return bt_parts_ready(t, err);
}

void bt_trainer_release_objects(bt_trainer *t) {
    bt_parts_release(t);
    bt_reducer_destroy(t->reducer);
    bt_observer_destroy(t->observer);
    bt_telemetry_release(&t->telemetry);
    bt_loader_close(t->loader);
    bt_saver_release(&t->saver);
    bt_update_release(&t->update);
    bt_micro_schedule_destroy(t->schedule);
    bt_micro_release(&t->micro);
    bt_micro_plan_release(&t->micro_plan);
    bt_model_destroy(t->model);
    bt_tp_group_destroy(t->tp_group);
    bt_rank_setup_release(&t->setup);
    bt_mesh_release(&t->mesh);
}

bt_code bt_trainer_save(bt_trainer *t, bool best, bool wait, bt_err *err) {
    BT_TRY(bt_telemetry_flush(&t->telemetry, err));
    bt_progress_enter(t->page, BT_AT_CHECKPOINT, t->at.step - 1);
    BT_TRY(bt_parts_check_weights(t, BT_CHECK_BEFORE_SAVE, err));
    return bt_saver_save(&t->saver, best, wait, err);
}

void bt_trainer_forget_transfers(bt_trainer *t) {
    (void)bt_weights_take_busy_ns(t->update.weights);
    if (t->schedule->pipe) (void)bt_pipe_take_busy_ns(t->schedule->pipe);
}

bt_code bt_trainer_swap_for_use(bt_trainer *t, bt_err *err) {
    if (!t->update.for_use) return BT_OK;
    BT_TRY(bt_update_swap_for_use(&t->update, err));
    return t->schedule->tie(t->schedule, t->model, err);
}

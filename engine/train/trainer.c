/* trainer.c - a run from its settings to its result: plan, loop, result. */
#include "engine/train/trainer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/base/threads.h"
#include "engine/bench/peak.h"
#include "engine/ckpt/ckpt.h"
#include "engine/train/memory.h"
#include "engine/train/parts.h"
#include "engine/train/plan.h"

/* ---- create ---------------------------------------------------------------------------------- */

static bt_loader_cfg loader_cfg(const bt_trainer *t) {
    const bt_run_cfg *c = &t->cfg;
    return (bt_loader_cfg){.paths = c->data,
                           .val_paths = c->val_data,
                           .tokenizer = c->tokenizer,
                           .field = c->field,
                           .cache_dir = c->cache,
                           .split = BT_SPLIT_TRAIN,
                           .val_frac = c->val_frac,
                           .shuffle = c->shuffle,
                           .B = (int)c->micro_batch,
                           .T = (int)c->seq_len,
                           .V = (int)c->vocab,
                           .seed = (uint64_t)c->seed,
                           .first_step = t->at.step,
                           .sequences_per_step = (int)t->sequences,
                           .first_sequence = (int)(t->first_micro * c->micro_batch),
                           .n_sequences = (int)(t->n_micro * c->micro_batch)};
}

static bt_code build_model(bt_trainer *t, bt_err *err) {
    bt_model_setup setup = bt_plan_model(&t->cfg, t->rank);
    setup.tp_group = t->tp_group;
    if (t->cfg.parts > 1 && t->cfg.tp > 1 && strcmp(bt_kernels_isa(), "blas") == 0)
        return bt_fail(err, BT_UNSUPPORTED,
                       "train.reproducible with --tp %d: what OpenBLAS rounds depends on how wide "
                       "a rank's part is (use --isa generic)",
                       (int)t->cfg.tp);
    BT_TRY(bt_model_create(&t->model, &setup, err));
    BT_TRY(bt_pipeline_create(t, &setup, err));
    BT_TRY(bt_layout_take_pieces(t, err));
    return bt_stats_plan(t, err);
}

static bt_code open_data(bt_trainer *t, bt_err *err) {
    bt_loader_cfg data = loader_cfg(t);
    BT_TRY(bt_loader_open(&t->loader, &data, err));
    t->bytes_per_token = bt_loader_bytes_per_token(t->loader);
    if (t->cfg.val_frac <= 0 && !t->cfg.val_data[0]) return BT_OK;
    return bt_evaluator_open(&t->evaluator, &data, t->cfg.eval_tokens, t->mesh.dp, err);
}

/* A resumed run's loader begins at the checkpoint's step, which only the checkpoint knows. */
static bt_code reopen_data(bt_trainer *t, bt_err *err) {
    bt_loader_close(t->loader);
    t->loader = NULL;
    bt_loader_cfg data = loader_cfg(t);
    return bt_loader_open(&t->loader, &data, err);
}

static void plan_schedule(bt_trainer *t) {
    const bt_run_cfg *c = &t->cfg;
    t->schedule = (bt_schedule){.kind = (bt_sched_kind)c->schedule,
                                .steps = c->steps,
                                .warmup = c->warmup,
                                .lr = c->lr,
                                .lr_min_frac = c->lr_min,
                                .lr2 = c->lr2,
                                .decay_frac = c->decay_frac,
                                .weight_decay = c->weight_decay};
}

static bt_code start_weights(bt_trainer *t, const char *resume_dir, bt_err *err) {
    bt_comm *world = t->mesh.world;
    bt_code code = t->rank == 0 && t->cfg.out[0] ? bt_ckpt_begin(t->cfg.out, t->attempt, err)
                                                 : BT_OK;
    BT_TRY(bt_agree(world, code, err));
    t->at = (bt_progress){.lr_factor = 1};
    t->ckpt_step = -1;
    if (resume_dir && resume_dir[0]) {
        BT_TRY(bt_state_resume(t, resume_dir, err));
        BT_TRY(bt_agree(world, reopen_data(t, err), err));
    } else {
        bt_layout_init_weights(t);
        if (t->cfg.init_from[0]) BT_TRY(bt_state_init_from(t, t->cfg.init_from, err));
    }
    return bt_layout_quantise(t, err);
}

static bt_code build(bt_trainer *t, const bt_trainer_setup *s, bt_err *err) {
    bt_comm *world = bt_comm_world();
    bt_mesh_shape shape;
    bt_run_cfg_mesh(&t->cfg, &shape);
    bt_run_cfg_model(&t->cfg, &t->model_cfg);
    BT_TRY(bt_mesh_resolve(&shape, t->n_ranks, err));
    BT_TRY(bt_mesh_create(&t->mesh, &shape, world, err));
    size_t rows = (size_t)(t->cfg.micro_batch * t->cfg.seq_len), cols = (size_t)t->cfg.d_model;
    bt_code tp_group = t->cfg.parts > 1 && shape.tp == 1
                           ? bt_tp_group_solo(&t->tp_group, rows, cols, err)
                           : bt_tp_group_create(&t->tp_group, t->mesh.tp, rows, cols, err);
    BT_TRY(bt_agree(world, tp_group, err));

    bt_memory_room room;
    bt_memory_room_of(&room);
    bt_code code = bt_memory_check(&t->cfg, t->rank, bt_comm_local_size(), &room, err);
    BT_TRY(bt_agree(world, code, err));

    code = bt_share_plan(t, err);
    if (code == BT_OK) code = build_model(t, err);
    if (code == BT_OK) code = open_data(t, err);
    if (code == BT_OK) code = bt_telemetry_init(&t->telemetry, world, s->sink, err);
    BT_TRY(bt_agree(world, code, err));

    BT_TRY(bt_share_reducer(t, err));
    BT_TRY(bt_stats_links(t, err));
    t->telemetry.flop_token = bt_model_count(&t->model_cfg).flop_token;
    t->telemetry.step_tokens = t->cfg.batch_tokens;
    t->telemetry.warmup = s->warmup_steps;
    t->telemetry.peak_flops = s->measure_peak ? bt_peak_flops(bt_threads_count()) : 0;
    BT_TRY(bt_all_reduce_f64(world, &t->telemetry.peak_flops, 1, BT_SUM, err));
    plan_schedule(t);
    return start_weights(t, s->resume_dir, err);
}

bt_code bt_trainer_create(bt_trainer **out, const bt_trainer_setup *s, bt_err *err) {
    *out = NULL;
    bt_trainer *t = calloc(1, sizeof *t);
    bt_code code = t ? BT_OK : bt_fail(err, BT_NOMEM, "cannot take memory for the trainer");
    code = bt_agree(bt_comm_world(), code, err);
    if (code == BT_OK) {
        t->cfg = *s->cfg;
        t->requests = s->requests;
        t->place = s->place ? s->place : &t->own_place;
        bt_place_enter(t->place, BT_AT_START, 0);
        t->attempt = s->attempt;
        t->rank = bt_comm_rank(bt_comm_world());
        t->n_ranks = bt_comm_size(bt_comm_world());
        bt_loss_scale_init(&t->loss_scale, t->cfg.precision == BT_PREC_FP16, t->cfg.loss_scale,
                           t->cfg.loss_scale_every);
        t->val_loss = t->val_bits_per_byte = NAN;
        code = build(t, s, err);
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
    bt_reducer_destroy(t->reducer);
    bt_telemetry_release(&t->telemetry);
    bt_evaluator_close(t->evaluator);
    bt_loader_close(t->loader);
    bt_layout_release(t);
    bt_pipeline_release(t);
    bt_share_release(t);
    bt_model_destroy(t->model);
    bt_tp_group_destroy(t->tp_group);
    bt_mesh_release(&t->mesh);
    bt_stats_release(t);
    free(t);
}

bt_model *bt_trainer_model(bt_trainer *t) { return t->model; }

/* ---- what happens between steps -------------------------------------------------------------- */

static bool every(int64_t step, int64_t n) { return n > 0 && step % n == 0; }
static bool at_end(const bt_trainer *t) { return t->at.step >= t->cfg.steps; }
static bool at_stop(const bt_trainer *t) {
    return t->stop || (t->stop_at > 0 && t->at.step >= t->stop_at);
}

/* After the step's record has reached the sink: whoever resumes here will not do that step again,
 * so its row must not be lost with a rank killed in between. The time belongs to the step that
 * follows. */
static bt_code checkpoint_if_due(bt_trainer *t, bt_err *err) {
    bool leaving = (at_end(t) && t->cfg.ckpt_final) ||
                   (t->stop_at > 0 && t->at.step >= t->stop_at) ||
                   (t->notes[NOTE_CONTROL] & BT_REQ_STOP);
    if (!leaving && !every(t->at.step, t->cfg.ckpt_every) &&
        !(t->notes[NOTE_CONTROL] & REQ_CKPT_DUE))
        return BT_OK;
    int64_t start = bt_now_ns();
    BT_TRY(bt_telemetry_flush(&t->telemetry, err));
    bt_place_enter(t->place, BT_AT_CHECKPOINT, t->at.step - 1);
    BT_TRY(bt_state_save(t, err));
    bt_meter_add(&t->meter, BT_MR_CKPT, bt_now_ns() - start);
    return BT_OK;
}

bt_code bt_trainer_evaluate(bt_trainer *t, bt_err *err) {
    int64_t start = bt_now_ns();
    bt_place_enter(t->place, BT_AT_EVALUATION, t->at.step - 1);
    bt_eval_result r;
    bt_weights_times unmeasured;
    BT_TRY(bt_weights_begin(t->weights, BT_PASSES_FORWARD, NULL, bt_evaluator_micros(t->evaluator),
                            err));
    BT_TRY(bt_evaluator_run(t->evaluator, t->model, bt_pipeline_pipe(t), &r, err));
    BT_TRY(bt_weights_check(t->weights, err));
    BT_TRY(bt_weights_end(t->weights, &unmeasured, err));
    t->val_loss = r.nats;
    t->val_bits_per_byte = r.bits_per_byte;
    char body[160];
    snprintf(body, sizeof body,
             "{\"val_loss\":%.9g,\"bits_per_byte\":%.9g,\"tokens\":%" PRId64 ",\"took_ms\":%.3f}",
             r.nats, r.bits_per_byte, r.tokens, (double)(bt_now_ns() - start) / 1e6);
    bt_telemetry_event(&t->telemetry, "evaluation", BT_EV_INFO, t->at.step - 1,
                       isfinite(r.nats) ? body : NULL,
                       "validation %.4f nats per token, %.4f bits per byte (%" PRId64 " tokens)",
                       r.nats, r.bits_per_byte, r.tokens);
    return BT_OK;
}

/* An evaluation belongs to no step's time; its result belongs to this step's record. */
static bt_code evaluate_if_due(bt_trainer *t, bool *done, bt_err *err) {
    *done = t->evaluator && (every(t->at.step, t->cfg.eval_every) || at_end(t));
    if (!*done) return BT_OK;
    int64_t start = bt_now_ns();
    bt_profile_hold(true);
    bt_code code = bt_trainer_evaluate(t, err);
    bt_profile_hold(false);
    BT_TRY(code);
    bt_meter_exclude(&t->meter, bt_now_ns() - start);
    return BT_OK;
}

static bt_code record(bt_trainer *t, const bt_step_outcome *o, bool evaluated,
                      const double rank_values[BT_MR_COUNT], bt_err *err) {
    int64_t step = t->at.step - 1, start = bt_now_ns();
    bt_place_enter(t->place, BT_AT_RECORD, step);
    if (every(step, t->cfg.stats_every)) BT_TRY(bt_stats_record(t, step, o, err));
    if (every(step, t->cfg.log_every) || evaluated || !o->applied || at_end(t) || at_stop(t)) {
        double values[BT_MS_COUNT];
        for (int i = 0; i < BT_MS_COUNT; i++) values[i] = NAN;
        values[BT_MS_TOKENS] = (double)t->at.tokens;
        values[BT_MS_LOSS] = o->global_loss;
        values[BT_MS_GRAD_NORM] = o->grad_norm;
        values[BT_MS_LR] = o->lr;
        values[BT_MS_WEIGHT_DECAY] = o->weight_decay;
        values[BT_MS_LOSS_SCALE] = o->loss_scale;
        values[BT_MS_SKIPPED] = !o->applied;
        if (evaluated) values[BT_MS_VAL_LOSS] = t->val_loss;
        BT_TRY(bt_telemetry_post(&t->telemetry, step, values, rank_values, err));
    }
    bt_meter_add(&t->meter, BT_MR_MONITOR, bt_now_ns() - start);
    return BT_OK;
}

static void announce(bt_trainer *t) {
    if (t->at.step > 0) {
        bt_telemetry_event(&t->telemetry, "resumed", BT_EV_INFO, t->at.step - 1, NULL,
                           "resumed after step %" PRId64 " from '%s' on %d rank%s", t->at.step,
                           t->ckpt_path, t->n_ranks, t->n_ranks == 1 ? "" : "s");
    } else {
        bt_telemetry_event(&t->telemetry, "started", BT_EV_INFO, -1, NULL,
                           "training %" PRIu64 " parameters for %" PRId64
                           " steps on %d rank%s x %d thread%s, %s kernels",
                           bt_model_count(&t->model_cfg).params, t->cfg.steps, t->n_ranks,
                           t->n_ranks == 1 ? "" : "s", bt_threads_count(),
                           bt_threads_count() == 1 ? "" : "s", bt_kernels_isa());
    }
}

/* ---- run ------------------------------------------------------------------------------------- */

static void tell_profile(bt_trainer *t) {
    bt_profile *p = &t->profile;
    char line[200];
    t->rss_peak_mib = bt_rss_peak_mib();
    bt_profile_close(p, (bt_prec)t->cfg.precision);
    if (t->rank != 0) return;
    for (size_t i = 0; i < p->n; i++) {
        bt_profile_text(line, sizeof line, &p->rows[i]);
        bt_telemetry_event(&t->telemetry, "profile", BT_EV_INFO, t->at.step - 1, NULL, "%s", line);
    }
}

static bt_code train(bt_trainer *t, bt_err *err) {
    const int64_t last = t->stop_at > 0 && t->stop_at < t->cfg.steps ? t->stop_at : t->cfg.steps;
    bt_stats_begin(t);
    bt_meter_open(&t->meter);
    while (!at_end(t) && !at_stop(t)) {
        bt_step_outcome outcome;
        double values[BT_MR_COUNT];
        bool evaluated;
        BT_TRY(bt_train_step(t, &outcome, err));
        bt_meter_close(&t->meter, values);
        if (t->cfg.profile)
            bt_profile_step(&t->profile, t->at.step - t->first_step, last - t->first_step,
                            values[BT_MR_STEP_TIME]);

        BT_TRY(evaluate_if_due(t, &evaluated, err));
        BT_TRY(record(t, &outcome, evaluated, values, err));
        BT_TRY(checkpoint_if_due(t, err));
        BT_TRY(bt_control_obey(t, err));
    }
    if (t->cfg.profile) tell_profile(t);
    return bt_telemetry_flush(&t->telemetry, err);
}

/* A stop asked for during a pause comes after the step's own checkpoint time. */
static bt_code leave(bt_trainer *t, bt_err *err) {
    t->stopped = !at_end(t);
    bt_place_enter(t->place, BT_AT_END, t->at.step);
    if (t->stop && t->ckpt_step != t->at.step) BT_TRY(bt_state_save(t, err));
    if (t->evaluator && isnan(t->val_loss) && at_end(t)) BT_TRY(bt_trainer_evaluate(t, err));
    bt_telemetry_event(&t->telemetry, "stopped", BT_EV_INFO, t->at.step - 1, NULL,
                       t->stopped ? "stopped after step %" PRId64 " of %" PRId64
                                  : "finished: %" PRId64 " of %" PRId64 " steps",
                       t->at.step, t->cfg.steps);
    return BT_OK;
}

static bt_code result(bt_trainer *t, bt_train_result *out, bt_err *err) {
    memset(out, 0, sizeof *out);
    double rss = t->rss_peak_mib > 0 ? t->rss_peak_mib : bt_rss_peak_mib();
    BT_TRY(bt_all_reduce_f64(t->mesh.world, &rss, 1, BT_SUM, err));
    for (int m = 0; m < BT_MR_COUNT; m++)
        out->step_ms[m] = bt_telemetry_median(&t->telemetry, (bt_rank_metric)m);
    bt_telemetry_extremes(&t->telemetry, BT_MR_STEP_TIME, &out->step_ms_min, &out->step_ms_max);
    out->flop_token = t->telemetry.flop_token;
    out->peak_flops = t->telemetry.peak_flops;
    double per_s = (double)t->cfg.batch_tokens / (out->step_ms[BT_MR_STEP_TIME] / 1e3);
    out->steps = t->at.step;
    out->tokens = t->at.tokens;
    out->loss = t->telemetry.last_loss;
    out->val_loss = t->val_loss;
    out->val_bits_per_byte = t->val_bits_per_byte;
    out->tokens_per_s = per_s;
    out->mfu = t->telemetry.peak_flops > 0
                   ? t->telemetry.flop_token * per_s / t->telemetry.peak_flops
                   : NAN;
    out->rss_mib = rss;
    out->loss_scale = t->loss_scale.on ? t->loss_scale.value : NAN;
    out->skipped = t->at.step - t->at.updates;
    out->params = bt_model_count(&t->model_cfg).params;
    out->stopped = t->stopped;
    out->profile = t->profile;
    memcpy(out->checkpoint, t->ckpt_path, sizeof out->checkpoint);
    memcpy(out->trouble, t->ckpt_trouble, sizeof out->trouble);
    return BT_OK;
}

bt_code bt_trainer_run(bt_trainer *t, bt_train_result *out, bt_err *err) {
    t->first_step = t->at.step;
    t->stop_at = t->cfg.stop_after > 0 ? t->first_step + t->cfg.stop_after : 0;
    t->ckpt_at_ns = bt_now_ns();
    BT_TRY(bt_facts_tell(t, err));
    announce(t);
    bt_code code = train(t, err);
    if (code == BT_OK) code = leave(t, err);
    if (code == BT_OK) return result(t, out, err);
    bt_telemetry_event(&t->telemetry, "failure", BT_EV_ERROR, t->at.step, NULL, "%s",
                       err ? err->msg : bt_code_name(code));
    return code;
}

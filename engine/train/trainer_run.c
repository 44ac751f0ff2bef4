/* trainer_run.c - runs a trainer's steps from the announcement to the result, or single steps. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/base/tables/derived.h"
#include "engine/base/tables/metric.h"
#include "engine/base/threads.h"
#include "engine/kernels/table/kernels.h"
#include "engine/train/data/run_data.h"
#include "engine/train/trainer_impl.h"

static void announce_run(bt_trainer *t) {
    const int n_ranks = bt_comm_size(t->mesh.world);
    const bool from_memory = t->attempt.from.attempt > 0 || t->attempt.from.number > 0;
    if (t->attempt.ckpt_copy_too_large)
        bt_telemetry_event(
            &t->telemetry, BT_EVENT_WARNING, t->at.step - 1, NULL,
            "no memory for a copy of the state: training pauses while a checkpoint is written");
    if (t->attempt.isa && t->attempt.isa->note[0])
        bt_telemetry_event(&t->telemetry, BT_EVENT_KERNELS, t->at.step - 1, NULL, "%s",
                           t->attempt.isa->note);
    if (t->at.step > 0) {
        bt_telemetry_event(&t->telemetry, BT_EVENT_RESUMED, t->at.step - 1, NULL,
                           "resumed after step %" PRId64 " from %s%s%s on %d rank%s", t->at.step,
                           from_memory ? "memory" : "'", from_memory ? "" : t->saver.path,
                           from_memory ? "" : "'", n_ranks, n_ranks == 1 ? "" : "s");
    } else {
        const bt_model_counts n = bt_model_count(bt_model_config(t->model));
        char many[32], base[64] = "", of[32];
        if (n.adapters)
            snprintf(base, sizeof base, " of adapters, beside %s that are frozen,",
                     bt_metric_format(of, sizeof of, (double)n.params, BT_UNIT_COUNT));
        bt_metric_format(many, sizeof many, (double)(n.adapters ? n.adapters : n.params),
                         BT_UNIT_COUNT);
        bt_telemetry_event(&t->telemetry, BT_EVENT_STARTED, -1, NULL,
                           "training %s parameters%s for %" PRId64
                           " steps on %d rank%s x %d thread%s, %s kernels",
                           many, base, t->cfg.train.steps, n_ranks, n_ranks == 1 ? "" : "s",
                           bt_threads_count(), bt_threads_count() == 1 ? "" : "s",
                           bt_kernels_isa());
    }
    bt_run_data_describe(&t->telemetry, t->loader, &t->cfg, t->at.step - 1);
}

static void update_moving_mean(double *mean, double value) {
    const double weight = 0.125;
    *mean = *mean > 0 ? *mean + weight * (value - *mean) : value;
}

static bt_code run_steps(bt_trainer *t, bt_err *err) {
    bt_observer_begin(t->observer, t->at.step - 1);
    bt_meter_open(&t->meter);
    while (!bt_trainer_at_end(t) && !bt_trainer_at_stop(t) && !t->step.stop) {
        bt_step_outcome o;
        BT_TRY(bt_parts_before_step(t, err));
        BT_TRY(bt_train_step(t, &o, err));
        if (o.left) break;
        bt_meter_close(&t->meter, o.rank_values);
        update_moving_mean(&t->step.seconds, o.rank_values[BT_MR_STEP_TIME] / 1e3);
        BT_TRY(bt_parts_after_step(t, &o, err));
    }
    return bt_telemetry_flush(&t->telemetry, err);
}

/* A stop request during a pause is executed after the step's checkpoint. A run that an earlier attempt completed is
 * evaluated, too. */
static bt_code finish_run(bt_trainer *t, bt_train_result *out, bt_err *err) {
    const bt_control evaluate = {.verbs = BT_REQ_EVAL};
    t->attempt.stopped = !bt_trainer_at_end(t);
    BT_TRY(bt_saver_finish(&t->saver, err));
    bt_progress_enter(t->page, BT_AT_END, t->at.step);
    if (t->step.stop && t->saver.step != t->at.step) BT_TRY(bt_trainer_save(t, false, true, err));
    if (bt_trainer_validates(t) && isnan(t->validation.newest.nats) && bt_trainer_at_end(t))
        BT_TRY(bt_parts_act(t, &evaluate, false, err));
    bt_run_data_shares(&t->telemetry, t->loader, t->at.step);
    const bt_code code = bt_parts_end(t, out, err);
    bt_telemetry_event(&t->telemetry, BT_EVENT_STOPPED, t->at.step - 1, NULL,
                       t->attempt.stopped ? "stopped after step %" PRId64 " of %" PRId64 "%s%s"
                       : out->early[0]    ? "finished early: %" PRId64 " of %" PRId64 " steps%s%s"
                                          : "finished: %" PRId64 " of %" PRId64 " steps%s%s",
                       t->at.step, t->cfg.train.steps, out->early[0] ? ", after " : "", out->early);
    return code;
}

static bt_code fill_result(bt_trainer *t, bt_train_result *out, bt_err *err) {
    double memory = t->attempt.memory_peak_mib > 0 ? t->attempt.memory_peak_mib
                                                   : bt_memory_peak_mib();
    BT_TRY(bt_all_reduce_f64(t->mesh.world, &memory, 1, BT_SUM, err));
    for (int m = 0; m < BT_MR_COUNT; m++)
        out->step_ms[m] = bt_telemetry_median(&t->telemetry, (bt_rank_metric)m);
    bt_telemetry_extremes(&t->telemetry, BT_MR_STEP_TIME, &out->step_ms_min, &out->step_ms_max);
    out->flop_token = t->telemetry.flop_token;
    out->peak_flops = t->telemetry.peak_flops;
    double per_s = bt_derived_tokens_per_s((double)t->cfg.train.batch_tokens,
                                           out->step_ms[BT_MR_STEP_TIME]);
    out->steps = t->at.step;
    out->tokens = t->at.tokens;
    out->loss = t->telemetry.last_loss;
    out->val_loss = t->validation.newest.nats;
    out->val_bits_per_byte = t->validation.newest.bits_per_byte;
    out->tokens_per_s = per_s;
    out->mfu = bt_telemetry_mfu(&t->telemetry, per_s);
    out->memory_mib = memory;
    out->skipped = t->at.step - t->at.updates;
    out->params = bt_model_count(bt_model_config(t->model)).params;
    out->stopped = t->attempt.stopped;
    memcpy(out->checkpoint, t->saver.path, sizeof out->checkpoint);
    memcpy(out->trouble, t->saver.trouble, sizeof out->trouble);
    return BT_OK;
}

bt_code bt_trainer_run(bt_trainer *t, bt_train_result *out, bt_err *err) {
    t->attempt.first_step = t->at.step;
    t->attempt.stop_at = t->cfg.train.stop_after > 0 ? t->at.step + t->cfg.train.stop_after : 0;
    *out = (bt_train_result){.loss_scale = NAN};
    BT_TRY(bt_saver_start(&t->saver, err));
    BT_TRY(bt_record_facts(t, t->attempt.number > 1 || t->at.step > 0, err));
    announce_run(t);
    bt_code code = run_steps(t, err);
    if (code == BT_OK) code = finish_run(t, out, err);
    if (code == BT_OK) return fill_result(t, out, err);
    /* The state in memory may be damaged as well; checkpoints on disk were verified before they were written. */
    const char *dir = t->attempt.memory_dir;
    if (code == BT_DAMAGED && dir && dir[0] && bt_comm_rank(t->mesh.world) == 0)
        bt_memory_state_drop(dir);
    bt_telemetry_event(&t->telemetry, BT_EVENT_FAILURE, t->at.step, NULL, "%s",
                       err ? err->msg : bt_code_name(code));
    return code;
}

bt_code bt_trainer_steps(bt_trainer *t, int64_t n, double *step_s, bt_err *err) {
    BT_TRY(bt_barrier(t->mesh.world, err));
    const int64_t began = bt_now_ns();
    t->attempt.first_step = t->at.step;
    t->attempt.stop_at = t->at.step + n;
    BT_TRY(run_steps(t, err));
    double took[] = {(double)(bt_now_ns() - began) / 1e9 / (double)n};
    BT_TRY(bt_all_reduce_f64(t->mesh.world, took, 1, BT_MAX, err));
    *step_s = took[0];
    return BT_OK;
}

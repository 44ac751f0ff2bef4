/* rank_run.c - sets up cores, kernels, data and trainer of one rank, then runs the training. */
#include "cli/train/rank/rank_run.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/model/checkpoint_model.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/threads.h"
#include "engine/config/rank_setup.h"
#include "engine/data/tokenizer/tokenizer.h"
#include "engine/generate/generate.h"
#include "engine/kernels/table/cpu.h"
#include "engine/kernels/table/kernels.h"
#include "engine/parallel/mpi/comm.h"
#include "engine/plan/plan.h"
#include "monitor/job/machine/cpu_binding.h"

static void bind_rank_threads(const bt_run_cfg *cfg, int threads) {
    const bt_binding_job job = {.ranks = bt_comm_local_size(),
                                .rank = bt_comm_local_rank(),
                                .threads = threads,
                                .group = (int)(cfg->mesh.tp > 1 ? cfg->mesh.tp : 1)};
    if (!bt_bind_rank(&job))
        bt_log(BT_LOG_INFO, "rank %d could not be bound to its cores (%s): the system places it",
               bt_comm_rank(bt_comm_world()), strerror(errno));
}

bt_code bt_rank_prepare(const bt_run_cfg *cfg, const char *isa, bt_err *err) {
    bt_code code = bt_kernels_select(isa, err);
    const int threads = (int)cfg->launch.threads;
    bind_rank_threads(cfg, threads);
    if (code == BT_OK) code = bt_threads_init(threads, err);
    return bt_agree(bt_comm_world(), code, err);
}

static const int64_t SAMPLE_NS = 3000000000;
enum { SAMPLE_TOKENS = 240 };

static bt_code write_sample(const bt_run_cfg *cfg, bt_model *model, bt_text *out, bt_err *err) {
    bt_tokenizer *tok = NULL;
    bt_gen *gen = NULL;
    int32_t *ids = NULL;
    size_t n = 0, cap = 0;
    const bt_sampling how = {
        .temperature = 0.8, .top_k = 0, .top_p = 0.95, .seed = (uint64_t)cfg->run.seed};
    const int64_t until = bt_now_ns() + SAMPLE_NS;
    bt_code code = bt_tokenizer_load(&tok, cfg->data.tokenizer, err);
    if (code == BT_OK)
        code = bt_tokenizer_encode_as(tok, BT_ENCODE_WHOLE, "\n", 1, &ids, &n, &cap, err);
    if (code == BT_OK) code = bt_gen_create(&gen, model, err);
    if (code == BT_OK) code = bt_gen_feed(gen, ids, n, err);
    for (int i = 0; code == BT_OK && i < SAMPLE_TOKENS && bt_now_ns() < until; i++) {
        int32_t id;
        code = bt_gen_next(gen, &how, &id, err);
        if (code == BT_OK) bt_tokenizer_decode(tok, &id, 1, out);
    }
    bt_gen_destroy(gen);
    free(ids);
    bt_tokenizer_free(tok);
    return code;
}

/* Ranks of a tensor-parallel group or pipeline hold a part of the model, and ZeRO-3 ranks a shard of the weights;
 * the checkpoint contains all of it. */
static bt_code generate_sample_of_checkpoint(const bt_rank_run *r, const char *checkpoint,
                                             bt_text *out, bt_err *err) {
    bt_trained whole;
    const bt_trained_how how = {.which = checkpoint,
                                .weight = 1,
                                .isa = r->isa->isa,
                                .threads = bt_threads_count(),
                                .B = 1,
                                .precision = (int)r->cfg->train.precision};
    bt_code code = bt_trained_load(&whole, &how, err);
    if (code == BT_OK) code = write_sample(r->cfg, whole.model, out, err);
    bt_trained_release(&whole);
    return code;
}

bt_code bt_rank_train(const bt_rank_run *r, bt_train_result *out, bt_text *sample, bool *in_step,
                      bt_err *err) {
    *in_step = false;
    memset(out, 0, sizeof *out);
    bt_trainer *trainer = NULL;
    const bt_trainer_setup setup = {.cfg = r->cfg,
                                    .isa = r->isa,
                                    .sink = r->sink,
                                    .requests = r->requests,
                                    .page = r->page,
                                    .resume_dir = r->resume_dir,
                                    .attempt = r->attempt,
                                    .number = r->number,
                                    .kept_dir = r->kept_dir,
                                    .memory_dir = r->memory_dir,
                                    .measure_peak = true,
                                    .wait = r->wait,
                                    .wait_ctx = r->wait_ctx};
    BT_TRY(bt_trainer_create(&trainer, &setup, err));
    bt_code code = bt_trainer_run(trainer, out, err);
    *in_step = code != BT_OK;
    const bool text = strncmp(r->cfg->data.path, "synth:", 6) != 0;
    /* A frozen base is kept in a form that cannot decode; validations have already shown samples. */
    const bool wanted = code == BT_OK && sample && text && !out->stopped &&
                        r->cfg->tune.mode != BT_TUNE_LORA && bt_run_cfg_classes(r->cfg) == 0 &&
                        bt_comm_rank(bt_comm_world()) == 0;
    const bool part = r->cfg->mesh.tp > 1 || r->cfg->mesh.pp > 1 ||
                      bt_run_cfg_weight_source(r->cfg) != BT_WEIGHTS_LOCAL;
    bt_err why = BT_ERR_INIT;
    bt_code told = wanted && !part ? write_sample(r->cfg, bt_trainer_model(trainer), sample, &why)
                                   : BT_OK;
    bt_trainer_destroy(trainer);
    if (wanted && part && out->checkpoint[0])
        told = generate_sample_of_checkpoint(r, out->checkpoint, sample, &why);
    if (told != BT_OK) bt_log(BT_LOG_WARN, "no sample of text: %s", why.msg);
    return code;
}

void bt_rank_leave(bool in_step, const bt_err *err, int exit_status) {
    if (!in_step || bt_comm_size(bt_comm_world()) == 1) return;
    if (err->rank >= 0 && err->rank != bt_comm_rank(bt_comm_world())) bt_sleep_ns(500000000);
    bt_comm_abort(exit_status);
}

static void put_train_result(bt_json *j, const bt_train_result *r) {
    bt_json_int(j, "steps", r->steps);
    bt_json_int(j, "tokens", r->tokens);
    bt_json_num(j, "loss", r->loss);
    bt_json_num(j, "val_loss", r->val_loss);
    bt_json_num(j, "val_bits_per_byte", r->val_bits_per_byte);
    bt_json_num(j, "tokens_per_s", r->tokens_per_s);
    bt_json_num(j, "mfu", r->mfu);
    bt_json_num(j, "memory_mib", r->memory_mib);
    bt_json_int(j, "params", (int64_t)r->params);
    if (isfinite(r->loss_scale)) bt_json_num(j, "loss_scale", r->loss_scale);
    bt_json_int(j, "skipped", r->skipped);
    bt_json_bool(j, "stopped", r->stopped);
    if (r->early[0]) bt_json_str(j, "early", r->early);
    bt_json_str(j, "checkpoint", r->checkpoint);
    if (r->trouble[0]) bt_json_str(j, "trouble", r->trouble);
    bt_json_object(j, "step_ms");
    for (int i = 0; i < BT_MR_COUNT; i++)
        if (bt_rank_metrics[i].unit == BT_UNIT_MS)
            bt_json_num(j, bt_rank_metrics[i].key, r->step_ms[i]);
    bt_json_end(j, '}');
}

void bt_result_text(bt_text *out, const bt_train_result *r, const bt_text *sample) {
    bt_json j;
    bt_json_begin(&j, out);
    bt_json_object(&j, NULL);
    put_train_result(&j, r);
    if (sample->len) bt_json_str(&j, "sample", bt_text_str(sample));
    bt_json_end(&j, '}');
}

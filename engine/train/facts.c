/* facts.c - records facts of the whole run before the first step. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/threads.h"
#include "engine/kernels/table/cpu.h"
#include "engine/kernels/table/kernels.h"
#include "engine/plan/plan.h"
#include "engine/train/trainer_impl.h"

void bt_trainer_fact(bt_trainer *t, const char *key, const char *fmt, ...) {
    char value[256];
    va_list ap;
    if (!t->telemetry.sink.fact) return;
    va_start(ap, fmt);
    vsnprintf(value, sizeof value, fmt, ap);
    va_end(ap);
    t->telemetry.sink.fact(t->telemetry.sink.ctx, key, value);
}

static void record_model(bt_trainer *t) {
    bt_model_counts n = bt_model_count(bt_model_config(t->model));
    bt_trainer_fact(t, "params", "%" PRIu64, n.params);
    bt_trainer_fact(t, "params.linear", "%" PRIu64, n.linear);
    bt_trainer_fact(t, "params.embedding", "%" PRIu64, n.embedding);
    bt_trainer_fact(t, "flop_token", "%.17g", t->telemetry.flop_token);
    if (t->telemetry.peak_flops > 0)
        bt_trainer_fact(t, "peak_flops", "%.17g", t->telemetry.peak_flops);
}

static void record_work(bt_trainer *t) {
    bt_trainer_fact(t, "world_size", "%d", bt_comm_size(t->mesh.world));
    bt_trainer_fact(t, "codec", "%s", bt_codec_at((bt_codec_id)t->cfg.parallel.codec)->name);
    bt_trainer_fact(t, "comm.budget", "%s", t->cfg.comm.budget);
    bt_trainer_fact(t, "dp_size", "%d", bt_comm_size(t->mesh.dp));
    if (bt_comm_size(t->mesh.dp) > 1)
        bt_trainer_fact(t, "comm.on_host", "%s",
                        bt_reducer_shares_memory(t->reducer) ? "memory" : "messages");
    bt_trainer_fact(t, "steps_total", "%" PRId64, t->cfg.train.steps);
    bt_trainer_fact(t, "batch_tokens", "%" PRId64, t->cfg.train.batch_tokens);
    bt_trainer_fact(t, "micro_batch", "%" PRId64, t->cfg.train.micro_batch);
    bt_trainer_fact(t, "accum", "%" PRId64, t->micro_plan.n);
    bt_trainer_fact(t, "data.tokens", "%" PRId64, bt_loader_tokens(t->loader));
    if (bt_loader_sequences(t->loader) > 0)
        bt_trainer_fact(t, "data.epoch_tokens", "%" PRId64,
                        bt_loader_sequences(t->loader) * (int64_t)t->cfg.model.seq_len);
    bt_trainer_fact(t, "data.bytes_per_token", "%.17g", bt_loader_bytes_per_token(t->loader));
    bt_trainer_fact(t, "data.hash", "%016" PRIx64, bt_loader_hash(t->loader));
}

static void record_links(bt_trainer *t) {
    if (t->telemetry.peak_flops > 0 || bt_observer_link(t->observer, BT_AXIS_DP)->tried) {
        bt_trainer_fact(t, "measured.attempt", "%" PRId64, t->attempt.measured_by);
        if (isfinite(t->attempt.measured_load))
            bt_trainer_fact(t, "measured.load", "%.3g", t->attempt.measured_load);
    }
    for (int a = 0; a < BT_AXIS_COUNT; a++) {
        const bt_link *l = bt_observer_link(t->observer, (bt_axis)a);
        char key[64];
        snprintf(key, sizeof key, "link.%s.measured", bt_axis_name((bt_axis)a));
        if (l->tried && !(l->bytes_per_s > 0))
            bt_trainer_fact(t, key, "no: other work on the machine hid the time of the messages");
        if (!(l->bytes_per_s > 0)) continue;
        snprintf(key, sizeof key, "link.%s.latency_s", bt_axis_name((bt_axis)a));
        bt_trainer_fact(t, key, "%.9g", l->latency_s);
        snprintf(key, sizeof key, "link.%s.bytes_per_s", bt_axis_name((bt_axis)a));
        bt_trainer_fact(t, key, "%.9g", l->bytes_per_s);
    }
}

static void record_machine(bt_trainer *t) {
    bt_trainer_fact(t, "cpu", "%s", bt_cpu_get()->model);
    bt_trainer_fact(t, "isa", "%s", bt_kernels_isa());
    if (t->attempt.isa) bt_trainer_fact(t, "isa.processors", "%s", t->attempt.isa->processors);
    bt_trainer_fact(t, "threads", "%d", bt_threads_count());
    for (size_t i = 0; i < bt_kernels_slots(); i++) {
        char key[64];
        snprintf(key, sizeof key, "kernel.%s", bt_kernels_slot_name(i));
        bt_trainer_fact(t, key, "%s", bt_kernels_slot_winner(i));
    }
}

static void record_arenas(bt_trainer *t) {
    bt_arena_row rows[BT_PLAN_MAX];
    const int asked = t->cfg.ckpt.memory;
    if (!t->attempt.memory_states) t->cfg.ckpt.memory = BT_CKPT_MEMORY_OFF;
    size_t n = bt_plan_memory(&t->cfg, bt_comm_rank(t->mesh.world), t->parts.memory, rows);
    t->cfg.ckpt.memory = asked;
    for (size_t i = 0; i < n; i++) {
        char key[64];
        snprintf(key, sizeof key, "arena.%s", rows[i].name);
        bt_trainer_fact(t, key, "%zu", rows[i].bytes);
    }
}

/* Tensor-parallel ranks exchange data many times per layer, so a group that spans hosts loads the network. */
static void record_groups(bt_trainer *t, const bt_rank_info *all) {
    int tp = t->mesh.shape.tp, apart = 0;
    for (int first = 0; first < bt_comm_size(t->mesh.world); first += tp) {
        bool one = true;
        for (int r = first + 1; r < first + tp; r++)
            one &= strcmp(all[r].host, all[first].host) == 0;
        apart += !one;
    }
    if (!apart) return;
    bt_telemetry_event(&t->telemetry, BT_EVENT_WARNING, t->at.step, NULL,
                       "%d of %d tensor-parallel groups span several hosts: the exchanges of --tp "
                       "%d cross the network "
                       "(slots of a host: a multiple of %d; or --dp-shard instead)",
                       apart, bt_comm_size(t->mesh.world) / tp, tp, tp);
}

static bt_code record_rank_facts(bt_trainer *t, bt_err *err) {
    bt_rank_info mine = {.rank = bt_comm_rank(t->mesh.world),
                         .pid = (int)getpid(),
                         .threads = bt_threads_count(),
                         .pp = t->mesh.me.pp,
                         .dp_replicate = t->mesh.me.dp_replicate,
                         .dp_shard = t->mesh.me.dp_shard,
                         .tp = t->mesh.me.tp};
    gethostname(mine.host, sizeof mine.host - 1);
    snprintf(mine.isa, sizeof mine.isa, "%s", bt_kernels_isa());
    bt_rank_info *all = bt_comm_rank(t->mesh.world) == 0
                            ? calloc((size_t)bt_comm_size(t->mesh.world), sizeof *all)
                            : NULL;
    bt_code code = bt_comm_rank(t->mesh.world) == 0 && !all
                       ? bt_fail(err, BT_NOMEM, "cannot take memory for %d ranks",
                                 bt_comm_size(t->mesh.world))
                       : BT_OK;
    code = bt_agree(t->mesh.world, code, err);
    if (code == BT_OK) code = bt_gather(t->mesh.world, &mine, sizeof mine, all, 0, err);
    if (code == BT_OK && all && t->telemetry.sink.ranks)
        t->telemetry.sink.ranks(t->telemetry.sink.ctx, all, (size_t)bt_comm_size(t->mesh.world));
    if (code == BT_OK && all) record_groups(t, all);
    free(all);
    return code;
}

bt_code bt_record_facts(bt_trainer *t, bool goes_on, bt_err *err) {
    BT_TRY(record_rank_facts(t, err));
    if (!t->telemetry.sink.fact) return BT_OK;
    record_model(t);
    record_work(t);
    record_links(t);
    record_machine(t);
    record_arenas(t);
    bt_parts_facts(t, goes_on);
    return BT_OK;
}

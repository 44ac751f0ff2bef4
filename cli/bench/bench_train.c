/* bench_train.c - `bitrain bench train`: measures whole steps without record, checkpoint and validation.
 *
 * The work equals that of the PyTorch reference program: constant learning rate, synth:chain, the preset's batch. The
 * command times `--steps` steps after WARMUP steps. With train.reproducible, runs with and without this mode alternate;
 * the difference is the cost of the mode. A single rank runs in this process; for several ranks, mpirun
 * starts `bitrain bench train` again. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench/bench.h"
#include "cli/bench/bench_ranks.h"
#include "cli/common/quiet_settings.h"
#include "cli/common/run_shown.h"
#include "cli/train/rank/rank_run.h"
#include "engine/base/system/json_fields.h"
#include "engine/base/tables/derived.h"
#include "engine/base/threads.h"
#include "engine/kernels/table/cpu.h"
#include "engine/kernels/table/kernels.h"
#include "engine/parallel/mpi/comm.h"

enum { WARMUP = 2, STEPS = 5 };

/* additional time and memory compared with a run without train.reproducible */
typedef struct reproducible_cost {
    bool known;
    double step_frac, cpu_frac;
} reproducible_cost;

static bt_code read_bench_train_settings(bt_opts *o, bt_run_cfg *cfg, int argc, char **argv,
                                         bool first, bt_err *err) {
    return bt_quiet_settings_read(o, cfg, argc, argv, first, STEPS, WARMUP, err);
}

static bt_code settle_bench_settings(bt_opts *o, bt_run_cfg *cfg, const bt_isa_agreement *isa,
                                     bt_err *err) {
    bt_isa_agreement_apply(isa, cfg);
    return bt_quiet_settings_settle(o, cfg, bt_comm_size(bt_comm_world()), err);
}

static void put_bench_train_json(bt_json *j, const bt_run_cfg *c, const bt_train_result *r,
                                 const reproducible_cost *cost) {
    static const char *const precisions[] = {"fp32", "bf16", "fp16"};
    bt_json_str(j, "preset", c->model.preset);
    bt_json_str(j, "precision", precisions[c->train.precision]);
    bt_json_num(j, "tokens_per_s", r->tokens_per_s);
    bt_json_num(j, "tokens_per_s_min",
                bt_derived_tokens_per_s((double)c->train.batch_tokens, r->step_ms_max));
    bt_json_num(j, "tokens_per_s_max",
                bt_derived_tokens_per_s((double)c->train.batch_tokens, r->step_ms_min));
    bt_json_num(j, "mfu", r->mfu);
    bt_json_num(j, "gflops", r->flop_token * r->tokens_per_s / 1e9);
    bt_json_num(j, "peak_gflops", r->peak_flops > 0 ? r->peak_flops / 1e9 : NAN);
    for (int i = 0; i < BT_MR_COUNT; i++)
        if (bt_rank_metrics[i].unit == BT_UNIT_MS)
            bt_json_num(j, bt_rank_metrics[i].key, r->step_ms[i]);
    bt_json_num(j, "bytes_wire", r->step_ms[BT_MR_BYTES_WIRE]);
    bt_json_num(j, "memory_mib", r->memory_mib);
    if (cost->known) {
        bt_json_num(j, "reproducible_step_frac", cost->step_frac);
        bt_json_num(j, "reproducible_cpu_frac", cost->cpu_frac);
    }
    bt_json_num(j, "loss", r->loss);
    bt_json_int(j, "params", (int64_t)r->params);
    bt_json_str(j, "isa", bt_kernels_isa());
    bt_json_int(j, "threads", bt_threads_count());
    bt_json_int(j, "ranks", bt_comm_size(bt_comm_world()));
    BT_JSON_FIELDS(j, &c->train, F(batch_tokens), F(micro_batch), F(accum));
    bt_json_int(j, "steps", r->steps - WARMUP);
    bt_json_str(j, "cpu", bt_cpu_get()->model);
    if (r->profile.n > 0) {
        bt_json_object(j, "processor");
        for (int i = 0; i < BT_PHASE_COUNT; i++)
            bt_json_num(j, bt_rank_metrics[bt_phases[i].metric].key, r->profile.processor_ms[i]);
        bt_json_end(j, '}');
        bt_json_array(j, "profile");
        for (size_t i = 0; i < r->profile.n; i++) {
            const bt_profile_row *row = &r->profile.rows[i];
            bt_json_object(j, NULL);
            BT_JSON_FIELDS(j, row, F_AS("op", name), F(ms), F_AS("step_frac", frac), F(calls));
            if (row->bound > 0) {
                bt_json_num(j, "rate", row->rate);
                bt_json_str(j, "unit", row->unit);
                bt_json_num(j, "peak_frac", row->rate / row->bound);
                bt_json_str(j, "peak", row->bound_name);
            }
            bt_json_end(j, '}');
        }
        bt_json_end(j, ']');
    }
}

static void put_bench_train_text(bt_text *out, const bt_run_cfg *c, const bt_train_result *r,
                                 const reproducible_cost *cost) {
    char rate[32], ms[32], percent[32] = "unknown";
    const int ranks = bt_comm_size(bt_comm_world());
    bt_text_printf(out, "%s, %lld tokens a step, %d rank%s x %d thread%s, %s kernels, %s\n",
                   c->model.preset, (long long)c->train.batch_tokens, ranks, ranks == 1 ? "" : "s",
                   bt_threads_count(), bt_threads_count() == 1 ? "" : "s", bt_kernels_isa(),
                   bt_cpu_get()->model);
    if (isfinite(r->mfu)) bt_metric_format(percent, sizeof percent, r->mfu, BT_UNIT_FRAC);
    bt_text_printf(out, "  %-14s %s tokens (%.0f to %.0f), mfu %s, %.1f GFLOP/s\n", "speed",
                   bt_metric_format(rate, sizeof rate, r->tokens_per_s, BT_UNIT_PER_S),
                   bt_derived_tokens_per_s((double)c->train.batch_tokens, r->step_ms_max),
                   bt_derived_tokens_per_s((double)c->train.batch_tokens, r->step_ms_min), percent,
                   r->flop_token * r->tokens_per_s / 1e9);
    bt_text_printf(out, "  %-14s %s", "step",
                   bt_metric_format(ms, sizeof ms, r->step_ms[BT_MR_STEP_TIME], BT_UNIT_MS));
    for (int i = 0; i < BT_PHASE_COUNT; i++)
        bt_text_printf(out, "%s %s %s", i ? "," : " =", bt_phases[i].name,
                       bt_metric_format(ms, sizeof ms, r->step_ms[bt_phases[i].metric],
                                        BT_UNIT_MS));
    bt_text_printf(out, "\n  %-14s %.0f MiB at most, all ranks, what they share once\n", "memory",
                   r->memory_mib);
    if (cost->known)
        bt_text_printf(out,
                       "  %-14s costs %+.1f %% of a plain step, %+.1f %% of its processor time\n",
                       "reproducible", 100 * cost->step_frac, 100 * cost->cpu_frac);
    bt_text_printf(out, "  %-14s %.4f after %lld steps, %llu parameters\n", "loss", r->loss,
                   (long long)r->steps, (unsigned long long)r->params);
    if (r->profile.n > 0) {
        bt_text_printf(out, "  %-14s", "processor");
        for (int i = 0; i < BT_PHASE_COUNT; i++)
            bt_text_printf(out, "%s %s %s", i ? "," : "", bt_phases[i].name,
                           bt_metric_format(ms, sizeof ms, r->profile.processor_ms[i], BT_UNIT_MS));
        bt_text_put(out, " (a rank)\n");
    }
    for (size_t i = 0; i < r->profile.n; i++) {
        char line[200];
        bt_profile_text(line, sizeof line, &r->profile.rows[i]);
        bt_text_printf(out, "  %s\n", line);
    }
    bt_text_printf(out, "  (median of %lld steps after %d)\n", (long long)r->steps - WARMUP,
                   WARMUP);
}

/* progress over several trainings, of which the current one has the number `round` */
typedef struct shown_steps {
    bt_bench_bar bar;
    int64_t steps;
    int round, rounds;
} shown_steps;

static void show_bench_step(void *ctx, const bt_step_record *r) {
    shown_steps *s = ctx;
    char note[64];
    snprintf(note, sizeof note, "step %lld of %lld", (long long)r->step + 1, (long long)s->steps);
    bt_bench_bar_show(&s->bar, (s->round + (double)(r->step + 1) / (double)s->steps) / s->rounds,
                      note);
}

static bt_code measure_training_steps(const bt_run_cfg *cfg, shown_steps *shown, bt_train_result *r,
                                      bt_err *err) {
    bt_trainer *t = NULL;
    const bt_sink sink = {.ctx = shown, .step = show_bench_step};
    shown->steps = cfg->train.steps;
    bt_bench_bar_show(&shown->bar, (double)shown->round / shown->rounds,
                      "memory, data, rates of this machine");
    const bt_trainer_setup setup = {
        .cfg = cfg, .sink = &sink, .resume_dir = "", .warmup_steps = WARMUP, .measure_peak = true};
    BT_TRY(bt_rank_prepare(cfg, cfg->launch.isa, err));
    BT_TRY(bt_trainer_create(&t, &setup, err));
    bt_code code = bt_trainer_run(t, r, err);
    bt_trainer_destroy(t);
    shown->round++;
    return code;
}

/* The order is plain, reproducible, plain, reproducible, so that disturbances affect both modes; r receives the result
 * of the last run. */
static bt_code measure_cost(const bt_run_cfg *cfg, const bt_run_cfg *plain, shown_steps *shown,
                            bt_train_result *r, reproducible_cost *cost, bt_err *err) {
    shown->rounds = 4;
    double step[2] = {0, 0}, cpu[2] = {0, 0};
    for (int i = 0; i < 4; i++) {
        BT_TRY(measure_training_steps(i % 2 ? cfg : plain, shown, r, err));
        step[i % 2] += r->step_ms[BT_MR_STEP_TIME];
        cpu[i % 2] += r->step_ms[BT_MR_CPU];
    }
    *cost = (reproducible_cost){true, step[1] / step[0] - 1, cpu[1] / cpu[0] - 1};
    return BT_OK;
}

static bt_code read_settings_without_reproducible(bt_run_cfg **plain, int argc, char **argv,
                                                  const bt_isa_agreement *isa, bt_err *err) {
    static bt_opts o;
    static bt_run_cfg cfg;
    static char set[] = "--set", off[] = "train.reproducible=false";
    char **words = malloc(((size_t)argc + 2) * sizeof *words);
    if (!words) return bt_fail(err, BT_NOMEM, "no memory for the settings");
    memcpy(words, argv, (size_t)argc * sizeof *words);
    words[argc] = set;
    words[argc + 1] = off;
    bt_code code = read_bench_train_settings(&o, &cfg, argc + 2, words, false, err);
    if (code == BT_OK) code = settle_bench_settings(&o, &cfg, isa, err);
    free(words);
    *plain = &cfg;
    return code;
}

static bt_code bench_train_as_rank(int argc, char **argv, bt_run_cfg *cfg, bool marked,
                                   bt_err *err) {
    static bt_opts opts;
    bt_train_result r;
    bt_printout o;
    BT_TRY(bt_comm_init(err));
    bt_comm *world = bt_comm_world();
    bt_code code = bt_agree(world, read_bench_train_settings(&opts, cfg, argc, argv, false, err),
                            err);
    bt_isa_agreement isa;
    if (code == BT_OK) code = bt_agree_isa(world, cfg->launch.isa, &isa, err);
    if (code == BT_OK) code = bt_agree(world, settle_bench_settings(&opts, cfg, &isa, err), err);
    if (code == BT_OK) code = bt_agree_settings(world, cfg, err);
    reproducible_cost cost = {0};
    bt_run_cfg *plain = NULL;
    shown_steps shown = {.rounds = 1};
    bt_bench_bar_begin(&shown.bar, marked, cfg->run.quiet || cfg->run.json);
    if (code == BT_OK && cfg->train.reproducible) {
        code = bt_agree(world, read_settings_without_reproducible(&plain, argc, argv, &isa, err),
                        err);
        if (code == BT_OK) code = measure_cost(cfg, plain, &shown, &r, &cost, err);
    } else if (code == BT_OK) {
        code = measure_training_steps(cfg, &shown, &r, err);
    }
    bt_bench_bar_end(&shown.bar);
    if (code == BT_OK && bt_comm_rank(world) == 0) {
        bt_printout_begin(&o, cfg->run.json);
        if (cfg->run.json)
            put_bench_train_json(&o.j, cfg, &r, &cost);
        else
            put_bench_train_text(&o.out, cfg, &r, &cost);
        bt_bench_print_result(&o, marked);
    }
    bt_threads_release();
    if (code == BT_OK) bt_comm_finalize();
    return code;
}

bt_code bt_bench_train(int argc, char **argv, int *exit_status, bt_err *err) {
    static bt_run_cfg cfg;
    static bt_opts o;
    if (bt_comm_am_rank()) {
        bt_code code = bench_train_as_rank(argc, argv, &cfg, true, err);
        if (code != BT_OK) bt_run_shown_fail(code, err, exit_status);
        return BT_OK;
    }
    BT_TRY(read_bench_train_settings(&o, &cfg, argc, argv, true, err));
    BT_TRY(bt_quiet_settings_settle(&o, &cfg, 0, err));
    if (cfg.launch.ranks > 1) return bt_bench_on_ranks("train", argc, argv, &cfg, err);
    return bench_train_as_rank(argc, argv, &cfg, false, err);
}

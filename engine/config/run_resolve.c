/* run_resolve.c - checks settings against each other, and computes automatic values.
 *
 * Errors contain the numbers that do not fit and the nearest ones that do. Resolving twice changes nothing. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/numbers/predicted.h"
#include "engine/base/system/ascii.h"
#include "engine/config/part_rules.h"
#include "engine/config/resolve_impl.h"
#include "engine/config/tune_cfg.h"
#include "engine/kernels/table/cpu.h"
#include "engine/kernels/table/kernels.h"
#include "engine/model/net/model.h"
#include "engine/optim/loss_scale.h"
#include "engine/optim/lr_schedule.h"
#include "engine/optim/optim.h"
#include "engine/parallel/grad/codec_dial.h"
#include "engine/parallel/schedule/balance.h"

enum {
    EVAL_APART = 25, /* minimum number of steps between automatic validations */
};

static bt_code check_run_name_setting(const bt_run_cfg *c, bt_err *err) {
    if (c->run.name[0] && !bt_name_ok(c->run.name))
        return bt_fail(err, BT_ARG,
                       "the run name '%s' is not allowed: use at most 64 letters, digits, '.', '_' "
                       "and '-', beginning with a letter or digit",
                       c->run.name);
    if (c->run.name[0] && bt_ascii_equal(c->run.name, "last"))
        return bt_fail(err, BT_ARG, "'last' means the newest run and cannot be the name of a run");
    return BT_OK;
}

static bt_code check_prediction(const bt_run_cfg *c, bt_err *err) {
    bt_predicted predicted;
    if (!bt_predicted_read(c->launch.predicted_parts, &predicted))
        return bt_fail(err, BT_ARG,
                       "launch.predicted_parts '%.60s' is not of the form 'step_ms=150 fwd_ms=40'",
                       c->launch.predicted_parts);
    return BT_OK;
}

static bt_code check_isa(const bt_run_cfg *c, bt_err *err) {
    const char *isas[16];
    size_t n_isas = 0;
    while (n_isas < 16 && bt_kernels_isa_name(n_isas))
        isas[n_isas] = bt_kernels_isa_name(n_isas), n_isas++;
    bool known = false;
    for (size_t i = 0; i < n_isas; i++) known |= strcmp(c->launch.isa, isas[i]) == 0;
    if (!known) {
        const char *near = bt_nearest(c->launch.isa, isas, n_isas);
        return bt_fail(err, BT_ARG, "unknown isa '%s'%s%s%s (" BT_ISA_WORDS ")", c->launch.isa,
                       near ? ": did you mean '" : "", near ? near : "", near ? "'?" : "");
    }
    return BT_OK;
}

static bt_code check_word_settings(const bt_run_cfg *c, bt_text *faults, bt_err *err) {
    BT_TRY(bt_collect_fault(faults, check_run_name_setting(c, err), err));
    BT_TRY(bt_collect_fault(faults, check_prediction(c, err), err));
    return bt_collect_fault(faults, check_isa(c, err), err);
}

/* Writes the values nearest to x, from 1 to `most`, that satisfy `fits`, such as "5 or 8". */
static const char *put_nearest_sizes(char *buf, size_t size, bool (*fits)(const void *ctx, int n),
                                     const void *ctx, int64_t x, int most) {
    int below = x <= most ? (int)x - 1 : most, above = x < most ? (int)x + 1 : most + 1;
    while (below > 0 && !fits(ctx, below)) below--;
    while (above <= most && !fits(ctx, above)) above++;
    if (above > most)
        snprintf(buf, size, "%d", below);
    else if (below < 1)
        snprintf(buf, size, "%d", above);
    else
        snprintf(buf, size, "%d or %d", below, above);
    return buf;
}

static bool model_divides_into(const void *model, int n) { return bt_leaves_fit(model, n); }

typedef struct shared_parts {
    const bt_model_cfg *m;
    int parts;
} shared_parts;

static bool parts_divide_among(const void *ctx, int tp) {
    const shared_parts *s = ctx;
    bt_model_cfg part;
    return bt_leaves_divide(s->parts, tp) &&
           bt_slice_cfg(&part, s->m, (bt_model_slice){.tp_size = tp}, NULL) == BT_OK;
}

/* Returns the number of parts of reproducible training for tp ranks: that of one rank, or one for each rank. */
static int parts_for_tp(const bt_model_cfg *m, int tp) {
    int n = tp;
    while (2 * n <= BT_LEAVES_AUTO && bt_leaves_fit(m, 2 * n)) n *= 2;
    return bt_leaves_fit(m, n) ? n : 0;
}

/* Reproducible training sums over equal parts of the model; a tensor-parallel rank computes 1, 2, 4, ... of them. */
static bt_code resolve_parts(bt_run_cfg *c, const bt_model_cfg *m, bt_err *err) {
    char buf[48], or [64] = "";
    if (!c->train.reproducible) {
        c->train.parts = 0;
        return BT_OK;
    }
    if (c->train.parts == 0) c->train.parts = bt_leaves_auto(m);
    if (!bt_leaves_fit(m, (int)c->train.parts))
        return bt_fail(
            err, BT_ARG,
            "train.parts %" PRId64
            ": heads %d, kv heads %d and d_ff %d do not make so many equal parts (use %s)",
            c->train.parts, m->H, m->KV, m->F,
            put_nearest_sizes(buf, sizeof buf, model_divides_into, m, c->train.parts,
                              BT_LEAVES_MAX));
    if (c->mesh.tp > 1 && strcmp(c->launch.isa, "blas") == 0)
        return bt_fail(
            err, BT_ARG,
            "train.reproducible with --tp %" PRId64
            ": the rounding of OpenBLAS depends on the width of a rank's part (use --isa "
            "auto or generic)",
            c->mesh.tp);
    if (bt_leaves_divide((int)c->train.parts, (int)c->mesh.tp)) return BT_OK;
    shared_parts shared = {m, (int)c->train.parts};
    int parts = parts_for_tp(m, (int)c->mesh.tp);
    if (parts) snprintf(or, sizeof or, ", or train.parts=%d in all runs to be compared", parts);
    return bt_fail(err, BT_ARG,
                   "train.reproducible: --tp %" PRId64 " cannot share out the %" PRId64
                   " part%s of this model, 1, 2, 4, ... to a rank (use --tp %s%s)",
                   c->mesh.tp, c->train.parts, c->train.parts == 1 ? "" : "s",
                   put_nearest_sizes(buf, sizeof buf, parts_divide_among, &shared, c->mesh.tp,
                                     BT_LEAVES_MAX),
                   or);
}

static bt_code resolve_model(bt_run_cfg *c, bt_err *err) {
    char buf[64];
    if (c->model.head_dim == 0) {
        if (c->model.d_model % c->model.heads != 0)
            return bt_fail(err, BT_ARG,
                           "model.heads %" PRId64 " does not divide model.d_model %" PRId64
                           " (use %s heads, or set model.head_dim)",
                           c->model.heads, c->model.d_model,
                           bt_divisors(buf, sizeof buf, c->model.d_model, c->model.heads));
        c->model.head_dim = c->model.d_model / c->model.heads;
    }
    if (c->model.heads % c->model.kv_heads != 0)
        return bt_fail(err, BT_ARG,
                       "model.kv_heads %" PRId64 " does not divide model.heads %" PRId64
                       " (use %s kv_heads)",
                       c->model.kv_heads, c->model.heads,
                       bt_divisors(buf, sizeof buf, c->model.heads, c->model.kv_heads));
    bt_model_cfg m, part;
    bt_run_cfg_model(c, &m);
    BT_TRY(bt_model_cfg_check(&m, err));
    if (c->train.grad == BT_GRAD_INT8 && c->model.linear == BT_LIN_DENSE)
        return bt_fail(err, BT_ARG,
                       "--grad int8 rounds the gradients of ternary layers, and model.linear=dense "
                       "has none (use --grad float)");
    if (c->train.grad == BT_GRAD_AUTO) {
        bool may = c->train.precision == BT_PREC_BF16 && c->model.linear != BT_LIN_DENSE;
        c->train.grad = may && bt_kernels_int8_pays(c->launch.isa) ? BT_GRAD_INT8 : BT_GRAD_FLOAT;
    }
    if (c->train.attention == BT_ATTENTION_AUTO) {
        /* the measurements that justify this used plain text (tests/bench/results/int8.md) */
        bool may = c->train.grad == BT_GRAD_INT8 && c->train.precision == BT_PREC_BF16 &&
                   c->data.form == BT_FORMED_TEXT && c->tune.mode == BT_TUNE_FULL;
        may = may && !c->int8_attention_slow && bt_kernels_int8_attention_pays(c->launch.isa);
        c->train.attention = may ? BT_ATTENTION_INT8 : BT_ATTENTION_FLOAT;
    }
    if (c->parallel.virtual_stages > 1 && c->mesh.pp == 1)
        return bt_fail(err, BT_ARG,
                       "--virtual-stages %" PRId64 " without a pipeline (use --pp 2 or more, or "
                       "leave it out)",
                       c->parallel.virtual_stages);
    const bt_model_slice slice = {.tp_size = (int)c->mesh.tp,
                                  .pp_size = (int)c->mesh.pp,
                                  .virtual_stages = (int)c->parallel.virtual_stages};
    BT_TRY(bt_slice_cfg(&part, &m, slice, err));
    return resolve_parts(c, &m, err);
}

/* Every shard must own whole blocks of parameters. */
static bt_code check_shards(const bt_run_cfg *c, bt_err *err) {
    bt_model_cfg m;
    bt_params p;
    if (c->mesh.dp_shard == 1) return BT_OK;
    bt_run_cfg_model(c, &m);
    /* enough weights in the layers suffice; building the tables of all stages and ranks would take long */
    double layers = (double)(c->model.layers / c->mesh.pp) / 2,
           least = layers * (double)c->model.d_ff * (double)c->model.d_model / (double)c->mesh.tp;
    if (c->model.layers >= 2 * c->mesh.pp && least > (double)c->mesh.dp_shard * BT_SUM_BLOCK)
        return BT_OK;
    int64_t blocks = INT64_MAX;
    /* number of blocks of the smallest slice; layers, vocabularies and kv heads may differ */
    for (int k = 0; k < (int)(c->mesh.tp * c->mesh.pp); k++) {
        BT_TRY(bt_params_init(&p, &m,
                              (bt_model_slice){.tp_rank = k % (int)c->mesh.tp,
                                               .tp_size = (int)c->mesh.tp,
                                               .pp_stage = k / (int)c->mesh.tp,
                                               .pp_size = (int)c->mesh.pp,
                                               .virtual_stages = (int)c->parallel.virtual_stages},
                              err));
        int64_t here = (int64_t)((p.total + BT_SUM_BLOCK - 1) / BT_SUM_BLOCK);
        if (here < blocks) blocks = here;
        bt_params_release(&p);
    }
    if (c->mesh.dp_shard <= blocks) return BT_OK;
    return bt_fail(err, BT_ARG,
                   "--dp-shard %" PRId64
                   ": more shards than blocks of %d parameters, of which %s has %" PRId64
                   " (use --dp-shard %" PRId64 ")",
                   c->mesh.dp_shard, BT_SUM_BLOCK,
                   c->mesh.pp > 1   ? "a pipeline stage"
                   : c->mesh.tp > 1 ? "a tensor-parallel rank"
                                    : "the model",
                   blocks, bt_divisor_below(c->mesh.dp_replicate * c->mesh.dp_shard, blocks));
}

static bt_code resolve_mesh(bt_run_cfg *c, int world_size, bt_err *err) {
    bt_mesh_shape s;
    if (c->launch.ranks && c->launch.ranks != world_size)
        return bt_fail(err, BT_ARG,
                       "launch.ranks is %" PRId64
                       " but the job was started with %d (leave --ranks out under mpirun)",
                       c->launch.ranks, world_size);
    c->launch.ranks = world_size;
    if (c->mesh.dp_shard > 1 && c->mesh.zero == 0)
        return bt_fail(err, BT_ARG,
                       "--dp-shard %" PRId64
                       " needs --zero 1, 2 or 3 (or leave it out: --ranks alone gives replicas)",
                       c->mesh.dp_shard);
    /* all data-parallel ranks share the state */
    if (c->mesh.zero > 0 && c->mesh.dp_shard == 1 && c->mesh.dp_replicate == 0) {
        int64_t inner = c->mesh.tp * c->mesh.pp;
        if (world_size % inner == 0) c->mesh.dp_shard = world_size / inner;
    }
    bt_run_cfg_mesh(c, &s);
    BT_TRY(bt_mesh_resolve(&s, world_size, err));
    c->mesh.dp_replicate = s.dp_replicate;
    if (c->mesh.zero > 0 && c->mesh.dp_shard == 1 && c->mesh.dp_replicate > 1)
        return bt_fail(err, BT_ARG,
                       "--zero %" PRId64 " with --dp-replicate %" PRId64
                       " leaves one shard, which shares nothing out (use --dp-shard %" PRId64
                       ", or leave --dp-replicate out)",
                       c->mesh.zero, c->mesh.dp_replicate,
                       bt_divisor_above(c->mesh.dp_replicate, 2));
    /* A stage alternates forward and backward passes, so layers would be gathered for every pass. */
    if (c->mesh.pp > 1 && c->mesh.zero >= 3 && c->parallel.gather == BT_GATHER_LAYER)
        c->parallel.gather = BT_GATHER_STEP;
    if (c->mesh.pp > 1 && c->train.reproducible && c->train.parts <= 1)
        return bt_fail(err, BT_ARG,
                       "train.reproducible: --pp %" PRId64
                       " needs train.parts of 2 or more, which this model's heads and widths do "
                       "not share out (use --pp 1)",
                       c->mesh.pp);
    return check_shards(c, err);
}

/* Every rank of a tensor-parallel group must have its own tokens. */
static bt_code check_sequence(const bt_run_cfg *c, bt_err *err) {
    int64_t tokens = c->train.micro_batch * c->model.seq_len;
    if (c->mesh.tp == 1 || !c->mesh.sequence || tokens >= c->mesh.tp) return BT_OK;
    return bt_fail(
        err, BT_ARG,
        "--tp %" PRId64 ": a micro-batch has %" PRId64 " x %" PRId64
        " tokens, fewer than ranks to share them (use mesh.sequence=false, or --seq-len %" PRId64
        ")",
        c->mesh.tp, c->train.micro_batch, c->model.seq_len,
        (c->mesh.tp + c->train.micro_batch - 1) / c->train.micro_batch);
}

static bt_code check_outer_momentum(const bt_run_cfg *c, bt_err *err) {
    if (c->islands.outer_momentum < 0 && c->islands.outer_momentum != -1)
        return bt_fail(err, BT_ARG,
                       "islands.outer_momentum %g is neither a momentum (0 to below 1) nor -1, "
                       "which leaves it to the number of islands",
                       c->islands.outer_momentum);
    return BT_OK;
}

static bt_code check_loss_scale(const bt_run_cfg *c, bt_err *err) {
    if (bt_loss_scale_is(c->train.loss_scale)) return BT_OK;
    double below = exp2(floor(log2(c->train.loss_scale)));
    return bt_fail(err, BT_ARG, "train.loss_scale %.17g is not a power of two (use %.0f or %.0f)",
                   c->train.loss_scale, below, 2 * below);
}

static bt_code check_numbers(const bt_run_cfg *c, bt_text *faults, bt_err *err) {
    BT_TRY(bt_collect_fault(faults, check_outer_momentum(c, err), err));
    return bt_collect_fault(faults, check_loss_scale(c, err), err);
}

static bt_code check_pipe_codec(const bt_run_cfg *c, bt_err *err) {
    if (c->train.reproducible && c->comm.pipe == BT_PIPE_BF16)
        return bt_fail(err, BT_ARG,
                       "train.reproducible with comm.pipe bf16: what stages send is rounded, and "
                       "another number of stages sends other values (use comm.pipe fp32)");
    return BT_OK;
}

/* Refuses a codec that rounds partial sums, because the number of partial sums depends on the layout. */
static bt_code check_gradient_codec(const bt_run_cfg *c, bt_err *err) {
    const bt_codec *codec = bt_codec_at((bt_codec_id)c->parallel.codec);
    if (!c->train.reproducible || codec->order_exact || codec->reproducible) return BT_OK;
    return bt_fail(err, BT_ARG,
                   "train.reproducible with --codec %s: the codec rounds the sums that ranks send "
                   "each other, and on another number of ranks those are other sums (use --codec "
                   "int8, which is exact there, or none)",
                   codec->name);
}

static bt_code check_codec(const bt_run_cfg *c, bt_text *faults, bt_err *err) {
    BT_TRY(bt_collect_fault(faults, check_pipe_codec(c, err), err));
    return bt_collect_fault(faults, check_gradient_codec(c, err), err);
}

/* The codec dial decides by measured times, so another run with the same settings may switch at other steps. */
static bt_code resolve_budget(bt_run_cfg *c, bt_err *err) {
    double rate;
    BT_TRY(bt_comm_budget_parse(c->comm.budget, &rate, err));
    if (rate < 0) return BT_OK;
    if (c->train.reproducible)
        return bt_fail(err, BT_ARG,
                       "train.reproducible with comm.budget %s: measured times would decide when "
                       "the codec changes, and so the bits of the run (use comm.budget off, and "
                       "--codec int8, which is exact there)",
                       c->comm.budget);
    if (c->parallel.codec == BT_CODEC_NONE) c->parallel.codec = BT_CODEC_INT8;
    return BT_OK;
}

/* Returns a tenth of the steps. A short run with new weights has a third, at most 50, because runs of about 150 steps
 * then reach a lower loss (engine/config/recipe.md). */
static int64_t auto_warmup(int64_t steps, bool fresh) {
    const int64_t tenth = steps / 10, third = steps / 3, least = third < 50 ? third : 50;
    return fresh && tenth < least ? least : tenth;
}

static bt_code resolve_length(bt_run_cfg *c, bt_err *err) {
    const bt_preset *p = bt_preset_find(c->model.preset);
    if (c->train.tokens) {
        const int64_t steps = (c->train.tokens + c->train.batch_tokens - 1) / c->train.batch_tokens;
        if (c->train.steps && c->train.steps != steps)
            return bt_fail(err, BT_ARG,
                           "train.tokens %" PRId64 " at %" PRId64 " tokens a step is %" PRId64
                           " steps, but train.steps is %" PRId64 " (give one of them)",
                           c->train.tokens, c->train.batch_tokens, steps, c->train.steps);
        c->train.steps = steps;
    }
    if (!c->train.steps) c->train.steps = p ? p->steps : 1000;
    if (c->optim.lr == 0)
        c->optim.lr = c->tune.mode == BT_TUNE_LORA ? BT_LORA_LR : p ? p->lr : 1e-3;
    /* other schedules ignore lr2; with a value, two equal runs would seem different */
    if (c->optim.lr2 == 0 && c->optim.schedule == BT_SCHED_BITNET)
        c->optim.lr2 = c->optim.lr * 2 / 3;
    if (c->optim.warmup < 0 && c->optim.warmup_ratio >= 0)
        c->optim.warmup = (int64_t)ceil(c->optim.warmup_ratio * (double)c->train.steps - 1e-9);
    if (c->optim.warmup < 0) {
        c->optim.warmup = auto_warmup(c->train.steps, !c->model.init_from[0]);
        if (p && p->warmup < c->optim.warmup) c->optim.warmup = p->warmup;
    }
    if (c->parallel.codec_warmup < 0) {
        int64_t quarter = c->train.steps / 4; /* the share of steps that 1-bit Adam uses */
        bool warms_up = bt_codec_at((bt_codec_id)c->parallel.codec)->warms_up;
        c->parallel.codec_warmup = !warms_up                   ? 0
                                   : c->optim.warmup > quarter ? c->optim.warmup
                                                               : quarter;
    }
    if (!c->train.eval_every) {
        int64_t tenth = c->train.steps / 10;
        c->train.eval_every = tenth > EVAL_APART ? tenth : EVAL_APART;
    }
    return BT_OK;
}

/* Features that read latent weights need fp32. */
static bt_code check_latent(const bt_run_cfg *c, bt_err *err) {
    const char *with = c->model.linear == BT_LIN_DENSE ? "model.linear=dense"
                       : c->tune.mode == BT_TUNE_LORA  ? "--tune lora"
                                                       : NULL;
    if (c->optim.weights == BT_STATES_FP32 || !with) return BT_OK;
    return bt_fail(err, BT_ARG,
                   "optim.weights=%s keeps the latent weights of layers that are ternary from the "
                   "first step on, and %s has others (leave one of them out)",
                   bt_states_name((bt_states_kind)c->optim.weights), with);
}

/* A rank counts the ranks of its host. Before the job starts, their number is known only without a host file. */
void bt_run_cfg_threads(bt_run_cfg *c, int world_size) {
    int here = world_size;
    if (c->launch.threads) return;
    if (bt_comm_size(bt_comm_world()) > 1)
        here = bt_comm_local_size();
    else if (c->launch.hosts[0] && world_size > 1)
        return;
    int share = bt_cpu_get()->cores / here;
    c->launch.threads = share > 1 ? share : 1;
}

typedef enum {
    WORDS,
    NUMBERS,
    MODEL,
    MESH,
    BATCH,
    SEQUENCE,
    BUDGET,
    CODEC,
    LENGTH,
    DATA,
    LATENT,
    PARTS,
    TOPICS
} topic;

/* Runs one topic. A topic with several independent checks appends all faults, any other its first. */
static bt_code resolve_topic(topic t, bt_run_cfg *c, int world_size, bt_text *faults, bt_err *err) {
    switch (t) {
    case WORDS: return check_word_settings(c, faults, err);
    case NUMBERS: return check_numbers(c, faults, err);
    case MODEL: return resolve_model(c, err);
    case MESH: return resolve_mesh(c, world_size, err);
    case BATCH: return bt_resolve_batch(c, err);
    case SEQUENCE: return check_sequence(c, err);
    case BUDGET: return resolve_budget(c, err);
    case CODEC: return check_codec(c, faults, err);
    case LENGTH: return resolve_length(c, err);
    case DATA: return bt_resolve_data(c, faults, err);
    case LATENT: return check_latent(c, err);
    case PARTS: return bt_resolve_part_settings(c, faults, err);
    case TOPICS: break;
    }
    return BT_OK;
}

#define AFTER(t) (1u << (t))
/* Topics whose values a topic needs. */
static const unsigned needs[TOPICS] = {
    [MODEL] = AFTER(WORDS),
    [MESH] = AFTER(WORDS) | AFTER(MODEL),
    [BATCH] = AFTER(WORDS) | AFTER(MODEL) | AFTER(MESH),
    [SEQUENCE] = AFTER(BATCH),
    [CODEC] = AFTER(BUDGET),
    [LENGTH] = AFTER(BATCH) | AFTER(BUDGET),
    [PARTS] = AFTER(LENGTH) | AFTER(DATA),
};

/* faults: receives a line for each fault of independent settings; NULL: the first fault is the error. */
static bt_code resolve_all_topics(bt_run_cfg *c, int world_size, bt_text *faults, bt_err *err) {
    unsigned failed = 0;
    for (int t = 0; t < TOPICS; t++) {
        const size_t before = faults ? faults->len : 0;
        const bt_code code = needs[t] & failed
                                 ? BT_OK
                                 : resolve_topic((topic)t, c, world_size, faults, err);
        BT_TRY(bt_collect_fault(faults, code, err));
        if ((faults && faults->len != before) || needs[t] & failed) failed |= AFTER(t);
    }
    if (!failed) bt_run_cfg_threads(c, world_size);
    return BT_OK;
}

bt_code bt_run_cfg_resolve(bt_run_cfg *c, int world_size, bt_err *err) {
    return resolve_all_topics(c, world_size, NULL, err);
}

bt_code bt_run_cfg_resolve_opts(bt_opts *o, bt_run_cfg *cfg, int world_size, bt_err *err) {
    bt_run_cfg *before = malloc(sizeof *before); /* too large for the stack */
    if (!before) return bt_fail(err, BT_NOMEM, "cannot allocate memory for the settings");
    *before = *cfg;
    bt_text faults = {0};
    bt_code code = resolve_all_topics(cfg, world_size, &faults, err);
    code = bt_report_faults(&faults, code, err);
    bt_text_release(&faults);
    for (size_t i = 0; code == BT_OK && i < o->n; i++) {
        const bt_opt *opt = &o->table[i];
        bool changed = memcmp((const char *)before + opt->offset, (const char *)cfg + opt->offset,
                              opt->size) != 0;
        if (changed) memcpy(o->where[i], "auto", sizeof "auto");
    }
    free(before);
    return code;
}

int bt_run_cfg_ranks(const bt_run_cfg *c, int cores) {
    int64_t inner = c->mesh.pp * c->mesh.dp_shard * c->mesh.tp;
    int64_t asked = c->launch.ranks ? c->launch.ranks
                    : inner > 1 || c->mesh.dp_replicate
                        ? inner * (c->mesh.dp_replicate ? c->mesh.dp_replicate : 1)
                        : 0;
    if (asked) return asked > 65536 ? 65536 : (int)asked;
    int64_t sequences = c->train.batch_tokens ? c->train.batch_tokens / c->model.seq_len : 2;
    return cores >= 2 && sequences % 2 == 0 ? 2 : 1;
}

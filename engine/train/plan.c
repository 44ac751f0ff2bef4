/* plan.c - see plan.h. */
#include "engine/train/plan.h"

#include <string.h>

#include "engine/base/small.h"
#include "engine/kernels/table/cpu.h"
#include "engine/optim/optim.h"
#include "engine/parallel/grad/reducer.h"
#include "engine/parallel/grad/unit_accumulator.h"
#include "engine/parallel/tp/tp_group_create.h"
#include "engine/train/codes.h"
#include "engine/train/parts.h"
#include "engine/train/weights.h"

bt_weight_source bt_plan_weight_source(const bt_run_cfg *c) {
    if (c->zero < 3 || c->dp_shard <= 1) return BT_WEIGHTS_LOCAL;
    return c->gather == BT_GATHER_STEP ? BT_WEIGHTS_GATHERED : BT_WEIGHTS_PREFETCHED;
}

/* of a rank, as it will take them where all ranks are on a machine like this one */
static int threads_of(const bt_run_cfg *c, const bt_mesh_shape *s) {
    int ranks = s->pp * s->dp_replicate * s->dp_shard * s->tp,
        share = ranks > 0 ? bt_cpu_get()->cores / ranks : 1;
    return c->threads > 0 ? (int)c->threads : share > 1 ? share : 1;
}

bt_model_setup bt_plan_model(const bt_run_cfg *c, int rank) {
    bt_mesh_shape shape;
    bt_run_cfg_mesh(c, &shape);
    bt_model_setup s = {.B = (int)c->micro_batch,
                        .prec = (bt_prec)c->precision,
                        .train = true,
                        .n_threads = threads_of(c, &shape),
                        .recompute = (bt_recompute)c->recompute,
                        .grad_int8 = c->grad == BT_GRAD_INT8,
                        .sequence = c->sequence,
                        .cuts = (int)c->parts,
                        .panels = bt_plan_weight_source(c)};
    bt_mesh_coord me = bt_mesh_coord_of(&shape, rank);
    if (shape.tp > 1 || shape.pp > 1)
        s.slice = (bt_model_slice){
            .tp_rank = me.tp, .tp_size = shape.tp, .pp_stage = me.pp, .pp_size = shape.pp};
    /* else a rank may have more micro-batches than the mean */
    bool few = strcmp(c->balance, "even") == 0 && c->accum < shape.pp - me.pp;
    s.in_flight = few ? (int)c->accum : shape.pp - me.pp;
    bt_run_cfg_model(c, &s.cfg);
    return s;
}

/* measured: what a rank holds besides, however large the model */
enum { PROGRAM_BYTES = 20 << 20 };

/* ZeRO-2 keeps own pieces, the stripes on their way, and what is not finished: at the end of
 * backward the tied embedding. */
static size_t grads_kept(const bt_params *p, const bt_shards *s, int shard) {
    const bt_tensor *embed = bt_params_get(p, -1, BT_P_EMBED);
    size_t own = bt_shards_elems(s, shard);
    return sizeof(float) * bt_min_size(p->total, own + (embed ? embed->count : 0) +
                                                     BT_STRIPES_IN_FLIGHT * s->stripe);
}

size_t bt_plan_memory(const bt_run_cfg *c, int rank, bt_arena_row rows[BT_PLAN_MAX]) {
    bt_model_setup model = bt_plan_model(c, rank);
    bt_mesh_shape shape;
    bt_params p;
    bt_shards shards;
    size_t n = bt_model_plan(&model, rows, BT_PLAN_MAX), optim = 0;
    bt_run_cfg_mesh(c, &shape);
    if (bt_params_init(&p, &model.cfg, model.slice, NULL) != BT_OK) return n;

    bt_mesh_coord me = bt_mesh_coord_of(&shape, rank);
    int64_t dp = (int64_t)shape.dp_replicate * shape.dp_shard,
            micros = c->batch_tokens / c->seq_len / c->micro_batch;
    bt_shards_init(&shards, p.total, (size_t)c->bucket_bytes, shape.dp_replicate,
                   c->zero > 0 ? shape.dp_shard : 1);
    int shard = shards.n > 1 ? me.dp_shard : 0;
    for (size_t i = 0; i < shards.n_stripes; i++) {
        bt_range r = bt_shards_piece(&shards, i, shard);
        optim += bt_optim_bytes(r.begin, r.end);
    }
    bool one_micro = strcmp(c->balance, "even") == 0 &&
                     micros * (me.dp + 1) / dp - micros * me.dp / dp == 1;
    for (size_t i = 0; i < n; i++) {
        if (shards.n > 1 && c->zero >= 3 && strcmp(rows[i].name, "params") == 0) {
            rows[i] =
                (bt_arena_row){"params", bt_weights_latent_bytes(&p, &shards, (int)c->zero, shard),
                               "latent weights, fp32: own ternary pieces; embedding, norms, head"};
        }
        if (shards.n > 1 && c->zero >= 2 && one_micro && strcmp(rows[i].name, "grads") == 0) {
            rows[i] = (bt_arena_row){
                "grads", grads_kept(&p, &shards, shard),
                "own pieces; at the peak the embedding and the stripes on their way besides"};
        }
    }
    rows[n++] = (bt_arena_row){"optimizer", optim,
                               shards.n > 1 ? "two moments for a parameter of this shard"
                                            : "two moments a parameter"};

    int64_t units = c->reproducible ? micros : 0, first = micros * me.dp / dp;
    size_t exchange = bt_reducer_staging(p.total, (size_t)c->bucket_bytes, &shards, (int)dp, me.dp,
                                         units);
    exchange += bt_pipeline_bytes(&model, &shape) +
                bt_weights_bytes(&p, &shards, (int)c->zero, shard) +
                bt_tp_group_bytes(shape.tp, (size_t)(c->micro_batch * c->seq_len),
                                  (size_t)c->d_model, c->parts > 1);
    if (exchange)
        rows[n++] =
            (bt_arena_row){"exchange", exchange,
                           c->zero >= 3 && shards.n > 1
                               ? "sums and codes of other ranks on their way; own codes, in 2 bits"
                               : "sums of other ranks on their way"};
    /* else any run of units may come: the worst */
    bool even = strcmp(c->balance, "even") == 0;
    size_t partial = !units ? 0
                     : even
                         ? bt_accumulator_bytes(p.total, first, micros * (me.dp + 1) / dp - first)
                         : bt_accumulator_bytes(p.total, 1, micros - 1);
    if (partial)
        rows[n++] = (bt_arena_row){"partial sums", partial,
                                   "reproducible: gradients of finished units"};
    bool apart = shards.n > 1;
    const bt_codes_cfg codes = {.shards = &shards,
                                .shard = shard,
                                .part = apart ? me.dp_replicate : me.dp,
                                .parts = apart ? shape.dp_replicate : (int)dp};
    size_t history = c->stats_every > 0 ? bt_codes_bytes(&p, &codes) : 0;
    if (history)
        rows[n++] = (bt_arena_row){"code history", history,
                                   "ternary codes of the last two statistics samples"};
    rows[n++] = (bt_arena_row){"program", PROGRAM_BYTES,
                               "code, libraries, MPI, and the scratch of kernels"};
    bt_params_release(&p);
    return n;
}

size_t bt_plan_bytes(const bt_run_cfg *c, int rank) {
    bt_arena_row rows[BT_PLAN_MAX];
    size_t n = bt_plan_memory(c, rank, rows), sum = 0;
    for (size_t i = 0; i < n; i++) sum += rows[i].bytes;
    return sum;
}

/* plan.c - lists the memory of all objects of a rank as rows of a table. */
#include "engine/plan/plan.h"

#include <string.h>

#include "engine/base/small.h"
#include "engine/config/run_property.h"
#include "engine/config/tune_cfg.h"
#include "engine/micro/micro_plan.h"
#include "engine/micro/micro_schedule.h"
#include "engine/observe/observer.h"
#include "engine/parallel/grad/codec_dial.h"
#include "engine/parallel/grad/reducer.h"
#include "engine/parallel/grad/unit_accumulator.h"
#include "engine/parallel/tp/tp_group_create.h"
#include "engine/update/residual.h"
#include "engine/update/update.h"

/* Measured memory of a rank without its model. */
enum { PROGRAM_BYTES = 20 << 20 };

/* ZeRO-2 keeps the gradients of this rank's shard, the stripes in transit and gradients that are not complete, which at
 * the end of backward is the tied embedding. On a slow link more stripes can queue (reducer.h). */
static size_t zero2_gradient_bytes(const bt_rank_setup *s) {
    const bt_tensor *embed = bt_params_get(&s->params, -1, BT_P_EMBED);
    size_t own = bt_shards_elems(&s->shards, s->shard),
           stripes = s->cfg->launch.hosts[0] ? BT_STRIPES_IN_FLIGHT : BT_STRIPES_ON_HOST;
    return sizeof(float) * bt_min_size(s->params.total, own + (embed ? embed->count : 0) +
                                                            stripes * s->shards.stripe);
}

/* Reduces the arenas of the model by the shards of other ranks, whose pages ZeRO does not use. */
static void reduce_sharded_arenas(const bt_rank_setup *s, bt_arena_row *rows, size_t n) {
    int64_t zero = s->sharded ? s->cfg->mesh.zero : 0;
    bool one_micro = s->even && s->n_micro == 1;
    for (size_t i = 0; i < n; i++) {
        if (bt_run_cfg_weight_source(s->cfg) != BT_WEIGHTS_LOCAL &&
            strcmp(rows[i].name, "params") == 0)
            rows[i] = (bt_arena_row){
                "params", bt_weights_latent_bytes(s),
                s->model.latent_bf16
                    ? "latent weights (ternary layers: bf16): own pieces, and what every rank holds"
                    : "latent weights, fp32: own pieces, and what every rank holds (norms)"};
        if (zero >= 2 && one_micro && strcmp(rows[i].name, "grads") == 0)
            rows[i] = (bt_arena_row){
                "grads", zero2_gradient_bytes(s),
                "own pieces; at the peak the embedding and the stripes on their way besides"};
    }
}

static size_t staging_bytes(const bt_rank_setup *s, int rank) {
    bt_reducer_cfg reducer = {.n = s->params.total,
                              .bucket_bytes = (size_t)s->cfg->train.bucket_bytes,
                              .form = bt_rank_setup_form(s),
                              .shards = &s->shards,
                              .units = s->units};
    size_t bytes = bt_reducer_staging(&reducer, &s->shape, rank) - bt_residual_bytes(s);
    /* The warm-up and the codec dial may use another codec, which can need more memory. */
    const bt_codec_ladder ladder = bt_codec_ladder_to(reducer.form.codec);
    double rate;
    const bool dialled = bt_comm_budget_parse(s->cfg->comm.budget, &rate, NULL) == BT_OK &&
                         rate >= 0;
    for (int i = 0; i + 1 < ladder.n; i++) {
        if (!dialled && (s->cfg->parallel.codec_warmup == 0 || ladder.at[i]->state_bytes > 0))
            continue;
        reducer.form.codec = ladder.at[i];
        bytes = bt_max_size(bytes, bt_reducer_staging(&reducer, &s->shape, rank));
    }
    return bytes;
}

/* With unequal shares a rank may receive any range of units, so the largest is planned. */
static size_t partial_sum_bytes(const bt_rank_setup *s) {
    if (s->units == 0) return 0;
    return s->even ? bt_accumulator_bytes(s->params.total, s->first_micro, s->n_micro)
                   : bt_accumulator_bytes(s->params.total, 1, s->micros - 1);
}

static void add_arena_row(bt_arena_row *rows, size_t *n, const char *name, size_t bytes,
                          const char *why) {
    if (bytes) rows[(*n)++] = (bt_arena_row){name, bytes, why};
}

size_t bt_plan_memory(const bt_run_cfg *c, int rank, bt_plan_parts *parts,
                      bt_arena_row rows[BT_PLAN_MAX]) {
    bt_rank_setup s;
    bt_model_setup model = bt_run_cfg_setup(c, rank);
    size_t n = bt_model_plan(&model, rows, BT_PLAN_MAX);
    if (bt_rank_setup_init(&s, c, rank, NULL) != BT_OK) return n;
    reduce_sharded_arenas(&s, rows, n);

    bt_update_sizes update = bt_update_bytes(&s);
    size_t exchange =
        staging_bytes(&s, rank) + update.exchange + bt_micro_schedule_bytes(&s.model, &s.shape) +
        bt_tp_group_bytes(s.shape.tp, (size_t)(c->train.micro_batch * c->model.seq_len),
                          bt_tune_widest(c), c->train.parts > 1);
    add_arena_row(rows, &n, "optimizer", update.optimizer,
                  s.sharded ? "the optimizer's states of this shard's parameters"
                            : "the optimizer's states of all parameters");
    add_arena_row(rows, &n, "exchange", exchange,
                  bt_run_cfg_weight_source(c) != BT_WEIGHTS_LOCAL
                      ? "sums and weights of other ranks on their way; own weights as they are sent"
                      : "sums of other ranks on their way");
    add_arena_row(rows, &n, "partial sums", partial_sum_bytes(&s),
                  "reproducible: gradients of finished units");
    add_arena_row(rows, &n, "code history", bt_observer_bytes(&s),
                  "ternary codes of the last two statistics samples; distributions of tensors");
    if (parts) n += parts(&s, rows + n);
    const int64_t positions = bt_run_has(c, BT_RUN_SHORT_SPANS, 0)
                                  ? c->train.micro_batch * c->model.seq_len
                                  : 0;
    const size_t micro = bt_micro_bytes(s.micros, positions) + bt_micro_plan_bytes((size_t)s.dp);
    add_arena_row(rows, &n, "program", PROGRAM_BYTES + micro,
                  "code, libraries, MPI, scratch of kernels, lists of micro-batches");
    bt_rank_setup_release(&s);
    return n;
}

size_t bt_plan_bytes(const bt_run_cfg *c, int rank, bt_plan_parts *parts) {
    bt_arena_row rows[BT_PLAN_MAX];
    size_t n = bt_plan_memory(c, rank, parts, rows), sum = 0;
    for (size_t i = 0; i < n; i++) sum += rows[i].bytes;
    return sum;
}

/* rank_setup.c - computes coordinates, model slice, shards and micro-batches of one rank. */
#include "engine/config/rank_setup.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/rng.h"
#include "engine/config/run_property.h"
#include "engine/config/tune_cfg.h"
#include "engine/kernels/table/cpu.h"
#include "engine/parallel/schedule/pass_order.h"

const char *bt_gather_name(int64_t gather) {
    static const char *const names[] = {"layer", "step", "flips"};
    return names[gather];
}

bt_weight_source bt_run_cfg_weight_source(const bt_run_cfg *c) {
    if (c->tune.mode == BT_TUNE_LORA) return BT_WEIGHTS_LOCAL; /* the frozen base is never sent */
    if (c->mesh.zero == 0 || c->mesh.dp_shard <= 1) return BT_WEIGHTS_LOCAL;
    if (c->parallel.gather != BT_GATHER_LAYER) return BT_WEIGHTS_GATHERED;
    return c->mesh.zero < 3 ? BT_WEIGHTS_LOCAL : BT_WEIGHTS_PREFETCHED;
}

static int threads_per_rank(const bt_run_cfg *c, const bt_mesh_shape *s) {
    int ranks = s->pp * s->dp_replicate * s->dp_shard * s->tp,
        share = ranks > 0 ? bt_cpu_get()->cores / ranks : 1;
    return c->launch.threads > 0 ? (int)c->launch.threads : share > 1 ? share : 1;
}

static bool has_even_balance(const bt_run_cfg *c) {
    return strcmp(c->parallel.balance, "even") == 0;
}

bt_model_setup bt_run_cfg_setup(const bt_run_cfg *c, int rank) {
    bt_mesh_shape shape;
    bt_run_cfg_mesh(c, &shape);
    bt_model_setup s = {.B = (int)c->train.micro_batch,
                        .prec = (bt_prec)c->train.precision,
                        .train = true,
                        .n_threads = threads_per_rank(c, &shape),
                        .recompute = (bt_recompute)c->train.recompute,
                        .grad_int8 = c->train.grad == BT_GRAD_INT8,
                        .attention_int8 = c->train.attention == BT_ATTENTION_INT8,
                        .sequence = c->mesh.sequence,
                        .leaves = (int)c->train.parts,
                        .stages_bf16 = c->comm.pipe == BT_PIPE_BF16,
                        .weight_source = bt_run_cfg_weight_source(c),
                        .fades = bt_run_has(c, BT_RUN_FADES, 0),
                        .latent_bf16 = c->optim.weights == BT_STATES_BF16,
                        .pairs = c->data.form == BT_FORMED_PREFERENCE,
                        .lean = c->tune.lean && c->tune.mode == BT_TUNE_LORA,
                        .base_q8 = c->tune.base_type == BT_BASE_Q8 && c->tune.mode == BT_TUNE_LORA,
                        .taught = c->tune.teacher[0] || c->tune.logits[0],
                        .relation_layer = c->tune.relation > 0 ? (int)c->tune.relation_layer : 0,
                        .documents = c->data.packing > BT_PACKED_STREAM ||
                                     bt_run_has(c, BT_RUN_SHORT_SPANS, 0)};
    bt_mesh_coord me = bt_mesh_coord_of(&shape, rank);
    if (shape.tp > 1 || shape.pp > 1)
        s.slice = (bt_model_slice){.tp_rank = me.tp,
                                   .tp_size = shape.tp,
                                   .pp_stage = me.pp,
                                   .pp_size = shape.pp,
                                   .virtual_stages = shape.pp > 1 ? (int)c->parallel.virtual_stages
                                                                  : 1};
    /* with unequal shares a rank may have more micro-batches than the mean */
    const bt_pass_order order = {.stages = shape.pp,
                                 .stage = me.pp,
                                 .chunks = bt_slice_chunks(s.slice),
                                 .micros = has_even_balance(c) ? c->train.accum : INT32_MAX};
    s.in_flight = (int)bt_passes_in_flight(&order);
    s.micros_in_flight = (int)bt_micros_in_flight(&order);
    bt_run_cfg_model(c, &s.cfg);
    return s;
}

/* Returns true for tensors that are exchanged without a codec: norm gains, and tensors that several ranks of a
 * tensor-parallel group hold. All ranks of the group must agree on whether the head is shared. */
static bool is_exchanged_uncoded(const bt_tensor *t, const bt_mesh_shape *shape) {
    if (t->whole_rows == 1 || t->whole_cols == 1) return true;
    if (shape->tp == 1 || t->shard == BT_SHARD_ROW || t->shard == BT_SHARD_COL) return false;
    return t->shard != BT_SHARD_VOCAB && t->rows * (size_t)shape->tp != t->whole_rows;
}

static bt_code plan_payloads(bt_rank_setup *s, bt_err *err) {
    const bt_params *p = &s->params;
    s->payload_tensors = calloc(p->n + 1, sizeof *s->payload_tensors);
    if (!s->payload_tensors)
        return bt_fail(err, BT_NOMEM, "cannot allocate memory for %zu tensors", p->n);
    for (size_t i = 0; i < p->n; i++) {
        const bt_tensor *t = &p->tensors[i];
        s->payload_tensors[i] = (bt_payload_tensor){{t->offset, t->offset + t->count},
                                                    is_exchanged_uncoded(t, &s->shape)};
    }
    return BT_OK;
}

static bt_code find_chunks(bt_rank_setup *s, bt_err *err) {
    const bt_model_slice slice = s->model.slice;
    s->n_chunks = bt_slice_chunks(slice);
    s->chunks = calloc((size_t)s->n_chunks, sizeof *s->chunks);
    if (!s->chunks)
        return bt_fail(err, BT_NOMEM, "cannot allocate memory for %d chunks of layers",
                       s->n_chunks);
    for (int k = 0; k < s->n_chunks; k++)
        s->chunks[k] = bt_params_chunk(&s->params, &s->model.cfg, slice, k);
    return BT_OK;
}

bt_payload_form bt_rank_setup_form(const bt_rank_setup *s) {
    const bt_codec *codec = bt_codec_at((bt_codec_id)s->cfg->parallel.codec);
    if (s->cfg->train.reproducible && codec->reproducible) codec = codec->reproducible;
    return (bt_payload_form){codec, s->payload_tensors, s->params.n};
}

bt_code bt_rank_setup_init(bt_rank_setup *s, const bt_run_cfg *c, int rank, bt_err *err) {
    *s = (bt_rank_setup){.cfg = c, .model = bt_run_cfg_setup(c, rank), .even = has_even_balance(c)};
    bt_run_cfg_mesh(c, &s->shape);
    s->me = bt_mesh_coord_of(&s->shape, rank);
    BT_TRY(bt_params_init(&s->params, &s->model.cfg, s->model.slice, err));
    bt_shards_init(&s->shards, s->params.total, (size_t)c->train.bucket_bytes,
                   s->shape.dp_replicate, c->mesh.zero > 0 ? s->shape.dp_shard : 1);
    s->dp = (int64_t)s->shape.dp_replicate * s->shape.dp_shard;
    s->sharded = s->shards.n > 1;
    s->shard = s->sharded ? s->me.dp_shard : 0;
    s->replica = s->sharded ? s->me.dp_replicate : s->me.dp;
    s->replicas = s->sharded ? s->shape.dp_replicate : (int)s->dp;
    s->micros = c->train.batch_tokens / c->model.seq_len / c->train.micro_batch;
    s->units = c->train.reproducible ? s->micros : 0;
    s->first_micro = s->micros * s->me.dp / s->dp;
    s->n_micro = s->micros * (s->me.dp + 1) / s->dp - s->first_micro;
    bt_code code = find_chunks(s, err);
    if (code == BT_OK) code = plan_payloads(s, err);
    if (code != BT_OK) bt_rank_setup_release(s);
    return code;
}

void bt_rank_setup_release(bt_rank_setup *s) {
    bt_params_release(&s->params);
    free(s->payload_tensors);
    free(s->chunks);
    s->payload_tensors = NULL;
    s->chunks = NULL;
}

bt_optim_cfg bt_run_cfg_optim(const bt_run_cfg *c) {
    return (bt_optim_cfg){.kind = (bt_optim_id)c->optim.name,
                          .states = (bt_states_kind)c->optim.states,
                          .seed = (uint64_t)c->run.seed,
                          .beta1 = c->optim.beta1,
                          .beta2 = c->optim.beta2,
                          .eps = c->optim.eps,
                          .momentum = c->optim.momentum};
}

bt_lr_schedule bt_run_cfg_lr_schedule(const bt_run_cfg *c) {
    return (bt_lr_schedule){.kind = (bt_sched_kind)c->optim.schedule,
                            .steps = c->train.steps,
                            .warmup = c->optim.warmup,
                            .lr = c->optim.lr,
                            .lr_min_frac = c->optim.lr_min,
                            .lr2 = c->optim.lr2,
                            .decay_frac = c->optim.decay_frac,
                            .weight_decay = c->optim.weight_decay};
}

static double lr_factor_of(const bt_tensor *x, const bt_run_cfg *c) {
    if (x->id == BT_P_EMBED) return c->optim.embed_lr;
    if (x->id == BT_P_HEAD || x->id == BT_P_SCORE) return c->optim.head_lr;
    return x->linear ? c->optim.matrix_lr : 1;
}

void bt_params_spans(bt_optim_span *spans, const bt_params *p, const bt_run_cfg *c) {
    for (size_t i = 0; i < p->n; i++) {
        const bt_tensor *x = &p->tensors[i];
        spans[i] = (bt_optim_span){.begin = x->offset,
                                   .end = x->offset + x->count,
                                   .decay = x->decay,
                                   .matrix = x->linear,
                                   .lr_factor = (float)lr_factor_of(x, c),
                                   .name = bt_hash_name(x->name),
                                   .first = bt_tensor_place(x, 0),
                                   .cols = x->cols,
                                   .stride = x->whole_cols};
    }
}

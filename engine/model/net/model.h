/* model.h - the network: planned memory, initial weights, quantisation, forward and backward passes written by hand.
 *
 * Order:    create (plans and commits five arenas) -> init_weights or load -> quantise -> { train_micro* ->
 *           [optimizer writes params] -> quantise }* -> destroy. `quantise` must be called after every change of the
 *           latent weights.
 * Owns:     arenas: params, grads, quantised weights, activations, scratch. No allocation after create.
 * Threads:  the training thread; kernels split over the pool.
 * Time:     a pass charges its time to the phases FWD and BWD (base/span.h).
 * Made by:  engine/model/create, which chooses the functions of the layers.
 * Layout:   params and grads are flat fp32 arrays in the same order: embedding, layers 0..L-1, final norm, head
 *           (untied). Backward completes the gradients from the end of the array to its beginning; a tied embedding
 *           last.
 * Slices:   a model may be one of several slices with which a tensor-parallel group of ranks computes: each has a block
 *           of heads, of the feed-forward width and of the vocabulary. With `sequence` each rank has the residual and
 *           the norms of its own tokens, and int8 values are gathered. Quantise, train and eval are then collective
 *           over the group. Results are exact where those of one rank are: scales, absmax and norm statistics are those
 *           of whole tensors and rows, and ternary products are added as whole numbers.
 * Stages:   a model may be one range of a pipeline's layers, or several ranges (chunks): `forward`, and later
 *           `backward` of the same micro-batch, while the activations of `in_flight` passes are kept. The last stage
 *           does both at once with train_micro (stage.h). */
#ifndef BT_ENGINE_MODEL_NET_MODEL_H
#define BT_ENGINE_MODEL_NET_MODEL_H

#include "engine/base/arena.h"
#include "engine/base/numbers/bigrams.h"
#include "engine/base/numbers/moment.h"
#include "engine/base/tp_group.h"
#include "engine/model/shape/config.h"
#include "engine/model/shape/leaves.h"
#include "engine/model/shape/params.h"

typedef struct bt_model bt_model;

/* Activations saved for backward (all bits are equal): all; all but gate and up; only the input of each layer. */
typedef enum { BT_RECOMPUTE_NONE, BT_RECOMPUTE_SELECTIVE, BT_RECOMPUTE_FULL } bt_recompute;

/* Format in which products read a tensor, and so the format in which owners of its pieces send it (ZeRO-3): fp32;
 * bf16, if products round their operands to it anyway; or ternary codes. */
typedef enum { BT_READ_FP32, BT_READ_BF16, BT_READ_CODES } bt_read;
bt_read bt_model_read(const bt_tensor *t, bt_prec prec);
size_t bt_read_bytes(bt_read as, size_t n);
/* Returns true if ZeRO-3 distributes the latent weights of a tensor over their owners: all linear layers, and embedding
 * and head if they are read as bf16. Other tensors, mainly norms, are replicated on all ranks. */
bool bt_model_shares_out(const bt_tensor *t, bt_prec prec);

/* Source of the weights that products of linear layers read (panels: packed codes, or the values of dense layers).
 * LOCAL: bt_model_quantise makes panels and codes on this rank; dense layers read the latent weights. With ZeRO-3 the
 * shards' owners hold the codes, and this model only panels: GATHERED, those of all layers, or PREFETCHED, those of one
 * layer at a time, which a bt_layer_source fills before the layer is used. Sharded embedding and head are tables of
 * bf16 (bt_model_table), always complete. */
typedef enum { BT_WEIGHTS_LOCAL, BT_WEIGHTS_GATHERED, BT_WEIGHTS_PREFETCHED } bt_weight_source;

typedef struct bt_layer_source bt_layer_source;
struct bt_layer_source {
    /* Called before a pass uses the layer: forward 0, 1, ...; backward ..., 1, 0. Returns when its panels exist. */
    void (*need)(bt_layer_source *s, int layer);
    /* Called regularly during a pass, so that messages progress. */
    void (*poll)(bt_layer_source *s);
};

typedef struct bt_model_setup {
    bt_model_cfg cfg;
    int B; /* sequences in a micro-batch */
    /* Pipelines: number of passes through a chunk whose activations are saved (0: one), and of their micro-batches. */
    int in_flight, micros_in_flight;
    bt_prec prec;
    bool train;    /* false: no gradients, no saved activations */
    int n_threads; /* number of threads for the size of blocks; 0: the current number */
    bt_recompute recompute;
    /* ternary layers: dy of the backward products is int8, rounded at random (bt_model_noise) */
    bool grad_int8;
    /* passes with gradients (bt_model_gradient_passes) use int8 attention (bt_attn_shape) */
    bool attention_int8;
    bt_model_slice slice; /* all zero: the whole model */
    /* Sums over heads, widths, vocabulary and (norms) tokens are added as a tree over this number of equal leaves of
     * the whole model (shape/leaves.h), so that they have the same bits for any slice.tp_size. 0 or 1: no tree. */
    int leaves;
    bool sequence; /* slices: each rank has the residual and the norms of its own tokens */
    /* Required by slices, and by leaves that one rank holds all; borrowed. Plans do not need it. */
    bt_tp_group *tp_group;
    bt_weight_source weight_source;
    bool fades; /* bt_model_lambda will be called; ternary, LOCAL or PREFETCHED, no adapters */
    bool
        latent_bf16; /* training: latent weights of ternary layers are bf16; no fades, no adapters */
    bool documents;  /* bt_model_documents will be called */
    bool pairs;      /* bt_model_dpo will be called: the loss is that of pairs of documents */
    bool taught;     /* bt_model_distil will be called */
    /* Number, from 1, of the layer whose relations a student learns; on a stage it is in the last chunk. 0: none. */
    int relation_layer;
    bool drops;      /* training: bt_model_dropout will be called */
    bool drops_lora; /* training: bt_model_lora_dropout will be called */
    /* A frozen base whose embedding and head are int8 with a scale for each token. With full recompute in bf16 the
     * residual that enters a layer is also rounded to bf16 and kept in this format. */
    bool lean;
    /* A frozen dense base whose layers, and without lean also embedding and head, are int8 with a scale for each block
     * of BT_Q8_BLOCK inputs. Widths of inputs are multiples of it (bt_model_fits_q8). */
    bool base_q8;
    /* Memory of bt_model_base_bytes for the frozen base, shared by ranks with the same slice, one of which writes it.
     * NULL: the model allocates its own. */
    unsigned char *base_memory;
    bool base_elsewhere; /* another rank writes base_memory */
    bool stages_bf16;    /* residuals and their gradients are sent between stages as bf16 */
} bt_model_setup;

/* Returns the number of tokens of M whose residual is in this slice. */
size_t bt_slice_rows(const bt_model_setup *s, size_t M);

typedef struct bt_arena_row {
    const char *name;
    size_t bytes;
    const char *why;
} bt_arena_row;

/* Computes the memory of create without allocating it; rows (at most max) for --dry-run. Without optimizer moments. */
size_t bt_model_plan(const bt_model_setup *s, bt_arena_row *rows, size_t max);
/* Returns true if base_q8 is possible: the inputs of every layer, in every leaf, end with a whole block. */
bool bt_model_fits_q8(const bt_model_setup *s);
size_t bt_model_base_bytes(const bt_model_setup *s);
bt_code bt_model_create(bt_model **out, const bt_model_setup *s, bt_err *err) BT_MUST_CHECK;
void bt_model_destroy(bt_model *m); /* accepts NULL */

/* Adds a member to the ensemble of m, which owns it. From now on m predicts with the mean of its own probabilities and
 * those of its members: in evaluations (bt_model_eval_micro, bt_model_top_logits), in decoders that are created later,
 * and as a teacher. The logits of an ensemble are logarithms of these means. Both are whole models on one rank with the
 * same vocabulary, B, T and setup.documents; neither is a classifier. */
void bt_model_add_member(bt_model *m, bt_model *member);
/* Returns the number of models in the ensemble, with m itself. */
size_t bt_model_members(const bt_model *m);

const bt_model_cfg *bt_model_config(const bt_model *m);
bt_model_slice bt_model_slice_of(const bt_model *m);
/* the tensor table: names, shapes, offsets */
const bt_params *bt_model_params(const bt_model *m);
float *bt_model_weights(bt_model *m); /* (params) latent fp32; NULL with setup.latent_bf16 */
float *bt_model_grads(bt_model *m);   /* (params) */
/* Latent weights of one tensor: in the flat array as fp32; with setup.latent_bf16 in its own array, ternary as bf16. */
typedef struct bt_latent {
    void *at;            /* first element of the block */
    bt_moment_form form; /* BT_MOMENT_F32 or BT_MOMENT_BF16 */
} bt_latent;
bt_latent bt_model_latent(const bt_model *m, size_t tensor);
static inline void *bt_latent_at(bt_latent w, size_t element) {
    return (unsigned char *)w.at + element * bt_moment_bytes(w.form);
}
/* Returns elements first .. first+n as fp32: the stored ones, or converted to `spare`, with room for n. Any thread. */
const float *bt_latent_read(bt_latent w, size_t first, size_t n, float *spare);
/* Returns element `at` of the flat array; padding is 0. */
float bt_model_weight_at(const bt_model *m, size_t at);
bt_moment_form bt_model_latent_form(const bt_model_setup *s, const bt_tensor *t);
/* With adapters (cfg.lora) params, weights and grads are those of the adapters, and bt_model_base is the table of the
 * frozen base; without adapters it is NULL. A base with trained adapters is stored in the format that its products
 * read: ternary layers in 2 bits per weight, which are unpacked to panels one layer at a time; dense layers, embedding
 * and head as bf16 if products round to it (with setup.lean embedding and head as int8, with setup.base_q8 all of
 * them). The offsets in its table are for internal use. Without training, and for bitnet1, the base consists of fp32
 * weights and their panels. */
const bt_params *bt_model_base(const bt_model *m);
/* Stores values first .. first+n of this slice's block of a tensor, in any order, but whole rows of embedding and head.
 * A ternary tensor is stored whole, with the absmean of the whole tensor, or with those of the block's rows
 * (cfg.scale). */
void bt_model_base_put(bt_model *m, size_t tensor, size_t first, size_t n, const float *values,
                       float scale);
void bt_model_base_put_rows(bt_model *m, size_t tensor, const float *values, const float *scales);
/* Stores elements of the whole embedding for the copy of a last stage with a tied head; other models ignore it. */
void bt_model_base_put_tied(bt_model *m, size_t first, size_t n, const float *values);
/* Called after all tensors have been stored, before the model computes; with lora.dora after bt_model_quantise. */
void bt_model_base_done(bt_model *m);
/* DoRA: returns the norms of the rows of W + scale B A at the last bt_model_quantise, of the layer of a tensor of
 * magnitudes. */
const float *bt_model_row_norms(const bt_model *m, const bt_tensor *magnitudes);
/* The next micro-batches add their gradients to `grads` (params, borrowed). NULL: to the model's own array again. */
void bt_model_grads_into(bt_model *m, float *grads);
/* Initialises elements [begin, end) of the flat array with their values in the whole model. Magnitudes of DoRA become
 * the norms of the last bt_model_quantise. */
void bt_model_init_range(bt_model *m, uint64_t seed, size_t begin, size_t end);
/* Initialises all weights: N(0, std), o and down N(0, std/sqrt(2L)), norms 1. Depends only on seed and position. */
void bt_model_init_weights(bt_model *m, uint64_t seed);

/* From the next pass on ternary layers compute with x + lambda (Q(x) - x) and W + lambda (Q(W) - W), straight-through,
 * 0 <= lambda <= 1 (arXiv:2502.11895 and the conversions of Hugging Face's 1.58-bit models): 0 gives the bits of the
 * dense layer; 1, the initial value, is the ternary model. Values other than 1 need setup.fades. Not collective, but
 * every rank must call it with the same value. */
void bt_model_lambda(bt_model *m, double lambda);

/* With BT_WEIGHTS_PREFETCHED and while lambda is below 1 (bt_model_fading), owners compute W + lambda (Q(W) - W) of
 * their pieces and send them in the format of the products: `own` uses the codes of a run that bt_model_quant_own
 * wrote; then `take` is called for every run of a layer. The bits are those of bt_model_quantise. */
typedef struct bt_fade_run {
    size_t tensor, first, n;
    const uint8_t *packed; /* codes of elements first .. first+n */
} bt_fade_run;
bool bt_model_fading(const bt_model *m);
bt_read bt_model_fade_read(bt_prec prec); /* fp32 or bf16 */
void bt_model_fade_own(bt_model *m, const bt_fade_run *run, uint8_t *out);
void bt_model_fade_take(bt_model *m, size_t tensor, size_t first, size_t n, const uint8_t *values);

/* Statistics of a ternary tensor (a slice's block) in the last quantise. The fractions cover the n weights that were
 * quantised on this rank. scale: with a scale for each row, the mean of |w|. mean: the mean that b1 subtracts;
 * otherwise 0. */
typedef struct bt_quant_stat {
    double n, zero_frac, pos_frac, flip_frac, scale, mean;
} bt_quant_stat;
/* Converts latent weights to codes, scales and packed panels; with adapters only in the first call. Refreshes the
 * factors of DoRA. flip_frac compares with the previous call. */
void bt_model_quantise(bt_model *m);
/* on: bt_model_quant_stat returns the values of the previous quantise until this is called with off. */
void bt_model_quant_hold(bt_model *m, bool on);
/* Quantises in steps, on ranks that hold only the latent weights of [begin, end) (ZeRO-3); begin is a multiple of
 *     BT_SUM_BLOCK: once a step     fill (own pieces, into zeros) -> add the ranks' sums -> scales -> own (own runs of
 *     codes) -> done for a layer     of each tensor: take (every run of it) -> place
 * Codes are kept, and travel, in the 2-bit form of kernels/table/ternary.h, bt_tern2_row_bytes(n)
 * for n codes of one tensor. `own` writes new codes over old ones and counts what changed; the
 * first time they are zeros. The panels have the bits of bt_model_quantise. take: BT_FORMAT if
 * the bytes are not codes. */
size_t bt_model_quant_sums(const bt_model *m);
void bt_model_quant_fill(bt_model *m, double *sums, size_t begin, size_t end);
void bt_model_quant_scales(bt_model *m, const double *sums);
bt_code bt_model_quant_own(bt_model *m, size_t tensor, size_t first, size_t n, uint8_t *packed,
                           bt_err *err) BT_MUST_CHECK;
void bt_model_quant_done(bt_model *m);
bt_code bt_model_quant_take(bt_model *m, size_t tensor, size_t first, size_t n,
                            const uint8_t *packed, bt_err *err) BT_MUST_CHECK;
void bt_model_quant_place(bt_model *m, size_t tensor);
/* Returns (rows, cols) as bf16, in which products read a distributed embedding or head. NULL: latent weights. */
uint16_t *bt_model_table(bt_model *m, size_t tensor);
/* Sets the source of BT_WEIGHTS_PREFETCHED, before the first pass; borrowed. */
void bt_model_source(bt_model *m, bt_layer_source *s);
/* Returns the statistics of a tensor index in bt_params; zeros if it is not ternary. */
bt_quant_stat bt_model_quant_stat(const bt_model *m, size_t tensor);
/* Returns the scales of the rows or groups of this slice's block. NULL: all have the scale bt_quant_stat.scale. */
const float *bt_model_row_scales(const bt_model *m, size_t tensor);
/* Computes the scales of whole rows of K latent weights as bt_model_quantise does. */
void bt_model_scale_rows(float *scales, const float *w, size_t rows, size_t K);
/* Returns (rows, cols) codes of bt_model_quantise; NULL if the tensor is not ternary, or its owners have them. */
const int8_t *bt_model_codes(const bt_model *m, size_t tensor);

/* Called when backward has completed the gradients [begin, end) of the flat array, in descending order. */
typedef void (*bt_grad_ready_fn)(void *ctx, size_t begin, size_t end);

/* Sets the noise of the next micro-batches' int8 gradients: a function of (seed, step, first_row + row), where
 * first_row is the number of the micro-batch's first token in the global batch. Before the first call it is a function
 * of (0, 0, row). */
void bt_model_noise(bt_model *m, uint64_t seed, uint64_t step, uint64_t first_row);

/* Sets the dropout of the next passes that compute gradients (bt_model_gradient_passes): each value that a branch of a
 * layer adds to the residual, and each value of the embedding, is 0 with probability p (rounded to 1/65536) and
 * otherwise multiplied by 1 / (1 - p). A function of (seed, step, first_row + row, layer, branch, channel), so that it
 * is the same in every layout. Called before the forward and before the backward pass of a micro-batch. p = 0: none.
 * Needs setup.drops. */
void bt_model_dropout(bt_model *m, double p, uint64_t seed, uint64_t step, uint64_t first_row);
/* Sets the dropout of the inputs of adapters: each adapter reads its layer's input through a mask of its own, as in
 * PEFT; the frozen layer reads the whole input. Needs setup.drops_lora. */
void bt_model_lora_dropout(bt_model *m, double p, uint64_t seed, uint64_t step, uint64_t first_row);

/* The next passes use sequences of documents: positions (B, T) of each token in its document, -1 after the last
 * document of a sequence. Attention is restricted to documents. NULL: each sequence is one document. Called before the
 * forward and before the backward pass of a micro-batch. */
void bt_model_documents(bt_model *m, const int32_t *positions);

/* Losses of preferences, in the order of the words of tune.preference. ORPO (arXiv:2403.07691) and SimPO
 * (arXiv:2405.14734) have no reference. With a the mean log-probability of an answer's learned targets,
 *     ORPO    -a(c) - beta log sigmoid(log odds(c) - log odds(r)), log odds = a - log(1 - e^a)
 *     SimPO   -log sigmoid(beta (a(c) - a(r)) - gamma) */
typedef enum {
    BT_PREFER_DPO,
    BT_PREFER_ORPO,
    BT_PREFER_SIMPO,
    BT_PREFER_KTO,      /* single answers, each marked as desirable or undesirable */
    BT_PREFER_APO_ZERO, /* KTO with z0 = 0 */
    BT_PREFER_REWARD    /* a reward model: the head scores each answer (cfg.classes is 1) */
} bt_preference;
static inline bool bt_prefer_is_single(bt_preference p) {
    return p == BT_PREFER_KTO || p == BT_PREFER_APO_ZERO;
}
static inline bool bt_prefer_has_reference(bt_preference p) {
    return p == BT_PREFER_DPO || bt_prefer_is_single(p);
}
/* Direct preference optimisation (arXiv:2305.18290): documents are pairs, the chosen answer, then the rejected one. The
 * loss of a pair is -log sigmoid(beta m), m = (log p(c) - log ref(c)) - (log p(r) - log ref(r)), where p are the summed
 * log-probabilities of learned targets and ref those of the base without its adapters; sft_share times the mean loss of
 * the chosen answer's targets is added. smoothing: the assumed share of pairs with exchanged answers. Needs
 * setup.pairs; a loss with a reference needs adapters. Without adapters all weights train, on one rank of a
 * tensor-parallel group.
 *
 * KTO (arXiv:2402.01306, equation 8): documents are examples (row_set.h): the chosen and the rejected answer, one of
 * which has no learned target, then, for KTO alone, the prompt with the answer of another example. With
 * r = log p - log ref, the log-ratio of the answer that exists, the loss is
 *     chosen    desirable (1 - sigmoid(beta (r - z0)))
 *     rejected  undesirable (1 - sigmoid(beta (z0 - r)))
 * Evaluations have z0 = 0, so they depend only on the weights.
 *
 * A reward model (arXiv:2203.02155, equation 1): the reward of an answer is the score of its last token, and the loss
 * of a pair is -log sigmoid(reward(c) - reward(r)) + centre (reward(c) + reward(r))^2 (centre: arXiv:2312.09244). */
typedef struct bt_dpo {
    bool on; /* false: the loss of tokens */
    bt_preference loss;
    double beta, gamma, sft_share, smoothing, centre;
    double desirable, undesirable, z0;
} bt_dpo;
void bt_model_dpo(bt_model *m, bt_dpo how);
/* Distillation: the loss of a learned token is (1 - mix) times its cross-entropy plus mix times tau^2 KL(teacher ||
 * student), of softmaxes of logits over tau. The teacher has the same vocabulary, B, T and documents, and its adapters
 * are disabled; it is borrowed. On the last stage of a pipeline; a slice of the student learns from the same slice of
 * the teacher and its group. Evaluations have only the cross-entropy. */
enum { BT_TOP_MOST = 4096 };
/* The teacher's k likeliest tokens and the logarithms of their probabilities as fp16. NULL: the target is not
 * learned. */
typedef struct bt_top_row {
    const uint32_t *ids;
    const uint16_t *logs;
} bt_top_row;
/* The stored likeliest tokens of a teacher can replace the teacher: rows (B, T), k <= BT_TOP_MOST, filled before each
 * pass; borrowed. Then both softmaxes over tau cover only these k tokens. If all tokens are stored, the loss is the
 * teacher's except for the rounding of the stored values. */
typedef struct bt_distil {
    bt_model *teacher;
    const bt_top_row *rows;
    int k;
    double mix, tau;
    /* Weight of the relations of queries, keys and values of setup.relation_layer, which student and teacher divide
     * into relation_heads parts each (relation.c); 0: none. Requires whole layers on a rank, and one teacher. */
    double relation;
    int relation_heads;
} bt_distil;
/* Returns results of the previous pass (bt_model_eval_micro): the k likeliest tokens at each target >= 0, in descending
 * order, and the logarithms of their probabilities; ids, logs (B, T, k). Requires a whole model on one rank. */
void bt_model_top_logits(bt_model *m, const int32_t *targets, size_t k, uint32_t *ids, float *logs);
void bt_model_distil(bt_model *m, bt_distil how);
/* In the next passes the gradient of the head gives this total weight to the tokens that have followed a token in the
 * text (ops.h; borrowed). followers NULL: none. All ranks must pass the same values. Decoding ignores it, and it cannot
 * be combined with a soft cap, adapters, classes or a teacher. */
typedef struct bt_follower_targets {
    const bt_followers *followers;
    float weight;
} bt_follower_targets;
void bt_model_follower_targets(bt_model *m, bt_follower_targets how);
/* on: the next passes are training steps, with dropout and int8 attention if they are set up. off (initial):
 * validation, without them. A backward pass uses the mode of its forward pass. */
void bt_model_gradient_passes(bt_model *m, bool on);
/* Counts over the micro-batches since the last call: the number scored, the number right (the reward of the chosen
 * answer is above that of the rejected one; the likeliest class is the true one), and the sum of the reward margins
 * beta m. In KTO the reward beta r of rejected answers is negated. ratios: sum of the log-ratios of answers to other
 * examples' prompts, each rounded to a multiple of 2^-20, so that the sum does not depend on its order. */
typedef struct bt_score {
    double n, right, margin, ratios;
} bt_score;
bt_score bt_model_take_score(bt_model *m);
/* A classifier (cfg.classes): the target of a text's last token is the number of its class, all other targets are -1;
 * losses are cross-entropies over the classes. Returns (classes, classes) texts since the last take_score by true and
 * predicted class; zeros on a stage without a head; NULL if the model is not a classifier. */
const double *bt_model_confusion(const bt_model *m);
/* Returns the reward of the n tokens passed to bt_model_forward_tokens, by a reward model. */
double bt_model_reward(bt_model *m, size_t n);
/* Returns the class probabilities of the n tokens passed to bt_model_forward_tokens; out (classes). */
void bt_model_class_probabilities(bt_model *m, size_t n, float *out);

/* Computes one micro-batch: inputs, targets (B, T), where targets < 0 are not trained. Adds gradients of grad_scale *
 * (sum of token losses); returns the sum of token losses. grad_scale is not 0. The caller sets grads to zero before the
 * first micro-batch of a step (bt_model_zero_grads). ready may be NULL. In a slice, gradients that several ranks hold
 * are partial sums; a backward pass with `ready` adds them before it reports them. */
double bt_model_train_micro(bt_model *m, const int32_t *inputs, const int32_t *targets,
                            double grad_scale, bt_grad_ready_fn ready, void *ready_ctx);
void bt_model_zero_grads(bt_model *m);
/* Computes a forward pass only; returns the sum of token losses over (B, T). */
double bt_model_eval_micro(bt_model *m, const int32_t *inputs, const int32_t *targets);

/* Draws the next token: the one with the largest logit / temperature + Gumbel noise, which samples softmax(logits /
 * temperature) (Gumbel-max trick: Maddison et al. 2014, arXiv:1411.0030). The noise is a function of (seed, index,
 * token), so that every slice of a model draws the same token. */
typedef struct bt_draw {
    double temperature; /* 0: the likeliest token */
    uint64_t seed, index;
} bt_draw;
/* Passes one sequence of n tokens (1 <= n <= B T) forward, without a key-value cache, in every layout. A stage of a
 * pipeline calls it between stage_in and stage_out; the last stage draws the token. */
void bt_model_forward_tokens(bt_model *m, const int32_t *inputs, size_t n);
int32_t bt_model_draw(bt_model *m, const bt_draw *how, size_t n);

#endif

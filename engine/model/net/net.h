/* net.h - internals of a bt_model, only for the files of engine/model: its linear layers, their inputs, its layers, and
 * the functions of a pass that training and decoding share.
 *
 * Choices that depend on the kind of a layer or on tensor parallelism are made once, when the model is created:
 * bt_linear.ops, bt_linear_input.ops, bt_layer.glu and bt_model.tp are tables of functions, which the pass
 * (transformer.c) calls unconditionally. */
#ifndef BT_ENGINE_MODEL_NET_NET_H
#define BT_ENGINE_MODEL_NET_NET_H

#include "engine/kernels/ops/ops.h"
#include "engine/model/net/acts.h"
#include "engine/model/net/model.h"
#include "engine/model/net/tp_ops.h"

typedef struct bt_gain {
    const bt_tensor *tensor;
    const float *w;
    float *dw; /* NULL without training */
} bt_gain;

typedef struct bt_linear bt_linear;
typedef struct bt_linear_input bt_linear_input;

/* Products of a linear layer for rows r0 .. r0+rows of its input; y, dx and dy begin at row r0. src is the source of
 * the input. flags: of the kernels (BT_ACC adds to y or dx). */
typedef struct bt_linear_ops {
    void (*fwd)(const bt_linear *l, float *y, const bt_linear_input *in, const float *src,
                size_t r0, size_t rows, int flags);
    /* Computes dx of one of the separately packed ranges of outputs. */
    void (*dx)(const bt_linear *l, size_t range, float *dx, bt_grads dy, size_t r0, size_t rows,
               int flags);
    /* Adds the part of these rows. For int8, r0 is a multiple of BT_GRAD_BLOCK. */
    void (*dw)(const bt_linear *l, bt_grads dy, const bt_linear_input *in, const float *src,
               size_t r0, size_t rows);
} bt_linear_ops;

/* An adapter beside a frozen layer: y += scale B (A x); rank 0: none. x is the input of the base product: int8 values
 * times their scale, or floats. Rows are processed in chunks, in memory shared by all layers. */
typedef struct bt_adapter {
    const bt_tensor *a_tensor, *b_tensor, *m_tensor;
    const float *a, *b; /* (rank, K), (N, rank) */
    float *da, *db;
    /* DoRA, else NULL: (N) magnitudes and their gradient; of the rows of W + scale B A the norms, 1 / norm, m / norm
     * and m / norm - 1 */
    const float *m;
    float *dm, *norms, *inverse, *factors, *less;
    const bt_linear_ops *plain; /* the products without the factors */
    /* z (n, N): sum of their outputs over the ranks that hold the inputs, or this rank's part of it if gradients are
     * completed later */
    void (*whole)(const bt_linear *l, float *z, const bt_linear_input *in, const float *src,
                  size_t r0, size_t n);
    float *y; /* (chunk, widest input or output) */
    int8_t *
        xq; /* with dropout, ternary: (chunk, K) codes of the masked input, and dq (chunk) their scales */
    float *dq;
    bool rounded; /* products read fp32 values of the base as bf16 */
    size_t rank, chunk;
    float scale;
    float *x, *u, *du;      /* (chunk, K), (chunk, rank), (chunk, rank) */
    const bt_model *model;  /* its lora_drop is the dropout of x */
    struct bt_tp_state *tp; /* the tensor-parallel state of a slice or of leaves; NULL: none */
} bt_adapter;

struct bt_linear { /* y = x W^T, W (N, K), ternary or dense */
    const bt_linear_ops *ops;
    const bt_tensor *tensor;
    size_t N, K;
    bt_latent w; /* latent weights; at is NULL: a frozen base has none */
    /* Dense: (N, K) in the format of the products. panel: buffer for values from their owners; NULL: the latent weights
     * are read. BT_WEIGHTS_PREFETCHED: memory shared by all layers. */
    bt_table values;
    void *panel;
    float *dw;
    bt_prec prec;
    bool tern;
    /* (N, K) codes of the last quantise, to count flips and to pack from; NULL: their owners have them */
    int8_t *codes;
    /* number of equal ranges of outputs that are packed separately; dx can be summed over some of them */
    size_t ranges;
    /* false: another tensor-parallel rank has a replica of this kv head and adds all of dx */
    bool contributes_dx;
    size_t packed_bytes; /* bytes of one range */
    /* (ranges, packed_bytes); BT_WEIGHTS_PREFETCHED: memory shared by all layers */
    unsigned char *packed;
    bool packed_2bit; /* true if `packed` of a frozen base has 2 bits per code (BT_COMPACT) */
    /* the 2-bit form that few tokens read, in models without training; NULL otherwise */
    uint8_t *packed2;
    float scale, mean; /* means of |w|, and of w, which b1 subtracts */
    /* The mean of |w| of each row or group (cfg.scale); scale is then 1, mean_abs the mean of the tensor. NULL: one
     * scale. */
    float *scales, mean_abs;
    float *
        scaled; /* (BT_SCALED_ROWS or fewer, widest output) memory for products, shared by all layers */
    /* Number of inputs with one scale (`scales` is (N, K / scale_cols)); K: one scale for each row. If there are
     * several, `packed` and `packed2` hold a matrix (N, scale_cols) for each group of inputs, one after the other
     * (packed: in each range), by_group the scales as (K / scale_cols, N), and `gathered` is memory for the codes or
     * the input of groups, shared by all layers */
    size_t scale_cols, group_bytes;
    float *by_group;
    int8_t *gathered;
    size_t dx_ld; /* distance of rows of dx; K, except in the part of a group */
    bt_tern_stats counts;
    size_t counted;
    bt_quant_stat stat;
    bt_noise noise;   /* int8 gradients: of the micro-batch's rows; rows is NULL without them */
    size_t first_row; /* first output row of this part, in the tensor */
    /* `ops` is `adapted` (adapter.c or tp_adapter.c, which call `frozen`), or `frozen` while adapters are disabled. */
    const bt_linear_ops *frozen, *adapted;
    bt_adapter adapter;
};

/* Functions for rows r0 .. r0+rows of an input; x, dx and dy begin at row r0. */
typedef struct bt_input_ops {
    void (*fwd)(const bt_linear_input *in, const float *x, size_t r0, size_t rows);
    /* Dense: computes the floats again that dw reads. */
    void (*restore)(const bt_linear_input *in, const float *x, size_t r0, size_t rows);
    /* Sets dx to the gradient through the norm and adds to the gradient of the gain. NULL without a norm. */
    void (*bwd)(const bt_linear_input *in, float *dx, const float *dy, const float *x, size_t r0,
                size_t rows);
    /* fwd_saving also stores x as bf16 in `saved` (of row r0), from where bwd_saved reads it; NULL: not fused */
    void (*fwd_saving)(const bt_linear_input *in, uint16_t *saved, const float *x, size_t r0,
                       size_t rows);
    void (*bwd_saved)(const bt_linear_input *in, float *dx, const float *dy, const uint16_t *x,
                      float *sums, size_t r0, size_t rows);
} bt_input_ops;

/* The input of a group of linear layers: an optional norm, then int8 for each token (ternary) or floats (dense). */
struct bt_linear_input {
    const bt_input_ops *ops;
    size_t K;
    bool normed, tern;
    float fade; /* lambda of fade.c while the layers change from floats to int8; otherwise 0 */
    bt_gain gain;
    float eps;
    float *rstd; /* (M) */
    int8_t *xq;  /* (M, K) */
    float *dq;   /* (M) */
    /* (M, K) floats of a dense or fading model; all layers share them, so backward computes them again */
    float *xn;
    size_t whole_K; /* columns of whole rows; K of them are on this rank */
    /* the tensor-parallel state if rows are divided over ranks (K < whole_K); NULL otherwise */
    struct bt_tp_state *tp;
};

typedef struct bt_layer bt_layer;

typedef struct bt_gate_and_up {
    float *gate, *up;
} bt_gate_and_up;

/* The functions of the gated activation h = act(gate) * up of rows r0 .. r0+rows, and of the input of ffn_down. */
typedef struct bt_glu {
    /* Computes the input of ffn_down from y; saves gate and up if backward needs them. */
    void (*fwd)(const bt_model *m, bt_layer *l, bt_gate_and_up y, size_t r0, size_t rows);
    /* Computes d from the gradient of the input of ffn_down, which is a.dhn (normed) or a.dh. y: memory. */
    void (*bwd)(const bt_model *m, bt_layer *l, bt_glu_grads d, bt_gate_and_up y, size_t r0,
                size_t rows);
} bt_glu;

struct bt_layer {
    bt_acts a;
    float *x_out; /* the residual that leaves the layer, x of the next one */
    bt_linear_input attn_in, o_in, ffn_in, down_in;
    bt_gain q_norm, k_norm;
    bt_gain attn_post, ffn_post;    /* norms behind the branches, or absent */
    bt_gain q_bias, k_bias, v_bias; /* (N) of q, k, v, or absent */
    bt_linear q, k, v, o, gate, up, down;
    bt_glu glu;
};

/* Computes the weights of one layer from latent weights and codes (fade.c). */
typedef struct bt_fade {
    bt_layer_source source;
    bt_model *m;
    int layer;    /* layer whose weights are in the panel; -1: none */
    float *panel; /* one layer's linear weights */
} bt_fade;

typedef struct bt_class_head { /* the head of a classifier or, with one class, of a reward model */
    const bt_tensor *tensor;   /* NULL: neither, or on another stage */
    float *w, *dw;             /* (classes, C) */
    int32_t *rows, *picked; /* (M) for the texts of a pass: their last row, their likeliest class */
    double *
        confusion; /* (classes, classes) number of texts by true class (row) and predicted class (column) */
} bt_class_head;

/* Partial sums of a row's logits over a range of the vocabulary, which distillation joins (distil.c). `soft` and
 * `taught` refer to the student's and the teacher's logits over tau. */
typedef struct bt_distil_part {
    double top, sum; /* the student's largest logit x, the sum of exp(logit - x) */
    double soft_top, soft_sum, taught_top, taught_sum;
    double cross;  /* sum of exp(taught - taught_top) (taught - soft) */
    double target; /* the student's logit of the target; 0: it is on another rank */
} bt_distil_part;
enum { BT_DISTIL_ROWS = 256 }; /* rows at a time; their parts fit in one exchange of a group */

/* Queries, keys and values of one layer, as attention read them in the last forward pass (relation.c). */
enum { BT_RELATION_ROWS = 64, BT_RELATIONS = 3 };
typedef struct bt_relation {
    const bt_layer *layer;      /* NULL: none */
    size_t width[BT_RELATIONS]; /* H D, KV D, KV D */
    float *x[BT_RELATIONS];     /* (M, width) */
    float *dx[BT_RELATIONS];
    float *own_rows, *taught_rows; /* (BT_RELATION_ROWS, T) of the student and of the teacher */
    double *losses;                /* (M) */
} bt_relation;

typedef struct
    bt_chunk { /* The layers that one pass covers: all layers of a whole model or of a stage with one chunk. */
    int first, n; /* indices in bt_model.layers */
    int number;   /* index of the first one in the whole model */
} bt_chunk;

struct bt_model {
    bt_model *member;     /* next model of the ensemble, owned; NULL: the last one */
    bt_model_setup setup; /* its cfg is this slice's */
    bt_model_cfg whole;
    const bt_tp_ops *tp; /* bt_tp_one_rank, or the table of engine/model/tp with its state */
    struct bt_tp_state *tp_state;
    bt_params params;
    /* The tensors, weights and gradients of the adapters, which train instead of params; n 0: params train. */
    bt_params adapters;
    float *adapter_w, *adapter_g;
    float *lora_x, *lora_u, *lora_du, *lora_y; /* scratch of adapters */
    float *row_norms; /* DoRA: norms, inverse, factors and less of all magnitudes (bt_dora_rows) */
    int8_t *lora_xq;  /* DoRA with dropout: codes of masked inputs, and their scales */
    float *lora_dq;
    bt_arena params_arena, grads_arena, quant_arena, acts_arena, scratch_arena;
    /* (params.total) w: NULL if not all weights are fp32; g: the array for gradients, NULL without training */
    float *w, *g;
    bt_latent *latents; /* (params.n) */
    float *own_g;       /* gradients in the model's arena */
    bt_layer *layers;
    bt_chunk *chunks;      /* (n_chunks) */
    const bt_chunk *chunk; /* chunk of the following passes */
    int n_chunks;
    bt_gain final_norm;
    bt_table embed, head; /* (V, C); the same when tied. NULL if another stage has it */
    float *d_embed, *d_head;
    /* tied: the copy of the first stage's embedding on a last stage, otherwise empty; and its gradient */
    bt_table tied;
    float *d_tied;
    bt_acts_plan acts_plan;
    float *dxn;         /* a.dxn of every slot; NULL: as in acts_plan */
    double *quant_sums; /* (bt_model_quant_sums) */
    /* (n_totals) for each tensor the sum of |w|, and of w for b1. With a scale for each row there follow the sums of
     * |w| of the rows that are divided over a tensor-parallel group, two in each element. */
    double (*totals)[2];
    size_t n_totals;
    double (*whole_rows)[2]; /* DoRA: sums of squares of a layer's rows */
    /* unpacked codes of one tensor before they are packed; NULL with BT_WEIGHTS_LOCAL */
    int8_t *taken;
    bt_layer_source *source; /* BT_WEIGHTS_PREFETCHED: source of the weights */
    bt_fade fade;
    bt_dpo dpo;
    bt_distil distil;
    bt_distil_part *distil_parts; /* (1 + ranks, BT_DISTIL_ROWS); NULL without setup.taught */
    bt_relation relation;
    double *reference;  /* (M) summed log-probabilities of each document by the base */
    float *row_weights; /* (M) factors of the rows' gradients, for preferences without adapters */
    bt_class_head classes;
    bt_score score;
    double lambda; /* value set by bt_model_lambda; initially 1 */
    /* true if the codes are those of an earlier quantisation, so that flips can be counted */
    bool quantised;
    bool holds_stats;

    float *x_final;               /* (S, C) residual after the last layer */
    float *final_rstd, *row_loss; /* (M) */
    int32_t *counted;             /* (2, M) rows with a target, one_rank.c */
    float *logits;                /* (logits_rows, V) */
    size_t logits_rows;
    bt_head8 head8; /* w.packed is NULL if the head's gradients have the precision of its logits. */
    bt_head_form head_form;
    /* (T + bt_model_short_rows, D/2): rotations of sequences of T tokens, then, in a decoder, of short ones */
    float *rope_cos, *rope_sin;
    float *local_cos, *local_sin; /* for local layers; the same arrays without rope_local_theta */
    int32_t *pos;                 /* (M) position of each token in its sequence or document */
    /* (n_documents) documents of the following passes; room for M, NULL without setup.documents */
    bt_attn_document *documents;
    size_t n_documents; /* 0: each sequence is one document */
    bool gradient_passes;
    bt_drop drop;         /* bt_model_dropout; rows is NULL without setup.drops */
    bt_drop lora_drop;    /* bt_model_lora_dropout; rows is NULL without setup.drops_lora */
    uint32_t *noise_rows; /* (M) keys of bt_noise; NULL without int8 gradients */
    size_t block;         /* rows of one feed-forward block */
    /* number of rows for which gate and up have memory; a multiple of `block`; 0: all rows (acts.def) */
    size_t again;
    /* number of query heads whose dk and dv are summed separately, and number of arrays of these sums */
    size_t heads_per_run, kv_runs;
};

/* Returns true if the latent weights are not one array of fp32. */
static inline bool bt_net_latent_apart(const bt_model_setup *s) {
    return s->latent_bf16 && s->train && s->cfg.lora.rank == 0;
}
/* Returns true if products round weights to bf16. */
bool bt_net_reads_bf16(bt_prec prec);

/* Chooses by the layer: decoding, int8 gradients, ternary, dense. */
const bt_linear_ops *bt_linear_ops_of(const bt_linear *l);
void bt_net_copy(float *y, const float *x, size_t n);

/* row_scale.c: a scale for each row of a ternary weight */
enum {
    BT_SCALED_ROWS = 256
}; /* rows of an input that are processed at a time where a product needs a copy */
/* Adds |w| of elements first .. first+n to the sums of their rows or groups. The sums are exact, so they do not depend
 * on how the elements are divided. */
void bt_row_sums_add(double *sums, const bt_tensor *t, bt_scale_kind scale, bt_latent w,
                     size_t first, size_t n);
float bt_row_scale(double sum, size_t inputs);
/* Quantises elements first .. first+n of the layer, which are at w, and replaces the old codes. */
bt_tern_stats bt_row_codes(const bt_linear *l, int8_t *codes, const float *w, size_t first,
                           size_t n);
/* Quantises all latent weights over l->codes, on all threads. */
bt_tern_stats bt_row_codes_all(const bt_linear *l);
/* y (M, N) += or = products of the codes (BT_ACC in flags) times the scales; and dx. `codes` has the scale 1. */
void bt_row_scale_fwd(const bt_linear_ops *codes, const bt_linear *l, float *y,
                      const bt_linear_input *in, const float *src, size_t r0, size_t rows,
                      int flags);
void bt_row_scale_dx(const bt_linear_ops *codes, const bt_linear *l, size_t range, float *dx,
                     bt_grads dy, size_t r0, size_t rows, int flags);

/* group_scale.c: a scale for each group of inputs; the products of the groups are added in order */
void bt_group_scale_fwd(const bt_linear_ops *codes, const bt_linear *l, float *y,
                        const bt_linear_input *in, size_t r0, size_t rows, int flags);
void bt_group_scale_dx(const bt_linear_ops *codes, const bt_linear *l, size_t range, float *dx,
                       bt_grads dy, size_t r0, size_t rows, int flags);
/* Packs codes (N, K) group by group. */
void bt_group_pack(const bt_linear *l, const int8_t *codes);
/* Fills by_group from the scales. */
void bt_group_scales_done(const bt_linear *l);
/* Returns the matrix of group g as a layer without scales. */
bt_linear bt_group_part(const bt_linear *l, size_t g);
static inline size_t bt_linear_groups(const bt_linear *l) { return l->K / l->scale_cols; }

enum { BT_ADAPTER_CHUNK = 256 };
extern const bt_linear_ops bt_adapter_ops;
/* Returns rows r0 .. r0+n, n <= chunk, of the input of the base product. */
const float *bt_adapter_input(const bt_linear *l, const bt_linear_input *in, const float *src,
                              size_t r0, size_t n);
/* Returns true if this pass reads inputs of adapters through a mask (bt_model_lora_dropout). */
bool bt_adapter_drops(const bt_linear *l);
/* Adds the gradient of the masked input to dx (n, K), through the mask of rows r0 .. r0+n. */
void bt_adapter_drop_back(const bt_linear *l, float *dx, const float *masked, size_t r0, size_t n);
/* Computes adapter.u (n, rank) = scale x (n, K) A^T. */
void bt_adapter_down(const bt_linear *l, const float *x, size_t n);
void bt_adapter_add(const bt_linear *l, float *y, const float *u, size_t n);

/* Enables or disables the adapters of all layers. */
void bt_net_adapters(bt_model *m, bool on);

enum { BT_ADAPTED = 7 }; /* layers that may have an adapter */
/* Return the number of magnitudes of this slice, and of those whose inputs are divided over tensor-parallel ranks. */
size_t bt_dora_rows(const bt_params *adapters);
size_t bt_dora_divided_rows(const bt_params *adapters);
enum { BT_DORA_ARRAYS = 4 }; /* numbers that are kept for each magnitude */
/* Computes norms and factors of all layers; collective over the tensor-parallel group. */
void bt_dora_refresh(bt_model *m);
/* Multiplies the products of a layer whose adapter has magnitudes by its factors. `whole` may be set before. */
void bt_dora_wire(bt_linear *l);

/* Passes the input through the base first, whose results are the reference. A whole model calls it itself. */
void bt_net_reference(bt_model *m, const int32_t *inputs, const int32_t *targets);
/* Returns the sum of the pairs' losses of one micro-batch. If grad_scale is not 0, a.dxn becomes the gradient of the
 * token losses times grad_scale, which bt_net_preference_scale converts to that of the pairs, and the activations are
 * those of the adapted model. */
double bt_net_preference_loss(bt_model *m, const int32_t *inputs, const int32_t *targets,
                              double grad_scale);
/* Scales own rows of a.dxn after the tensor-parallel ranks' parts have been added. */
void bt_net_preference_scale(bt_model *m, float *own);

/* Computes own rows of a.xn, the normed residual, from x_final. */
void bt_net_final_norm(bt_model *m, size_t M);
/* Computes the final hidden states of all tokens; sets their losses and, with grad, their gradient a.dxn to 0. */
void bt_net_scores_begin(bt_model *m, bool grad);
/* Returns the sum of the texts' losses; with dscale not 0 also adds the gradients of the head and of a.dxn. */
double bt_net_class_loss(bt_model *m, const int32_t *targets, double dscale);
/* Returns the reward of a document, the score of its last token, after bt_net_scores_begin. */
double bt_net_reward(const bt_model *m, const bt_attn_document *d);
/* Adds the gradients of the head and of a.dxn. by_reward: derivative of the scaled loss by the document's reward. */
void bt_net_reward_gradient(bt_model *m, const bt_attn_document *d, double by_reward);

/* Returns the sum of the token losses; a.dxn is their gradient times grad_scale. */
double bt_net_distil_loss(bt_model *m, const int32_t *inputs, const int32_t *targets,
                          double grad_scale);

/* After the passes of student and teacher: adds the losses of the relations to row_loss, and stores their gradients
 * times grad_scale for the backward pass. */
void bt_net_relation_loss(bt_model *m, const bt_model *teacher, const int32_t *targets,
                          double grad_scale);
static inline bool bt_net_relates(const bt_model_setup *s) {
    return s->relation_layer > 0 && bt_slice_is_last_stage(s->slice);
}

static inline bool bt_net_keeps_base(const bt_model_setup *s) {
    return s->train && s->cfg.lora.rank > 0 && s->cfg.linear != BT_LIN_BITNET1;
}
/* Returns true for embedding and head of such a base as int8: with a scale for each token (lean), or for each block. */
static inline bool bt_net_table8(const bt_model_setup *s, const bt_tensor *t) {
    return (s->lean || s->base_q8) && bt_net_keeps_base(s) &&
           (t->id == BT_P_EMBED || t->id == BT_P_HEAD);
}
/* Returns true for layers of such a base as int8 with a scale for each block. */
static inline bool bt_net_layers8(const bt_model_setup *s) {
    return s->base_q8 && bt_net_keeps_base(s) && s->cfg.linear == BT_LIN_DENSE;
}
/* Returns the offset of the values after the scales of (rows, cols) in int8, by rows or by blocks. */
static inline size_t bt_net_int8_values(size_t rows, size_t cols, bool blocks) {
    const size_t bytes = blocks ? rows * cols / BT_Q8_BLOCK * sizeof(uint16_t)
                                : rows * sizeof(float);
    return (bytes + 63) / 64 * 64;
}
/* Changes the offsets of the table to those of the tensors that remain fp32. */
void bt_net_compact_base(bt_params *p, const bt_model_setup *s);

/* Returns the number of elements of one layer's linear weights. */
size_t bt_net_fade_elems(const bt_params *p);
/* Computes x' from the floats and the codes of rows r0 .. r0+rows. */
void bt_net_fade_rows(const bt_linear_input *in, size_t r0, size_t rows);
/* Returns true if linear layers currently multiply codes. */
static inline bool bt_net_ternary(const bt_model *m) {
    return m->setup.cfg.linear != BT_LIN_DENSE && m->lambda >= 1;
}

/* Returns the functions for an input whose whole rows are on this rank. */
const bt_input_ops *bt_input_ops_of(const bt_linear_input *in);
/* Returns the floats that the dense layers of the input read. */
static inline const float *bt_input_floats(const bt_linear_input *in, const float *src) {
    return in->xn ? in->xn : src;
}

/* Called after the kind of down_in was chosen. */
bt_glu bt_glu_of(const bt_layer *l);

/* Computes the final norm, the head and the loss of the pass before it: of tokens (see bt_tp_ops.head_loss), or of a
 * classifier's texts. With dscale not 0 also computes their gradients: a.dxn = d(normed residual), and the head's. */
double bt_net_head_loss(bt_model *m, const int32_t *targets, float dscale);
/* Computes the logits (n, ld) of rows at .. at+n of the normed residual a.xn, in m->logits; of an ensemble, the
 * logarithms of the mean probabilities. n <= bt_net_logits_rows */
void bt_net_logits(bt_model *m, size_t at, size_t n, size_t ld);
size_t bt_net_logits_rows(const bt_model *m);
/* The mean over an ensemble, for one row: `put` writes the probabilities of one model (in place, if sum is logits),
 * `add` adds those of another model, and `logits` replaces the sum of n models by the logarithms of their mean, at
 * least FLT_MIN. */
void bt_net_mean_put(float *sum, const float *logits, size_t V);
void bt_net_mean_add(float *sum, const float *logits, size_t V);
void bt_net_mean_logits(float *sum, size_t V, size_t n);

/* Points the activations and inputs of the layer to those of a micro-batch in flight. */
void bt_net_point(bt_model *m, int layer, int slot);
/* Returns the index in bt_model.layers of the layer with this number in the whole model, which must be on this rank. */
static inline int bt_net_layer(const bt_model *m, int number) {
    const bt_chunk *c = m->chunks;
    while (number < c->number || number >= c->number + c->n) c++;
    return c->first + number - c->number;
}
/* Return true if a pass begins with the embedding; if it ends with the head. */
static inline bool bt_net_begins(const bt_model *m) {
    return bt_slice_is_first_stage(m->setup.slice) && m->chunk == m->chunks;
}
static inline bool bt_net_ends(const bt_model *m) {
    return bt_slice_is_last_stage(m->setup.slice) && m->chunk == m->chunks + m->n_chunks - 1;
}
static inline float *bt_at_tensor(float *flat, const bt_tensor *t) {
    return flat && t ? flat + t->offset : NULL;
}

/* transformer.c: one pass over M = B * T tokens with positions m->pos */
void bt_net_positions(bt_model *m, size_t B, size_t T, size_t first);
/* Computes q, k (normed, rotated) and v from x. */
void bt_net_qkv(bt_model *m, bt_layer *l, size_t M);
void bt_net_attn_out(bt_model *m, bt_layer *l, size_t M); /* o -> x_mid */
void bt_net_ffn(bt_model *m, bt_layer *l, size_t M);      /* x_mid -> x_out */
size_t bt_net_window(const bt_model *m, const bt_layer *l);
float *bt_net_q(const bt_layer *l); /* inputs of attention */
float *bt_net_k(const bt_layer *l);
void bt_net_forward(bt_model *m, const int32_t *inputs, size_t B, size_t T); /* -> x_final */
/* Passes the inputs and the documents of m to a member of its ensemble, or to a teacher. */
void bt_net_forward_member(const bt_model *m, bt_model *member, const int32_t *inputs);
/* Computes the backward pass from a.dx. */
void bt_net_backward(bt_model *m, const int32_t *inputs, size_t B, size_t T, bt_grad_ready_fn ready,
                     void *ready_ctx);
void bt_net_ready(const bt_model *m, const bt_tensor *t, bt_grad_ready_fn ready, void *ready_ctx);

/* Places that have separate dropout: the embedding, and two branches of each layer. */
typedef enum { BT_DROP_EMBED, BT_DROP_ATTN, BT_DROP_FFN } bt_drop_at;
/* Returns the array to which the product of a branch is added: zeros or, without dropout and norm, the residual `x`. */
float *bt_net_branch_begin(bt_model *m, float *x, const bt_layer *l, bt_drop_at at, size_t M);
/* Applies the branch's norm and dropout to own rows and adds them to the residual. x NULL: only for backward. */
void bt_net_branch_end(bt_model *m, float *x, const bt_layer *l, bt_drop_at at, size_t M);
/* Returns own rows of the gradient of a branch's product, after dropout and norm; adds to the gradient of the gain. */
const float *bt_net_branch_grad(bt_model *m, const bt_layer *l, bt_drop_at at, size_t M);
/* Scales own rows of the embedding, or of its gradient, in place, and applies dropout. */
void bt_net_scale_embedding(bt_model *m, float *x, size_t M);

#endif

/* net.h - the inside of a bt_model, for the files of engine/model only: its linear layers, the
 * places they read from (sites), its layers, and the pieces of the pass that training and decoding
 * share. */
#ifndef BT_ENGINE_MODEL_NET_NET_H
#define BT_ENGINE_MODEL_NET_NET_H

#include "engine/kernels/ops/ops.h"
#include "engine/model/net/acts.h"
#include "engine/model/net/model.h"

/* gain of an RMSNorm; w is NULL when the norm has none */
typedef struct bt_gain {
    const bt_tensor *tensor;
    const float *w;
    float *dw; /* NULL without training */
} bt_gain;

typedef struct bt_linear { /* y = x W^T, W (N, K), ternary or dense */
    const bt_tensor *tensor;
    size_t N, K;
    const float *w; /* latent */
    float *dw;
    bool tern;
    /* (N, K) of the last quantise: to count flips and to pack from; NULL: owners have them */
    int8_t *codes;
    /* runs of outputs that are packed apart, so that dx can be summed over some; 1: all */
    size_t leaves;
    /* false: another tensor-parallel rank holds a replica of this kv head and adds all of dx */
    bool contributes_dx;
    size_t packed_bytes; /* of one run */
    /* (parts, packed_bytes); BT_WEIGHTS_PREFETCHED: the same place in every layer */
    unsigned char *packed;
    /* 2-bit form for single tokens, models without training; NULL otherwise */
    uint8_t *packed2;
    /* (N) with packed2: one token's output before it is added */
    float *row;
    float scale, mean; /* of |w|; of w, which b1 takes off */
    bt_tern_stats counts;
    size_t counted; /* weights that counts are of */
    bt_quant_stat stat;
    /* int8 gradients: of the micro-batch's rows; rows is NULL without them */
    bt_noise noise;
    size_t first_row; /* of the outputs, in the tensor */
} bt_linear;

/* Where a group of linear layers reads: an optional norm, then int8 per token (ternary) or floats
 * (dense). */
typedef struct bt_linear_input {
    size_t K;
    bool normed, tern;
    bt_gain gain;
    float eps;
    float *rstd; /* (M) */
    int8_t *xq;  /* (M, K) */
    float *dq;   /* (M) */
    /* (M, K) dense: the floats; shared by all layers, so backward restores them */
    float *xn;
    /* not NULL: the K columns are this part's of a wider row */
    struct bt_tp_state *tp;
    size_t whole_K;
} bt_linear_input;

/* A model that is one part of a tensor-parallel group's, from inside */
typedef struct bt_tp_state {
    bt_tp_group *tp_group;
    bool sequence;
    /* equal parts whose sums are added as a tree: here, of the whole model. 1: none */
    size_t leaves, total_leaves;
    size_t first_leaf; /* of those here */
    /* where the leaves of this part's vocabulary begin; they may differ by one token */
    size_t vocab_at[BT_LEAVES_MAX + 1];
    float *spare; /* (log2 leaves, M, C) sums on their way */
    float *gains; /* (all_cuts, C or D), or (KV, D) */
    /* kv heads that two parts share, of the whole model; the first one of this part among them */
    size_t shared_kv, first_shared_kv;
    float *shared_kv_sums;   /* (shared_kv, M D or D C) what each pair adds up */
    size_t vocab0;           /* first token id of this part */
    float *ones;             /* (M) */
    bt_row_stat *mine, *all; /* (M); the tensor-parallel group's, (size, M) */
    float *a, *b;            /* (M) */
    int32_t *index;          /* (M) */
} bt_tp_state;

typedef struct bt_rows {
    size_t first, n;
} bt_rows;

typedef struct bt_layer {
    bt_acts a;
    float *x_out; /* residual leaving the layer: the next one's x */
    bt_linear_input attn_in, o_in, ffn_in, down_in;
    bt_gain q_norm, k_norm;
    bt_linear q, k, v, o, gate, up, down;
} bt_layer;

struct bt_model {
    bt_model_setup setup; /* its cfg is this part's */
    bt_model_cfg whole;
    bt_tp_state *tp; /* NULL: the whole model on one rank */
    bt_params params;
    bt_arena params_arena, grads_arena, quant_arena, acts_arena, scratch_arena;
    /* (params.total); g: where gradients are added, NULL without training */
    float *w, *g;
    float *own_g; /* the arena's */
    bt_layer *layers;
    int first_layer; /* number of layers[0] in the whole model */
    bt_gain final_norm;
    /* (V, C); the same when tied. Of a stage: NULL where another has it */
    const float *embed, *head;
    float *d_embed, *d_head;
    /* a last stage's copy of the first's embedding; NULL otherwise */
    float *tied, *d_tied;
    bt_acts_plan acts_plan;
    double *quant_sums; /* (bt_model_quant_sums) */
    /* (tensors) of |w|; of w, for b1. In a part, then (size, tensors): the tensor-parallel
     * group's */
    double (*totals)[2];
    /* codes of one tensor on their way to its panels; NULL with BT_WEIGHTS_LOCAL */
    int8_t *taken;
    bt_layer_source *source; /* BT_WEIGHTS_PREFETCHED: who fills them */
    /* codes hold an earlier quantisation: flips mean something */
    bool quantised;

    float *x_final;               /* (S, C) residual after the last layer */
    float *final_rstd, *row_loss; /* (M) */
    float *logits;                /* (logits_rows, V) */
    size_t logits_rows;
    /* w.packed is NULL: the head's gradients are in the precision of its logits */
    bt_head8 head8;
    float *rope_cos, *rope_sin; /* (T, D/2) */
    int32_t *pos;               /* (M) position of each token in its sequence */
    uint32_t *noise_rows;       /* (M) keys of bt_noise; NULL without int8 gradients */
    size_t block;               /* rows of one feed-forward block */
};

/* ---- linear.c ---- */
/* rows r0 .. r0+rows of the site's input; y is row r0's output. src is what the site's input was
 * made from */
void bt_linear_fwd(const bt_linear *l, float *y, const bt_linear_input *s, const float *src,
                   size_t r0, size_t rows, bt_prec prec, int flags);
/* over the outputs of one of the layer's parts; dx, dy: row r0's */
void bt_linear_dx(const bt_linear *l, size_t part, float *dx, const float *dy, size_t r0,
                  size_t rows, bt_prec prec, int flags);
/* adds what rows r0 .. r0+rows give; dy: row r0's. In int8 r0 is a multiple of BT_GRAD_BLOCK */
void bt_linear_dw(const bt_linear *l, const float *dy, const bt_linear_input *s, const float *src,
                  size_t r0, size_t rows, bt_prec prec);

/* dense: what its linear layers read */
const float *bt_input_floats(const bt_linear_input *s, const float *src);
void bt_input_fwd(const bt_linear_input *s, const float *x, size_t r0, size_t rows); /* x: row r0 */
/* dense: the floats that bt_linear_dw reads */
void bt_input_restore(const bt_linear_input *s, const float *x, size_t r0, size_t rows);
/* gradient through the norm: dx (+)= ; adds to the gain's gradient. Sites without norm pass dy on:
 * nothing to call */
void bt_input_bwd(const bt_linear_input *s, float *dx, const float *dy, const float *x, size_t r0,
                  size_t rows, int acc);

/* ---- tp_exchange.c: tensor parallelism; tp_leaves.c: sums over leaves. Most work for a whole model too ---- */
/* tokens whose residual is here */
bt_rows bt_net_own(const bt_model *m, size_t M);
/* own rows of x -> input rows of all tokens */
void bt_net_site(bt_model *m, const bt_linear_input *s, const float *x, size_t M);
/* dense: the same floats for bt_linear_dw */
void bt_net_restore(bt_model *m, const bt_linear_input *s, const float *x, size_t M);
/* y += product, for own rows of y: `part` for each block of rows, then `sum` */
void bt_net_out_part(bt_model *m, float *y, const bt_linear *l, const bt_linear_input *s,
                     const float *src, size_t r0, size_t rows);
void bt_net_out_sum(bt_model *m, float *y, const bt_linear *l, const bt_linear_input *s, size_t M);
/* own rows of dx -> rows of all tokens */
const float *bt_net_all(bt_model *m, const float *own, size_t M);
/* (M, C) sums of this part -> own rows of the whole's */
float *bt_net_own_sum(bt_model *m, float *x, size_t M);
/* rows r0 .. r0+rows of m->layers[0].a.dxn = sum of dy W over the layers, leaf by leaf; dy: row
 * r0's */
typedef struct bt_dx_term {
    const bt_linear *l;
    const float *dy;
} bt_dx_term;
void bt_net_dx(bt_model *m, const bt_dx_term *terms, size_t n, size_t r0, size_t rows);
/* out (M, N) = a (M, K) times b (K, N), or (N, K) with tb, leaf by leaf of K, which may be the
 * vocabulary */
typedef struct bt_depth_product {
    const float *a, *b;
    size_t lda, ldb, M, N, K;
    int tb;
    bt_prec prec;
    bool vocab;
    /* b as int8, and a the probabilities; index, dscale: of bt_head_targets */
    const bt_head8 *int8;
    const int32_t *index;
    float dscale;
} bt_depth_product;
void bt_net_depth(bt_model *m, float *out, const bt_depth_product *p);
/* head8.w := the head, leaf by leaf */
void bt_net_pack_words(bt_model *m);
/* through a norm of own rows of the residual; dx (+)= */
void bt_net_norm_bwd(bt_model *m, const bt_gain *g, float *dx, const float *dy, const float *x,
                     const float *rstd, int acc, size_t M);
/* through the norm of heads, of which `kv` says whose */
void bt_net_heads_bwd(bt_model *m, const bt_layer *l, bool kv, float *dx, const float *dy,
                      const float *x, size_t M);
/* arrays of dk and dv that are summed: several where leaves share a kv head */
size_t bt_net_kv_runs(const bt_model_setup *s);
/* leaves begin inside kv heads: k and v are packed head by head */
bool bt_net_kv_uneven(const bt_model_setup *s);
/* (runs, M, KV D), the first becomes the sum over all who share heads */
void bt_net_kv_sum(bt_model *m, float *d, size_t M);
void bt_net_embed(bt_model *m, const int32_t *inputs, size_t M);
void bt_net_embed_bwd(bt_model *m, const int32_t *inputs, size_t M);
/* a.xn -> loss, a.dxn */
double bt_net_head_loss(bt_model *m, const int32_t *targets, float dscale, size_t M);
/* makes a gradient that several parts hold whole */
void bt_tp_grad(const bt_model *m, const bt_tensor *t);
/* sums over the kv heads that this part shares with neighbours; head h of x: `rows` rows of `width`
 * from element h * width, ld apart */
void bt_tp_join(const bt_model *m, float *x, size_t rows, size_t ld, size_t width);
/* (tensors, 2) sums over a part's block -> over tensors */
void bt_tp_totals(const bt_model *m, double (*totals)[2]);
void bt_tp_input_fwd(const bt_linear_input *s, const float *x, size_t r0, size_t rows);
void bt_tp_input_bwd(const bt_linear_input *s, float *dx, const float *dy, const float *x,
                     size_t r0, size_t rows);

/* ---- model.c ---- */
/* the layer's activations and sites to those of a micro-batch in flight */
void bt_net_point(bt_model *m, int layer, int slot);

/* ---- transformer.c: one pass over M = B * T tokens whose positions are in m->pos ------------- */
void bt_net_positions(bt_model *m, size_t B, size_t T, size_t first);
/* x -> q, k (normed, rotated), v */
void bt_net_qkv(bt_model *m, bt_layer *l, size_t M);
void bt_net_attn_out(bt_model *m, bt_layer *l, size_t M); /* o -> x_mid */
void bt_net_ffn(bt_model *m, bt_layer *l, size_t M);      /* x_mid -> x_out */
float *bt_net_q(const bt_layer *l);                       /* what attention sees */
float *bt_net_k(const bt_layer *l);
void bt_net_forward(bt_model *m, const int32_t *inputs, size_t B, size_t T); /* -> x_final */
/* from a.dx */
void bt_net_backward(bt_model *m, const int32_t *inputs, size_t B, size_t T, bt_grad_ready_fn ready,
                     void *ready_ctx);
void bt_net_ready(const bt_model *m, const bt_tensor *t, bt_grad_ready_fn ready, void *ready_ctx);
void bt_net_copy(float *y, const float *x, size_t n);

#endif

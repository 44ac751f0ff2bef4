/* tp_state.h - a rank's state for tensor parallelism and sums over leaves, and its functions. For engine/model/tp. */
#ifndef BT_ENGINE_MODEL_TP_TP_STATE_H
#define BT_ENGINE_MODEL_TP_TP_STATE_H

#include "engine/model/tp/tp_slice.h"

typedef struct bt_tp_state {
    bt_tp_group *group;
    const bt_model_setup *setup;
    bool sequence;
    /* number of equal parts whose sums are added as a tree: on this rank, and in the whole model. 1: none. */
    size_t leaves, total_leaves;
    size_t first_leaf; /* index of the first leaf of this rank */
    /* first tokens of the leaves of this rank's vocabulary; leaves may differ by one token */
    size_t vocab_at[BT_LEAVES_MAX + 1];
    float *spare; /* (log2 leaves, M, C) partial sums */
    float *gains; /* (total_leaves, C or D), or (KV, D) */
    /* kv heads that two ranks share, of the whole model; the first one of this rank among them */
    size_t shared_kv, first_shared_kv;
    float *shared_kv_sums;   /* (shared_kv, M D or D C) partial sums of each pair */
    size_t vocab0;           /* first token id of this rank */
    float *ones;             /* (M) */
    bt_row_stat *mine, *all; /* (M); of all ranks, (size, M) */
    float *a, *b;            /* (M) */
    int32_t *index;          /* (M) */
    double (*totals)[2];     /* (size, m->n_totals) of all ranks */
    /* adapters: (M, rank) x A^T or dy B, summed over the ranks; partial sums over leaves */
    float *adapter_rows, *adapter_spare;
} bt_tp_state;

/* Returns the rows of M that this rank owns; without sequence parallelism all. */
bt_rows bt_tp_own_rows(const bt_model *m, size_t M);
/* The layer's ranges of outputs (bt_linear.ranges) that a leaf adds. */
typedef struct bt_tp_ranges {
    size_t begin, end;
} bt_tp_ranges;
bt_tp_ranges bt_tp_ranges_in(const bt_model_setup *s, const bt_linear *l, size_t leaf,
                             size_t leaves);

/* tp_exchange.c: a slice of the model on each rank; see bt_tp_ops */
void bt_tp_gather_input(bt_model *m, const bt_linear_input *in, size_t M);
/* Gathers (M, C) floats, of which this rank has its own rows. */
void bt_tp_gather_residual(bt_model *m, float *x, size_t M);
const float *bt_tp_gather_grad(bt_model *m, const float *own, size_t M);
float *bt_tp_reduce_grad(bt_model *m, float *x, size_t M);
void bt_tp_add_product(bt_model *m, float *y, const bt_linear *l, const bt_linear_input *in,
                       const float *src, size_t r0, size_t rows);
void bt_tp_finish_product(bt_model *m, float *y, const bt_linear *l, const bt_linear_input *in,
                          size_t M);
void bt_tp_norm_bwd(bt_model *m, const bt_norm_bwd *j);
void bt_tp_complete_grad(const bt_model *m, const bt_tensor *t);
void bt_tp_total_sums(const bt_model *m, double (*totals)[2]);
void bt_tp_synchronise(const bt_model *m);
/* Adds the kv heads shared with neighbours. Head h of x: `rows` rows of `width` from h * width on, ld apart. */
void bt_tp_sum_shared_kv(const bt_model *m, float *x, size_t rows, size_t ld, size_t width);

void bt_tp_wire_adapter(bt_model *m, bt_linear *l);
/* For a layer whose inputs are divided over the ranks: `rows` is called after its base product of rows r0 .. r0+rows;
 * `sum` after all of them, before the ranks' products are added; `add` adds the adapter's output to own rows of y. */
void bt_tp_adapter_rows(bt_model *m, const bt_linear *l, const bt_linear_input *in,
                        const float *src, size_t r0, size_t rows);
void bt_tp_adapter_sum(bt_model *m, const bt_linear *l, size_t M);
void bt_tp_adapter_add(bt_model *m, float *y, const bt_linear *l, size_t M);

/* Replaces the addition of the base's product and bt_tp_adapter_add. sum: own rows of the sum over the ranks. */
void bt_tp_dora_add(bt_model *m, float *y, const bt_linear *l, const bt_linear_input *in,
                    const float *sum, size_t M);
/* bt_adapter.whole of a model with leaves. */
void bt_tp_dora_whole(const bt_linear *l, float *z, const bt_linear_input *in, const float *src,
                      size_t r0, size_t n);

extern const bt_input_ops bt_tp_input_ops;

/* tp_vocab.c: a range of the vocabulary on each rank */
void bt_tp_embed(bt_model *m, const int32_t *inputs, size_t M);
void bt_tp_embed_bwd(bt_model *m, const int32_t *inputs, size_t M);
double bt_tp_head_loss(bt_model *m, const int32_t *targets, float dscale, size_t M);
bt_vocab_part bt_tp_vocab(const bt_model *m);
void bt_tp_gather_final(bt_model *m, size_t M);
void bt_tp_head_dx(bt_model *m, size_t r0, size_t rows, size_t ld);
int32_t bt_tp_draw(bt_model *m, const bt_draw *how, size_t M);

void bt_tp_leaves_dx(bt_model *m, const bt_dx_term *terms, size_t n, size_t r0, size_t rows);
void bt_tp_leaves_norm_bwd(bt_model *m, const bt_norm_bwd *j);
void bt_tp_leaves_heads_bwd(bt_model *m, const bt_layer *l, bool kv, float *dx, const float *dy,
                            const float *x, size_t M);
void bt_tp_leaves_sum_kv(bt_model *m, float *d, size_t M);

/* Computes out (M, N) = a (M, K) times b (K, N), or (N, K) with tb, leaf by leaf of K, which may be the vocabulary. */
typedef struct bt_depth_product {
    const float *a;
    bt_table b;
    size_t lda, ldb, M, N, K;
    int tb;
    bt_prec prec;
    bool vocab;
    /* b as int8, where a are the probabilities; index, dscale, slopes: those of bt_head_targets */
    const bt_head8 *int8;
    const int32_t *index;
    float dscale;
    const float *slopes;
} bt_depth_product;
void bt_tp_depth_product(bt_model *m, float *out, const bt_depth_product *p);
/* Computes part (rows, N), the product of this rank's columns of the input; ternary: as whole numbers. */
void bt_tp_slice_product(bt_model *m, float *part, const bt_linear *l, const bt_linear_input *in,
                         const float *src, size_t r0, size_t rows);
/* Sets head8.w to the head, leaf by leaf. */
void bt_tp_pack_head(bt_model *m);

#endif

/* tp_ops.h - the operations of a pass that depend on tensor parallelism: a table of functions that is chosen once,
 * when the model is created.
 *
 *     bt_tp_one_rank   (one_rank.c) the whole model on one rank: no exchange, products and norms are the
 *                      fused kernels
 *     engine/model/tp  a slice of the model on each rank of a tensor-parallel group; or a model whose
 *                      sums are added as a tree of leaves (reproducible training)
 *
 * Rows are tokens. With sequence parallelism a rank holds the residual of its own rows only, otherwise of all.
 * Every function is collective over the tensor-parallel group.
 * Threads: the training thread. */
#ifndef BT_ENGINE_MODEL_NET_TP_OPS_H
#define BT_ENGINE_MODEL_NET_TP_OPS_H

#include "engine/kernels/table/kernels.h"
#include "engine/model/net/model.h"

struct bt_gain;
struct bt_layer;
struct bt_linear;
struct bt_linear_input;

typedef struct bt_rows {
    size_t first, n;
} bt_rows;

typedef struct bt_dx_term {
    const struct bt_linear *l;
    bt_grads dy;
} bt_dx_term;

/* The backward pass of a norm: own rows of dx (+)= its gradient for input x; rstd is that of all M rows. */
typedef struct bt_norm_bwd {
    const struct bt_gain *gain;
    float *dx;
    const float *dy, *x, *rstd;
    const uint16_t *saved; /* x as bf16 if x is NULL: only on one rank (sums: its scratch memory) */
    float *sums;
    bool add; /* to dx */
    size_t M;
} bt_norm_bwd;

/* The tokens whose logits this rank has: a range of the vocabulary that consists of leaves (leaf i: at[i] .. at[i + 1];
 * for one leaf `at` is not read). group: the ranks with the other ranges; NULL: none. */
typedef struct bt_vocab_part {
    size_t first, leaves;
    const size_t *at;
    bt_tp_group *group;
} bt_vocab_part;

typedef struct bt_tp_ops {
    /* Returns the rows of M whose residual this rank has. */
    bt_rows (*own_rows)(const bt_model *m, size_t M);
    /* Gather all rows of an input, or of the residual's gradient, from the own rows of the ranks. */
    void (*gather_input)(bt_model *m, const struct bt_linear_input *in, size_t M);
    const float *(*gather_grad)(bt_model *m, const float *own, size_t M);
    /* Adds the (M, C) sums of all ranks and returns the own rows of the result. */
    float *(*reduce_grad)(bt_model *m, float *x, size_t M);
    /* y += product of a layer whose inputs (columns) are divided over the ranks, for own rows of y: `add_product` for
     * each block of rows, then `finish_product`. src: source of the input. */
    void (*add_product)(bt_model *m, float *y, const struct bt_linear *l,
                        const struct bt_linear_input *in, const float *src, size_t r0, size_t rows);
    void (*finish_product)(bt_model *m, float *y, const struct bt_linear *l,
                           const struct bt_linear_input *in, size_t M);
    /* Computes rows r0 .. r0+rows of a.dxn = sum of dy W over the terms; dy begins at row r0. */
    void (*dx)(bt_model *m, const bt_dx_term *terms, size_t n, size_t r0, size_t rows);
    /* Backward pass of a norm of the residual; adds to the gain's gradient. */
    void (*norm_bwd)(bt_model *m, const bt_norm_bwd *j);
    /* Backward pass of the norm of query heads, or of kv heads. */
    void (*heads_bwd)(bt_model *m, const struct bt_layer *l, bool kv, float *dx, const float *dy,
                      const float *x, size_t M);
    /* Sums (m->kv_runs, M, KV D) of dk or dv over all parts that share kv heads, into the first. */
    void (*sum_kv)(bt_model *m, float *d, size_t M);
    /* Embeds tokens into own rows of the residual; and adds a.dx to the embedding's gradient. */
    void (*embed)(bt_model *m, const int32_t *inputs, size_t M);
    void (*embed_bwd)(bt_model *m, const int32_t *inputs, size_t M);
    /* Returns the sum of token losses from own rows of a.xn; with dscale != 0 also a.dxn and the head's gradient. */
    double (*head_loss)(bt_model *m, const int32_t *targets, float dscale, size_t M);
    bt_vocab_part (*vocab)(const bt_model *m);
    void (*gather_final)(bt_model *m, size_t M);
    /* Computes this rank's part of the gradient in rows r0 .. r0+rows of a.dxn: the logits' gradient times the head;
     * m->logits begins at row r0, ld floats per row. */
    void (*head_dx)(bt_model *m, size_t r0, size_t rows, size_t ld);
    /* Draws the token after the last of M tokens from own rows of a.xn, the same on all ranks. */
    int32_t (*draw)(bt_model *m, const bt_draw *how, size_t M);
    /* Completes the gradient of a tensor, parts of which several ranks have. */
    void (*complete_grad)(const bt_model *m, const bt_tensor *t);
    /* Converts (m->n_totals, 2) sums over this rank's parts of tensors to sums over whole tensors. */
    void (*total_sums)(const bt_model *m, double (*totals)[2]);
    /* Waits for all ranks. */
    void (*meet)(const bt_model *m);
} bt_tp_ops;

extern const bt_tp_ops bt_tp_one_rank;
/* The best of n logits, the first of which belongs to token `first`; see bt_draw. */
typedef struct bt_drawn {
    double score;
    int64_t token;
} bt_drawn;
bt_drawn bt_net_draw(const float *logits, size_t n, int64_t first, const bt_draw *how);
void bt_one_rank_dx(bt_model *m, const bt_dx_term *terms, size_t n, size_t r0, size_t rows);
void bt_one_rank_heads_bwd(bt_model *m, const struct bt_layer *l, bool kv, float *dx,
                           const float *dy, const float *x, size_t M);
void bt_one_rank_sum_kv(bt_model *m, float *d, size_t M);
/* Returns the number of rows that a thread processes through all terms of dx (int8 products). */
size_t bt_one_rank_dx_rows(const bt_model *m);

#endif

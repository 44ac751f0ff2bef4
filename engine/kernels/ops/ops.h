/* ops.h - the kernel table over whole problems: splits work over the thread pool, owns per-thread
 * scratch.
 *
 * Order:    bt_ops_plan (largest sizes) before the first call; no allocation afterwards. bt_ops_release at the end.
 * Threads:  called by the training thread only; uses bt_parallel_for.
 * Results do not depend on the number of threads. Shapes and exactness are those of kernels.h. */
#ifndef BT_ENGINE_KERNELS_OPS_OPS_H
#define BT_ENGINE_KERNELS_OPS_OPS_H

#include "engine/base/numbers/bigrams.h"
#include "engine/base/threads.h"
#include "engine/kernels/table/kernels.h"

/* Allocates scratch for products up to (M, N, K) and attention up to (T, D). It grows and never shrinks. *bytes
 * receives the memory allocated. */
bt_code bt_ops_plan(size_t M, size_t N, size_t K, size_t T, size_t D, size_t *bytes, bt_err *err)
    BT_MUST_CHECK;
void bt_ops_release(void);

/* Cost of one operation since bt_ops_profile(true): wall time on the training thread; arithmetic operations (two per
 * multiply-add; only the causal half of attention); the minimum number of bytes moved. 0: the count is meaningless. */
typedef struct bt_op_profile {
    const char *name;
    uint64_t calls;
    int64_t ns;
    double ops, bytes;
} bt_op_profile;
enum { BT_OPS_MAX = 40 };
void bt_ops_profile(bool on); /* true starts from zero */
/* true pauses counting and keeps the counts; false continues it */
void bt_ops_profile_hold(bool hold);
size_t bt_ops_profile_rows(bt_op_profile *rows, size_t max);

enum { BT_NORM_BLOCK = 64 };
void bt_op_rmsnorm(float *y, float *rstd, const float *x, const float *gain, float eps, size_t rows,
                   size_t C);
/* dgain (NULL: no gain) receives sums over blocks of BT_NORM_BLOCK rows, added in order. acc != 0 adds to dx. */
void bt_op_rmsnorm_bwd(float *dx, float *dgain, const float *dy, const float *x, const float *gain,
                       const float *rstd, int acc, size_t rows, size_t C);
void bt_op_quant(int8_t *xq, float *dq, const float *x, size_t rows, size_t C);
void bt_op_rmsnorm_quant(int8_t *xq, float *dq, float *rstd, float *y, const float *x,
                         const float *gain, float eps, size_t rows, size_t C);
/* rmsnorm_quant of x; also stores x in `saved` as bf16 */
void bt_op_rmsnorm_quant_save(uint16_t *saved, int8_t *xq, float *dq, float *rstd, const float *x,
                              const float *gain, float eps, size_t rows, size_t C);
/* rmsnorm_bwd in one pass over rows of x stored as bf16, with equal bits; dx may be dy. sums: memory for
 * bt_op_norm_sums(rows, C) floats */
typedef struct bt_rmsnorm_bwd_saved {
    float *dx, *dgain, *sums;
    const float *dy, *gain, *rstd;
    const uint16_t *x;
    int acc; /* 1: add to dx */
    size_t rows, C;
} bt_rmsnorm_bwd_saved;
static inline size_t bt_op_norm_sums(size_t rows, size_t C) {
    return (rows + BT_NORM_BLOCK - 1) / BT_NORM_BLOCK * 2 *
           C; /* one row of sums and one row of x for each block */
}
void bt_op_rmsnorm_bwd_saved(const bt_rmsnorm_bwd_saved *j);
/* Dropout of rows of C elements: y = (or, with add, +=) x * scale or 0. y may be x. With the half row
 * h = (C + 1) / 2, column c of row r uses 16 bits of bt_noise_word(rows[r], first + site * h + c % h): the lower ones
 * where c < h, else the upper ones. The element is 0 if they are less than `below`. If the rows are columns
 * col0 .. col0+C of rows of `whole` elements, c and h are those of the whole row. */
enum { BT_DROP_ALL = 1 << 16 };
typedef struct bt_drop {
    uint32_t *rows; /* (rows) noise key of each row */
    uint32_t below; /* probability of 0, in units of 1 / BT_DROP_ALL */
    uint32_t site;  /* number of the tensor */
    float scale;
    uint32_t first;     /* added to the number of each word */
    size_t whole, col0; /* whole 0: the rows are whole */
} bt_drop;
void bt_op_drop(float *y, const float *x, const bt_drop *how, bool add, size_t rows, size_t C);
void bt_op_rope(float *x, size_t ld, const bt_rotation *by, int inverse, size_t rows, size_t heads,
                size_t D);
/* Rotates (rows, heads D) and stores the result as bf16 only; x is undefined afterwards. */
void bt_op_rope_save(uint16_t *saved, float *x, const bt_rotation *by, size_t rows, size_t heads,
                     size_t D);
void bt_op_glu(float *y, const float *gate, const float *up, bt_act act, size_t n);
/* glu followed by rmsnorm_quant (if rstd is given) or quant of its rows, in one pass that does not return the result
 * of glu. gate_saved and up_saved (NULL: not needed) receive gate and up as bf16. h: memory for (rows, F), undefined
 * afterwards */
typedef struct bt_glu_quant {
    int8_t *xq;
    float *dq, *rstd, *h;
    uint16_t *gate_saved, *up_saved;
    const float *gate, *up, *gain;
    float eps;
    bt_act act;
    size_t rows, F;
} bt_glu_quant;
void bt_op_glu_quant(const bt_glu_quant *j);
/* Destination of the gradients of gate and up. If the float pointers are NULL, gradients are rounded to bf16. */
typedef struct bt_glu_grads {
    float *gate, *up;
    uint16_t *gate_bf16, *up_bf16;
} bt_glu_grads;
/* glu_bwd of gate and up that are stored as bf16 */
void bt_op_glu_bwd_saved(bt_glu_grads d, const float *dy, const uint16_t *gate, const uint16_t *up,
                         bt_act act, size_t n);
/* rmsnorm_bwd over glu, then glu_bwd, in one pass over rows whose gate and up are stored as bf16; act(gate) * up is
 * recomputed. dgain (NULL: there is no gain) receives sums over blocks of BT_GLU_BLOCK rows, added in order. h, sums:
 * memory for (rows, F), undefined afterwards */
enum { BT_GLU_BLOCK = BT_NORM_BLOCK };
typedef struct bt_glu_norm_bwd {
    bt_glu_grads d;
    float *dgain, *h, *sums;
    const float *dy, *gain, *rstd;
    const uint16_t *gate, *up;
    bt_act act;
    size_t rows, F;
} bt_glu_norm_bwd;
void bt_op_glu_norm_bwd(const bt_glu_norm_bwd *j);
void bt_op_glu_bwd(float *dgate, float *dup, const float *dy, const float *gate, const float *up,
                   bt_act act, size_t n);
void bt_op_add(float *y, const float *x, size_t n);
/* add_row: adds x (N) to each row of y (M, N). sum_rows: adds the sum of all rows to out (N), in the order of rows. */
void bt_op_add_row(float *y, const float *x, size_t M, size_t N);
void bt_op_sum_rows(float *out, const float *y, size_t M, size_t N);
void bt_op_scale(float *y, float a, size_t n);
/* y (rows, C) = x times the factors b (C) of columns; x may be y. With bf16 in x, y has the floats of its values. */
void bt_op_scale_columns(float *y, size_t ldy, bt_grads x, const float *b, size_t rows, size_t C);
/* y (rows, C) += x a b, multiplied in this order; a (rows): factors of rows, NULL: 1; b (C): factors of columns */
void bt_op_add_columns(float *y, const float *x, const float *a, const float *b, size_t rows,
                       size_t C);
void bt_op_zero(float *y, size_t n);
void bt_op_save_bf16(uint16_t *y, const float *x, size_t n); /* y = x rounded to bf16 */
void bt_op_load_bf16(float *y, const uint16_t *x, size_t n); /* y = x as floats */
void bt_op_round_bf16(float *x, size_t n);                   /* rounds x to bf16 in place */
double bt_op_sum_squares(const float *x, size_t n); /* sums blocks of fixed size in order */
double bt_op_sum_abs(const float *x, size_t n);
double bt_op_sum(const float *x, size_t n);
void bt_op_adamw(float *w, const float *g, float *m, float *v, float grad_scale, float lr, float b1,
                 float b2, float eps, float decay, float c1, float c2, size_t n);
void bt_op_lion(float *w, const float *g, float *m, const bt_lion *h, size_t n);
bt_tern_stats bt_op_tern_codes(int8_t *codes, const float *w, float mean, float inv_scale, int sign,
                               size_t n);
/* tern_codes of weights stored as bf16; equal to that of the same values as floats */
bt_tern_stats bt_op_tern_codes_bf16(int8_t *codes, const uint16_t *w, float mean, float inv_scale,
                                    int sign, size_t n);
void bt_op_tern_pack(void *packed, const int8_t *codes, size_t N, size_t K);
/* Packs values for BT_COMPACT. Their codes are those of bt_op_tern_codes without mean and sign. */
void bt_op_pack_2bit(void *packed, const float *w, float inv_scale, size_t N, size_t K);
/* The same with a scale for each row; ldw, lds: distances of rows of w, and of their scales. */
void bt_op_pack_2bit_rows(void *packed, const float *w, size_t ldw, const float *scales, size_t lds,
                          size_t N, size_t K);
void bt_op_tern_fwd(float *y, size_t ldy, const int8_t *xq, const float *dq, const void *packed,
                    float scale, size_t M, size_t N, size_t K, int flags);
void bt_op_tern_dx(float *dx, size_t lddx, const float *dy, size_t lddy, const void *packed,
                   float scale, size_t M, size_t N, size_t K, bt_prec prec, int flags);
void bt_op_tern_dw(float *dw, const float *dy, size_t lddy, const int8_t *xq, const float *dq,
                   size_t M, size_t N, size_t K, bt_prec prec);
/* Rounds dy to int8 with noise (kernels.h); noise->rows[0] belongs to row 0 of dy. */
void bt_op_tern_dx8(float *dx, size_t lddx, bt_grads dy, const void *packed, float scale, size_t M,
                    size_t N, size_t K, const bt_noise *noise, int flags);
void bt_op_tern_dw8(float *dw, bt_grads dy, const int8_t *xq, const float *dq, size_t M, size_t N,
                    size_t K, const bt_noise *noise);
/* A ternary matrix (N, K) with 2 bits per code (kernels/table/ternary.h), and its scale. */
typedef struct bt_tern2 {
    const uint8_t *packed;
    float scale;
    size_t N, K;
} bt_tern2;
/* Has the bits of bt_op_tern_fwd, for at most BT_FEW_ROWS rows. */
void bt_op_tern_gemv(float *y, size_t ldy, const int8_t *xq, const float *dq, const bt_tern2 *w,
                     size_t M, int flags);
/* y (M, N) = x (M, K) w^T, for few rows M */
void bt_op_gemv(float *y, const void *w, bt_stored_as as, const float *x, size_t M, size_t N,
                size_t K);
/* A table of weights in one of these forms:
 *   - fp32 values
 *   - fp32 values, each rounded to bf16 when it is read
 *   - bf16 values. This form and the one before give equal bits, so that a rank that holds fp32 values computes the
 *     same as a rank that received them as bf16
 *   - int8 values times a scale. Products expand BT_TABLE8_ROWS rows at a time in `wide`, to floats or, for sets
 *     that multiply bf16, to bf16. There is one scale for each row of `width`, or one fp16 scale for each
 *     BT_Q8_BLOCK values (the format of GGUF's Q8_0), where width is a multiple of it */
enum { BT_TABLE8_ROWS = 512, BT_Q8_BLOCK = 32 };
typedef struct bt_table {
    const float *f32;
    const uint16_t *bf16; /* NULL: the values are in f32 */
    bool rounded;
    const int8_t *i8; /* not NULL: f32 and bf16 are NULL */
    const float *scale;
    const uint16_t *half_scale; /* not NULL: scale is NULL */
    void *wide;                 /* (BT_TABLE8_ROWS, width), memory of the caller */
    size_t width;               /* elements from one row to the next */
} bt_table;
/* Returns the part of the table that begins at an element. With i8 this is the first element of a row or, for a product
 * that reads columns from there on, of a block. */
static inline bt_table bt_table_from(bt_table t, size_t element) {
    bt_table from = t;
    if (t.f32) from.f32 = t.f32 + element;
    if (t.bf16) from.bf16 = t.bf16 + element;
    if (t.i8) from.i8 = t.i8 + element;
    if (t.scale) from.scale = t.scale + element / t.width;
    if (t.half_scale) from.half_scale = t.half_scale + element / BT_Q8_BLOCK;
    return from;
}
/* Reads n values from `element` on. With i8 they belong to one row; with half_scale they are whole blocks. */
void bt_table_read(float *out, const bt_table *t, size_t element, size_t n);
/* Stores each block of BT_Q8_BLOCK values as int8 codes and an fp16 scale, which is the block's largest |value| / 127;
 * n is a multiple of BT_Q8_BLOCK. Values from such blocks are reproduced exactly if one of them is +-127. */
void bt_op_q8_put(int8_t *codes, uint16_t *scales, const float *x, size_t n);
void bt_op_gemm(float *c, size_t ldc, const float *a, size_t lda, int ta, const void *b, size_t ldb,
                int tb, float alpha, size_t M, size_t N, size_t K, bt_prec prec, int flags);
/* Computes gemm with a table as b. A rounded table needs a kernel set that rounds the operands of products. An int8
 * table's row stride is its width; the product may read fewer columns. */
void bt_op_gemm_table(float *c, size_t ldc, const float *a, size_t lda, bt_table b, size_t ldb,
                      int tb, size_t M, size_t N, size_t K, bt_prec prec, int flags);
/* B sequences of T tokens, H query heads over KV kv heads. q (B*T, ldq), k, v likewise, head h at
 * column h*D; o (B*T, ldo), lse (B, H, T) */
void bt_op_attn_fwd(float *o, float *lse, const void *q, const void *k, const void *v,
                    const bt_attn_shape *s, size_t B, size_t H, size_t KV, bt_prec prec);
/* writes dq, dk, dv (same layout as q, k, v), with dq and dk rotated back by s->turned, which needs a single run;
 * with several runs, dk and dv of each run of a kv head's queries separately, as arrays of B T rows on end; zeros
 * if a head has fewer */
void bt_op_attn_bwd(float *dq, float *dk, float *dv, const float *dout, const void *o,
                    const float *lse, const void *q, const void *k, const void *v,
                    const bt_attn_shape *s, size_t B, size_t H, size_t KV, size_t runs,
                    bt_prec prec);
/* Weights (N, K) as int8, each row rounded to nearest with its own scale and packed in blocks of BT_W8_BLOCK rows. The
 * caller allocates packed (bt_op_w8_bytes(N, K) bytes) and scale (N). */
enum { BT_W8_BLOCK = 1024 };
typedef struct bt_w8 {
    void *packed;
    float *scale;
    bool rows; /* true: `packed` are the codes (N, K) themselves, N K bytes */
} bt_w8;
size_t bt_op_w8_bytes(size_t N, size_t K);
/* Packs w; w.rows must be false. */
void bt_op_w8_pack(const bt_w8 *w, const bt_table *weights, size_t N, size_t K);
/* dx = dy w. The products of dy and the scales of w's rows are rounded stochastically, by row and block; noise->first
 * is the number of w's first row. */
void bt_op_w8_dx8(float *dx, size_t lddx, const float *dy, size_t lddy, const bt_w8 *w, size_t M,
                  size_t N, size_t K, const bt_noise *noise);
/* y (M, N) of xq (M, K) with one scale per row; w.rows must be true. */
void bt_op_w8_fwd(float *y, size_t ldy, const int8_t *xq, const float *dq, const bt_w8 *w, size_t M,
                  size_t N, size_t K);
/* The head's gradients in int8: w8_dx8 and tern_dw8 of the probabilities, whose first column is word noise.first.
 * The target's own term is not rounded, because it is as large as the sum of all other terms. The caller
 * allocates: xq (chunk, C), dq (chunk). */
typedef struct bt_head8 {
    /* (V, C); filled by each call that makes gradients, unless w.rows is set: a frozen head stored as int8, from
     * which all logits are computed as well */
    bt_w8 w;
    int8_t *xq;
    float *dq;
    bt_noise noise;
} bt_head8;
/* dE (V, C) += p^T x, p (rows, V) every ldp floats; h->noise.rows belongs to row 0 */
void bt_op_head_dE8(float *dE, const float *p, size_t ldp, const float *x, const bt_head8 *h,
                    size_t rows, size_t V, size_t C);
/* For rows with from <= index[m] < to: dx[m] -= dscale E[index[m]] and dE[index[m]] -= dscale x[m]. dx or dE may be
 * NULL. */
typedef struct bt_head_targets {
    float *dx, *dE;
    const float *x;
    bt_table E;
    const int32_t *index;
    size_t from, to;
    float dscale;
    const float *slopes; /* (rows) factors of dscale; NULL: all 1 */
    size_t rows, C;
} bt_head_targets;
void bt_op_head_targets(const bt_head_targets *j);
/* optional changes of the logits before the softmax, and of the targets */
typedef struct bt_head_form {
    float cap; /* logits become cap tanh(logits / cap) (Gemma 2, arXiv:2408.00118); 0: unchanged */
    float *slopes; /* (M) with cap: its derivative at each row's target. The caller's memory */
    /* Mixes targets: the gradient is that of the cross-entropy with weight x the shares of all followers of a
     * row's input in the text + (1 - weight) x its target. The loss is that of the targets. inputs (M); NULL: no
     * mixing. Not combined with cap */
    const bt_followers *followers;
    const int32_t *inputs;
    float weight;
    /* (M) factors of the rows' gradients; NULL: 1. The products are then in the precision of the call instead of int8,
     * and targets are not mixed */
    const float *row_weights;
} bt_head_form;
/* logits (rows, V) every ld floats, dscale times the softmax of each row, for tokens first .. first + V: subtracts
 * dscale times (weight x the shares of the followers of the row's input + (1 - weight) x its target; only the
 * target if there are no followers). A row whose target is below 0 is unchanged */
typedef struct bt_head_follower_targets {
    float *logits;
    const bt_followers *followers;
    const int32_t *inputs, *targets;
    float dscale, weight;
    size_t first, rows, V, ld;
} bt_head_follower_targets;
void bt_op_head_follower_targets(const bt_head_follower_targets *j);
/* logits (rows, V) every ld floats := cap tanh(logits / cap) */
void bt_op_soft_cap(float *logits, size_t ld, float cap, size_t rows, size_t V);
/* row_softmax of logits that soft_cap made, and its gradient with respect to what soft_cap was given;
 * slopes (rows): soft_cap's derivative at the target, 0 where target < 0 */
typedef struct bt_capped_rows {
    float *logits;
    size_t ld;
    const float *top, *k;
    const int32_t *targets;
    float dscale, cap;
    float *slopes;
    size_t rows, V;
} bt_capped_rows;
void bt_op_row_softmax_capped(const bt_capped_rows *j);
/* Head and loss in row chunks, never the whole (M, V) logits: logits = x E^T (x (M, C), E (V, C));
 * loss summed in fixed order in double; when dscale != 0: dx (M, C) written, dE (V, C) added to, in
 * int8 where int8 is given; the loss is the cross-entropy alone. chunk rows of logits live in `logits`
 * (chunk, bt_ops_logits_ld(V)), every row's loss in `row_loss` (M): the caller's memory. */
/* floats from one row of logits to the next: dE reads them by columns, which a power of two would
 * send to one set of the cache */
static inline size_t bt_ops_logits_ld(size_t V) { return V % 256 ? V : V + 16; }
double bt_op_head_loss(float *dx, float *dE, const float *x, bt_table E, const int32_t *targets,
                       float dscale, float *logits, size_t chunk, float *row_loss, size_t M,
                       size_t V, size_t C, bt_prec prec, const bt_head8 *int8,
                       const bt_head_form *form);
/* ops_split.c: rows of which a rank has some columns, and vocabularies of which it has some tokens
 * (tensor parallelism) */
/* leaves: equal ranges of columns, up to BT_ROW_LEAVES; their results are joined as a tree in their
 * order, two neighbours first */
enum { BT_ROW_LEAVES = 64 };
void bt_op_row_stats(bt_row_stat *out, const float *x, const float *gain, size_t rows, size_t C,
                     size_t leaves);
void bt_op_row_apply(int8_t *xq, float *dq, float *y, const float *x, const float *gain,
                     const float *rstd, size_t rows, size_t C);
void bt_op_row_dot(double *out, const float *dy, const float *x, const float *gain, size_t rows,
                   size_t C, size_t leaves);
void bt_op_row_dx(float *dx, const float *dy, const float *x, const float *gain, const float *rstd,
                  const float *mean, size_t rows, size_t C);
/* adds */
void bt_op_row_dgain(float *dgain, const float *dy, const float *x, const float *rstd, size_t rows,
                     size_t C);
void bt_op_row_axpy(float *y, const float *x, const float *a, size_t rows, size_t C);
/* leaf p has columns at[p] to at[p + 1]; with one leaf `at` is not read */
void bt_op_row_lse(bt_row_stat *out, const float *logits, const int32_t *targets, size_t rows,
                   size_t V, const size_t *at, size_t leaves);
/* out (leaves, D): the gain's gradient of each range of heads, x and dy (M, heads, D), rstd (M,
 * heads) */
void bt_op_heads_dgain(float *out, const float *dy, const float *x, const float *rstd, size_t M,
                       size_t heads, size_t leaves, size_t D);
void bt_op_row_softmax(float *logits, const float *top, const float *k, const int32_t *targets,
                       float dscale, size_t rows, size_t V);
/* Embedding: x[m] = E[token[m] - first] for tokens first .. first+V-1. The rows of all other tokens, also of -1 (no
 * token), are zero, and backward ignores them; it adds rows in ascending m (threads own columns) */
void bt_op_embed(float *x, bt_table E, const int32_t *tokens, size_t first, size_t V, size_t M,
                 size_t C);
void bt_op_embed_bwd(float *dE, const float *dx, const int32_t *tokens, size_t first, size_t V,
                     size_t M, size_t C);
/* bt_parallel_for, timed under `name` (a literal) when the profile is on */
void bt_ops_run(const char *name, double bytes, size_t n, size_t grain, bt_range_fn fn, void *ctx);
/* rows of C elements a thread takes at least */
size_t bt_ops_row_grain(size_t C);

#endif

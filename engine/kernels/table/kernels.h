/* kernels.h - the table of operations that training consists of. Each instruction set implements it in one file.
 *
 * A slot works on the range given, on one thread, and never allocates. Its caller (ops.c) divides the work over
 * threads and passes per-thread scratch memory (64-byte aligned). isa_generic.c fills every slot with plain loops and
 * is the reference of the tests. A faster set fills some slots; the other slots use the next slower set (dispatch.c):
 * generic < blas < avx2 < avx512 < amx, on ARM generic < blas < neon
 *
 * Layout: row-major, contiguous unless an ld (elements) is given. Arrays may be unaligned; sizes may be 0.
 * Exactness: integer results equal generic's bit for bit. tests/engine/kernels states bounds of float results.
 * Determinism: the result for one output element does not depend on the range of the call, as long as ranges begin at
 *     multiples of row_grain.
 * Letters: M rows (tokens), N outputs, K inputs of a linear layer; W is (N, K). */
#ifndef BT_ENGINE_KERNELS_TABLE_KERNELS_H
#define BT_ENGINE_KERNELS_TABLE_KERNELS_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/numbers/moment.h"
#include "engine/base/status.h"
#include "engine/kernels/table/exact.h"
#include "engine/kernels/table/noise.h"

/* Type to which operands of backward and dense products may be rounded; sums are always fp32. A set for which a type is
 * not faster keeps fp32 operands. fp16 becomes infinity beyond 65504. The order is that of the choices of
 * train.precision. */
typedef enum { BT_PREC_FP32, BT_PREC_BF16, BT_PREC_FP16 } bt_prec;
/* GELU: the form with tanh (arXiv:1606.08415) */
typedef enum { BT_ACT_RELU2, BT_ACT_SILU, BT_ACT_GELU } bt_act;
/* gelu(x) = x sigmoid(BT_GELU x (1 + BT_GELU_CUBE x^2)): 2 sqrt(2 / pi), 0.044715 */
#define BT_GELU 1.5957691216057308F
#define BT_GELU_CUBE 0.044715F

/* products whose peak rate is measured */
typedef enum { BT_PEAK_FP32, BT_PEAK_BF16, BT_PEAK_INT8 } bt_peak;

/* Flags of a product. BT_ACC: add to the output instead of writing it. BT_B_BF16: the second operand of `gemm` is
 * stored as bf16 (uint16_t), for sets with `multiplies_bf16`; the bits equal those of the same values as floats.
 * BT_COMPACT: `packed` was made by packed_2bit_pack instead of tern_pack, or holds the rows of int8 weights (w8_dx8);
 * the bits are the same. */
enum { BT_ACC = 1, BT_B_BF16 = 2, BT_COMPACT = 4 };

/* storage type of the weights of `gemv`: float, or uint16_t with bf16 or fp16 */
typedef enum { BT_AS_F32, BT_AS_BF16, BT_AS_F16 } bt_stored_as;

/* Gradients of a layer's outputs, with rows `ld` elements apart: floats, or bf16, which only int8 products read. The
 * other pointer is NULL. */
typedef struct bt_grads {
    const float *f32;
    const uint16_t *bf16;
    size_t ld;
} bt_grads;
static inline bt_grads bt_grads_f32(const float *dy, size_t ld) { return (bt_grads){dy, NULL, ld}; }
static inline bt_grads bt_grads_bf16(const uint16_t *dy, size_t ld) {
    return (bt_grads){NULL, dy, ld};
}
static inline bt_grads bt_grads_from(bt_grads g, size_t row, size_t col) {
    const size_t at = row * g.ld + col;
    return (bt_grads){g.f32 ? g.f32 + at : NULL, g.bf16 ? g.bf16 + at : NULL, g.ld};
}

typedef struct bt_code_seen {
    uint64_t flips, sign_flips, back;
} bt_code_seen;
typedef struct bt_tern_stats { /* statistics of one call over a range of codes */
    /* flips: number of codes that differ from the former content of `codes` */
    uint64_t zero, pos, flips;
} bt_tern_stats;

/* rows [row, row + n) of the B T rows of bt_op_attn_*: a document inside one sequence */
typedef struct bt_attn_document {
    size_t row, n;
    bool
        padding; /* true: these rows belong to no document, so their outputs and gradients are zeros */
} bt_attn_document;

/* arguments of bt_op_rope: rotation of queries and keys by their position */
typedef struct bt_rotation {
    const float *cos, *sin; /* (positions, dims / 2) */
    const int32_t *pos;     /* (B T) position of each row */
    size_t dims;            /* the first elements of each head that rotate, an even number */
} bt_rotation;

typedef struct bt_attn_shape {
    size_t T, D; /* sequence length, head size */
    /* elements from one token to the next in q/dq, k/dk, v/dv, o/do */
    size_t ldq, ldk, ldv, ldo;
    float scale; /* usually 1/sqrt(D) */
    float cap;   /* scores become cap tanh(score / cap) (Gemma 2, arXiv:2408.00118); 0: unchanged */
    size_t window; /* 0: whole causal prefix */
    /* group: query heads per kv head (0: H / KV). skip: query heads of the first kv head that precede q */
    size_t group, skip;
    /* bt_op_attn_bwd with several runs: number of query heads in each. 0: each run is an equal part of a kv head's */
    size_t run;
    /* bt_op_attn_*: attention is restricted to documents, which cover all rows in order; the bits equal those of
     * computing each document separately. NULL: each sequence is one document */
    const bt_attn_document *documents;
    size_t n_documents;
    /* q, k, v and, in the backward pass, o are stored as bf16 (uint16_t): for sets with `multiplies_bf16`, in
     * BT_PREC_BF16. The bits equal those of the same values as floats */
    bool bf16;
    /* Four of the seven products multiply int8 operands, with exact sums; the other three products of the backward
     * pass use `prec`. Q K^T (both passes) and dout V^T round rows to nearest, with one scale a row. P V rounds v by
     * columns, and p = exp(score - the row's largest) to multiples of 1 / BT_ATTN_STEPS. The rounding error of p of
     * key j is added to p of key j + BT_ATTN_LANES before that is rounded, so that many small weights keep their
     * sum. The row is divided by the sum of the rounded weights */
    bool int8;
    const bt_rotation *turned; /* bt_op_attn_bwd: rotation to undo in dq and dk; NULL: none */
} bt_attn_shape;

/* partial results of row_stats and row_lse over some columns of a row */
typedef struct bt_row_stat {
    double sum;
    float a, b;
} bt_row_stat;

/* Joins the results of two neighbouring ranges of columns, of row_stats or of row_lse. */
static inline bt_row_stat bt_row_stat_join(bt_row_stat x, bt_row_stat y) {
    bool right = y.a * y.b > x.a * x.b;
    return (bt_row_stat){x.sum + y.sum, right ? y.a : x.a, right ? y.b : x.b};
}
static inline bt_row_stat bt_row_lse_join(bt_row_stat x, bt_row_stat y) {
    float top = fmaxf(x.a, y.a);
    return (bt_row_stat){x.sum * exp((double)x.a - (double)top) +
                             y.sum * exp((double)y.a - (double)top),
                         top, x.b + y.b};
}

typedef struct bt_lion { /* arguments of one update */
    float grad_scale, lr, b1, b2, decay;
} bt_lion;

typedef struct bt_adamw { /* arguments of one update; c1 = 1 - b1^t, c2 = 1 - b2^t */
    float grad_scale, lr, b1, b2, eps, decay, c1, c2;
} bt_adamw;

typedef struct bt_kernels {
    const char *name;
    /* threads divide products at multiples of this number of rows (0: anywhere), so that a result does not depend on
     * the division */
    size_t row_grain;
    /* returns true if gemm, on this processor, rounds operands to bf16 where allowed. NULL: it never does, and
     * BT_B_BF16 is not supported */
    bool (*multiplies_bf16)(void);

    /* ---- rows of a (rows, C) matrix ---------------------------------------------------------- */
    /* rstd[r] = 1/sqrt(mean(x^2) + eps); y = x * rstd * gain. gain NULL: 1; y or rstd NULL: not stored */
    void (*rmsnorm)(float *y, float *rstd, const float *x, const float *gain, float eps,
                    size_t rows, size_t C);
    /* dx = gradient of rmsnorm; acc != 0 adds to dx. dx may be dy or x */
    void (*rmsnorm_dx)(float *dx, const float *dy, const float *x, const float *gain,
                       const float *rstd, int acc, size_t rows, size_t C);
    /* dgain[c] += sum over rows of dy * x * rstd, columns c0 <= c < c1, rows in ascending order */
    void (*rmsnorm_dgain)(float *dgain, const float *dy, const float *x, const float *rstd,
                          size_t rows, size_t C, size_t c0, size_t c1);
    /* absmax int8 per row, half to even: a = max(max|x|, 1e-5); xq = clamp(rint(x * (127/a)), -128,
     * 127); dq = a/127 */
    void (*quant_rows)(int8_t *xq, float *dq, const float *x, size_t rows, size_t C);
    /* rmsnorm and quant_rows in one pass over x; y (may be NULL) also receives the normed floats */
    void (*rmsnorm_quant)(int8_t *xq, float *dq, float *rstd, float *y, const float *x,
                          const float *gain, float eps, size_t rows, size_t C);
    /* rotary embedding, half-split pairs (i, i + dims/2), in place on `heads` heads of D elements in each row (row
     * stride ld); by->pos[r] selects the row of cos and sin; inverse: rotate back (the gradient) */
    void (*rope)(float *x, size_t ld, const bt_rotation *by, int inverse, size_t rows, size_t heads,
                 size_t D);
    /* y = act(gate) * up */
    void (*glu)(float *y, const float *gate, const float *up, bt_act act, size_t n);
    /* dgate = dy * up * act'(gate); dup = dy * act(gate). dgate may be gate, dup may be up (in
     * place). */
    void (*glu_bwd)(float *dgate, float *dup, const float *dy, const float *gate, const float *up,
                    bt_act act, size_t n);
    /* per row: loss[r] = logsumexp(logits) - logits[target]; logits := (softmax - onehot) * dscale
     * when dscale != 0. target < 0: loss 0, gradient 0. */
    void (*softmax_xent)(float *loss, float *logits, const int32_t *targets, float dscale,
                         size_t rows, size_t V);

    /* ---- rows of which this caller holds some columns only (tensor parallelism): statistics of the columns, then
     * functions that use the joined statistics of whole rows ---- */
    /* sum of x^2, and the x and gain (NULL: 1) of the largest |x gain|, from which the absmax of the whole row is
     * computed with the same bits */
    void (*row_stats)(bt_row_stat *out, const float *x, const float *gain, size_t rows, size_t C);
    /* y = x * rstd * gain; gain NULL: 1, rstd NULL: 1, y NULL: not stored. xq (NULL: not stored) receives y as int8:
     * dq[r] is max |y| of the whole row before the call and the scale after the call, as in quant_rows */
    void (*row_apply)(int8_t *xq, float *dq, float *y, const float *x, const float *gain,
                      const float *rstd, size_t rows, size_t C);
    /* out[r] = sum of gain dy x */
    void (*row_dot)(double *out, const float *dy, const float *x, const float *gain, size_t rows,
                    size_t C);
    /* dx = rstd * (gain dy - x * rstd^2 * mean[r]), where mean[r] is the mean of gain dy x over the whole row. dx may
     * be dy */
    void (*row_dx)(float *dx, const float *dy, const float *x, const float *gain, const float *rstd,
                   const float *mean, size_t rows, size_t C);
    /* y[r] += x[r] * a[r] */
    void (*row_axpy)(float *y, const float *x, const float *a, size_t rows, size_t C);
    /* a = max(logits), sum = sum of exp(logit - a), b = logits[target] (target < 0: 0) */
    void (*row_lse)(bt_row_stat *out, const float *logits, const int32_t *targets, size_t rows,
                    size_t V);
    /* logits := exp(logits - top[r]) * k[r]; subtracts dscale at the target, unless target < 0 */
    void (*row_softmax)(float *logits, const float *top, const float *k, const int32_t *targets,
                        float dscale, size_t rows, size_t V);

    /* ---- flat arrays ------------------------------------------------------------------------- */
    void (*add)(float *y, const float *x, size_t n); /* y += x */
    void (*scale)(float *y, float a, size_t n);      /* y *= a */
    /* rounds half to even; NaN is preserved; all sets give the same bits */
    void (*to_bf16)(uint16_t *y, const float *x, size_t n);
    void (*from_bf16)(float *y, const uint16_t *x, size_t n); /* exact */
    /* conversions to and from fp16 (half.h) */
    void (*to_half)(uint16_t *y, const float *x, size_t n);
    void (*from_half)(float *y, const uint16_t *x, size_t n);
    /* callers pass blocks of fixed size, so that the bits do not depend on the division */
    double (*sum_squares)(const float *x, size_t n);
    double (*sum_abs)(const float *x, size_t n);
    double (*sum)(const float *x, size_t n);
    /* exact.h; `coarse` and the argument after it are the anchors of the units */
    void (*exact_add)(double sum[2], const float *x, size_t n, bt_exact_of of, double coarse,
                      double fine);
    uint32_t (*exact_most)(const float *x, size_t n);
    /* AdamW, decoupled decay: g *= grad_scale; m, v; w -= lr * (mhat / (sqrt(vhat) + eps) + decay *
     * w); c1 = 1-b1^t, c2 = 1-b2^t */
    void (*adamw)(float *w, const float *g, float *m, float *v, float grad_scale, float lr,
                  float b1, float b2, float eps, float decay, float c1, float c2, size_t n);

    /* Lion: g *= grad_scale; w -= lr * (sign(b1 m + (1-b1) g) + decay w); m = b2 m + (1-b2) g. Rounding could change a
     * sign near zero, so every set computes the same bits */
    void (*lion)(float *w, const float *g, float *m, const bt_lion *h, size_t n);

    /* ---- optimizer states in few bytes (moment.h); all sets give the same bits ------------------ */
    /* words[i] = bt_noise_word(key, lane + i) */
    void (*noise_words)(uint32_t *words, uint32_t key, uint32_t lane, size_t n);
    void (*moment_load)(float *y, const void *x, bt_moment_form form, size_t n);
    /* rounds stochastically with 16 bits of each word, from bit `shift` on */
    void (*moment_store)(void *y, const float *x, bt_moment_form form, const uint32_t *words,
                         int shift, size_t n);
    /* adamw without fused multiply-add, so that all sets give the same bits */
    void (*adamw_even)(float *w, const float *g, float *m, float *v, const bt_adamw *h, size_t n);

    /* ---- statistics: isa_stats.h ------------------------------------------------------------- */
    void (*adamw_undo)(float *change, float *before, const float *w, const float *m, const float *v,
                       size_t n, float keep, float step, float root, float eps);
    /* adds its counts to `seen` */
    void (*code_history)(uint8_t *history, const int8_t *codes, size_t n, bt_code_seen *seen);
    size_t (*code_near)(const float *w, size_t n, float mean, float inv_scale, float threshold,
                        float band);

    /* ---- ternary weights --------------------------------------------------------------------- */
    /* codes := clamp(rint((w - mean) * inv_scale), -1, 1), half to even; with sign != 0: sign(w -
     * mean). Returns counts. */
    bt_tern_stats (*tern_codes)(int8_t *codes, const float *w, float mean, float inv_scale,
                                int sign, size_t n);
    /* Packed form of codes (N, K), private to its kernel set: tern_fwd, tern_dx and tern_dx8 of the same set read it.
     * One call packs rows n0..n1 (n0 a multiple of BT_TERN_ROWS), so threads share the work. */
    size_t (*tern_bytes)(size_t N, size_t K);
    void (*tern_pack)(void *packed, const int8_t *codes, size_t N, size_t K, size_t n0, size_t n1);
    /* A packed form with 2 bits per code, for weights that rarely change; products unpack it panel by panel. Row n0
     * (any number) is at `codes` */
    size_t (*packed_2bit_bytes)(size_t N, size_t K);
    void (*packed_2bit_pack)(void *packed, const int8_t *codes, size_t N, size_t K, size_t n0,
                             size_t n1);
    /* Reads the codes of inputs k0..k1 of row n. */
    void (*packed_2bit_codes)(int8_t *codes, const void *packed, size_t K, size_t n, size_t k0,
                              size_t k1);
    /* y[m, n] (+)= dq[m] * scale * sum_k xq[m, k] * w[n, k]; sum exact in int32, then (float)sum *
     * (dq[m] * scale). rows m0..m1 */
    void (*tern_fwd)(float *y, size_t ldy, const int8_t *xq, const float *dq, const void *packed,
                     float scale, size_t m0, size_t m1, size_t N, size_t K, int flags,
                     void *scratch);
    /* dx[m, k] (+)= scale * sum_n dy[m, n] * w[n, k]; rows m0..m1 */
    void (*tern_dx)(float *dx, size_t lddx, const float *dy, size_t lddy, const void *packed,
                    float scale, size_t m0, size_t m1, size_t N, size_t K, bt_prec prec, int flags,
                    void *scratch);
    /* dw[n, k] += sum_m dy[m, n] * dq[m] * xq[m, k]; outputs n0..n1, all M rows */
    void (*tern_dw)(float *dw, const float *dy, size_t lddy, const int8_t *xq, const float *dq,
                    size_t M, size_t N, size_t K, size_t n0, size_t n1, bt_prec prec,
                    void *scratch);
    /* The products of tern_dx and tern_dw with dy rounded to int8 (noise.h). Sums are exact in int32: all sets give the
     * same bits, and bf16 gradients those of the same values as floats. dx8: the scale of a row is s = max|dy[m]| /
     * 127; dx (+)= (float)sum_n(q[m, n] w[n, k]) * (s * scale). noise->rows[0] belongs to row 0 */
    void (*tern_dx8)(float *dx, size_t lddx, bt_grads dy, const void *packed, float scale,
                     size_t m0, size_t m1, size_t N, size_t K, const bt_noise *noise, int flags,
                     void *scratch);
    /* dw8: in blocks of BT_GRAD_BLOCK rows, rounds g = dy[m, n] * dq[m] with the block's scale s = max|g| / 127;
     * dw[n, k] += (float)sum_m(q[m, n] xq[m, k]) * s, one block after the other */
    void (*tern_dw8)(float *dw, bt_grads dy, const int8_t *xq, const float *dq, size_t M, size_t N,
                     size_t K, size_t n0, size_t n1, const bt_noise *noise, void *scratch);

    /* ---- int8 weights: for gradients of the head ----------------------------------------- */
    /* Packed form of int8 codes (N, K), private to its kernel set: w8_dx8 of the same set reads it. One call packs
     * rows n0..n1 (n0 a multiple of 4), which begin at `codes`. */
    size_t (*w8_bytes)(size_t N, size_t K);
    void (*w8_pack)(void *packed, const int8_t *codes, size_t N, size_t K, size_t n0, size_t n1);
    /* dx8 for weights code[n, k] * row_scale[n]: rounds g = dy[m, n] * row_scale[n] with the row's scale
     * s = max|g| / 127; dx (+)= (float)sum_n(q[m, n] code[n, k]) * s. BT_COMPACT: `packed` holds the codes (N, K)
     * themselves; the bits are the same */
    void (*w8_dx8)(float *dx, size_t lddx, const float *dy, size_t lddy, const void *packed,
                   const float *row_scale, size_t m0, size_t m1, size_t N, size_t K,
                   const bt_noise *noise, int flags, void *scratch);

    /* y[m, n] = (float)sum_k(xq[m, k] code[n, k]) * dq[m] * row_scale[n], multiplied in this order; codes is (N, K) */
    void (*w8_fwd)(float *y, size_t ldy, const int8_t *xq, const float *dq, const int8_t *codes,
                   const float *row_scale, size_t m0, size_t m1, size_t N, size_t K, void *scratch);

    /* ---- dense products ---------------------------------------------------------------------- */
    /* C (M, N) (+)= alpha * op(A) op(B), op = transpose when ta / tb; A is (M, K) or (K, M), B is
     * (K, N) or (N, K). The caller passes sub-blocks by pointer and ld. */
    void (*gemm)(float *c, size_t ldc, const float *a, size_t lda, int ta, const void *b,
                 size_t ldb, int tb, float alpha, size_t M, size_t N, size_t K, bt_prec prec,
                 int flags, void *scratch);

    /* ---- causal attention of one head of one sequence, tiled over keys; the T x T scores are never stored ---- */
    /* q, k, v and, in the backward pass, o: floats, or bf16 if shape->bf16 */
    /* o = softmax(scale q k^T) v for query rows t0..t1; lse[t] = log of the row's normaliser
     * (natural log, of scaled scores); t0 is a multiple of BT_ATTN_ROWS */
    void (*attn_fwd)(float *o, float *lse, const void *q, const void *k, const void *v,
                     const bt_attn_shape *s, size_t t0, size_t t1, bt_prec prec, void *scratch);
    /* writes dq; adds to dk and dv; for one query head and its kv head. Computes delta[t] = sum_d do*o itself */
    void (*attn_bwd)(float *dq, float *dk, float *dv, const float *dout, const void *o,
                     const float *lse, const void *q, const void *k, const void *v,
                     const bt_attn_shape *s, bt_prec prec, void *scratch);

    /* ---- decoding: few rows; reading weights limits the speed ------------------------------------------ */
    /* y[m, n] (+)= dq[m] * scale * sum_k xq[m, k] w[n, k] for M <= BT_FEW_ROWS rows, outputs n0..n1, from 2-bit
     * packed weights (layout: kernels/table/ternary.h). The sums are exact in int32, so the bits equal those of
     * tern_fwd */
    void (*tern_gemv)(float *y, size_t ldy, const int8_t *xq, const float *dq, size_t M,
                      const uint8_t *packed2, float scale, size_t K, size_t n0, size_t n1,
                      int flags, void *scratch);
    /* y[m, n] = sum_k w[n, k] x[m, k] for M rows of x, outputs n0..n1; used for the head. The sum for one element does
     * not depend on M */
    void (*gemv)(float *y, size_t ldy, const void *w, bt_stored_as as, const float *x, size_t M,
                 size_t K, size_t n0, size_t n1);

    /* ---- measuring --------------------------------------------------------------------------- */
    /* executes rounds times a fixed number of multiply-adds of one kind on registers alone; returns the number of
     * operations (two per multiply-add), 0 if this set has no such instruction */
    double (*peak_ops)(bt_peak kind, size_t rounds);

    /* bytes of per-thread scratch memory that the slots of this set need at most for problems up to these sizes */
    size_t (*scratch_bytes)(size_t M, size_t N, size_t K, size_t T, size_t D);
} bt_kernels;

/* Rows of W are divided among threads at multiples of this, in tern_pack and tern_dw. */
enum { BT_TERN_ROWS = 64 };
/* queries in an attention tile */
enum { BT_ATTN_ROWS = 64 };
/* int8 attention: rounding errors are carried to the key this far ahead; weights are multiples of 1 / steps */
enum { BT_ATTN_LANES = 32, BT_ATTN_STEPS = 126 };
/* largest number of rows of tern_gemv */
enum { BT_FEW_ROWS = 32 };
/* sums divided among threads use blocks of this size */
enum { BT_SUM_BLOCK = 4096 };

extern const bt_kernels bt_kernels_generic; /* complete */
const bt_kernels *bt_kernels_blas(void);    /* NULL when OpenBLAS cannot be loaded */
#if defined(__x86_64__)
extern const bt_kernels bt_kernels_avx2;
extern const bt_kernels bt_kernels_avx512;
extern const bt_kernels bt_kernels_amx;
/* for tests: the code of the AMX set, with tiles emulated in software; needs AVX-512 with bf16 */
extern const bt_kernels bt_kernels_emulated_amx;
#elif defined(__aarch64__)
extern const bt_kernels bt_kernels_neon;
#endif

/* dispatch.c - merges the sets allowed by this CPU and `isa`: "auto", or the fastest allowed set. A plain set
 * hides the extensions that its first processors lack (avx2-plain: AVX-VNNI; avx512-plain: VNNI and bf16;
 * avx512-vnni: bf16; neon-plain: dotprod and i8mm; neon-dotprod: i8mm); "auto" chooses such a set if the extension is
 * slow. Call once, before any model exists; later calls replace the choice (tests). tern_bytes/pack/fwd/dx/dx8 and
 * w8_* always belong to one set. */
bt_code bt_kernels_select(const char *isa, bt_err *err) BT_MUST_CHECK;
/* The value of --isa that "auto" stands for on processor `c`. It is "auto" itself if the choice is between blas and
 * generic, which depends on OpenBLAS. */
struct bt_cpu;
const char *bt_kernels_auto_isa(const struct bt_cpu *c);
#define BT_ISA_WORDS \
    "auto generic blas avx2-plain avx2 avx512-plain avx512-vnni avx512 amx neon-plain " \
    "neon-dotprod neon"
const char *bt_kernels_isa_name(size_t i); /* the i-th value of --isa; NULL after the last */
/* Level that determines the bits computed by a kernel set, in the order of speed. Processors of one level compute
 * the same bits: VNNI is not a level, because products of integers are exact without it too. A processor that has
 * a level also has all below it, except BLAS (OpenBLAS may be missing, and computes other bits on another
 * processor). */
typedef enum bt_isa_level {
    BT_LEVEL_GENERIC,
    BT_LEVEL_BLAS,
    BT_LEVEL_AVX2, /* also NEON: the same operations in the same order */
    BT_LEVEL_AVX512,
    BT_LEVEL_AVX512_BF16,
    BT_LEVEL_AMX,
    BT_LEVEL_COUNT
} bt_isa_level;
/* The level of the set that `isa` selects. "auto" means the highest level of this processor; any other value has its
 * level whether this processor supports it or not. */
bt_isa_level bt_kernels_level(const char *isa);
/* the fastest value of --isa that has this level */
const char *bt_kernels_level_isa(bt_isa_level level);
/* true if the fastest set of `isa` trains faster with int8 gradients: every vector set does, by a factor of 1.3
 * even without VNNI */
bool bt_kernels_int8_pays(const char *isa);
/* true if it trains faster with int8 attention: VNNI multiplies int8 four times as fast as fp32. Without VNNI int8
 * attention is slower; with fast bf16 products it was not measured */
bool bt_kernels_int8_attention_pays(const char *isa);
/* True if `gemm` rounds its operands to bf16 where the precision allows it: AVX-512 with bf16, and AMX. All other sets
 * multiply fp32. */
bool bt_kernels_multiply_bf16(void);
const bt_kernels *bt_active_kernels(
    void);                        /* the merged table; the generic one before bt_kernels_select */
const char *bt_kernels_isa(void); /* name of the fastest set in use */
size_t bt_kernels_slots(void);    /* number of slots */
const char *bt_kernels_slot_name(size_t i);   /* name of a slot */
const char *bt_kernels_slot_winner(size_t i); /* name of the set that implements the slot */

#endif

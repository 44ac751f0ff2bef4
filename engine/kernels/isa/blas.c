/* blas.c - products through OpenBLAS sgemm, for processors without one of our vector sets, and as an independent
 * reference.
 *
 * The library is opened at run time with one BLAS thread; blas.h says why its core type is in the environment. Ternary
 * weights are stored as one byte; blocks of them are widened to floats in scratch before their sgemm:
 *     fwd  y tile (MB, NB) = xq block (MB, K) as floats . w block (NB, K)^T, then the row scale
 *     dx   (rows, K) += dy (rows, NB) . w block (NB, K)
 *     dw   (outputs, K) += dy block (MB, outputs)^T . dq xq block (MB, K)
 *
 * The rounding of sgemm depends on its number of rows (other kernels at the edges), so it always gets the same
 * CHUNK of rows, whatever range a thread has. int8 values and codes are exact in fp32 and |sum| <= 128 K < 2^24
 * for K <= 131071, so tern_fwd equals the integer result. */
#include "engine/kernels/isa/blas.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <cblas.h>

#include "engine/kernels/isa/isa_generic.h"
#include "engine/kernels/table/cpu.h"

typedef void (*sgemm_fn)(enum CBLAS_ORDER, enum CBLAS_TRANSPOSE, enum CBLAS_TRANSPOSE, blasint,
                         blasint, blasint, float, const float *, blasint, const float *, blasint,
                         float, float *, blasint);

static struct {
    pthread_mutex_t lock;
    void *handle;
    sgemm_fn sgemm;
    char core[32], config[160];
} blas = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void *find_blas_symbol(const char *name) { return dlsym(blas.handle, name); }

static void copy_text(char *out, size_t size, char *(*get)(void)) {
    const char *s = get ? get() : "";
    size_t n = strlen(s);
    if (n >= size) n = size - 1;
    memcpy(out, s, n);
    out[n] = '\0';
}

static bt_code load_openblas(bt_err *err) {
    static const char *const names[] = {"libopenblas.so.0", "libopenblas.so"};
    const char *core = bt_cpu_blas_core();
    if (core) setenv("OPENBLAS_CORETYPE", core, 0); /* does not override the user's setting */
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    for (size_t i = 0; i < 2 && !blas.handle; i++)
        blas.handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!blas.handle) {
        const char *why = dlerror();
        return bt_fail(err, BT_UNSUPPORTED,
                       "cannot load OpenBLAS (Debian: libopenblas0-pthread): %s",
                       why ? why : "not found");
    }
    void *sgemm = find_blas_symbol("cblas_sgemm");
    void *config = find_blas_symbol("openblas_get_config"),
         *name = find_blas_symbol("openblas_get_corename");
    char *(*get_config)(void) = NULL, *(*get_core)(void) = NULL;
    /* POSIX: a data pointer of dlsym may hold a function */
    memcpy(&blas.sgemm, &sgemm, sizeof sgemm);
    memcpy(&get_config, &config, sizeof config);
    memcpy(&get_core, &name, sizeof name);
    if (!blas.sgemm) return bt_fail(err, BT_UNSUPPORTED, "OpenBLAS has no 'cblas_sgemm'");
    copy_text(blas.core, sizeof blas.core, get_core);
    copy_text(blas.config, sizeof blas.config, get_config);
    return BT_OK;
}

bt_code bt_blas_load(bt_err *err) {
    pthread_mutex_lock(&blas.lock);
    bt_code rc = blas.sgemm ? BT_OK : load_openblas(err);
    pthread_mutex_unlock(&blas.lock);
    return rc;
}

const char *bt_blas_corename(void) { return blas.core; }
const char *bt_blas_config(void) { return blas.config; }

/* MB, NB: rows and outputs widened at a time; CHUNK: rows of one sgemm; TQ: queries of an attention tile */
enum { MB = 512, NB = 256, CHUNK = 128, TQ = BT_ATTN_ROWS };

static void sgemm(int ta, int tb, size_t M, size_t N, size_t K, float alpha, const float *a,
                  size_t lda, const float *b, size_t ldb, float beta, float *c, size_t ldc) {
    if (M == 0 || N == 0) return;
    blas.sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans,
               (blasint)M, (blasint)N, (blasint)K, alpha, a, (blasint)(lda ? lda : 1), b,
               (blasint)(ldb ? ldb : 1), beta, c, (blasint)(ldc ? ldc : 1));
}

/* Calls sgemm for CHUNK rows of c at a time. */
static void sgemm_rows(int ta, int tb, size_t M, size_t N, size_t K, float alpha, const float *a,
                       size_t lda, const float *b, size_t ldb, float beta, float *c, size_t ldc) {
    for (size_t m = 0; m < M; m += CHUNK) {
        sgemm(ta, tb, M - m < CHUNK ? M - m : CHUNK, N, K, alpha, ta ? a + m : a + m * lda, lda, b,
              ldb, beta, c + m * ldc, ldc);
    }
}

static void widen_int8_row(float *restrict out, const int8_t *restrict in, size_t n) {
    for (size_t i = 0; i < n; i++) out[i] = (float)in[i];
}

static void blas_tern_fwd(float *y, size_t ldy, const int8_t *xq, const float *dq,
                          const void *packed, float scale, size_t m0, size_t m1, size_t N, size_t K,
                          int flags, void *scratch) {
    const int8_t *w = packed;
    float *a = scratch, *b = a + MB * K, *t = b + NB * K;
    if (K > 131071) {
        bt_generic_tern_fwd(y, ldy, xq, dq, packed, scale, m0, m1, N, K, flags, scratch);
        return;
    }
    for (size_t m = m0; m < m1; m += MB) {
        size_t rows = m1 - m < MB ? m1 - m : MB;
        widen_int8_row(a, xq + m * K, rows * K);
        for (size_t n = 0; n < N; n += NB) {
            size_t cols = N - n < NB ? N - n : NB;
            widen_int8_row(b, w + n * K, cols * K);
            sgemm(0, 1, rows, cols, K, 1, a, K, b, K, 0, t, NB);
            for (size_t i = 0; i < rows; i++) {
                float s = dq[m + i] * scale, *out = y + (m + i) * ldy + n;
                if (flags & BT_ACC)
                    for (size_t j = 0; j < cols; j++) out[j] += t[i * NB + j] * s;
                else
                    for (size_t j = 0; j < cols; j++) out[j] = t[i * NB + j] * s;
            }
        }
    }
}

static void blas_tern_dx(float *dx, size_t lddx, const float *dy, size_t lddy, const void *packed,
                         float scale, size_t m0, size_t m1, size_t N, size_t K, bt_prec prec,
                         int flags, void *scratch) {
    const int8_t *w = packed;
    float *b = scratch;
    (void)prec;
    for (size_t n = 0; n < N || n == 0; n += NB) {
        size_t rows = N - n < NB ? N - n : NB;
        widen_int8_row(b, w + n * K, rows * K);
        sgemm_rows(0, 0, m1 - m0, K, rows, scale, dy + m0 * lddy + n, lddy, b, K,
                   n > 0 || flags & BT_ACC ? 1.0f : 0.0f, dx + m0 * lddx, lddx);
    }
}

static void blas_tern_dw(float *dw, const float *dy, size_t lddy, const int8_t *xq, const float *dq,
                         size_t M, size_t N, size_t K, size_t n0, size_t n1, bt_prec prec,
                         void *scratch) {
    float *b = scratch;
    (void)N;
    (void)prec;
    for (size_t m = 0; m < M; m += MB) {
        size_t rows = M - m < MB ? M - m : MB;
        for (size_t i = 0; i < rows; i++) {
            for (size_t k = 0; k < K; k++) b[i * K + k] = dq[m + i] * (float)xq[(m + i) * K + k];
        }
        sgemm_rows(1, 0, n1 - n0, K, rows, 1, dy + m * lddy + n0, lddy, b, K, 1, dw + n0 * K, K);
    }
}

static void blas_gemm(float *c, size_t ldc, const float *a, size_t lda, int ta, const void *b,
                      size_t ldb, int tb, float alpha, size_t M, size_t N, size_t K, bt_prec prec,
                      int flags, void *scratch) {
    (void)prec;
    (void)scratch;
    sgemm_rows(ta, tb, M, N, K, alpha, a, lda, b, ldb, flags & BT_ACC ? 1.0f : 0.0f, c, ldc);
}

/* exp(x) for x <= 0 without branches, so that compilers vectorise loops that call it; relative error below 2^-21 */
static inline float exp_neg(float x) {
    x = x < -87.0f ? -87.0f : x;
    float n = x * 1.44269504f + 12582912.0f; /* rounds to an integer in the low bits */
    uint32_t bits;
    memcpy(&bits, &n, 4);
    n -= 12582912.0f;
    float f = x - n * 0.693359375f + n * 2.12194440e-4f;
    float p = 1.0f +
              f * (1.0f +
                   f * (0.5f + f * (0.16666667f +
                                    f * (0.041666510f + f * (0.0083333410f + f * 0.0013981999f)))));
    bits = (bits << 23) + 0x3f800000u;
    float pow2;
    memcpy(&pow2, &bits, 4);
    return p * pow2;
}

/* n scores in place */
static void cap_scores(float *x, size_t n, float cap) {
    for (size_t i = 0; cap > 0 && i < n; i++) x[i] = cap * tanhf(x[i] / cap);
}

/* the keys that a tile of queries may see, and the part of them that each query may see */
typedef struct span {
    size_t from, to;
} span;

static span keys_of(const bt_attn_shape *s, size_t first, size_t last) {
    return (span){s->window && first + 1 > s->window ? first + 1 - s->window : 0, last + 1};
}

static void blas_attn_fwd(float *o, float *lse, const void *q_, const void *k_, const void *v_,
                          const bt_attn_shape *s, size_t t0, size_t t1, bt_prec prec,
                          void *scratch) {
    const float *q = q_, *k = k_, *v = v_;
    float *p = scratch; /* (TQ, keys) */
    (void)prec;
    for (size_t t = t0; t < t1; t += TQ) {
        size_t rows = t1 - t < TQ ? t1 - t : TQ;
        span all = keys_of(s, t, t + rows - 1);
        size_t n = all.to - all.from;
        sgemm(0, 1, rows, n, s->D, s->scale, q + t * s->ldq, s->ldq, k + all.from * s->ldk, s->ldk,
              0, p, n);
        cap_scores(p, rows * n, s->cap);
        for (size_t i = 0; i < rows; i++) {
            span own = keys_of(s, t + i, t + i);
            float *row = p + i * n, top = -INFINITY;
            size_t a = own.from - all.from, b = own.to - all.from;
            for (size_t j = a; j < b; j++) top = row[j] > top ? row[j] : top;
            double sum = 0;
            for (size_t j = a; j < b; j++) row[j] = exp_neg(row[j] - top);
            for (size_t j = a; j < b; j++) sum += (double)row[j];
            float inv = (float)(1.0 / sum);
            for (size_t j = a; j < b; j++) row[j] *= inv;
            memset(row, 0, a * sizeof *row);
            memset(row + b, 0, (n - b) * sizeof *row);
            lse[t + i] = top + (float)log(sum);
        }
        sgemm(0, 0, rows, s->D, n, 1, p, n, v + all.from * s->ldv, s->ldv, 0, o + t * s->ldo,
              s->ldo);
    }
}

static void blas_attn_bwd(float *dq, float *dk, float *dv, const float *dout, const void *o_,
                          const float *lse, const void *q_, const void *k_, const void *v_,
                          const bt_attn_shape *s, bt_prec prec, void *scratch) {
    const float *o = o_, *q = q_, *k = k_, *v = v_;
    float *p = scratch, *ds = p + TQ * s->T; /* (TQ, keys) each */
    (void)prec;
    for (size_t t = 0; t < s->T; t += TQ) {
        size_t rows = s->T - t < TQ ? s->T - t : TQ;
        span all = keys_of(s, t, t + rows - 1);
        size_t n = all.to - all.from;
        const float *kk = k + all.from * s->ldk, *vv = v + all.from * s->ldv;
        sgemm(0, 1, rows, n, s->D, s->scale, q + t * s->ldq, s->ldq, kk, s->ldk, 0, p, n);
        cap_scores(p, rows * n, s->cap);
        sgemm(0, 1, rows, n, s->D, 1, dout + t * s->ldo, s->ldo, vv, s->ldv, 0, ds, n);
        for (size_t i = 0; i < rows; i++) {
            span own = keys_of(s, t + i, t + i);
            const float *go = dout + (t + i) * s->ldo, *ot = o + (t + i) * s->ldo;
            float delta = 0, l = lse[t + i], *pr = p + i * n, *dr = ds + i * n;
            size_t a = own.from - all.from, b = own.to - all.from;
            for (size_t d = 0; d < s->D; d++) delta += go[d] * ot[d];
            for (size_t j = a; j < b; j++) {
                const float of_cap = s->cap > 0 ? pr[j] / s->cap : 0;
                pr[j] = exp_neg(pr[j] - l);
                dr[j] = pr[j] * (dr[j] - delta) * (1 - of_cap * of_cap) * s->scale;
            }
            memset(pr, 0, a * sizeof *pr);
            memset(dr, 0, a * sizeof *dr);
            memset(pr + b, 0, (n - b) * sizeof *pr);
            memset(dr + b, 0, (n - b) * sizeof *dr);
        }
        sgemm(0, 0, rows, s->D, n, 1, ds, n, kk, s->ldk, 0, dq + t * s->ldq, s->ldq);
        sgemm(1, 0, n, s->D, rows, 1, ds, n, q + t * s->ldq, s->ldq, 1, dk + all.from * s->ldk,
              s->ldk);
        sgemm(1, 0, n, s->D, rows, 1, p, n, dout + t * s->ldo, s->ldo, 1, dv + all.from * s->ldv,
              s->ldv);
    }
}

static size_t blas_scratch_bytes(size_t M, size_t N, size_t K, size_t T, size_t D) {
    size_t widest = N > K ? N : K;
    size_t product = (MB + NB) * widest + MB * NB, attention = 2 * TQ * T;
    (void)M;
    (void)D;
    return (product > attention ? product : attention) * sizeof(float);
}

const bt_kernels *bt_kernels_blas(void) {
    static const bt_kernels table = {
        .name = "blas",
        .row_grain = CHUNK,
        .tern_bytes = bt_generic_tern_bytes,
        .tern_pack = bt_generic_tern_pack,
        .tern_fwd = blas_tern_fwd,
        .tern_dx = blas_tern_dx,
        .tern_dx8 = bt_generic_tern_dx8,
        .tern_dw = blas_tern_dw,
        .w8_bytes = bt_generic_w8_bytes,
        .w8_pack = bt_generic_w8_pack,
        .w8_dx8 = bt_generic_w8_dx8,
        .gemm = blas_gemm,
        .attn_fwd = blas_attn_fwd,
        .attn_bwd = blas_attn_bwd,
        .scratch_bytes = blas_scratch_bytes,
    };
    return bt_blas_load(NULL) == BT_OK ? &table : NULL;
}

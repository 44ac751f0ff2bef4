/* kernel_rates.c - one table of cases, run for every kernel set. */
#include "engine/bench/kernel_rates.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/arena.h"
#include "engine/base/clock.h"
#include "engine/base/rng.h"
#include "engine/base/small.h"
#include "engine/base/threads.h"
#include "engine/bench/peak.h"
#include "engine/kernels/ops/ops.h"
#include "engine/kernels/table/ternary.h"

/* M rows, N outputs, K inputs; attention: T = M, heads = N, D = K, sequences of 4096 tokens in all;
 * rows and flat: M x K */
typedef struct work {
    size_t M, N, K;
    bt_prec prec;
    float *f[4];
    int8_t *xq, *codes;
    void *packed;
    int32_t *index;
    float *scale; /* (M) small positive numbers */
} work;

typedef struct kcase {
    const char *slot;
    enum { PRODUCT, ATTN_FWD, ATTN_BWD, BYTES } count;
    /* BYTES: moved per element of M x K (gemv: N x K); a fresh line is read, then written */
    double factor;
    void (*run)(const work *w);
    /* 2: with bf16 and with fp32 operands; 1: once. Products of one kind are those of int8 */
    int precs;
    const char *shapes; /* "MxNxK ..." */
} kcase;

static void run_tern_fwd(const work *w) {
    bt_op_tern_fwd(w->f[0], w->N, w->xq, w->scale, w->packed, 0.5f, w->M, w->N, w->K, 0);
}
static void run_tern_dx(const work *w) {
    bt_op_tern_dx(w->f[0], w->K, w->f[1], w->N, w->packed, 0.5f, w->M, w->N, w->K, w->prec, 0);
}
static void run_tern_dw(const work *w) {
    bt_op_tern_dw(w->f[0], w->f[1], w->N, w->xq, w->scale, w->M, w->N, w->K, w->prec);
}
static void run_tern_dx8(const work *w) {
    bt_noise noise = {(const uint32_t *)w->index, 1, 0};
    bt_op_tern_dx8(w->f[0], w->K, bt_grads_f32(w->f[1], w->N), w->packed, 0.5f, w->M, w->N, w->K,
                   &noise, 0);
}
static void run_tern_dw8(const work *w) {
    bt_noise noise = {(const uint32_t *)w->index, 1, 0};
    bt_op_tern_dw8(w->f[0], bt_grads_f32(w->f[1], w->N), w->xq, w->scale, w->M, w->N, w->K, &noise);
}
/* kernels of a frozen base: 2 bits a code, and int8 rows */
static void run_2bit_fwd(const work *w) {
    bt_op_tern_fwd(w->f[0], w->N, w->xq, w->scale, w->packed, 0.5f, w->M, w->N, w->K, BT_COMPACT);
}
static void run_2bit_dx8(const work *w) {
    bt_noise noise = {(const uint32_t *)w->index, 1, 0};
    bt_op_tern_dx8(w->f[0], w->K, bt_grads_f32(w->f[1], w->N), w->packed, 0.5f, w->M, w->N, w->K,
                   &noise, BT_COMPACT);
}
static void run_rows_fwd(const work *w) {
    bt_op_w8_fwd(w->f[0], bt_ops_logits_ld(w->N), w->xq, w->scale,
                 &(bt_w8){w->codes, w->f[3], true}, w->M, w->N, w->K);
}
static void run_rows_dx8(const work *w) {
    bt_noise noise = {(const uint32_t *)w->index, 1, 0};
    bt_op_w8_dx8(w->f[0], w->K, w->f[1], bt_ops_logits_ld(w->N), &(bt_w8){w->codes, w->f[3], true},
                 w->M, w->N, w->K, &noise);
}
static void run_w8_dx8(const work *w) { /* one chunk of a head: M tokens, N words */
    bt_noise noise = {(const uint32_t *)w->index, 1, 0};
    bt_op_w8_dx8(w->f[0], w->K, w->f[1], bt_ops_logits_ld(w->N),
                 &(bt_w8){w->packed, w->f[3], false}, w->M, w->N, w->K, &noise);
}
static void run_w8_pack(const work *w) {
    bt_op_w8_pack(&(bt_w8){w->packed, w->f[3], false}, &(bt_table){.f32 = w->f[1]}, w->M, w->K);
}
static void run_gemm(const work *w) {
    bt_op_gemm(w->f[0], w->N, w->f[1], w->K, 0, w->f[2], w->K, 1, 1, w->M, w->N, w->K, w->prec, 0);
}
static void run_gemm_nn(const work *w) {
    bt_op_gemm(w->f[0], w->N, w->f[1], w->K, 0, w->f[2], w->N, 0, 1, w->M, w->N, w->K, w->prec, 0);
}
static void run_gemm_tn(const work *w) {
    bt_op_gemm(w->f[0], w->N, w->f[1], w->M, 1, w->f[2], w->N, 0, 1, w->M, w->N, w->K, w->prec,
               BT_ACC);
}

static bt_attn_shape bench_attn_shape(const work *w) {
    size_t ld = w->N * w->K;
    return (bt_attn_shape){
        .T = w->M, .D = w->K, .ldq = ld, .ldk = ld, .ldv = ld, .ldo = ld, .scale = 0.125f};
}
static void run_attn_fwd(const work *w) {
    bt_attn_shape s = bench_attn_shape(w);
    bt_op_attn_fwd(w->f[0], w->scale, w->f[1], w->f[2], w->f[3], &s, 4096 / w->M, w->N, w->N,
                   w->prec);
}
static void run_attn_bwd(const work *w) { /* dq, dk and dv one after another in f[0] */
    bt_attn_shape s = bench_attn_shape(w);
    size_t n = 4096 * w->N * w->K;
    bt_op_attn_bwd(w->f[0], w->f[0] + n, w->f[0] + 2 * n, w->f[1], w->f[2], w->scale, w->f[1],
                   w->f[2], w->f[3], &s, 4096 / w->M, w->N, w->N, 1, w->prec);
}

static void run_rmsnorm(const work *w) {
    bt_op_rmsnorm(w->f[0], w->scale, w->f[1], w->f[2], 1e-5f, w->M, w->K);
}
static void run_rmsnorm_dx(const work *w) {
    bt_op_rmsnorm_bwd(w->f[0], NULL, w->f[1], w->f[2], w->f[3], w->scale, 0, w->M, w->K);
}
static void run_rmsnorm_quant(const work *w) {
    bt_op_rmsnorm_quant(w->xq, w->scale, w->scale, NULL, w->f[1], w->f[2], 1e-5f, w->M, w->K);
}
static void run_quant(const work *w) { bt_op_quant(w->xq, w->scale, w->f[1], w->M, w->K); }
static void run_rope(const work *w) {
    const bt_rotation by = {w->f[1], w->f[2], w->index, 64};
    bt_op_rope(w->f[0], w->K, &by, 0, w->M, w->K / 64, 64);
}
static void run_relu2(const work *w) {
    bt_op_glu(w->f[0], w->f[1], w->f[2], BT_ACT_RELU2, w->M * w->K);
}
static void run_silu(const work *w) {
    bt_op_glu(w->f[0], w->f[1], w->f[2], BT_ACT_SILU, w->M * w->K);
}
static void run_relu2_bwd(const work *w) {
    bt_op_glu_bwd(w->f[2], w->f[3], w->f[1], w->f[2], w->f[3], BT_ACT_RELU2, w->M * w->K);
}
static void run_add(const work *w) { bt_op_add(w->f[0], w->f[1], w->M * w->K); }
static void run_sum_squares(const work *w) {
    if (bt_op_sum_squares(w->f[1], w->M * w->K) < 0) w->f[0][0] = 0;
}
static void run_sum_abs(const work *w) {
    if (bt_op_sum_abs(w->f[1], w->M * w->K) < 0) w->f[0][0] = 0;
}
static void run_adamw(const work *w) {
    bt_op_adamw(w->f[0], w->f[1], w->f[2], w->f[3], 0.5f, 1e-9f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.5f,
                0.5f, w->M * w->K);
}

static void run_lion(const work *w) {
    const bt_lion h = {0.5f, 1e-9f, 0.9f, 0.95f, 0.1f};
    bt_op_lion(w->f[0], w->f[1], w->f[2], &h, w->M * w->K);
}
static void run_tern_codes(const work *w) {
    (void)bt_op_tern_codes(w->codes, w->f[1], 0, 2.0f, 0, w->M * w->K);
}
static void run_tern_pack(const work *w) { bt_op_tern_pack(w->packed, w->codes, w->M, w->K); }
/* through the slot: the operation is inside bt_op_head_loss */
static void run_xent(const work *w) {
    bt_active_kernels()->softmax_xent(w->f[1], w->f[0], w->index, 0.001f, w->M, w->K);
}
static void run_gemv(const work *w) {
    const bt_tern2 packed = {w->packed, 0.5f, w->N, w->K};
    bt_op_tern_gemv(w->f[0], w->N, w->xq, w->scale, &packed, w->M, 0);
}

#define SHAPES "512x768x768 1024x2048x768 4096x192x192 4096x512x512 4096x1408x512 4096x2560x2560"
#define SHAPES_2BIT "256x6912x2560 256x2560x6912"
#define ROWS "16384x1x768"
static const kcase cases[] = {
    {"tern_fwd", PRODUCT, 0, run_tern_fwd, 1, SHAPES},
    {"tern_dx", PRODUCT, 0, run_tern_dx, 2, SHAPES},
    {"tern_dw", PRODUCT, 0, run_tern_dw, 2, SHAPES},
    {"tern_dx8", PRODUCT, 0, run_tern_dx8, 1, SHAPES},
    {"tern_dw8", PRODUCT, 0, run_tern_dw8, 1, SHAPES},
    {"w8_dx8", PRODUCT, 0, run_w8_dx8, 1, "512x8192x512 512x32000x768"},
    {"tern_fwd thin", PRODUCT, 0, run_2bit_fwd, 1, SHAPES_2BIT},
    {"tern_dx8 thin", PRODUCT, 0, run_2bit_dx8, 1, SHAPES_2BIT},
    {"w8_fwd rows", PRODUCT, 0, run_rows_fwd, 1, "512x8192x512 128x8192x2560"},
    {"w8_dx8 rows", PRODUCT, 0, run_rows_dx8, 1, "512x8192x512 128x8192x2560"},
    {"gemm a b^T", PRODUCT, 0, run_gemm, 2, "256x8192x512 256x32000x768"},
    {"gemm a b", PRODUCT, 0, run_gemm_nn, 2, "256x512x8192 256x768x32000"},
    {"gemm a^T b +=", PRODUCT, 0, run_gemm_tn, 2, "8192x512x256 32000x768x256"},
    {"attn_fwd", ATTN_FWD, 0, run_attn_fwd, 2, "256x6x32 512x8x64 1024x12x64"},
    {"attn_bwd", ATTN_BWD, 0, run_attn_bwd, 2, "256x6x32 512x8x64 1024x12x64"},
    {"rmsnorm", BYTES, 12, run_rmsnorm, 1, ROWS},
    {"rmsnorm_dx", BYTES, 16, run_rmsnorm_dx, 1, ROWS},
    {"quant_rows", BYTES, 6, run_quant, 1, ROWS},
    {"rmsnorm_quant", BYTES, 6, run_rmsnorm_quant, 1, ROWS},
    {"rope", BYTES, 8, run_rope, 1, ROWS},
    {"glu relu2", BYTES, 16, run_relu2, 1, ROWS},
    {"glu silu", BYTES, 16, run_silu, 1, ROWS},
    {"glu_bwd relu2", BYTES, 20, run_relu2_bwd, 1, ROWS},
    {"softmax_xent", BYTES, 8, run_xent, 1, "512x1x32000"},
    {"add", BYTES, 12, run_add, 1, ROWS},
    {"sum_squares", BYTES, 4, run_sum_squares, 1, ROWS},
    {"sum_abs", BYTES, 4, run_sum_abs, 1, ROWS},
    {"adamw", BYTES, 28, run_adamw, 1, ROWS},
    {"lion", BYTES, 20, run_lion, 1, ROWS},
    {"tern_codes", BYTES, 6, run_tern_codes, 1, ROWS},
    {"tern_pack", BYTES, 3, run_tern_pack, 1, "8192x1x2560"},
    {"w8_pack", BYTES, 5, run_w8_pack, 1, "8192x1x512"},
    {"tern_gemv", BYTES, 0.25, run_gemv, 1, "1x131072x2560 4x131072x2560 16x131072x2560"},
};

/* ---- memory of one case ---------------------------------------------------------------------- */

static void fill_random(void *ctx, int thread, size_t begin, size_t end) {
    const work *w = ctx;
    (void)thread;
    for (size_t i = begin; i < end; i++) {
        uint64_t r = bt_splitmix64(i);
        for (int j = 0; j < 4; j++)
            w->f[j][i] = (float)((int)(r >> (8 * j) & 255) - 128) / 128.0f + (j == 3 ? 1.0f : 0.0f);
        w->xq[i] = (int8_t)(r >> 32 & 255);
        w->codes[i] = (int8_t)((int)(r >> 40 & 255) % 3 - 1);
    }
}

static size_t case_packed_bytes(const kcase *c, const work *w) {
    if (c->run == run_gemv) return w->N * bt_tern2_row_bytes(w->K);
    if (c->run == run_w8_pack) return bt_op_w8_bytes(w->M, w->K);
    if (c->run == run_w8_dx8) return bt_op_w8_bytes(w->N, w->K);
    if (c->run == run_2bit_fwd || c->run == run_2bit_dx8)
        return bt_active_kernels()->packed_2bit_bytes(w->N, w->K);
    if (c->run == run_rows_fwd || c->run == run_rows_dx8) return 64;
    return bt_active_kernels()->tern_bytes(c->run == run_tern_pack ? w->M : w->N, w->K);
}

static bt_code make_work(work *w, bt_arena *mem, const kcase *c, bt_err *err) {
    bool attention = c->count == ATTN_FWD || c->count == ATTN_BWD;
    size_t M = w->M, N = w->N, K = w->K,
           n = attention ? 3 * 4096 * N * K
                         : bt_max_size(M * bt_ops_logits_ld(N), bt_max_size(M * K, N * K)),
           at[4];
    size_t rows = attention ? 4096 * N : M;
    if (c->run == run_gemv) n = N * K / 4; /* only the packed form is large */
    bt_arena_plan(mem, "bench");
    for (int j = 0; j < 4; j++) at[j] = bt_arena_reserve(mem, n, 4);
    size_t xq = bt_arena_reserve(mem, n, 1), codes = bt_arena_reserve(mem, n, 1);
    size_t packed = bt_arena_reserve(mem, case_packed_bytes(c, w), 1);
    size_t index = bt_arena_reserve(mem, rows, 4), scale = bt_arena_reserve(mem, rows, 4);
    BT_TRY(bt_arena_commit(mem, err));
    for (int j = 0; j < 4; j++) w->f[j] = bt_arena_at(mem, at[j]);
    w->xq = bt_arena_at(mem, xq);
    w->codes = bt_arena_at(mem, codes);
    w->packed = bt_arena_at(mem, packed);
    w->index = bt_arena_at(mem, index);
    w->scale = bt_arena_at(mem, scale);
    bt_parallel_for(n, 4096, fill_random, w);
    for (size_t i = 0; i < rows; i++) {
        w->index[i] = (int32_t)(i % 256);
        w->scale[i] = 8.0f;
    }
    if (c->run == run_gemv)
        memset(w->packed, 0x59, N * bt_tern2_row_bytes(K));
    else if (c->run == run_2bit_fwd || c->run == run_2bit_dx8)
        bt_active_kernels()->packed_2bit_pack(w->packed, w->codes, N, K, 0, N);
    else if (c->run == run_tern_fwd || c->run == run_tern_dx || c->run == run_tern_dx8)
        bt_op_tern_pack(w->packed, w->codes, N, K);
    if (attention) return bt_ops_plan(1, 1, 1, M, K, NULL, err);
    BT_TRY(bt_ops_plan(M, N, K, 1, 1, NULL, err));
    BT_TRY(bt_ops_plan(N, K, M, 1, 1, NULL, err));
    if (c->run == run_w8_dx8)
        bt_op_w8_pack(&(bt_w8){w->packed, w->f[3], false}, &(bt_table){.f32 = w->f[2]}, N, K);
    return BT_OK;
}

static double case_operations(const kcase *c, const work *w) {
    /* causal */
    double M = (double)w->M, N = (double)w->N, K = (double)w->K, scores = 4096.0 * (M + 1) / 2 * N;
    switch (c->count) {
    case PRODUCT: return 2 * M * N * K;
    case ATTN_FWD: return 4 * scores * K;
    case ATTN_BWD: return 10 * scores * K;
    default: return c->factor * (c->run == run_gemv ? N : M) * K;
    }
}

/* ---- measuring ------------------------------------------------------------------------------- */
enum { REPS = 64 };

static double time_kernel_case(const kcase *c, const work *w) {
    int64_t from = bt_now_ns();
    c->run(w);
    return (double)(bt_now_ns() - from) / 1e9;
}

/* The first run only warms up, unless it takes longer than half a second: then it is the only one. */
static void time_case(const kcase *c, const work *w, double seconds, double *best, double *median) {
    double s[REPS] = {time_kernel_case(c, w)};
    size_t n = s[0] > 0.5 ? 1 : 0;
    const bool again = n == 0;
    for (double spent = 0; again && n < REPS && (n < 3 || spent < seconds); n++) {
        s[n] = time_kernel_case(c, w);
        spent += s[n];
    }
    qsort(s, n, sizeof *s, bt_compare_doubles);
    *best = case_operations(c, w) / s[0] / 1e9;
    *median = case_operations(c, w) / s[n / 2] / 1e9;
}

typedef struct bounds {
    double rate[3], triad;
} bounds; /* indexed by bt_peak, G/s */

static const char *const peak_names[] = {"fp32 peak", "bf16 peak", "int8 peak"};

static void put_bound(const bt_bench_kernels_cfg *cfg, bt_bench_row *r, const kcase *c,
                      bt_prec prec, const bounds *b) {
    bool int8 = c->count == PRODUCT && c->precs == 1;
    bt_peak kind = int8 ? BT_PEAK_INT8 : prec == BT_PREC_BF16 ? BT_PEAK_BF16 : BT_PEAK_FP32;
    if (kind == BT_PEAK_INT8 && b->rate[kind] == 0) kind = BT_PEAK_FP32;
    r->unit = c->count == BYTES ? "GB/s" : "GOP/s";
    r->bound = c->count == BYTES ? b->triad : b->rate[kind];
    r->bound_name = c->count == BYTES ? "triad" : peak_names[kind];
    cfg->row(cfg->ctx, r);
}

static void announce_case(const bt_bench_kernels_cfg *cfg, const char *isa, const char *slot,
                          const char *size) {
    if (cfg->before) cfg->before(cfg->ctx, isa, slot, size);
}

static bool is_slow_kernel_set(const char *isa) { return strcmp(isa, "generic") == 0; }

static bt_code run_case(const bt_bench_kernels_cfg *cfg, const kcase *c, const char *isa,
                        const bounds *b, bt_err *err) {
    for (const char *s = c->shapes; *s;) {
        work w = {0};
        char size[32], slot[40];
        int used = 0;
        if (sscanf(s, "%zux%zux%zu%n", &w.M, &w.N, &w.K, &used) != 3)
            return bt_fail(err, BT_ARG, "bad shape '%s'", s);
        if (w.N > 1 || c->count != BYTES)
            snprintf(size, sizeof size, "%.*s", used, s);
        else
            snprintf(size, sizeof size, "%zux%zu", w.M, w.K);
        s += used;
        while (*s == ' ') s++;
        /* seconds a repetition */
        if (is_slow_kernel_set(isa) && 2e-9 * case_operations(c, &w) > 2.0) continue;
        bt_arena mem;
        bt_code code = make_work(&w, &mem, c, err);
        for (int p = c->precs - 1; p >= 0 && code == BT_OK; p--) {
            w.prec = (bt_prec)p;
            /* the set would use fp32 */
            if (p == BT_PREC_BF16 && b->rate[BT_PEAK_BF16] == 0) continue;
            snprintf(slot, sizeof slot, "%s%s", c->slot,
                     c->precs == 1       ? ""
                     : p == BT_PREC_BF16 ? " bf16"
                                         : " fp32");
            bt_bench_row r = {.isa = isa, .slot = slot, .size = size};
            announce_case(cfg, isa, slot, size);
            time_case(c, &w, cfg->seconds, &r.best, &r.median);
            put_bound(cfg, &r, c, w.prec, b);
        }
        bt_arena_release(&mem);
        BT_TRY(code);
    }
    return BT_OK;
}

/* a rate that is its own bound; left out where one slot is measured */
static void put_peak(const bt_bench_kernels_cfg *cfg, bt_bench_row *r) {
    r->median = r->bound = r->best;
    if (!cfg->slot) cfg->row(cfg->ctx, r);
}

static bt_code run_kernel_set(const bt_bench_kernels_cfg *cfg, const char *isa, double triad,
                              double vector_fp32, bt_err *err) {
    static const char *const slots[] = {"peak fp32", "peak bf16", "peak int8"};
    bounds b = {.triad = triad};
    int threads = bt_threads_count();
    BT_TRY(bt_kernels_select(isa, err));
    announce_case(cfg, isa, "peaks", "");
    for (int k = 0; k < 3; k++) {
        b.rate[k] = bt_peak_rate((bt_peak)k, threads) / 1e9;
        if (b.rate[k] > 0)
            put_peak(cfg, &(bt_bench_row){.isa = isa,
                                          .slot = slots[k],
                                          .size = "registers",
                                          .unit = "GOP/s",
                                          .best = b.rate[k],
                                          .bound_name = peak_names[k]});
    }
    /* sgemm uses the vectors our baseline code does not */
    if (strcmp(isa, "blas") == 0) b.rate[BT_PEAK_FP32] = vector_fp32;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (cfg->slot && strncmp(cases[i].slot, cfg->slot, strlen(cfg->slot)) != 0) continue;
        if (strcmp(isa, "blas") == 0 && cases[i].count == BYTES) continue; /* generic's */
        BT_TRY(run_case(cfg, &cases[i], isa, &b, err));
    }
    return BT_OK;
}

bt_code bt_bench_kernels(const bt_bench_kernels_cfg *cfg, bt_err *err) {
    bool all = !cfg->isa || strcmp(cfg->isa, "all") == 0;
    if (!all) BT_TRY(bt_kernels_select(cfg->isa, err)); /* is there such a set? */
    BT_TRY(bt_kernels_select("auto", err));
    const char *best = bt_kernels_isa();
    announce_case(cfg, best, "peaks", "");
    double fp32 = bt_peak_rate(BT_PEAK_FP32, bt_threads_count()) / 1e9,
           triad = bt_peak_triad(384) / 1e9;
    put_peak(cfg, &(bt_bench_row){.isa = best,
                                  .slot = "peak triad",
                                  .size = "384 MiB",
                                  .unit = "GB/s",
                                  .best = triad,
                                  .bound_name = "triad"});
    bt_code code = BT_OK;
    if (!all)
        code = run_kernel_set(cfg, strcmp(cfg->isa, "auto") == 0 ? best : cfg->isa, triad, fp32,
                              err);
    const char *name;
    for (size_t i = 1; all && code == BT_OK && (name = bt_kernels_isa_name(i)) != NULL; i++) {
        if (!strchr(name, '-') && bt_kernels_select(name, NULL) == BT_OK)
            code = run_kernel_set(cfg, name, triad, fp32, err);
    }
    bt_code back = bt_kernels_select("auto", code == BT_OK ? err : NULL);
    bt_ops_release();
    return code == BT_OK ? back : code;
}

// ctest: timeout=300 optimised
/* Operations on the thread pool give the same bits with 1, 2 and 3 threads on every set that this processor supports;
 * sums and the head are compared with plain arithmetic; the profile counts operations. */
#include "tests/engine/kernels/isa_util.h"

#include "engine/base/threads.h"
#include "engine/kernels/ops/ops.h"

enum { M = 300, N = 200, K = 136, V = 77, T = 75, B = 2, H = 4, KV = 2, D = 16 };

typedef struct results { /* all outputs of an operation */
    float y[M * N], rstd[M], dx[M * K], dgain[K], dw[N * K], c[M * N], o[B * T * H * D],
        lse[B * H * T], dq[B * T * H * D];
    float dk[B * T * KV * D], dv[B * T * KV * D], logits[32 * V], hx[M * K], hE[V * K], row_loss[M],
        w[N * K], m[N * K], v[N * K];
    float emb[M * K], dE[V * K], rope[B * T * H * D], glu[M * N], dgate[M * N], dup[M * N];
    int8_t xq[M * K], codes[N * K];
    float dqs[M];
    double sums[3], loss;
    bt_tern_stats stats;
} results;

static void fill_head_inputs(float *x, size_t n, uint64_t stream) {
    for (size_t i = 0; i < n; i++) x[i] = (float)(bt_rng_unit(11, stream, i) * 2 - 1);
}

static void run_all(results *r, bt_prec prec) {
    static float x[M * K], dy[M * N], gain[K], w[N * K], q[B * T * H * D], k[B * T * KV * D],
        v[B * T * KV * D], go[B * T * H * D], E[V * K], big[70000];
    static float cosines[T * D / 2], sines[T * D / 2];
    static int8_t packed[1 << 20];
    int32_t pos[B * T], targets[M];
    memset(r, 0, sizeof *r);
    fill_head_inputs(x, M * K, 1), fill_head_inputs(dy, M * N, 2), fill_head_inputs(gain, K, 3),
        fill_head_inputs(w, N * K, 4), fill_head_inputs(q, B * T * H * D, 5),
        fill_head_inputs(k, B * T * KV * D, 6);
    fill_head_inputs(v, B * T * KV * D, 7), fill_head_inputs(go, B * T * H * D, 8),
        fill_head_inputs(E, V * K, 9), fill_head_inputs(big, 70000, 10),
        fill_head_inputs(cosines, T * D / 2, 12), fill_head_inputs(sines, T * D / 2, 13);
    for (int i = 0; i < B * T; i++) pos[i] = i % T;
    for (int i = 0; i < M; i++) targets[i] = i % 9 == 4 ? -1 : i % V;
    bt_op_rmsnorm_quant(r->xq, r->dqs, r->rstd, NULL, x, gain, 1e-5f, M, K);
    bt_op_rmsnorm_bwd(r->dx, r->dgain, r->hx, x, gain, r->rstd, 1, M, K);
    bt_op_quant(r->xq, r->dqs, x, M, K);
    r->stats = bt_op_tern_codes(r->codes, w, 0, 2.0f, 0, N * K);
    assert_true(bt_active_kernels()->tern_bytes(N, K) <= sizeof packed);
    bt_op_tern_pack(packed, r->codes, N, K);
    bt_op_tern_fwd(r->y, N, r->xq, r->dqs, packed, 0.5f, M, N, K, 0);
    bt_op_tern_dx(r->dx, K, dy, N, packed, 0.5f, M, N, K, prec, BT_ACC);
    bt_op_tern_dw(r->dw, dy, N, r->xq, r->dqs, M, N, K, prec);
    bt_op_gemm(r->c, N, x, K, 0, w, K, 1, 0.5f, M, N, K, prec, 0);
    bt_attn_shape s = {
        .T = T, .D = D, .ldq = H * D, .ldk = KV * D, .ldv = KV * D, .ldo = H * D, .scale = 0.25f};
    bt_op_attn_fwd(r->o, r->lse, q, k, v, &s, B, H, KV, prec);
    bt_op_attn_bwd(r->dq, r->dk, r->dv, go, r->o, r->lse, q, k, v, &s, B, H, KV, 1, prec);
    r->loss = bt_op_head_loss(r->hx, r->hE, x, (bt_table){.f32 = E}, targets, 0.01f, r->logits, 32,
                              r->row_loss, M, V, K, prec, NULL, NULL);
    memcpy(r->w, w, sizeof r->w);
    bt_op_adamw(r->w, r->dw, r->m, r->v, 0.9f, 1e-3f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.1f, 0.05f, N * K);
    int32_t tokens[M];
    for (int i = 0; i < M; i++) tokens[i] = i % 7 == 3 ? -1 : i * 31 % V;
    bt_op_embed(r->emb, (bt_table){.f32 = E}, tokens, 0, V, M, K);
    for (size_t i = 0; i < M * K; i++) /* a row without a token is zero */
        assert_true(r->emb[i] == (tokens[i / K] < 0 ? 0 : E[(size_t)tokens[i / K] * K + i % K]));
    bt_op_embed_bwd(r->dE, x, tokens, 0, V, M, K);
    memcpy(r->rope, q, sizeof r->rope);
    bt_op_rope(r->rope, H * D, &(bt_rotation){cosines, sines, pos, D}, 1, B * T, H, D);
    bt_op_glu(r->glu, dy, r->c, BT_ACT_SILU, M * N);
    bt_op_glu_bwd(r->dgate, r->dup, dy, r->c, r->y, BT_ACT_RELU2, M * N);
    bt_op_add(r->dup, r->glu, M * N);
    uint32_t keys[M];
    for (uint32_t i = 0; i < M; i++) keys[i] = 7919 * i;
    bt_op_drop(r->dgate, r->dup,
               &(bt_drop){.rows = keys, .below = 1 << 14, .site = 3, .scale = 4 / 3.0f}, true, M,
               N);
    bt_op_scale(r->dup, 1.7f, M * N);
    r->sums[0] = bt_op_sum(big, 70000), r->sums[1] = bt_op_sum_abs(big, 70000),
    r->sums[2] = bt_op_sum_squares(big, 70000);
}

/* Codes and statistics of weights saved as bf16 equal those of the same values as floats. */
static void codes_of_bf16(void **state) {
    (void)state;
    enum { ALL = 9001 };
    static float w[ALL];
    static uint16_t half[ALL];
    static int8_t codes[ALL], want[ALL];
    fill_head_inputs(w, ALL, 14);
    bt_op_save_bf16(half, w, ALL);
    bt_op_load_bf16(w, half, ALL);
    for (int sign = 0; sign < 2; sign++)
        for (int threads = 1; threads < 4; threads++) {
            bt_err err = BT_ERR_INIT;
            assert_int_equal(bt_threads_init(threads, &err), BT_OK);
            for (size_t i = 0; i < ALL; i++) codes[i] = want[i] = (int8_t)(i % 3) - 1;
            const bt_tern_stats a = bt_op_tern_codes(want, w, 0.01f, 2.0f, sign, ALL),
                                b = bt_op_tern_codes_bf16(codes, half, 0.01f, 2.0f, sign, ALL);
            assert_memory_equal(codes, want, sizeof codes);
            assert_true(a.zero == b.zero && a.pos == b.pos && a.flips == b.flips && a.flips > 0);
            bt_threads_release();
        }
}

/* Norms that save or read their input as bf16 have the bits of separate passes, with any number of threads. */
static void norms_of_saved_inputs(void **state) {
    (void)state;
    enum { ROWS = 150, C = 72, ALL = ROWS * C };
    static float x[ALL], g[C], gy[ALL], dx[ALL], wdx[ALL], sums[ALL], rstd[ROWS], wrstd[ROWS];
    static float dq[ROWS], wdq[ROWS], dgain[C], wdgain[C];
    static uint16_t saved[ALL], want[ALL];
    static int8_t xq[ALL], wxq[ALL];
    bt_err err = BT_ERR_INIT;
    assert_true(bt_op_norm_sums(ROWS, C) <= ALL);
    for (int threads = 1; threads < 4; threads++)
        for (int acc = 0; acc < 2; acc++) {
            assert_int_equal(bt_threads_init(threads, &err), BT_OK);
            fill_head_inputs(x, ALL, 21), fill_head_inputs(g, C, 22), fill_head_inputs(gy, ALL, 23),
                fill_head_inputs(dx, ALL, 24);
            fill_head_inputs(dgain, C, 25);
            memcpy(wdx, dx, sizeof dx), memcpy(wdgain, dgain, sizeof dgain);
            bt_op_rmsnorm_quant(wxq, wdq, wrstd, NULL, x, g, 1e-5f, ROWS, C);
            bt_op_save_bf16(want, x, ALL);
            bt_op_rmsnorm_quant_save(saved, xq, dq, rstd, x, g, 1e-5f, ROWS, C);
            assert_memory_equal(xq, wxq, sizeof xq);
            assert_memory_equal(dq, wdq, sizeof dq);
            assert_memory_equal(rstd, wrstd, sizeof rstd);
            assert_memory_equal(saved, want, sizeof saved);
            bt_op_load_bf16(x, saved, ALL);
            bt_op_rmsnorm_bwd(wdx, wdgain, gy, x, g, rstd, acc, ROWS, C);
            bt_op_rmsnorm_bwd_saved(&(bt_rmsnorm_bwd_saved){.dx = dx,
                                                            .dgain = dgain,
                                                            .sums = sums,
                                                            .dy = gy,
                                                            .gain = g,
                                                            .rstd = rstd,
                                                            .x = saved,
                                                            .acc = acc,
                                                            .rows = ROWS,
                                                            .C = C});
            assert_memory_equal(dx, wdx, sizeof dx);
            assert_memory_equal(dgain, wdgain, sizeof dgain);
            bt_threads_release();
        }
}

/* The widths are odd, so the last element has no partner; a quarter of the values becomes 0. */
static void dropout_scales_what_it_keeps(void **state) {
    (void)state;
    enum { ROWS = 400, C = 1031 };
    static float x[ROWS * C], y[ROWS * C], sum[ROWS * C];
    static uint32_t keys[ROWS];
    const bt_drop how = {.rows = keys, .below = BT_DROP_ALL / 4, .site = 2, .scale = 4 / 3.0f};
    bt_err err = BT_ERR_INIT;
    size_t zeros = 0, pairs = 0;
    assert_int_equal(bt_threads_init(2, &err), BT_OK);
    for (uint32_t r = 0; r < ROWS; r++) keys[r] = (uint32_t)bt_rng_u64(3, 1, r);
    fill_head_inputs(x, ROWS * C, 31);
    fill_head_inputs(sum, ROWS * C, 32);
    bt_op_drop(y, x, &how, false, ROWS, C);
    for (size_t i = 0; i < ROWS * C; i++) {
        assert_true(y[i] == 0 || y[i] == how.scale * x[i]);
        zeros += y[i] == 0;
        pairs += i % C < C / 2 && y[i] == 0 &&
                 y[i + C / 2 + 1] == 0; /* halves of one random word */
    }
    assert_true(fabs((double)zeros / (ROWS * C) - 0.25) < 0.004);
    assert_true(fabs((double)pairs / (ROWS * (C / 2)) - 0.0625) < 0.004);
    fill_head_inputs(x, ROWS * C, 31);
    bt_op_drop(sum, x, &how, true, ROWS, C);
    bt_op_drop(x, x, &how, false, ROWS, C);
    assert_memory_equal(x, y, sizeof x);
    fill_head_inputs(x, ROWS * C, 32);
    for (size_t i = 0; i < ROWS * C; i++) assert_true(sum[i] == x[i] + y[i]);
    /* Parts of whole rows, as tensor parallelism divides them, have the same mask as the whole array. */
    static const size_t cuts[] = {0, 7, 515, 516, 900, C};
    fill_head_inputs(x, ROWS * C, 31);
    for (size_t k = 0; k + 1 < sizeof cuts / sizeof *cuts; k++) {
        const size_t n = cuts[k + 1] - cuts[k];
        bt_drop part = how;
        part.whole = C;
        part.col0 = cuts[k];
        for (size_t r = 0; r < ROWS; r++) memcpy(sum + r * n, x + r * C + cuts[k], n * sizeof *x);
        bt_op_drop(sum, sum, &part, false, ROWS, n);
        for (size_t r = 0; r < ROWS; r++)
            assert_memory_equal(sum + r * n, y + r * C + cuts[k], n * sizeof *x);
    }
    bt_threads_release();
}

static void scratch_of_plan(void) {
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_ops_plan(M, N, K, T, D, NULL, &err), BT_OK);
    assert_int_equal(bt_ops_plan(N, K, M, T, D, NULL, &err), BT_OK);
    assert_int_equal(bt_ops_plan(V, K, M, T, D, NULL, &err), BT_OK);
    assert_int_equal(bt_ops_plan(M, K, V, T, D, NULL, &err), BT_OK);
}

static void threads_agree(const char *isa) {
    static results one, more;
    bt_err err = BT_ERR_INIT;
    if (bt_kernels_select(isa, &err) != BT_OK) {
        print_message("skipped: no %s (%s)\n", isa, err.msg);
        skip();
    }
    for (int prec = 0; prec < 2; prec++) {
        for (int count = 1; count <= 3; count++) {
            assert_int_equal(bt_threads_init(count, &err), BT_OK);
            scratch_of_plan();
            run_all(count == 1 ? &one : &more, (bt_prec)prec);
            if (count > 1) same_bits(isa, &more, &one, sizeof one);
        }
    }
    bt_threads_release();
}

enum { R = 2 * BT_GLU_BLOCK + 37, F = 1500, ONE_PASS = R * F };

/* Compares both gradients, n floats each, with their rounded bf16 values. */
static void same_rounded(const char *what, uint16_t (*got)[ONE_PASS], const float *dgate,
                         const float *dup, size_t n) {
    static uint16_t want[ONE_PASS];
    bt_op_save_bf16(want, dgate, n);
    same_bits(what, got[0], want, n * sizeof *want);
    bt_op_save_bf16(want, dup, n);
    same_bits(what, got[1], want, n * sizeof *want);
}

/* One fused pass over a row has the bits of the separate operations. */
static void one_pass(bt_act act) {
    static float gate[R * F], up[R * F], dy[R * F], gain[F], h[R * F], spare[R * F], dq[2][R],
        rstd[2][R], dgate[2][R * F], dup[2][R * F];
    static uint16_t kept[4][R * F], got[2][R * F];
    static int8_t xq[2][R * F];
    fill_head_inputs(gate, R * F, 21), fill_head_inputs(up, R * F, 22),
        fill_head_inputs(dy, R * F, 23), fill_head_inputs(gain, F, 24);
    bt_op_glu(h, gate, up, act, R * F);
    bt_op_save_bf16(kept[0], gate, R * F);
    bt_op_save_bf16(kept[1], up, R * F);
    for (int normed = 0; normed < 2; normed++) {
        memset(kept[2], 0, 2 * sizeof kept[2]);
        if (normed)
            bt_op_rmsnorm_quant(xq[0], dq[0], rstd[0], NULL, h, gain, 1e-5f, R, F);
        else
            bt_op_quant(xq[0], dq[0], h, R, F);
        bt_glu_quant j = {.xq = xq[1],
                          .dq = dq[1],
                          .rstd = normed ? rstd[1] : NULL,
                          .h = spare,
                          .gate_saved = kept[2],
                          .up_saved = kept[3],
                          .gate = gate,
                          .up = up,
                          .gain = gain,
                          .eps = 1e-5f,
                          .act = act,
                          .rows = R,
                          .F = F};
        bt_op_glu_quant(&j);
        same_bits("glu_quant codes", xq[1], xq[0], R * F);
        same_bits("glu_quant scales", dq[1], dq[0], sizeof dq[0]);
        if (normed) same_bits("glu_quant rstd", rstd[1], rstd[0], sizeof rstd[0]);
        same_bits("glu_quant kept", kept[2], kept[0], 2 * sizeof kept[0]);
    }
    bt_op_load_bf16(gate, kept[0], R * F);
    bt_op_load_bf16(up, kept[1], R * F);
    bt_op_glu_bwd(dgate[0], dup[0], dy, gate, up, act, R * F);
    const bt_glu_grads floats = {.gate = dgate[1], .up = dup[1]},
                       half = {.gate_bf16 = got[0], .up_bf16 = got[1]};
    bt_op_glu_bwd_saved(floats, dy, kept[0], kept[1], act, R * F);
    same_bits("glu_bwd_saved dgate", dgate[1], dgate[0], sizeof dgate[0]);
    same_bits("glu_bwd_saved dup", dup[1], dup[0], sizeof dup[0]);
    bt_op_glu_bwd_saved(half, dy, kept[0], kept[1], act, R * F);
    same_rounded("glu_bwd_saved", got, dgate[0], dup[0], R * F);
    static float dgain[2][F], sums[R * F], dh[R * F]; /* through the norm as well */
    memset(dgain, 0, sizeof dgain);
    bt_op_glu(h, gate, up, act, R * F);
    bt_op_rmsnorm_bwd(dh, dgain[0], dy, h, gain, rstd[0], 0, R, F);
    bt_op_glu_bwd(dgate[0], dup[0], dh, gate, up, act, R * F);
    bt_glu_norm_bwd b = {.d = floats,
                         .dgain = dgain[1],
                         .h = spare,
                         .sums = sums,
                         .dy = dy,
                         .gain = gain,
                         .rstd = rstd[0],
                         .gate = kept[0],
                         .up = kept[1],
                         .act = act,
                         .rows = R,
                         .F = F};
    bt_op_glu_norm_bwd(&b);
    same_bits("glu_norm_bwd dgate", dgate[1], dgate[0], sizeof dgate[0]);
    same_bits("glu_norm_bwd dup", dup[1], dup[0], sizeof dup[0]);
    static float again[F];
    b.d = half, b.dgain = again;
    memset(again, 0, sizeof again);
    bt_op_glu_norm_bwd(&b);
    same_rounded("glu_norm_bwd", got, dgate[0], dup[0], R * F);
    same_bits("glu_norm_bwd dgain", again, dgain[1], sizeof again);
    /* The fused pass adds these sums by blocks. */
    near_rms("glu_norm_bwd dgain", dgain[1], dgain[0], 1e-6, 0, F);
}

static void test_one_pass(void **state) {
    (void)state;
    static const char *const isas[] = {"generic", "avx2", "avx512", "neon"};
    bt_err err = BT_ERR_INIT;
    for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) {
        if (bt_kernels_select(isas[i], &err) != BT_OK) continue;
        for (int threads = 1; threads <= 3; threads += 2) {
            assert_int_equal(bt_threads_init(threads, &err), BT_OK);
            one_pass(BT_ACT_RELU2);
            one_pass(BT_ACT_SILU);
            one_pass(BT_ACT_GELU);
            bt_threads_release();
        }
    }
}

/* The head's gradients in int8: the loss equals the loss without int8, or is near it if the logits are int8 too, and is
 * exact where no gradient is computed. One draw of the noise is near the gradient, and the mean of many draws equals
 * it, except that E and x are rounded to nearest (2^-8 of their largest). Any number of threads gives the same bits.
 * Tokens 0-9 have confident predictions. */
enum { HM = 70, HV = 2 * BT_W8_BLOCK + 52, HC = 40, HCHUNK = 48, DRAWS = 60 };
typedef struct head {
    float dx[HM * HC], dE[HV * HC], row[HM];
    double loss;
} head;

static bt_head_form form; /* all zero: none */

static float head_logits[HCHUNK * HV];

static void head_run(head *h, const float *x, const float *E, const int32_t *targets,
                     bt_head8 *int8) {
    memset(h->dE, 0, sizeof h->dE);
    h->loss = bt_op_head_loss(h->dx, h->dE, x, (bt_table){.f32 = E}, targets, 0.01f, head_logits,
                              HCHUNK, h->row, HM, HV, HC, BT_PREC_FP32, int8, &form);
}

static double relative_difference(const float *a, const float *b,
                                  size_t n) { /* returns |a - b| / |b| */
    double d = 0, s = 0;
    for (size_t i = 0; i < n; i++)
        d += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]),
            s += (double)b[i] * (double)b[i];
    return sqrt(d / s);
}

static void head_int8(bool of_rows) {
    static float x[HM * HC], E[HV * HC], scale[HV], dq[HCHUNK], mean_dx[HM * HC], mean_dE[HV * HC];
    static head exact, one, three;
    static int8_t xq[HCHUNK * HC];
    uint32_t rows[HM];
    int32_t targets[HM];
    bt_err err = BT_ERR_INIT;
    fill_head_inputs(x, HM * HC, 31), fill_head_inputs(E, HV * HC, 32);
    for (size_t i = 0; i < 10 * HC; i++) x[i] = 6 * E[i * 7];
    for (int i = 0; i < HM; i++) targets[i] = i % 9 == 4 ? -1 : i * 31 % HV;
    assert_int_equal(bt_ops_plan(HM, HV, HC, 1, 1, NULL, &err), BT_OK);
    assert_int_equal(bt_ops_plan(HV, HC, HM, 1, 1, NULL, &err), BT_OK);
    void *packed = aligned_alloc(64, of_rows ? HV * HC : bt_op_w8_bytes(HV, HC));
    assert_non_null(packed);
    bt_head8 int8 = {.w = {packed, scale, of_rows}, .xq = xq, .dq = dq, .noise = {rows, 9, 0}};
    if (of_rows) bt_active_kernels()->quant_rows(packed, scale, E, HV, HC);
    memset(mean_dx, 0, sizeof mean_dx), memset(mean_dE, 0, sizeof mean_dE);
    head_run(&exact, x, E, targets, NULL);
    for (uint32_t d = 0; d < DRAWS; d++) {
        for (uint32_t m = 0; m < HM; m++) rows[m] = bt_noise_word(d, m);
        head_run(&one, x, E, targets, &int8);
        if (of_rows)
            assert_true(one.loss != exact.loss && fabs(one.loss / exact.loss - 1) < 5e-4);
        else
            assert_true(one.loss == exact.loss);
        assert_true(relative_difference(one.dx, exact.dx, HM * HC) < 0.012 &&
                    relative_difference(one.dE, exact.dE, HV * HC) < (of_rows ? 0.016 : 0.008));
        for (int i = 0; i < HM * HC; i++) mean_dx[i] += one.dx[i] / DRAWS;
        for (int i = 0; i < HV * HC; i++) mean_dE[i] += one.dE[i] / DRAWS;
    }
    /* The noise of the logits is not random, so it remains in the mean. */
    assert_true(relative_difference(mean_dx, exact.dx, HM * HC) < (of_rows ? 0.008 : 0.003) &&
                relative_difference(mean_dE, exact.dE, HV * HC) < (of_rows ? 0.013 : 0.004));
    for (int i = 0; i < HM * HC; i++)
        if (i / HC % 9 == 4) assert_true(one.dx[i] == 0);
    assert_int_equal(bt_threads_init(3, &err), BT_OK);
    assert_int_equal(bt_ops_plan(HM, HV, HC, 1, 1, NULL, &err), BT_OK);
    head_run(&three, x, E, targets, &int8);
    same_bits("head in int8, three threads", &three, &one, sizeof one);
    three.loss = bt_op_head_loss(NULL, NULL, x, (bt_table){.f32 = E}, targets, 0, head_logits,
                                 HCHUNK, three.row, HM, HV, HC, BT_PREC_FP32, &int8, &form);
    assert_true(three.loss == (of_rows ? one : exact).loss);
    bt_threads_release();
    free(packed);
}

static void test_head_int8(void **state) {
    (void)state;
    static const char *const isas[] = {"generic", "avx2", "avx512", "amx", "neon"};
    bt_err err = BT_ERR_INIT;
    for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) {
        assert_int_equal(bt_threads_init(1, &err), BT_OK);
        for (int of_rows = 0; of_rows < 2; of_rows++)
            if (set_is_asked_for(isas[i]) && bt_kernels_select(isas[i], &err) == BT_OK)
                head_int8(of_rows);
        static float slopes[HM];
        form = (bt_head_form){.cap = 3, .slopes = slopes};
        if (i == 0 && set_is_asked_for(isas[i])) head_int8(false);
        form = (bt_head_form){0};
    }
}

static void test_generic(void **state) {
    (void)state;
    threads_agree("generic");
}
static void test_blas(void **state) {
    (void)state;
    threads_agree("blas");
}
static void test_avx2(void **state) {
    (void)state;
    threads_agree("avx2");
}
static void test_avx512(void **state) {
    (void)state;
    threads_agree("avx512");
}
static void test_amx(void **state) {
    (void)state;
    threads_agree("amx");
}

static void test_neon(void **state) {
    (void)state;
    threads_agree("neon");
}

static void test_meaning(void **state) {
    (void)state;
    static results r;
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_kernels_select("generic", &err), BT_OK);
    scratch_of_plan();
    run_all(&r, BT_PREC_FP32);
    double loss = 0, sum = 0;
    for (int i = 0; i < M; i++) { /* near-uniform logits: about log V each */
        loss += (double)r.row_loss[i];
        if (i % 9 == 4)
            assert_true(r.row_loss[i] == 0);
        else
            assert_true(r.row_loss[i] > 0);
    }
    assert_true(loss == r.loss);
    for (int i = 0; i < 70000; i++)
        sum += (double)(float)(bt_rng_unit(11, 10, (uint64_t)i) * 2 - 1);
    assert_true(fabs(sum - r.sums[0]) < 1e-6);
    size_t zero = 0, pos = 0, flips = 0;
    for (size_t i = 0; i < N * K; i++)
        zero += r.codes[i] == 0, pos += r.codes[i] > 0, flips += r.codes[i] != 0;
    assert_int_equal(r.stats.zero, zero);
    assert_int_equal(r.stats.pos, pos);
    assert_int_equal(r.stats.flips, flips); /* All codes were zero before. */
}

static void test_profile(void **state) {
    (void)state;
    static results r;
    bt_op_profile rows[BT_OPS_MAX];
    bt_ops_profile(true);
    run_all(&r, BT_PREC_FP32);
    bt_ops_profile(false);
    size_t n = bt_ops_profile_rows(rows, BT_OPS_MAX), seen = 0;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(rows[i].name, "tern_fwd") == 0) {
            seen++;
            assert_int_equal(rows[i].calls, 1);
            assert_true(rows[i].ops == 2.0 * M * N * K && rows[i].ns > 0);
        }
        if (strcmp(rows[i].name, "gemm") == 0)
            seen++, assert_int_equal(rows[i].calls, 1 + 3 * ((M + 31) / 32));
    }
    assert_int_equal(seen, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_generic),
        cmocka_unit_test(test_blas),
        cmocka_unit_test(test_avx2),
        cmocka_unit_test(test_avx512),
        cmocka_unit_test(test_amx),
        cmocka_unit_test(test_neon),
        cmocka_unit_test(test_one_pass),
        cmocka_unit_test(test_head_int8),
        cmocka_unit_test(test_meaning),
        cmocka_unit_test(test_profile),
        cmocka_unit_test(dropout_scales_what_it_keeps),
        cmocka_unit_test(codes_of_bf16),
        cmocka_unit_test(norms_of_saved_inputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// ctest: timeout=300
/* Slots for rows, flat arrays and ternary codes of every set that this processor supports, compared with the generic
 * set on awkward sizes and unaligned pointers. Integer results have equal bits; the bound of float results is at each
 * comparison. test_products.c tests the products. */
#include "tests/engine/kernels/isa_util.h"

static const bt_kernels *const G = &bt_kernels_generic;

static void check_rmsnorm(const bt_kernels *k) {
    for (size_t i = 1; i < N_AWKWARD; i++)
        for (size_t rows = 0; rows < 4; rows += 3) {
            size_t C = awkward[i], n = rows * C;
            float *x = floats(n), *gain = floats(C), *y = filled(n, 9), *want = filled(n, 9),
                  *rs = filled(rows, 9), *wrs = filled(rows, 9);
            for (int with = 0; with < 2; with++) {
                k->rmsnorm(y, rs, x, with ? gain : NULL, 1e-5f, rows, C);
                G->rmsnorm(want, wrs, x, with ? gain : NULL, 1e-5f, rows, C);
                near_rel("rmsnorm y", y, want, 1e-6, 1e-30, n);
                near_rel("rmsnorm rstd", rs, wrs, 1e-6, 0, rows);
            }
            k->rmsnorm(NULL, rs, x, gain, 1e-5f, rows, C);
            near_rel("rmsnorm rstd alone", rs, wrs, 1e-6, 0, rows);
            k->rmsnorm(y, NULL, x, gain, 1e-5f, rows, C);
            near_rel("rmsnorm y alone", y, want, 1e-6, 1e-30, n);
            drop_all("rmsnorm");
        }
}

static void check_rmsnorm_backward(const bt_kernels *k) {
    for (size_t i = 1; i < N_AWKWARD; i++)
        for (int with = 0; with < 2; with++) {
            size_t C = awkward[i], rows = 5, n = rows * C;
            float *x = floats(n), *dy = floats(n), *g = floats(C), *gain = with ? g : NULL,
                  *rs = filled(rows, 0);
            float *dx = floats(n), *want = copy_of(dx, n);
            G->rmsnorm(NULL, rs, x, gain, 1e-5f, rows, C);
            for (int acc = 0; acc < 2; acc++) {
                k->rmsnorm_dx(dx, dy, x, gain, rs, acc, rows, C);
                G->rmsnorm_dx(want, dy, x, gain, rs, acc, rows, C);
                near_rel("rmsnorm_dx", dx, want, 2e-6, 2e-5, n);
            }
            float *alias = copy_of(dy, n); /* dx may be the array dy. */
            k->rmsnorm_dx(alias, alias, x, gain, rs, 0, rows, C);
            G->rmsnorm_dx(want, dy, x, gain, rs, 0, rows, C);
            near_rel("rmsnorm_dx in place", alias, want, 2e-6, 2e-5, n);
            float *dg = floats(C), *wdg = copy_of(dg, C), *size = filled(C, 100);
            size_t c0 = C / 3, c1 = C - C / 5;
            k->rmsnorm_dgain(dg, dy, x, rs, rows, C, c0, c1);
            G->rmsnorm_dgain(wdg, dy, x, rs, rows, C, c0, c1);
            near_scaled("rmsnorm_dgain", dg, wdg, size, 1e-6, C);
            same_bits("rmsnorm_dgain outside its columns", dg, wdg, c0 * 4);
            drop_all("rmsnorm backward");
        }
}

/* A row processed in two parts gives the same statistics, codes, gradients and softmax as the whole row. */
static void check_split_rows(const bt_kernels *k) {
    for (size_t i = 1; i < N_AWKWARD; i++)
        for (int with = 0; with < 2; with++) {
            size_t C = awkward[i], rows = 3, n = rows * C;
            float *x = floats(n), *dy = floats(n), *g = floats(C), *gain = with ? g : NULL,
                  *rs = filled(rows, 9), *y = filled(n, 9), *wy = filled(n, 9);
            float *dq = filled(rows, 9), *wdq = filled(rows, 9), *dx = filled(n, 9),
                  *wdx = filled(n, 9), *mean = filled(rows, 9);
            int8_t *q = bytes_in(n, 0, 9), *want = bytes_in(n, 0, 9);
            bt_row_stat s[3], ws[3];
            double dot[3], wdot[3];
            k->row_stats(s, x, gain, rows, C);
            G->row_stats(ws, x, gain, rows, C);
            k->rmsnorm_quant(want, wdq, rs, wy, x, gain, 1e-5f, rows, C);
            for (size_t r = 0; r < rows; r++) {
                assert_true(fabs(s[r].sum - ws[r].sum) <= 1e-6 * ws[r].sum);
                assert_true(s[r].a * s[r].b == ws[r].a * ws[r].b);
                dq[r] = s[r].a * rs[r] * s[r].b;
            }
            k->row_apply(q, dq, y, x, gain, rs, rows, C);
            same_bits("row_apply codes", q, want, n);
            same_bits("row_apply scales", dq, wdq, rows * 4);
            near_rel("row_apply y", y, wy, 1e-6, 1e-30, n);
            k->row_dot(dot, dy, x, gain, rows, C);
            G->row_dot(wdot, dy, x, gain, rows, C);
            for (size_t r = 0; r < rows; r++) {
                assert_true(fabs(dot[r] - wdot[r]) <= 1e-5 * (1 + fabs(wdot[r])));
                mean[r] = (float)(wdot[r] / (double)C);
            }
            k->row_dx(dx, dy, x, gain, rs, mean, rows, C);
            G->rmsnorm_dx(wdx, dy, x, gain, rs, 0, rows, C);
            near_rel("row_dx", dx, wdx, 2e-6, 2e-5, n);
            k->row_axpy(y, x, mean, rows, C);
            G->row_axpy(wy, x, mean, rows, C);
            near_rel("row_axpy", y, wy, 1e-5, 1e-6, n);
            drop_all("split rows");
        }
}

static void check_split_softmax(const bt_kernels *k) {
    for (size_t i = 1; i < N_AWKWARD; i++) {
        size_t V = awkward[i], rows = 3, n = rows * V;
        float *l = floats(n), *whole = copy_of(l, n), *loss = filled(rows, 9),
              *top = filled(rows, 9), *scale = filled(rows, 9);
        int32_t targets[3] = {0, (int32_t)V - 1, -1};
        bt_row_stat s[3];
        k->row_lse(s, l, targets, rows, V);
        for (size_t r = 0; r < rows; r++) {
            float most = -INFINITY;
            for (size_t c = 0; c < V; c++) most = fmaxf(most, l[r * V + c]);
            assert_true(s[r].a == most &&
                        s[r].b == (targets[r] < 0 ? 0.0f : l[r * V + (size_t)targets[r]]));
            top[r] = s[r].a;
            scale[r] = targets[r] < 0 ? 0.0f : (float)(0.5 / s[r].sum);
        }
        k->row_softmax(l, top, scale, targets, 0.5f, rows, V);
        G->softmax_xent(loss, whole, targets, 0.5f, rows, V);
        near_rel("row_softmax", l, whole, 1e-5, 1e-6, n);
        for (size_t r = 0; r < 2; r++)
            assert_true(fabs(log(s[r].sum) + (double)s[r].a - (double)s[r].b - (double)loss[r]) <
                        1e-5);
        drop_all("split softmax");
    }
}

static void check_quant_rows(const bt_kernels *k) {
    for (size_t i = 0; i < N_AWKWARD; i++)
        for (int kind = 0; kind < 4; kind++) {
            size_t C = awkward[i], rows = 3, n = rows * C;
            float *x = kind == 1 ? filled(n, 0) : floats(n), *dq = filled(rows, 9),
                  *wdq = filled(rows, 9);
            /* below the minimum of 1e-5 */
            for (size_t j = 0; kind == 2 && j < n; j++) x[j] *= 1e-7f;
            /* values that are ties after scaling */
            for (size_t j = 0; kind == 3 && j < n; j++)
                x[j] = (float)((int)j % 255 - 127) * 0.5f + 0.25f;
            int8_t *q = bytes_in(n, 0, 9), *want = bytes_in(n, 0, 9);
            k->quant_rows(q, dq, x, rows, C);
            G->quant_rows(want, wdq, x, rows, C);
            same_bits("quant_rows xq", q, want, n);
            same_bits("quant_rows dq", dq, wdq, rows * 4);
            drop_all("quant_rows");
        }
}

/* A norm may differ from generic's in its last bits and therefore round differently. The slot must be consistent: its
 * codes are those of quant_rows on the y that it writes, whether or not the caller wants y. */
static void check_rmsnorm_quant(const bt_kernels *k) {
    for (size_t i = 1; i < N_AWKWARD; i++)
        for (int with = 0; with < 2; with++) {
            size_t C = awkward[i], rows = 3, n = rows * C;
            float *x = floats(n), *g = floats(C), *gain = with ? g : NULL, *y = filled(n, 9),
                  *wy = filled(n, 9);
            float *dq = filled(rows, 9), *rs = filled(rows, 9), *wdq = filled(rows, 9),
                  *wrs = filled(rows, 9);
            int8_t *q = bytes_in(n, 0, 9), *q2 = bytes_in(n, 0, 9), *want = bytes_in(n, 0, 9);
            k->rmsnorm_quant(q, dq, rs, y, x, gain, 1e-5f, rows, C);
            G->quant_rows(want, wdq, y, rows, C);
            same_bits("rmsnorm_quant codes of its own y", q, want, n);
            same_bits("rmsnorm_quant dq of its own y", dq, wdq, rows * 4);
            k->rmsnorm_quant(q2, dq, rs, NULL, x, gain, 1e-5f, rows, C);
            same_bits("rmsnorm_quant without y", q2, q, n);
            G->rmsnorm_quant(want, wdq, wrs, wy, x, gain, 1e-5f, rows, C);
            near_rel("rmsnorm_quant y", y, wy, 1e-6, 1e-30, n);
            near_rel("rmsnorm_quant rstd", rs, wrs, 1e-6, 0, rows);
            near_rel("rmsnorm_quant dq", dq, wdq, 1e-6, 0, rows);
            drop_all("rmsnorm_quant");
        }
}

static void check_rope(const bt_kernels *k) {
    static const size_t dims[] = {2, 4, 6, 16, 30, 32, 34, 64, 128};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
        for (int inv = 0; inv < 2; inv++) {
            size_t D = dims[i], heads = 3, rows = 5, ld = heads * D + 7, n = rows * ld;
            float *x = floats(n), *want = copy_of(x, n), *c = floats(9 * D / 2),
                  *s = floats(9 * D / 2);
            int32_t pos[5] = {0, 8, 3, 3, 1};
            /* heads of D elements, of which all or some rotate */
            const bt_rotation by = {c, s, pos, i % 2 ? (D + 3) / 4 * 2 : D};
            k->rope(x, ld, &by, inv, rows, heads, D);
            G->rope(want, ld, &by, inv, rows, heads, D);
            near_rel("rope", x, want, 1e-6, 4e-6, n);
            for (size_t r = 0; r < rows; r++)
                same_bits("rope between rows", x + r * ld + heads * D, want + r * ld + heads * D,
                          28);
            drop_all("rope");
        }
}

static void check_glu(const bt_kernels *k) {
    for (size_t i = 0; i < N_AWKWARD; i++)
        for (int act = 0; act <= BT_ACT_GELU; act++) {
            size_t n = awkward[i];
            float *g = floats(n), *u = floats(n), *dy = floats(n), *y = filled(n, 9),
                  *want = filled(n, 9);
            for (size_t j = 0; j < n; j += 7) g[j] *= 30.0f; /* the tails of silu */
            k->glu(y, g, u, (bt_act)act, n);
            G->glu(want, g, u, (bt_act)act, n);
            near_rel("glu", y, want, 1e-6, 1e-30, n);
            float *dg = filled(n, 9), *du = filled(n, 9), *wdg = filled(n, 9), *wdu = filled(n, 9);
            k->glu_bwd(dg, du, dy, g, u, (bt_act)act, n);
            G->glu_bwd(wdg, wdu, dy, g, u, (bt_act)act, n);
            near_rel("glu_bwd dgate", dg, wdg, 2e-6, 1e-6, n);
            near_rel("glu_bwd dup", du, wdu, 1e-6, 1e-30, n);
            k->glu_bwd(g, u, dy, g, u, (bt_act)act, n); /* in place */
            same_bits("glu_bwd in place dgate", g, dg, n * 4);
            same_bits("glu_bwd in place dup", u, du, n * 4);
            drop_all("glu");
        }
}

static void check_softmax_xent(const bt_kernels *k) {
    for (size_t i = 1; i < N_AWKWARD; i++)
        for (int grad = 0; grad < 2; grad++) {
            size_t V = awkward[i], rows = 5, n = rows * V;
            float *x = floats(n), *loss = filled(rows, 9), *wloss = filled(rows, 9);
            /* a row with a very sharp softmax */
            for (size_t j = 0; j < n; j++) x[j] *= j / V == 1 ? 40.0f : 3.0f;
            /* a row far from zero */
            for (size_t j = 0; j < V; j++) x[3 * V + j] -= 1000.0f;
            float *want = copy_of(x, n), *before = copy_of(x, n);
            int32_t t[5] = {0, (int32_t)(V - 1), (int32_t)(V / 2), (int32_t)(V / 3), -1};
            k->softmax_xent(loss, x, t, grad ? 0.125f : 0.0f, rows, V);
            G->softmax_xent(wloss, want, t, grad ? 0.125f : 0.0f, rows, V);
            near_rel("softmax_xent loss", loss, wloss, 1e-6, 3e-6, rows - 2);
            /* 1000 has an ulp of 6e-5. */
            near_rel("softmax_xent loss far from zero", loss + 3, wloss + 3, 1e-6, 1e-4, 2);
            if (grad)
                near_rel("softmax_xent gradient", x, want, 2e-6, 1e-8, n);
            else
                same_bits("softmax_xent leaves the logits", x, before, n * 4);
            x[2 * V] = NAN; /* not at the target */
            k->softmax_xent(loss, x, t, 0, rows, V);
            assert_true(isnan(loss[2]) && isfinite(loss[0]));
            drop_all("softmax_xent");
        }
}

static void check_flat(const bt_kernels *k) {
    for (size_t i = 0; i < N_AWKWARD; i++) {
        size_t n = awkward[i] * 7 + awkward[i] % 3;
        float *x = floats(n), *y = floats(n), *want = copy_of(y, n);
        k->add(y, x, n);
        G->add(want, x, n);
        same_bits("add", y, want, n * 4);
        k->scale(y, 0.3f, n);
        G->scale(want, 0.3f, n);
        same_bits("scale", y, want, n * 4);
        uint16_t *small = take(n * 2, 4), *want_small = take(n * 2, 4);
        for (size_t j = 0; j < n; j += 5)
            x[j] = (float[]){NAN,       INFINITY,  -INFINITY,        -0.0f,
                             0x1.01p0f, 0x1.03p0f, -0x1.fffffep127f, 0x1p-149f}[j / 5 % 8];
        k->to_bf16(small, x, n);
        G->to_bf16(want_small, x, n);
        same_bits("to_bf16", small, want_small, n * 2);
        k->from_bf16(y, small, n);
        G->from_bf16(want, small, n);
        same_bits("from_bf16", y, want, n * 4);
        k->to_bf16(small, y, n);
        same_bits("a bf16 value stays", small, want_small, n * 2);
        k->to_half(small, x, n);
        G->to_half(want_small, x, n);
        same_bits("to_half", small, want_small, n * 2);
        k->from_half(y, small, n);
        G->from_half(want, small, n);
        same_bits("from_half", y, want, n * 4);
        drop_all("bf16");
        x = floats(n);
        double abs = G->sum_abs(x, n) + 1e-30, sq = G->sum_squares(x, n) + 1e-30;
        assert_true(fabs(k->sum(x, n) - G->sum(x, n)) <= 1e-6 * abs + 1e-29);
        assert_true(fabs(k->sum_abs(x, n) - abs) <= 1e-6 * abs + 1e-29);
        assert_true(fabs(k->sum_squares(x, n) - sq) <= 1e-6 * sq + 1e-29);
        drop_all("flat arrays");
    }
}

static void check_adamw(const bt_kernels *k) {
    for (size_t i = 0; i < N_AWKWARD; i++) {
        size_t n = awkward[i];
        float *w = floats(n), *g = floats(n), *m = floats(n), *v = abs_of(floats(n), n);
        for (size_t j = 0; j < n; j += 5) g[j] = v[j] = m[j] = 0;
        float *ww = copy_of(w, n), *wm = copy_of(m, n), *wv = copy_of(v, n);
        for (int step = 1; step < 4; step++) {
            float c1 = 1 - powf(0.9f, (float)step), c2 = 1 - powf(0.95f, (float)step);
            k->adamw(w, g, m, v, 0.7f, 2e-3f, 0.9f, 0.95f, 1e-8f, 0.1f, c1, c2, n);
            G->adamw(ww, g, wm, wv, 0.7f, 2e-3f, 0.9f, 0.95f, 1e-8f, 0.1f, c1, c2, n);
        }
        near_rel("adamw w", w, ww, 1e-6, 1e-7, n);
        near_rel("adamw m", m, wm, 1e-6, 1e-7, n);
        near_rel("adamw v", v, wv, 1e-6, 1e-7, n);
        drop_all("adamw");
    }
}

/* Every set gives equal bits, because rounding that changes a sign would change the update. */
static void check_lion(const bt_kernels *k) {
    const bt_lion h = {0.7f, 2e-3f, 0.9f, 0.95f, 0.1f};
    for (size_t i = 0; i < N_AWKWARD; i++) {
        size_t n = awkward[i];
        float *w = floats(n), *g = floats(n), *m = floats(n);
        for (size_t j = 0; j < n; j += 5) g[j] = m[j] = 0;
        for (size_t j = 2; j < n; j += 7) m[j] = -(1.0f - h.b1) * (g[j] * h.grad_scale) / h.b1;
        float *ww = copy_of(w, n), *wm = copy_of(m, n);
        for (int step = 1; step < 4; step++) {
            k->lion(w, g, m, &h, n);
            G->lion(ww, g, wm, &h, n);
        }
        assert_memory_equal(w, ww, n * sizeof *w);
        assert_memory_equal(m, wm, n * sizeof *m);
        drop_all("lion");
    }
}

/* Every set gives equal bits for compressed states with their noise and for the update between them. */
static void check_moments(const bt_kernels *k) {
    const bt_adamw h = {0.7f, 2e-3f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.1f, 0.05f};
    for (size_t i = 0; i < N_AWKWARD; i++) {
        const size_t n = awkward[i];
        float *g = floats(n), *w = floats(n), *m = floats(n), *v = abs_of(floats(n), n);
        uint32_t *words = (uint32_t *)(void *)floats(n), *want = (uint32_t *)(void *)floats(n);
        for (size_t j = 0; j < n; j += 3) m[j] *= 1e-8f, v[j] *= 1e-16f, g[j] *= 1e-8f;
        for (size_t j = 0; j < n; j += 5) g[j] = v[j] = m[j] = 0;
        k->noise_words(words, 77, 5, n);
        G->noise_words(want, 77, 5, n);
        same_bits("noise_words", words, want, n * 4);
        float *ww = copy_of(w, n), *wm = copy_of(m, n), *wv = copy_of(v, n);
        k->adamw_even(w, g, m, v, &h, n);
        G->adamw_even(ww, g, wm, wv, &h, n);
        same_bits("adamw_even w", w, ww, n * 4);
        same_bits("adamw_even m", m, wm, n * 4);
        same_bits("adamw_even v", v, wv, n * 4);
        for (int f = BT_MOMENT_F32; f < BT_MOMENT_FORMS; f++) {
            const bt_moment_form form = (bt_moment_form)f;
            const size_t bytes = n * bt_moment_bytes(form);
            float *x = f == BT_MOMENT_ULOG8 ? v : m, *a = floats(n), *b = floats(n);
            k->moment_store(a, x, form, words, 16, n);
            G->moment_store(b, x, form, words, 16, n);
            same_bits("moment_store", a, b, bytes);
            k->moment_load(ww, a, form, n);
            G->moment_load(wm, b, form, n);
            same_bits("moment_load", ww, wm, n * 4);
        }
        drop_all("moments");
    }
}

static void check_tern_codes(const bt_kernels *k) {
    for (size_t i = 0; i < N_AWKWARD; i++)
        for (int sign = 0; sign < 2; sign++) {
            size_t n = awkward[i] * 5 + awkward[i] % 4;
            float *w = floats(n), mean = sign ? 0.0625f : 0.0f;
            /* exact ties, and x = 0 */
            for (size_t j = 0; j < n; j += 3) w[j] = (float)((int)(j % 9) - 4) * 0.25f + mean;
            int8_t *c = bytes_in(n, -1, 1), *want = take(n, 1);
            if (n) memcpy(want, c, n);
            bt_tern_stats a = k->tern_codes(c, w, mean, 2.0f, sign, n),
                          b = G->tern_codes(want, w, mean, 2.0f, sign, n);
            same_bits("tern_codes", c, want, n);
            assert_int_equal(a.zero, b.zero);
            assert_int_equal(a.pos, b.pos);
            assert_int_equal(a.flips, b.flips);
            drop_all("tern_codes");
        }
}

/* Integer results and exact sums have equal bits. */
static void check_exact_sums(const bt_kernels *k) {
    for (size_t i = 0; i < N_AWKWARD; i++)
        for (int bad = 0; bad < 3; bad++) {
            size_t n = awkward[i] * 3 + awkward[i] % 5;
            float *x = floats(n);
            if (bad && n) x[n / 2] = bad == 1 ? -INFINITY : NAN;
            assert_int_equal(k->exact_most(x, n), G->exact_most(x, n));
            const double coarse = 6755399441055744.0 * 0x1p-36, fine = 6755399441055744.0 * 0x1p-76;
            for (int of = 0; of < 3 && !bad; of++) {
                double got[2] = {1, 0x1p-50}, want[2] = {1, 0x1p-50};
                k->exact_add(got, x, n, (bt_exact_of)of, coarse, fine);
                G->exact_add(want, x, n, (bt_exact_of)of, coarse, fine);
                same_bits("exact_add", got, want, sizeof got);
            }
            drop_all("exact sums");
        }
}

static void check_statistics(const bt_kernels *k) {
    for (size_t i = 0; i < N_AWKWARD; i++) {
        size_t n = awkward[i] * 3 + awkward[i] % 5, half = (n + 1) / 2;
        uint8_t *h = take(half, 1), *wh = take(half, 1);
        int8_t *codes = bytes_in(n, -1, 1);
        for (size_t j = 0; j < half; j++) h[j] = wh[j] = (uint8_t)(unit() * 256);
        if (n % 2) h[half - 1] = wh[half - 1] &= 15;
        bt_code_seen seen = {3, 4, 5}, want = seen;
        k->code_history(h, codes, n, &seen);
        G->code_history(wh, codes, n, &want);
        same_bits("code_history", h, wh, half);
        same_bits("code_history counts", &seen, &want, sizeof seen);
        float *w = floats(n), *m = floats(n), *v = abs_of(floats(n), n);
        assert_int_equal(k->code_near(w, n, 0.01f, 2.0f, 0.5f, 0.2f),
                         G->code_near(w, n, 0.01f, 2.0f, 0.5f, 0.2f));
        float *c = filled(n, 9), *b = filled(n, 9), *wc = filled(n, 9), *wb = filled(n, 9);
        k->adamw_undo(c, b, w, m, v, n, 0.9998f, 2e-3f, 1.5f, 1e-8f);
        G->adamw_undo(wc, wb, w, m, v, n, 0.9998f, 2e-3f, 1.5f, 1e-8f);
        near_rel("adamw_undo change", c, wc, 1e-6, 1e-7, n);
        near_rel("adamw_undo before", b, wb, 1e-6, 1e-7, n);
        drop_all("statistics");
    }
}

static void (*const cases[])(const bt_kernels *) = {check_rmsnorm,      check_rmsnorm_backward,
                                                    check_quant_rows,   check_rmsnorm_quant,
                                                    check_split_rows,   check_split_softmax,
                                                    check_rope,         check_glu,
                                                    check_softmax_xent, check_flat,
                                                    check_adamw,        check_lion,
                                                    check_tern_codes,   check_exact_sums,
                                                    check_statistics,   check_moments};

static void run_set(const char *isa) {
    bt_err err = BT_ERR_INIT;
    draw = 0;
    if (bt_kernels_select(isa, &err) != BT_OK) {
        print_message("skipped: no %s (%s)\n", isa, err.msg);
        skip();
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) cases[i](bt_active_kernels());
}

static void every_slot_has_a_case(void **state) {
    (void)state;
    bool called[SLOTS_MOST] = {false};
    assert_true(bt_kernels_slots() <= SLOTS_MOST);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) slots_called(called, cases[i]);
    slots_owed(called, false);
}

static void test_generic(void **state) {
    (void)state;
    run_set("generic");
}
static void test_avx2(void **state) {
    (void)state;
    run_set("avx2");
}
static void test_avx512(void **state) {
    (void)state;
    run_set("avx512");
}
static void test_amx(void **state) {
    (void)state;
    run_set("amx");
}

static void test_neon(void **state) {
    (void)state;
    run_set("neon");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_slot_has_a_case),
                                       cmocka_unit_test(test_generic),
                                       cmocka_unit_test(test_avx2),
                                       cmocka_unit_test(test_avx512),
                                       cmocka_unit_test(test_amx),
                                       cmocka_unit_test(test_neon)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

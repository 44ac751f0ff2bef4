/* Attention rounded to int8 (bt_attn_shape.int8): every set equals the generic one, the result is near attention in
 * floats, the forward and backward passes use the same scores, and values that are not finite remain so. */
#include "tests/engine/kernels/isa_util.h"

static double root_mean_square(const float *x, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sqrt(sum / (double)(n ? n : 1));
}

/* Returns the rms of the difference relative to the rms of the second array. */
static double relative_rms_difference(const float *a, const float *b, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    return sqrt(sum / (double)(n ? n : 1)) / (root_mean_square(b, n) + 1e-30);
}

typedef struct pass {
    float *o, *lse, *dq, *dk, *dv;
} pass;

static pass run_attention_pass(const bt_kernels *k, const bt_attn_shape *s, const float *q,
                               const float *key, const float *v, const float *go, bt_prec prec) {
    const size_t T = s->T;
    const pass p = {.o = filled(T * s->ldo, 0),
                    .lse = filled(T, 0),
                    .dq = filled(T * s->ldq, 0),
                    .dk = filled(T * s->ldk, 0),
                    .dv = filled(T * s->ldv, 0)};
    void *tmp = scratch_for(k, 1, 1, 1, T, s->D);
    k->attn_fwd(p.o, p.lse, q, key, v, s, 0, T, prec, tmp);
    k->attn_bwd(p.dq, p.dk, p.dv, go, p.o, p.lse, q, key, v, s, prec, tmp);
    for (size_t t = 0; t < T; t++) { /* The gaps between heads belong to no head. */
        for (size_t d = s->D; d < s->ldq; d++) assert_true(p.dq[t * s->ldq + d] == 0);
        for (size_t d = s->D; d < s->ldo; d++) assert_true(p.o[t * s->ldo + d] == 0);
    }
    return p;
}

static void assert_passes_near(const char *what, const pass *a, const pass *b,
                               const bt_attn_shape *s, double within, double least) {
    const struct {
        const char *name;
        const float *a, *b;
        size_t n;
    } parts[] = {{"o", a->o, b->o, s->T * s->ldo},
                 {"lse", a->lse, b->lse, s->T},
                 {"dq", a->dq, b->dq, s->T * s->ldq},
                 {"dk", a->dk, b->dk, s->T * s->ldk},
                 {"dv", a->dv, b->dv, s->T * s->ldv}};
    for (size_t i = 0; i < 5; i++) {
        const double d = relative_rms_difference(parts[i].a, parts[i].b, parts[i].n);
        if (!(d <= within))
            fail_msg("%s, T %zu, D %zu, window %zu: %s is %.3g apart, at most %.3g", what, s->T,
                     s->D, s->window, parts[i].name, d, within);
        if (i != 1 && d < least) fail_msg("%s: %s is not rounded", what, parts[i].name);
    }
}

static void check_int8_heads(const bt_kernels *k, size_t T, size_t D, size_t window) {
    bt_attn_shape s = uneven_heads(T, D, window);
    float *q = floats(T * s.ldq), *key = floats(T * s.ldk), *v = floats(T * s.ldv),
          *go = floats(T * s.ldo);
    for (size_t i = 0; i < T * s.ldo; i++) go[i] *= 1e-7f; /* Gradients are small. */
    s.int8 = true;
    const pass plain = run_attention_pass(&bt_kernels_generic, &s, q, key, v, go, BT_PREC_FP32),
               own = run_attention_pass(k, &s, q, key, v, go, BT_PREC_FP32),
               again = run_attention_pass(k, &s, q, key, v, go, BT_PREC_FP32),
               coarse = run_attention_pass(k, &s, q, key, v, go, BT_PREC_BF16);
    same_bits("o made again", again.o, own.o, T * s.ldo * 4);
    same_bits("dk made again", again.dk, own.dk, T * s.ldk * 4);
    /* The gradient dS of a single key is only rounding error. */
    assert_passes_near("int8 and generic int8", &own, &plain, &s,
                       T == 1 || window == 1 ? 0.05 : 2e-3, 0);
    if (T > 8 && D >= 16 && window != 1)
        assert_passes_near("int8 beside bf16", &coarse, &plain, &s, 0.08, 0);
    s.int8 = false;
    const pass exact = run_attention_pass(k, &s, q, key, v, go, BT_PREC_FP32);
    if (T > 8 && D >= 16) assert_passes_near("int8 and floats", &own, &exact, &s, 0.08, 1e-4);
    drop_all("attention of int8");
}

/* Sets that multiply bf16 round floats to bf16 first: the bits equal those of saved bf16 values. */
static void check_saved_bf16_operands(const bt_kernels *k, size_t T, size_t D) {
    bt_attn_shape s = uneven_heads(T, D, 0);
    s.int8 = true;
    const size_t n[3] = {T * s.ldq, T * s.ldk, T * s.ldv};
    float *x[3], *near[3], *go = floats(T * s.ldo);
    for (int i = 0; i < 3; i++) {
        x[i] = floats(n[i]);
        near[i] = filled(n[i], 0);
        uint16_t *kept = take(n[i] * sizeof *kept, 4);
        k->to_bf16(kept, x[i], n[i]);
        k->from_bf16(near[i], kept, n[i]);
    }
    const pass a = run_attention_pass(k, &s, x[0], x[1], x[2], go, BT_PREC_BF16),
               b = run_attention_pass(k, &s, near[0], near[1], near[2], go, BT_PREC_BF16);
    same_bits("o of unrounded floats", a.o, b.o, T * s.ldo * 4);
    same_bits("lse of unrounded floats", a.lse, b.lse, T * 4);
    same_bits("dq of unrounded floats", a.dq, b.dq, T * s.ldq * 4);
    same_bits("dk of unrounded floats", a.dk, b.dk, T * s.ldk * 4);
    same_bits("dv of unrounded floats", a.dv, b.dv, T * s.ldv * 4);
    drop_all("unrounded floats");
}

static void check_all_int8_heads(const bt_kernels *k) {
    static const size_t T[] = {1, 2, 15, 17, 33, 64, 65, 129, 200},
                        D[] = {2, 6, 16, 30, 32, 64, 66, 128};
    for (size_t i = 0; i < sizeof T / sizeof *T; i++)
        for (size_t j = 0; j < sizeof D / sizeof *D; j++) {
            check_int8_heads(k, T[i], D[j], (i + j) % 3 ? 0 : 1 + i * i);
            if (k->multiplies_bf16 && k->multiplies_bf16())
                check_saved_bf16_operands(k, T[i], D[j]);
        }
}

static const char *const sets[] = {"generic",      "avx2-plain", "avx2", "avx512-plain",
                                   "avx512-vnni",  "avx512",     "amx",  "neon-plain",
                                   "neon-dotprod", "neon"};
enum { N_SETS = sizeof sets / sizeof *sets };

static void int8_attention_of_each_set(void **state) {
    (void)state;
    int seen = 0;
    for (size_t i = 0; i < N_SETS; i++) {
        bt_err err = BT_ERR_INIT;
        if (!set_is_asked_for(sets[i]) || bt_kernels_select(sets[i], &err) != BT_OK) continue;
        check_all_int8_heads(bt_active_kernels());
        seen++;
    }
    assert_true(seen > 0 || !set_is_asked_for("generic"));
    bt_kernels amx;
    if (set_is_asked_for("emulated-amx") && emulated_amx(&amx)) check_all_int8_heads(&amx);
}

/* One key has so large a weight that each other weight is below half a step, although together they are four times as
 * large: their share of the result must not vanish. */
static void many_small_weights_keep_their_sum(void **state) {
    (void)state;
    enum { T = 2000, D = 16 };
    for (size_t i = 0; i < N_SETS; i++) {
        bt_err err = BT_ERR_INIT;
        if (bt_kernels_select(sets[i], &err) != BT_OK) continue;
        bt_attn_shape s = uneven_heads(T, D, 0);
        s.int8 = true;
        float *q = filled(T * s.ldq, 1), *key = filled(T * s.ldk, 0), *v = filled(T * s.ldv, 1),
              *o = filled(T * s.ldo, 0), *lse = filled(T, 0);
        const float score = logf(500); /* Every other key has 1/500 of this weight. */
        for (size_t d = 0; d < D; d++)
            key[7 * s.ldk + d] = score * sqrtf(D) / D, v[7 * s.ldv + d] = 0;
        bt_active_kernels()->attn_fwd(o, lse, q, key, v, &s, 0, T, BT_PREC_FP32,
                                      scratch_for(bt_active_kernels(), 1, 1, 1, T, D));
        for (size_t t = 500; t < T; t += 100) {
            const double others = (double)t / 500, want = others / (1 + others);
            if (fabs((double)o[t * s.ldo] - want) > 0.02)
                fail_msg("%s: query %zu has %.4f of the peers' values, not %.4f", sets[i], t,
                         (double)o[t * s.ldo], want);
        }
        drop_all("small weights");
    }
}

static void is_seen(const bt_kernels *k, bool int8, bt_prec prec, int which, float bad) {
    enum { T = 40, D = 32 };
    bt_attn_shape s = uneven_heads(T, D, 0);
    s.int8 = int8;
    float *x[4] = {floats(T * s.ldq), floats(T * s.ldk), floats(T * s.ldv), floats(T * s.ldo)};
    const size_t ld[4] = {s.ldq, s.ldk, s.ldv, s.ldo};
    x[which][5 * ld[which] + 3] = bad;
    const pass p = run_attention_pass(k, &s, x[0], x[1], x[2], x[3], prec);
    double sum = 0;
    for (size_t i = 0; i < T * s.ldo && which < 3; i++) sum += (double)p.o[i];
    for (size_t i = 0; i < T * s.ldq && which == 3; i++) sum += (double)p.dq[i];
    if (isfinite(sum))
        fail_msg("%s, int8 %d, precision %d: operand %d with %g is not seen", k->name, int8, prec,
                 which, (double)bad);
    drop_all("not finite");
}

/* An operand that is not finite makes the result not finite; in float attention a key of infinity may also get the
 * weight zero. */
static void nonfinite_values_remain(void **state) {
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t set = 0; set < N_SETS; set++) {
        bt_err err = BT_ERR_INIT;
        if (bt_kernels_select(sets[set], &err) != BT_OK) continue;
        for (int which = 0; which < 4; which++)
            for (int prec = 0; prec < 2; prec++) {
                const bt_prec p = prec ? BT_PREC_BF16 : BT_PREC_FP32;
                is_seen(bt_active_kernels(), false, p, which, NAN);
                for (int kind = 0; kind < 3; kind++)
                    is_seen(bt_active_kernels(), true, p, which, bad[kind]);
            }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(int8_attention_of_each_set),
                                       cmocka_unit_test(many_small_weights_keep_their_sum),
                                       cmocka_unit_test(nonfinite_values_remain)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

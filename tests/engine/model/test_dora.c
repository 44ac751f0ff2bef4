/* test_dora.c - adapters with magnitudes (DoRA) on a frozen base: they begin as the identity, the output equals that of
 * the merged model, and the gradients are those of constant norms, by finite differences. */
#include "tests/engine/model/engine_fixture.h"
#include "tests/engine/model/small_model.h"

enum { B = 2, T = 150, V = 37, M = B * T, R = 3 };
#define SCALE 1.5

static int32_t inputs[M], targets[M];

typedef struct base_kind {
    bt_linear_kind linear;
    bt_scale_kind scale;
    bt_prec prec;
    bool lean, int8, drops;
    bt_recompute recompute;
} base_kind;
static const base_kind dense = {.linear = BT_LIN_DENSE, .prec = BT_PREC_FP32};

static bt_model *adapted_model(const base_kind *k, const bt_lora *lora) {
    const bool groups = k->scale > BT_SCALE_ROW; /* two and three of them */
    bt_model_setup s = small_setup(B, T, V, groups ? 64 : 24, groups ? 96 : 40);
    s.cfg.linear = k->linear;
    s.cfg.scale = k->scale;
    s.prec = k->prec;
    if (lora) {
        s.cfg.lora = *lora;
        s.drops_lora = k->drops;
        s.lean = k->lean;
        s.grad_int8 = k->int8;
        s.recompute = k->recompute;
    }
    bt_model *m = small_model(&s, 5);
    if (lora && k->drops) {
        bt_model_lora_dropout(m, 0.3, 7, 2, 40);
        bt_model_gradient_passes(m, true);
    }
    return m;
}

static bt_model *model_of(const base_kind *k, unsigned layers) {
    const bt_lora lora = {.rank = R, .scale = SCALE, .targets = layers, .dora = true};
    return adapted_model(k, layers ? &lora : NULL);
}

/* Copies the weights of `full` to the base of `m`, whose adapters begin with their initial values. */
static void share_base(bt_model *full, bt_model *m) {
    const bt_params *p = bt_model_params(full);
    bt_model_quantise(full);
    memset(bt_model_weights(m), 0, bt_model_params(m)->total * sizeof(float));
    for (size_t i = 0; i < p->n; i++) {
        const float *w = bt_model_weights(full) + p->tensors[i].offset,
                    *rows = bt_model_row_scales(full, i);
        if (rows)
            bt_model_base_put_rows(m, i, w, rows);
        else
            bt_model_base_put(m, i, 0, p->tensors[i].count, w,
                              (float)bt_model_quant_stat(full, i).scale);
    }
    bt_model_base_done(m);
    bt_model_quantise(m);
    bt_model_init_weights(m, 5);
    bt_model_quantise(m);
}

/* B becomes random, and each magnitude its initial value times a random factor. */
static void random_adapters(bt_model *m) {
    const bt_params *p = bt_model_params(m);
    for (size_t i = 0; i < p->n; i++) {
        const bt_tensor *t = &p->tensors[i];
        float *w = bt_model_weights(m) + t->offset, factors[96];
        if (strstr(t->name, "lora_b")) bt_rng_normal(w, t->count, 0, 0.2f, 9, i);
        if (!t->row_norms) continue;
        bt_rng_normal(factors, t->count, 0, 0.2f, 9, i);
        for (size_t k = 0; k < t->count; k++) w[k] *= 1 + factors[k];
    }
    bt_model_quantise(m);
}

typedef struct adapter {
    const bt_tensor *a, *b, *m;
} adapter;

static adapter adapter_of(const bt_model *m, const char *layer) {
    const bt_tensor *found[3];
    static const char *const parts[] = {"lora_a", "lora_b", "lora_m"};
    for (int i = 0; i < 3; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s.%s", layer, parts[i]);
        found[i] = bt_params_named(bt_model_params(m), name);
    }
    return (adapter){found[0], found[1], found[2]};
}

/* Returns element k of row n of W + SCALE B A, for the weight w of the base. */
static double sum_at(bt_model *m, const adapter *x, const float *w, size_t n, size_t k) {
    const float *own = bt_model_weights(m);
    const size_t K = x->a->cols;
    double sum = (double)w[n * K + k];
    for (size_t r = 0; r < R; r++)
        sum += SCALE * (double)own[x->b->offset + n * R + r] *
               (double)own[x->a->offset + r * K + k];
    return sum;
}

static double norm_of(bt_model *m, const adapter *x, const float *w, size_t n) {
    double squares = 0;
    for (size_t k = 0; k < x->a->cols; k++)
        squares += sum_at(m, x, w, n, k) * sum_at(m, x, w, n, k);
    return sqrt(squares);
}

static double train_scaled(bt_model *m) {
    bt_model_zero_grads(m);
    return bt_model_train_micro(m, inputs, targets, 0.01, NULL, NULL);
}

static double scaled_loss(bt_model *m) { return 0.01 * bt_model_eval_micro(m, inputs, targets); }

static void magnitudes_begin_as_the_identity(void **state) {
    (void)state;
    static const base_kind kinds[] = {
        {.linear = BT_LIN_DENSE, .prec = BT_PREC_FP32},
        {.linear = BT_LIN_DENSE, .prec = BT_PREC_BF16},
        {.linear = BT_LIN_BITNET158, .prec = BT_PREC_FP32},
        {.linear = BT_LIN_BITNET158, .prec = BT_PREC_BF16, .int8 = true},
        {.linear = BT_LIN_BITNET158, .scale = BT_SCALE_ROW, .prec = BT_PREC_FP32},
        {.linear = BT_LIN_BITNET1, .prec = BT_PREC_FP32},
        {.linear = BT_LIN_DENSE, .prec = BT_PREC_FP32, .drops = true},
        {.linear = BT_LIN_BITNET158, .prec = BT_PREC_BF16, .int8 = true, .drops = true},
        {.linear = BT_LIN_BITNET158, .scale = BT_SCALE_ROW, .prec = BT_PREC_FP32, .drops = true},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        bt_model *full = model_of(&kinds[i], 0), *m = model_of(&kinds[i], BT_LORA_ALL);
        share_base(full, m);
        const double base = bt_model_eval_micro(full, inputs, targets), fresh = train_scaled(m);
        if (memcmp(&base, &fresh, sizeof base) != 0)
            fail_msg("base %zu: a loss of %.17g, with new adapters %.17g", i, base, fresh);
        random_adapters(m);
        assert_true(fabs(train_scaled(m) - base) > 1e-3 * base);
        for (size_t k = 0; k < bt_model_params(m)->total; k++)
            assert_true(isfinite(bt_model_grads(m)[k]));
        bt_model_destroy(full);
        bt_model_destroy(m);
    }
}

/* Norms of a ternary base are those of its codes times their scale. */
static void norms_are_of_the_weights_that_products_read(void **state) {
    (void)state;
    static const bt_scale_kind kinds[] = {BT_SCALE_TENSOR, BT_SCALE_ROW, BT_SCALE_GROUP32};
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        const base_kind k = {
            .linear = BT_LIN_BITNET158, .scale = kinds[kind], .prec = BT_PREC_FP32};
        bt_model *full = model_of(&k, 0), *m = model_of(&k, BT_LORA_ALL);
        share_base(full, m);
        random_adapters(m);
        const bt_params *p = bt_model_params(full);
        size_t seen = 0;
        for (size_t i = 0; i < p->n; i++) {
            const bt_tensor *t = &p->tensors[i];
            const adapter x = adapter_of(m, t->name);
            if (!x.m) continue;
            static float w[96 * 96];
            const float *scales = bt_model_row_scales(full, i);
            const int8_t *codes = bt_model_codes(full, i);
            for (size_t e = 0; e < t->count; e++)
                w[e] = (float)codes[e] * (scales ? scales[e / bt_scale_inputs(k.scale, t->cols)]
                                                 : (float)bt_model_quant_stat(full, i).scale);
            for (size_t n = 0; n < t->rows; n++) {
                const double want = norm_of(m, &x, w, n),
                             got = (double)bt_model_row_norms(m, x.m)[n];
                if (!(fabs(got / want - 1) < 1e-6))
                    fail_msg("row %zu of %s has the norm %.9g, not %.9g", n, t->name, got, want);
            }
            seen++;
        }
        assert_int_equal(seen, 14);
        bt_model_destroy(full);
        bt_model_destroy(m);
    }
}

/* Replaces the weights of `full` by c (W + SCALE B A); factors: receives c of every row, sums: W + SCALE B A. */
static void merge(bt_model *full, bt_model *m, double *factors, double *sums) {
    const bt_params *p = bt_model_params(full);
    for (size_t i = 0; i < p->n; i++) {
        const bt_tensor *t = &p->tensors[i];
        float *w = bt_model_weights(full) + t->offset;
        const adapter x = adapter_of(m, t->name);
        if (!x.m) continue;
        for (size_t n = 0; n < t->rows; n++) {
            factors[x.m->offset + n] = (double)bt_model_weights(m)[x.m->offset + n] /
                                       norm_of(m, &x, w, n);
            for (size_t k = 0; k < t->cols; k++)
                sums[t->offset + n * t->cols + k] = sum_at(m, &x, w, n, k);
        }
        for (size_t e = 0; e < t->count; e++)
            w[e] = (float)(factors[x.m->offset + e / t->cols] * sums[t->offset + e]);
    }
}

static void close_to(const float *got, const double *want, size_t n, const char *what) {
    double diff = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        diff += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        norm += want[i] * want[i];
    }
    if (!(norm > 0 && diff <= 1e-8 * norm)) fail_msg("%s differs by %.2e", what, sqrt(diff / norm));
}

/* With the gradient D of the merged weights: dm = D . (W + SCALE B A) / norm of each row, dB = SCALE c D A^T, dA =
 * SCALE B^T c D. */
static void check_gradients(bt_model *full, bt_model *m, const double *factors,
                            const double *sums) {
    const bt_params *p = bt_model_params(full);
    const float *w = bt_model_weights(m), *g = bt_model_grads(m);
    for (size_t i = 0; i < p->n; i++) {
        const bt_tensor *t = &p->tensors[i];
        const float *d = bt_model_grads(full) + t->offset;
        const adapter x = adapter_of(m, t->name);
        double da[R * 40] = {0}, db[R * 40] = {0}, dm[40] = {0};
        if (!x.m) continue;
        for (size_t n = 0; n < t->rows; n++)
            for (size_t k = 0; k < t->cols; k++) {
                const double c = factors[x.m->offset + n], e = (double)d[n * t->cols + k];
                dm[n] += e * sums[t->offset + n * t->cols + k] * c / (double)w[x.m->offset + n];
                for (size_t r = 0; r < R; r++) {
                    da[r * t->cols + k] += SCALE * c * e * (double)w[x.b->offset + n * R + r];
                    db[n * R + r] += SCALE * c * e * (double)w[x.a->offset + r * t->cols + k];
                }
            }
        close_to(g + x.a->offset, da, x.a->count, x.a->name);
        close_to(g + x.b->offset, db, x.b->count, x.b->name);
        close_to(g + x.m->offset, dm, x.m->count, x.m->name);
    }
}

static void adapters_equal_the_merged_model(void **state) {
    (void)state;
    static const unsigned some[] = {BT_LORA_ALL, BT_LORA_K | BT_LORA_V, BT_LORA_DOWN};
    for (size_t i = 0; i < 3; i++) {
        bt_model *full = model_of(&dense, 0), *m = model_of(&dense, some[i]);
        const size_t rows = bt_model_params(m)->total, weights = bt_model_params(full)->total;
        double *factors = calloc(rows, sizeof *factors), *sums = calloc(weights, sizeof *sums);
        assert_non_null(factors);
        assert_non_null(sums);
        share_base(full, m);
        random_adapters(m);
        merge(full, m, factors, sums);
        const double want = train_scaled(full), got = train_scaled(m),
                     seen = bt_model_eval_micro(m, inputs, targets);
        assert_true(fabs(want - got) < 1e-6 * want && fabs(seen - got) < 1e-9 * got);
        check_gradients(full, m, factors, sums);
        free(factors);
        free(sums);
        bt_model_destroy(full);
        bt_model_destroy(m);
    }
}

/* Scales every magnitude so that its factor is m / norms, whatever the norm of the present A and B. */
static void hold_norms(bt_model *m, const float *norms) {
    const bt_params *p = bt_model_params(m);
    bt_model_quantise(m);
    for (size_t i = 0; i < p->n; i++) {
        const bt_tensor *t = &p->tensors[i];
        if (!t->row_norms) continue;
        const float *now = bt_model_row_norms(m, t);
        for (size_t n = 0; n < t->rows; n++) {
            const size_t at = t->offset + n;
            bt_model_weights(m)[at] *= now[n] / norms[at];
        }
    }
    bt_model_quantise(m);
}

/* The norms are constants of the gradient, so along a direction of all weights the measured loss has the norms of the
 * middle. */
static void gradients_are_finite_differences_with_constant_norms(void **state) {
    (void)state;
    static const base_kind kinds[] = {
        {.linear = BT_LIN_DENSE, .prec = BT_PREC_FP32},
        {.linear = BT_LIN_DENSE, .prec = BT_PREC_FP32, .recompute = BT_RECOMPUTE_FULL},
        {.linear = BT_LIN_DENSE, .prec = BT_PREC_FP32, .drops = true},
        {.linear = BT_LIN_DENSE, .prec = BT_PREC_FP32, .lean = true}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        bt_model *full = model_of(&kinds[i], 0), *m = model_of(&kinds[i], BT_LORA_ALL);
        const bt_params *p = bt_model_params(m);
        const size_t total = p->total;
        float *w = bt_model_weights(m), *kept = malloc(total * sizeof *kept),
              *way = malloc(total * sizeof *way), *norms = calloc(total, sizeof *norms);
        double slope = 0, side[2];
        assert_true(kept && way && norms);
        share_base(full, m);
        random_adapters(m);
        train_scaled(m);
        bt_rng_normal(way, total, 0, 1, 17, 4);
        memcpy(kept, w, total * sizeof *kept);
        for (size_t t = 0; t < p->n; t++)
            if (p->tensors[t].row_norms)
                memcpy(norms + p->tensors[t].offset, bt_model_row_norms(m, &p->tensors[t]),
                       p->tensors[t].count * sizeof *norms);
        for (size_t k = 0; k < total; k++) slope += (double)way[k] * (double)bt_model_grads(m)[k];
        for (int k = 0; k < 2; k++) {
            for (size_t e = 0; e < total; e++) w[e] = kept[e] + (k ? 2e-4f : -2e-4f) * way[e];
            hold_norms(m, norms);
            side[k] = scaled_loss(m);
        }
        const double measured = (side[1] - side[0]) / 4e-4;
        if (!(fabs(measured - slope) < 3e-3 * fabs(slope)))
            fail_msg("kind %zu: the loss changes by %g, %g by the gradients", i, measured, slope);
        free(kept);
        free(way);
        free(norms);
        bt_model_destroy(full);
        bt_model_destroy(m);
    }
}

enum { FULL_RANK = 40 };

/* A becomes the identity, and SCALE B the weights as products read them times (factor - 1). */
static void fill_full_rank(bt_model *full, bt_model *m, double factor) {
    const bt_params *p = bt_model_params(full);
    for (size_t i = 0; i < p->n; i++) {
        const bt_tensor *t = &p->tensors[i];
        const adapter x = adapter_of(m, t->name);
        const int8_t *codes = bt_model_codes(full, i);
        const float *rows = bt_model_row_scales(full, i);
        const double scale = bt_model_quant_stat(full, i).scale;
        float *a, *b;
        if (!x.a) continue;
        a = bt_model_weights(m) + x.a->offset;
        b = bt_model_weights(m) + x.b->offset;
        memset(a, 0, x.a->count * sizeof *a);
        memset(b, 0, x.b->count * sizeof *b);
        for (size_t k = 0; k < t->cols; k++) a[k * t->cols + k] = 1;
        for (size_t n = 0; n < t->rows; n++)
            for (size_t k = 0; k < t->cols; k++) {
                const size_t e = n * t->cols + k;
                const double w = codes ? (double)codes[e] * (rows ? (double)rows[n] : scale)
                                       : (double)bt_model_weights(full)[t->offset + e];
                b[n * FULL_RANK + k] = (float)((factor - 1) * w / SCALE);
            }
    }
}

/* While B is zero and all factors are c, the output is base(x) + (c - 1) base(x'), x' the masked input: that of plain
 * adapters whose product is (c - 1) W. */
static void factors_with_dropout_belong_to_the_masked_input(void **state) {
    (void)state;
    static const base_kind kinds[] = {
        {.linear = BT_LIN_DENSE, .prec = BT_PREC_FP32, .drops = true},
        {.linear = BT_LIN_BITNET158, .prec = BT_PREC_FP32, .drops = true},
        {.linear = BT_LIN_BITNET158, .scale = BT_SCALE_ROW, .prec = BT_PREC_FP32, .drops = true}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const bt_lora plain = {.rank = FULL_RANK, .scale = SCALE, .targets = BT_LORA_ALL};
        bt_model *full = model_of(&kinds[i], 0), *m = model_of(&kinds[i], BT_LORA_ALL),
                 *other = adapted_model(&kinds[i], &plain);
        const bt_params *p = bt_model_params(m);
        share_base(full, m);
        share_base(full, other);
        for (size_t t = 0; t < p->n; t++)
            for (size_t k = 0; p->tensors[t].row_norms && k < p->tensors[t].count; k++)
                bt_model_weights(m)[p->tensors[t].offset + k] *= 1.25f;
        bt_model_quantise(m);
        fill_full_rank(full, other, 1.25);
        const double base = train_scaled(full), want = train_scaled(other), got = train_scaled(m);
        if (!(fabs(got / want - 1) < 1e-5 && fabs(want / base - 1) > 1e-3))
            fail_msg("kind %zu: a loss of %.9g, plain adapters %.9g, the base %.9g", i, got, want,
                     base);
        bt_model_destroy(full);
        bt_model_destroy(m);
        bt_model_destroy(other);
    }
}

/* A row of zeros, which has no direction, gives zeros, and its adapter can leave zero. */
static void a_row_of_zeros_stays_finite(void **state) {
    (void)state;
    bt_model *full = model_of(&dense, 0), *m = model_of(&dense, BT_LORA_ALL);
    const bt_tensor *q = bt_params_named(bt_model_params(full), "layers.1.attn_q");
    memset(bt_model_weights(full) + q->offset, 0, q->cols * sizeof(float));
    share_base(full, m);
    const double base = bt_model_eval_micro(full, inputs, targets), fresh = train_scaled(m);
    assert_memory_equal(&base, &fresh, sizeof base);
    const adapter x = adapter_of(m, q->name);
    float most = 0;
    for (size_t r = 0; r < R; r++) most = fmaxf(most, fabsf(bt_model_grads(m)[x.b->offset + r]));
    assert_true(most > 0 && bt_model_grads(m)[x.m->offset] == 0);
    bt_model_destroy(full);
    bt_model_destroy(m);
}

static void parts_are_reported_from_the_end(void *ctx, size_t begin, size_t end) {
    size_t *at = ctx;
    assert_int_equal(end, *at);
    assert_true(begin < end);
    *at = begin;
}

static void every_magnitude_is_counted_and_reported(void **state) {
    (void)state;
    bt_model *full = model_of(&dense, 0), *m = model_of(&dense, BT_LORA_ALL);
    share_base(full, m);
    size_t at = bt_model_params(m)->total;
    bt_model_zero_grads(m);
    bt_model_train_micro(m, inputs, targets, 0.01, parts_are_reported_from_the_end, &at);
    assert_int_equal(at, 0);
    const uint64_t pairs = 2 * R * (24 + 24 + 2 * (24 + 12) + 24 + 24 + 3 * (24 + 40)),
                   outputs = 2 * (24 + 2 * 12 + 24 + 2 * 40 + 24);
    assert_int_equal(bt_model_params(m)->count, pairs + outputs);
    assert_int_equal(bt_model_count(bt_model_config(m)).adapters, pairs + outputs);
    bt_model_destroy(full);
    bt_model_destroy(m);
}

static int setup(void **state) {
    for (int i = 0; i < M; i++) {
        inputs[i] = (int32_t)(bt_rng_u64(3, 0, (uint64_t)i) % V);
        targets[i] = i % 5 ? (int32_t)(bt_rng_u64(3, 1, (uint64_t)i) % V) : -1;
    }
    return engine_start(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(magnitudes_begin_as_the_identity),
        cmocka_unit_test(norms_are_of_the_weights_that_products_read),
        cmocka_unit_test(adapters_equal_the_merged_model),
        cmocka_unit_test(gradients_are_finite_differences_with_constant_norms),
        cmocka_unit_test(factors_with_dropout_belong_to_the_masked_input),
        cmocka_unit_test(a_row_of_zeros_stays_finite),
        cmocka_unit_test(every_magnitude_is_counted_and_reported),
    };
    return cmocka_run_group_tests(tests, setup, engine_stop);
}

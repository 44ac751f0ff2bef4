/* test_adapters.c - low-rank adapters on a frozen base: the output equals that of the merged model, the gradients of A
 * and B are projections of the full weights' gradients, and the base has no gradients. */
#include "tests/engine/model/engine_fixture.h"
#include "tests/engine/model/small_model.h"

enum { B = 2, T = 150, V = 37, M = B * T, R = 3 };
#define SCALE 1.5

static int32_t inputs[M], targets[M];

static bt_scale_kind scale; /* scales of ternary models created from now on */

static bt_model_setup setup_of(bt_linear_kind linear, unsigned lora) {
    const bool groups = scale > BT_SCALE_ROW; /* two and three of them */
    bt_model_setup s = small_setup(B, T, V, groups ? 64 : 24, groups ? 96 : 40);
    s.cfg.linear = linear;
    s.cfg.scale = linear == BT_LIN_BITNET158 ? scale : BT_SCALE_TENSOR;
    if (lora) s.cfg.lora = (bt_lora){.rank = R, .scale = SCALE, .targets = lora};
    return s;
}

static bt_model *model_of(bt_linear_kind linear, unsigned lora) {
    const bt_model_setup s = setup_of(linear, lora);
    return small_model(&s, 5);
}

/* Copies the weights of `full` to the base of `adapted`. */
static void share_base(bt_model *full, bt_model *adapted) {
    const bt_params *p = bt_model_params(full);
    bt_model_quantise(full);
    for (size_t i = 0; i < p->n; i++) {
        const float *w = bt_model_weights(full) + p->tensors[i].offset,
                    *rows = bt_model_row_scales(full, i);
        if (rows)
            bt_model_base_put_rows(adapted, i, w, rows);
        else
            bt_model_base_put(adapted, i, 0, p->tensors[i].count, w,
                              (float)bt_model_quant_stat(full, i).scale);
    }
    bt_model_base_done(adapted);
}

static void random_b(bt_model *m) {
    const bt_params *p = bt_model_params(m);
    for (size_t i = 0; i < p->n; i++)
        if (strstr(p->tensors[i].name, "lora_b"))
            bt_rng_normal(bt_model_weights(m) + p->tensors[i].offset, p->tensors[i].count, 0, 0.2f,
                          9, i);
}

static const bt_tensor *half_of_pair(const bt_model *m, const char *name, const char *which) {
    char full[64];
    snprintf(full, sizeof full, "%s.%s", name, which);
    return bt_params_named(bt_model_params(m), full);
}

/* Adds SCALE B A to the weights of `full`. */
static void merge_adapters(bt_model *full, bt_model *adapted) {
    const bt_params *p = bt_model_params(full);
    for (size_t i = 0; i < p->n; i++) {
        const bt_tensor *t = &p->tensors[i], *a = half_of_pair(adapted, t->name, "lora_a"),
                        *b = half_of_pair(adapted, t->name, "lora_b");
        float *w = bt_model_weights(full) + t->offset;
        for (size_t n = 0; a && n < t->rows; n++)
            for (size_t k = 0; k < t->cols; k++)
                for (size_t r = 0; r < R; r++)
                    w[n * t->cols + k] +=
                        (float)(SCALE * (double)bt_model_weights(adapted)[b->offset + n * R + r] *
                                (double)bt_model_weights(adapted)[a->offset + r * t->cols + k]);
    }
    bt_model_quantise(full);
}

static void close_to(const float *got, const double *want, size_t n, const char *what) {
    double diff = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        diff += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        norm += want[i] * want[i];
    }
    if (!(diff <= 1e-8 * norm)) fail_msg("%s differs by %.2e", what, sqrt(diff / norm));
}

/* Checks dA = s B^T dW and dB = s dW A^T, where dW is the gradient of the full model. */
static void check_gradients(bt_model *full, bt_model *adapted) {
    const bt_params *p = bt_model_params(full);
    const float *w = bt_model_weights(adapted), *g = bt_model_grads(adapted);
    size_t seen = 0;
    for (size_t i = 0; i < p->n; i++) {
        const bt_tensor *t = &p->tensors[i], *a = half_of_pair(adapted, t->name, "lora_a"),
                        *b = half_of_pair(adapted, t->name, "lora_b");
        if (!a) continue;
        const float *dw = bt_model_grads(full) + t->offset;
        double *da = calloc(a->count, sizeof *da), *db = calloc(b->count, sizeof *db);
        for (size_t n = 0; n < t->rows; n++)
            for (size_t k = 0; k < t->cols; k++)
                for (size_t r = 0; r < R; r++) {
                    double d = SCALE * (double)dw[n * t->cols + k];
                    da[r * t->cols + k] += d * (double)w[b->offset + n * R + r];
                    db[n * R + r] += d * (double)w[a->offset + r * t->cols + k];
                }
        close_to(g + a->offset, da, a->count, a->name);
        close_to(g + b->offset, db, b->count, b->name);
        free(da);
        free(db);
        seen++;
    }
    assert_int_equal(seen * 2, bt_model_params(adapted)->n);
}

static double train_scaled(bt_model *m) {
    bt_model_zero_grads(m);
    return bt_model_train_micro(m, inputs, targets, 0.01, NULL, NULL);
}

static void dense_adapters_equal_the_merged_model(void **state) {
    (void)state;
    static const unsigned some[] = {BT_LORA_ALL, BT_LORA_Q | BT_LORA_V, BT_LORA_DOWN};
    for (size_t i = 0; i < 3; i++) {
        bt_model *full = model_of(BT_LIN_DENSE, 0), *adapted = model_of(BT_LIN_DENSE, some[i]);
        share_base(full, adapted);
        double base = train_scaled(full), fresh = train_scaled(adapted);
        assert_memory_equal(&base, &fresh, sizeof base); /* B is zero, so the outputs are equal. */
        random_b(adapted);
        merge_adapters(full, adapted);
        double want = train_scaled(full), got = train_scaled(adapted);
        assert_true(fabs(want - got) < 1e-6 * want && fabs(want - base) > 1e-3 * want);
        check_gradients(full, adapted);
        bt_model_destroy(full);
        bt_model_destroy(adapted);
    }
}

static double scaled_loss(bt_model *m) { /* scales the loss as train() does */
    return 0.01 * bt_model_eval_micro(m, inputs, targets);
}

static void dense_gradients_equal_finite_differences(void **state) {
    (void)state;
    bt_model *full = model_of(BT_LIN_DENSE, 0), *adapted = model_of(BT_LIN_DENSE, BT_LORA_ALL);
    share_base(full, adapted);
    random_b(adapted);
    train_scaled(adapted);
    small_slope(adapted, scaled_loss, 1.0f, 1e-3, 2e-3);
    bt_model_destroy(full);
    bt_model_destroy(adapted);
}

/* Dropout masks only the inputs of adapters, and only in passes that compute gradients. */
static void dropout_of_inputs_has_the_slope_of_its_gradients(void **state) {
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        const bt_linear_kind linear = kind ? BT_LIN_BITNET158 : BT_LIN_DENSE;
        bt_model_setup s = setup_of(linear, BT_LORA_ALL);
        s.drops_lora = true;
        bt_model *full = model_of(linear, 0), *m = small_model(&s, 5);
        share_base(full, m);
        bt_model_lora_dropout(m, 0.3, 7, 2, 40);
        bt_model_gradient_passes(m, true);
        double base = train_scaled(full), fresh = train_scaled(m);
        assert_memory_equal(&base, &fresh, sizeof base); /* B is zero, so the outputs are equal. */
        random_b(m);
        const double dropped = train_scaled(m);
        if (!kind) small_slope(m, scaled_loss, 1.0f, 1e-3, 2e-3);
        bt_model_lora_dropout(m, 0.3, 7, 3, 40);
        assert_true(train_scaled(m) != dropped);
        bt_model_lora_dropout(m, 0.3, 7, 2, 40);
        const double again = train_scaled(m);
        assert_memory_equal(&dropped, &again, sizeof again);
        bt_model_gradient_passes(m, false);
        const double evaluated = scaled_loss(m);
        bt_model_lora_dropout(m, 0, 7, 2, 40);
        bt_model_gradient_passes(m, true);
        const double without = scaled_loss(m);
        assert_memory_equal(&evaluated, &without, sizeof without);
        bt_model_destroy(full);
        bt_model_destroy(m);
    }
}

static void ternary_adapters_see_the_base(bt_scale_kind kind) {
    scale = kind;
    bt_model *full = model_of(BT_LIN_BITNET158, 0),
             *adapted = model_of(BT_LIN_BITNET158, BT_LORA_ALL);
    share_base(full, adapted);
    double base = train_scaled(full), fresh = train_scaled(adapted);
    assert_memory_equal(&base, &fresh, sizeof base);
    check_gradients(full, adapted);
    random_b(adapted);
    bt_model_quantise(adapted);
    assert_true(fabs(train_scaled(adapted) - base) > 1e-3 * base);
    memset(bt_model_weights(adapted), 0, bt_model_params(adapted)->total * sizeof(float));
    double without = train_scaled(adapted); /* The base has not changed. */
    assert_memory_equal(&base, &without, sizeof base);
    bt_model_destroy(full);
    bt_model_destroy(adapted);
}

static void ternary_adapters_see_the_base_as_it_computes(void **state) {
    (void)state;
    ternary_adapters_see_the_base(BT_SCALE_ROW);
    ternary_adapters_see_the_base(BT_SCALE_GROUP32);
    ternary_adapters_see_the_base(BT_SCALE_TENSOR);
}

/* Checks the difference over all adapters, relative to the norm. */
static void near_gradients(bt_model *a, bt_model *b, double most, size_t row) {
    double diff = 0, norm = 0;
    for (size_t i = 0; i < bt_model_params(a)->total; i++) {
        const double x = (double)bt_model_grads(a)[i], y = (double)bt_model_grads(b)[i];
        diff += (x - y) * (x - y);
        norm += x * x;
    }
    if (!(diff < most * most * norm))
        fail_msg("row %zu: gradients are %.3f apart", row, sqrt(diff / norm));
}

/* Embedding and head have 8 bits and more rows than are converted at a time; with full recompute, bf16 rounds the
 * residuals equally in both passes. */
static void a_base_of_8_bits_gives_near_results(void **state) {
    (void)state;
    const struct {
        bt_linear_kind linear;
        bt_prec prec;
        bt_recompute recompute;
        double near;
        bool int8; /* gradients and the head's products in int8 */
    } rows[] = {{BT_LIN_DENSE, BT_PREC_FP32, BT_RECOMPUTE_NONE, 5e-3, false},
                {BT_LIN_DENSE, BT_PREC_BF16, BT_RECOMPUTE_FULL, 2e-2, false},
                {BT_LIN_BITNET158, BT_PREC_BF16, BT_RECOMPUTE_FULL, 2e-2, false},
                {BT_LIN_BITNET158, BT_PREC_BF16, BT_RECOMPUTE_FULL, 2e-2, true}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bt_model_setup s = setup_of(rows[i].linear, 0);
        s.cfg.V = BT_TABLE8_ROWS + 188;
        s.prec = rows[i].prec;
        bt_model *full = small_model(&s, 5);
        s.cfg.lora = (bt_lora){.rank = R, .scale = SCALE, .targets = BT_LORA_ALL};
        s.recompute = rows[i].recompute;
        bt_model *plain = small_model(&s, 5);
        s.lean = true;
        s.grad_int8 = rows[i].int8;
        bt_model *lean = small_model(&s, 5);
        share_base(full, plain);
        share_base(full, lean);
        random_b(plain);
        random_b(lean);
        const double want = train_scaled(plain), got = train_scaled(lean),
                     seen = bt_model_eval_micro(lean, inputs, targets);
        if (!(fabs(got / want - 1) < rows[i].near && got != want))
            fail_msg("row %zu: %.9g, lean %.9g", i, want, got);
        assert_true(fabs(seen - got) < 1e-9 * got);
        near_gradients(plain, lean, rows[i].int8 ? 0.25 : 0.2, i);
        if (rows[i].prec == BT_PREC_FP32) small_slope(lean, scaled_loss, 1.0f, 2e-4, 2e-3);
        bt_model_destroy(full);
        bt_model_destroy(plain);
        bt_model_destroy(lean);
    }
}

/* Full recompute processes the feed-forward part in several blocks of rows. */
static void recomputing_in_blocks_gives_the_same_bits(void **state) {
    (void)state;
    enum { SEQUENCES = 4, ROWS = SEQUENCES * T };
    static int32_t in[ROWS], to[ROWS];
    for (int i = 0; i < ROWS; i++) {
        in[i] = (int32_t)(bt_rng_u64(4, 0, (uint64_t)i) % V);
        to[i] = i % 3 ? in[i] : -1;
    }
    for (int kind = 0; kind < 2; kind++) {
        const bt_linear_kind linear = kind ? BT_LIN_DENSE : BT_LIN_BITNET158;
        bt_model_setup s = setup_of(linear, BT_LORA_ALL);
        s.B = SEQUENCES;
        bt_model *full = model_of(linear, 0), *kept = small_model(&s, 5);
        s.recompute = BT_RECOMPUTE_FULL;
        bt_model *again = small_model(&s, 5);
        bt_model *both[] = {kept, again};
        double loss[2];
        for (int k = 0; k < 2; k++) {
            share_base(full, both[k]);
            random_b(both[k]);
            bt_model_zero_grads(both[k]);
            loss[k] = bt_model_train_micro(both[k], in, to, 0.01, NULL, NULL);
        }
        assert_memory_equal(&loss[0], &loss[1], sizeof loss[0]);
        assert_memory_equal(bt_model_grads(kept), bt_model_grads(again),
                            bt_model_params(kept)->total * sizeof(float));
        bt_model_destroy(full);
        bt_model_destroy(kept);
        bt_model_destroy(again);
    }
}

static void gradients_are_reported_once_from_the_end(void *ctx, size_t begin, size_t end) {
    size_t *at = ctx;
    assert_int_equal(end, *at);
    assert_true(begin < end);
    *at = begin;
}

/* A frozen base needs 2 bits per weight, without gradients and latent weights. */
static void gradients_of_adapters_alone_take_memory(void **state) {
    (void)state;
    bt_model *full = model_of(BT_LIN_BITNET158, 0),
             *adapted = model_of(BT_LIN_BITNET158, BT_LORA_ALL);
    bt_model_setup s = setup_of(BT_LIN_BITNET158, BT_LORA_ALL);
    bt_arena_row rows[8];
    size_t n = bt_model_plan(&s, rows, 8), seen = 0;
    for (size_t i = 0; i < n; i++) {
        size_t adapters = bt_model_params(adapted)->total * sizeof(float),
               base = bt_model_params(full)->total * sizeof(float);
        if (strcmp(rows[i].name, "grads") == 0) assert_int_equal(rows[i].bytes, adapters);
        if (strcmp(rows[i].name, "params") == 0)
            assert_true(rows[i].bytes > adapters && rows[i].bytes < adapters + base / 3);
        seen += strcmp(rows[i].name, "grads") == 0 || strcmp(rows[i].name, "params") == 0;
    }
    assert_int_equal(seen, 2);
    assert_int_equal(bt_model_base(adapted)->n, bt_model_params(full)->n);
    assert_null(bt_model_base(full));
    bt_model_destroy(full);
    bt_model_destroy(adapted);
}

static void every_adapter_is_reported(void **state) {
    (void)state;
    bt_model *full = model_of(BT_LIN_BITNET158, 0),
             *adapted = model_of(BT_LIN_BITNET158, BT_LORA_ALL);
    share_base(full, adapted);
    size_t at = bt_model_params(adapted)->total;
    bt_model_zero_grads(adapted);
    bt_model_train_micro(adapted, inputs, targets, 0.01, gradients_are_reported_once_from_the_end,
                         &at);
    assert_int_equal(at, 0);
    assert_int_equal(bt_model_params(adapted)->count,
                     2 * R * (24 + 24 + 2 * (24 + 12) + 24 + 24 + 3 * (24 + 40)));
    bt_model_destroy(full);
    bt_model_destroy(adapted);
}

/* Each sequence is one pair; the documents of the chosen and the rejected answer have different lengths. */
static void fill_pairs(int32_t *positions, int32_t *answers) {
    static const int lengths[B][2] = {{70, 40}, {33, 90}};
    for (int i = 0; i < M; i++) positions[i] = answers[i] = -1;
    for (int b = 0; b < B; b++)
        for (int k = 0, at = b * T; k < 2; at += lengths[b][k++])
            for (int i = 0; i < lengths[b][k]; i++) {
                positions[at + i] = i;
                if (i > 10 && i + 1 < lengths[b][k]) answers[at + i] = inputs[at + i + 1];
            }
}

static bt_model *preferring_model(bt_model *full, bt_dpo how) {
    bt_err err;
    bt_model *m;
    bt_model_setup s = setup_of(BT_LIN_DENSE, BT_LORA_ALL);
    s.documents = s.pairs = true;
    if (bt_model_create(&m, &s, &err) != BT_OK) fail_msg("%s", err.msg);
    bt_model_init_weights(m, 5);
    share_base(full, m);
    bt_model_dpo(m, how);
    return m;
}

static int32_t answers[M]; /* learned tokens of the pairs */

static double scaled_preference_loss(bt_model *m) {
    return 0.01 * bt_model_eval_micro(m, inputs, answers);
}

/* Returns the summed log-probability of the learned targets of one answer of pair b; *n receives their number. */
static double answer_log_prob(bt_model *m, int b, int which, double *n) {
    static const int lengths[B][2] = {{70, 40}, {33, 90}};
    static int32_t some[M];
    const int from = b * T + (which ? lengths[b][0] : 0);
    *n = 0;
    for (int i = 0; i < M; i++) some[i] = -1;
    for (int i = from; i < from + lengths[b][which]; i++)
        if (answers[i] >= 0) some[i] = answers[i], *n += 1;
    bt_model_dpo(m, (bt_dpo){0});
    return -bt_model_eval_micro(m, inputs, some);
}

/* The losses of ORPO and SimPO equal the formulas of their papers. */
static void losses_are_the_formulas(bt_model *m, const bt_dpo *how) {
    if (how->loss == BT_PREFER_DPO) return;
    double want = 0;
    for (int b = 0; b < B; b++) {
        double n_c, n_r;
        const double c = answer_log_prob(m, b, 0, &n_c), r = answer_log_prob(m, b, 1, &n_r),
                     a = c / n_c, o = r / n_r;
        const bool orpo = how->loss == BT_PREFER_ORPO;
        const double x = orpo ? log(exp(a) / (1 - exp(a))) - log(exp(o) / (1 - exp(o)))
                              : how->beta * (a - o) - how->gamma,
                     right = -log(1 / (1 + exp(-x))), left = -log(1 / (1 + exp(x)));
        want += (orpo ? how->beta : 1) * ((1 - how->smoothing) * right + how->smoothing * left) -
                (how->sft_share + (orpo ? 1 : 0)) * a;
    }
    bt_model_dpo(m, *how);
    const double got = bt_model_eval_micro(m, inputs, answers);
    if (!(fabs(got - want) < 1e-6 * fabs(want))) fail_msg("a loss of %.9g, not %.9g", got, want);
}

/* Sequence 0 has a desirable answer and one token, sequence 1 one token and an undesirable answer, and both the
 * mismatched answer. The loss and its slope equal the formula, and the mismatched answers have no gradient. */
static void single_answers_have_the_slope_of_their_gradients(void **state) {
    (void)state;
    static const int lengths[B][3] = {{40, 1, 50}, {1, 60, 30}};
    static int32_t positions[M];
    bt_model *full = model_of(BT_LIN_DENSE, 0);
    bt_dpo how = {
        .on = true, .loss = BT_PREFER_KTO, .beta = 0.3, .desirable = 1.5, .undesirable = 0.5};
    bt_model *m = preferring_model(full, how);
    for (int i = 0; i < M; i++) positions[i] = answers[i] = -1;
    for (int b = 0; b < B; b++)
        for (int k = 0, at = b * T; k < 3; at += lengths[b][k++])
            for (int i = 0; i < lengths[b][k]; i++) {
                positions[at + i] = i;
                if (i > 10 && i + 1 < lengths[b][k]) answers[at + i] = inputs[at + i + 1];
            }
    bt_model_documents(m, positions);
    bt_model_zero_grads(m);
    double loss = bt_model_train_micro(m, inputs, answers, 1, NULL, NULL);
    assert_true(fabs(loss - 1) < 1e-12); /* (1.5 + 0.5) / 2 while B is zero */
    bt_score s = bt_model_take_score(m);
    assert_true(s.n == 2 && s.ratios == 0 && s.margin == 0);
    random_b(m);
    bt_model_zero_grads(m);
    bt_model_train_micro(m, inputs, answers, 0.01, NULL, NULL);
    small_slope(m, scaled_preference_loss, 1.0f, 2e-4, 3e-3);
    (void)bt_model_take_score(m);
    (void)bt_model_eval_micro(m, inputs, answers);
    s = bt_model_take_score(m);
    assert_true(s.ratios != 0 && s.ratios == ldexp(nearbyint(ldexp(s.ratios, 20)), -20));
    how.z0 = 2; /* is used in training alone */
    bt_model_dpo(m, how);
    loss = bt_model_eval_micro(m, inputs, answers);
    assert_true(loss != bt_model_train_micro(m, inputs, answers, 1, NULL, NULL));
    bt_model_destroy(full);
    bt_model_destroy(m);
}

static void preferences_begin_at_ln_2_and_have_the_slope_of_their_gradients(void **state) {
    (void)state;
    static int32_t positions[M];
    bt_model *full = model_of(BT_LIN_DENSE, 0),
             *m = preferring_model(full, (bt_dpo){.on = true, .beta = 0.3});
    fill_pairs(positions, answers);
    bt_model_documents(m, positions);
    bt_model_zero_grads(m);
    double first = bt_model_train_micro(m, inputs, answers, 1, NULL, NULL);
    if (!(fabs(first - 2 * M_LN2) < 1e-12)) fail_msg("B is zero, and the loss %.17g", first);
    assert_true(bt_model_take_score(m).n == 2);
    random_b(m);
    const bt_dpo hows[] = {{.on = true, .beta = 0.3},
                           {.on = true, .beta = 0.05, .sft_share = 0.7, .smoothing = 0.2},
                           {.on = true, .loss = BT_PREFER_ORPO, .beta = 0.4},
                           {.on = true, .loss = BT_PREFER_SIMPO, .beta = 2, .gamma = 0.5},
                           {.on = true,
                            .loss = BT_PREFER_SIMPO,
                            .beta = 2.5,
                            .gamma = 0.5,
                            .sft_share = 0.3,
                            .smoothing = 0.1}};
    for (int k = 0; k < 5; k++) {
        bt_model_dpo(m, hows[k]);
        bt_model_zero_grads(m);
        (void)bt_model_take_score(m);
        bt_model_train_micro(m, inputs, answers, 0.01, NULL, NULL);
        bt_score s = bt_model_take_score(m);
        assert_true(s.n == 2 && s.right <= 2 && s.margin != 0);
        losses_are_the_formulas(m, &hows[k]);
        small_slope(m, scaled_preference_loss, 1.0f, 2e-4, 3e-3);
    }
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
        cmocka_unit_test(dense_adapters_equal_the_merged_model),
        cmocka_unit_test(dense_gradients_equal_finite_differences),
        cmocka_unit_test(dropout_of_inputs_has_the_slope_of_its_gradients),
        cmocka_unit_test(ternary_adapters_see_the_base_as_it_computes),
        cmocka_unit_test(a_base_of_8_bits_gives_near_results),
        cmocka_unit_test(recomputing_in_blocks_gives_the_same_bits),
        cmocka_unit_test(every_adapter_is_reported),
        cmocka_unit_test(single_answers_have_the_slope_of_their_gradients),
        cmocka_unit_test(preferences_begin_at_ln_2_and_have_the_slope_of_their_gradients),
        cmocka_unit_test(gradients_of_adapters_alone_take_memory),
    };
    return cmocka_run_group_tests(tests, setup, engine_stop);
}

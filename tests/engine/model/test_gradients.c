// ctest: timeout=120 optimised
/* Every gradient of every variant of the model: the engine compared with the plain reference in double precision,
 * the reference with finite differences (dense models, whose loss is smooth), and the engine's gradient with its own
 * loss. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "engine/base/rng.h"
#include "engine/base/threads.h"
#include "engine/kernels/ops/ops.h"
#include "engine/kernels/table/noise.h"
#include "engine/model/net/model.h"
#include "tests/engine/model/ref_model.h"
#include "tests/engine/model/small_model.h"

enum { B = 2, T = 7, V = 19 };

static bt_model_cfg make_variant(bt_norm_kind norm, bt_act act, bt_linear_kind linear, bool tied,
                                 bool qk) {
    bt_model_cfg c = small_setup(B, T, V, 24, 37).cfg;
    c.D = 10;
    c.norm = norm;
    c.act = act;
    c.linear = linear;
    c.tied = tied;
    c.qk_norm = qk;
    c.init_std = 0.25;
    return c;
}

/* Adds soft limits that reduce large logits and scores, heads that rotate in part, by longrope, and layers that do
 * not rotate. */
static bt_model_cfg with_limits(bt_model_cfg c) {
    c.logit_cap = 1.5;
    c.attention_cap = 0.9;
    c.rotary_dim = 6;
    c.no_rope_every = 2;
    c.window = 3;
    c.rope = (bt_rope_scaling){.method = BT_ROPE_LONGROPE,
                               .factor = 4,
                               .context = 5,
                               .shorter = {3, {1, 1, 1}},
                               .longer = {3, {1.1F, 2, 7}}};
    return c;
}

/* Changes the scales to one for each group of 32 inputs, and the widths to two and four groups. */
static bt_model_cfg in_groups(bt_model_cfg c) {
    c.scale = BT_SCALE_GROUP32;
    c.C = 64;
    c.D = 16;
    c.F = 128;
    return c;
}

/* Adds the biases of Qwen2, and yarn, which scales some of the rotary frequencies. */
static bt_model_cfg with_biases(bt_model_cfg c) {
    c.qkv_bias = true;
    c.no_rope_every = 0; /* In a layer without rotation the bias of k has no gradient. */
    c.rope = (bt_rope_scaling){
        .method = BT_ROPE_YARN, .factor = 3, .context = 8, .low = 0.2, .high = 1.2};
    return c;
}

/* Adds what Gemma 3 computes besides: norms behind the branches, local and global layers, GELU. */
static bt_model_cfg like_gemma(bt_model_cfg c) {
    c.act = BT_ACT_GELU;
    c.post_norm = c.embed_scale = true;
    c.query_scale = 7;
    c.no_rope_every = 0;
    c.window = 3;
    c.window_every = 2;
    c.rope_local_theta = 100;
    c.rope = (bt_rope_scaling){.method = BT_ROPE_LINEAR, .factor = 3};
    return c;
}

static void name_of(char *buf, size_t size, const bt_model_cfg *c) {
    const char *norm[] = {"subln", "bitlinear", "pre"},
               *linear[] = {"bitnet158", "bitnet1", "dense"}, *act[] = {"relu2", "silu", "gelu"};
    (void)snprintf(buf, size, "%s %s %s %s %s%s%s%s%s", norm[c->norm], act[c->act],
                   linear[c->linear], c->tied ? "tied" : "untied", c->qk_norm ? "qk_norm" : "",
                   c->no_rope_every ? " no_rope" : "", c->qkv_bias ? " biased" : "",
                   c->post_norm ? " post_norm" : "", c->logit_cap > 0 ? " capped" : "");
    if (c->scale != BT_SCALE_TENSOR)
        (void)strcat(buf, c->scale == BT_SCALE_ROW ? " row" : " group");
}

static void tokens_of(int32_t *inputs, int32_t *targets) {
    for (size_t i = 0; i < B * T; i++) {
        inputs[i] = (int32_t)(bt_rng_u64(5, 0, i) % V);
        targets[i] = (int32_t)(bt_rng_u64(5, 1, i) % V);
    }
    targets[3] = -1; /* one token that is not learned */
}

enum { DROP_SEED = 5, DROP_STEP = 3, DROP_ROW = 40 };
static double dropout_p; /* dropout of the models that are created next; 0: no dropout */

static double factor_of(size_t place, size_t m, size_t c) {
    const uint64_t stream = bt_rng_u64(DROP_SEED, bt_hash_name("dropout"), DROP_STEP);
    const uint32_t key = (uint32_t)bt_rng_u64(DROP_SEED, stream, DROP_ROW + m),
                   below = (uint32_t)(dropout_p * 65536 + 0.5);
    const size_t half = 12; /* one half of 24 columns */
    const uint32_t word = bt_noise_word(key, (uint32_t)(place * half + c % half));
    return (c < half ? word & 0xffff : word >> 16) < below ? 0 : 65536.0 / (65536 - below);
}

static void set_dropout(double p) {
    dropout_p = p;
    ref_dropout = p > 0 ? factor_of : NULL;
}

static bt_model *model_of(const bt_model_cfg *c, bt_prec prec, bt_recompute recompute) {
    const bt_model_setup s = {.cfg = *c,
                              .B = B,
                              .prec = prec,
                              .train = true,
                              .n_threads = 1,
                              .recompute = recompute,
                              .drops = dropout_p > 0};
    bt_model *m = small_model(&s, 11);
    bt_model_dropout(m, dropout_p, DROP_SEED, DROP_STEP, DROP_ROW);
    bt_model_gradient_passes(m, true);
    const bt_params *p = bt_model_params(m);
    for (size_t i = 0; i < p->n; i++) { /* gains other than one */
        const bt_tensor *t = &p->tensors[i];
        for (size_t k = 0; k < t->count && t->init_std == 0; k++) {
            bt_model_weights(m)[t->offset + k] =
                0.7f + 0.6f * (float)bt_rng_unit(3, bt_hash_name(t->name), k);
        }
    }
    bt_model_quantise(m);
    return m;
}

static double *widen_to_float(const float *x, size_t n) {
    double *d = calloc(n, sizeof *d);
    assert_non_null(d);
    for (size_t i = 0; i < n; i++) d[i] = (double)x[i];
    return d;
}

typedef struct order {
    size_t next, calls;
} order;

/* Checks that the callbacks cover the flat array from its end to its beginning without gaps. */
static void on_ready(void *ctx, size_t begin, size_t end) {
    order *o = ctx;
    assert_int_equal(end, o->next);
    assert_true(begin < end);
    o->next = begin;
    o->calls++;
}

static bool is_attention(const bt_tensor *t) {
    return t->id >= BT_P_ATTN_NORM && t->id <= BT_P_ATTN_O;
}

static void compare_tensors(const bt_model *m, const float *g, const double *ref, double bound,
                            const char *name) {
    const bt_params *p = bt_model_params(m);
    for (size_t i = 0; i < p->n; i++) {
        const bt_tensor *t = &p->tensors[i];
        double diff = 0, norm = 0;
        for (size_t k = t->offset; k < t->offset + t->count; k++) {
            diff += ((double)g[k] - ref[k]) * ((double)g[k] - ref[k]);
            norm += ref[k] * ref[k];
        }
        assert_true(norm > 0 || (diff == 0 && is_attention(t)));
        /* The gradients of keys nearly cancel in their sum over the rows. */
        const double of_this = t->id == BT_P_ATTN_K_BIAS ? 4 * bound : bound;
        if (!(sqrt(diff) <= of_this * sqrt(norm)))
            fail_msg("%s: gradient of %s differs by %.2e of its norm", name, t->name,
                     sqrt(diff / norm));
        size_t end = i + 1 < p->n ? p->tensors[i + 1].offset : p->total;
        for (size_t k = t->offset + t->count; k < end; k++) assert_true(g[k] == 0.0f);
    }
}

/* Settings that save memory give the same bits. */
static void same_from_less(const bt_model_cfg *c, bt_prec prec, double loss, const float *grads) {
    int32_t inputs[B * T], targets[B * T];
    tokens_of(inputs, targets);
    for (int level = BT_RECOMPUTE_SELECTIVE; level <= BT_RECOMPUTE_FULL; level++) {
        bt_model *less = model_of(c, prec, (bt_recompute)level);
        bt_model_zero_grads(less);
        double again = bt_model_train_micro(less, inputs, targets, 0.37, NULL, NULL);
        assert_memory_equal(&again, &loss, sizeof loss);
        assert_memory_equal(bt_model_grads(less), grads,
                            bt_model_params(less)->total * sizeof *grads);
        bt_model_destroy(less);
    }
}

/* Rounds the weights that bf16 training reads rounded (embedding, head, dense layers), on processors that use bf16
 * products. */
static void round_operands_to_bf16(bt_model *m) {
    const bt_params *p = bt_model_params(m);
    for (size_t i = 0; i < p->n; i++) {
        const bt_tensor *t = &p->tensors[i];
        float *w = bt_model_weights(m) + t->offset;
        uint16_t *half = malloc(t->count * sizeof *half);
        assert_non_null(half);
        if (bt_model_read(t, BT_PREC_BF16) == BT_READ_BF16) {
            bt_active_kernels()->to_bf16(half, w, t->count);
            bt_active_kernels()->from_bf16(w, half, t->count);
        }
        free(half);
    }
}

/* Both sides round the weights that products read as bf16; activations saved for the backward pass are rounded, and
 * operands may be rounded. Each tensor's gradient is near that of fp32. */
/* Returns the relative difference of the losses. */
static double check_bf16(const bt_model_cfg *c, double bound) {
    char name[96];
    name_of(name, sizeof name, c);
    int32_t inputs[B * T], targets[B * T];
    tokens_of(inputs, targets);
    bt_model *exact = model_of(c, BT_PREC_FP32, BT_RECOMPUTE_NONE),
             *m = model_of(c, BT_PREC_BF16, BT_RECOMPUTE_NONE);
    size_t total = bt_model_params(m)->total;
    round_operands_to_bf16(exact);
    bt_model_zero_grads(exact);
    bt_model_zero_grads(m);
    double want = bt_model_train_micro(exact, inputs, targets, 0.37, NULL, NULL);
    double got = bt_model_train_micro(m, inputs, targets, 0.37, NULL, NULL);
    /* The tolerance permits one code of a small model that rounds differently; all variants together are compared
     * below. */
    if (!(fabs(got - want) < 1e-2 * want)) fail_msg("%s: loss %.9g, in fp32 %.9g", name, got, want);
    double *ref = widen_to_float(bt_model_grads(exact), total);
    compare_tensors(m, bt_model_grads(m), ref, bound, name);
    same_from_less(c, BT_PREC_BF16, got, bt_model_grads(m));
    free(ref);
    bt_model_destroy(exact);
    bt_model_destroy(m);
    return (got - want) / want;
}

static void check_variant(const bt_model_cfg *c) {
    char name[96];
    name_of(name, sizeof name, c);
    int32_t inputs[B * T], targets[B * T];
    tokens_of(inputs, targets);
    bt_model *m = model_of(c, BT_PREC_FP32, BT_RECOMPUTE_NONE);
    const bt_params *p = bt_model_params(m);
    double *w = widen_to_float(bt_model_weights(m), p->total), *ref = calloc(p->total, sizeof *ref),
           scale = 0.37;
    assert_non_null(ref);
    double want = ref_run(c, p, w, inputs, targets, B, scale, ref, NULL);
    bt_model_zero_grads(m);
    order o = {.next = p->total};
    double got = bt_model_train_micro(m, inputs, targets, scale, on_ready, &o);
    if (!(fabs(got - want) < 2e-5 * want))
        fail_msg("%s: loss %.9g, reference %.9g", name, got, want);
    assert_int_equal(o.next, 0);
    assert_int_equal(o.calls, p->n);
    compare_tensors(m, bt_model_grads(m), ref, 1e-4, name);
    /* In fp32 OpenBLAS adds in an order that depends on the processor and on the rows of a product. */
    const double evaluated = bt_model_eval_micro(m, inputs, targets);
    if (!(fabs(evaluated - got) <= 1e-7 * got))
        fail_msg("%s: loss %.17g, in training %.17g", name, evaluated, got);

    /* Gradients accumulate over micro-batches. */
    float *first = malloc(p->total * sizeof *first);
    assert_non_null(first);
    memcpy(first, bt_model_grads(m), p->total * sizeof *first);
    (void)bt_model_train_micro(m, inputs, targets, scale, NULL, NULL);
    for (size_t i = 0; i < p->total; i++) ref[i] *= 2;
    compare_tensors(m, bt_model_grads(m), ref, 1e-4, name);

    same_from_less(c, BT_PREC_FP32, got, first);
    free(first);
    free(ref);
    free(w);
    bt_model_destroy(m);
}

static void engine_equals_reference(void **state) {
    (void)state;
    for (int norm = BT_NORM_SUBLN; norm <= BT_NORM_PRE; norm++) {
        for (int linear = BT_LIN_BITNET158; linear <= BT_LIN_DENSE; linear++) {
            for (int bits = 0; bits < 8; bits++) {
                bt_model_cfg c =
                    make_variant((bt_norm_kind)norm, bits & 1 ? BT_ACT_SILU : BT_ACT_RELU2,
                                 (bt_linear_kind)linear, (bits & 2) != 0, (bits & 4) != 0);
                check_variant(&c);
                c.scale = BT_SCALE_ROW;
                if (linear == BT_LIN_BITNET158 && bits % 3 == 0) check_variant(&c);
                const bt_model_cfg groups = in_groups(c);
                if (linear == BT_LIN_BITNET158 && bits % 3 == 0) check_variant(&groups);
                c.scale = BT_SCALE_TENSOR;
                c = with_limits(c);
                if (norm == BT_NORM_SUBLN && linear != BT_LIN_BITNET1 && bits < 2)
                    check_variant(&c);
                c = with_biases(c);
                if (norm != BT_NORM_BITLINEAR && linear != BT_LIN_BITNET1 && bits % 5 < 2)
                    check_variant(&c);
                c = like_gemma(c);
                if (linear != BT_LIN_BITNET1 && bits % 3 == 0) check_variant(&c);
            }
        }
    }
}

/* Dropout changes gradients, losses and recomputed activations, but no validation. */
static void dropout_equals_reference(void **state) {
    (void)state;
    int32_t inputs[B * T], targets[B * T];
    tokens_of(inputs, targets);
    for (int norm = BT_NORM_SUBLN; norm <= BT_NORM_PRE; norm++) {
        for (int linear = BT_LIN_BITNET158; linear <= BT_LIN_DENSE; linear += 2) {
            const bt_model_cfg c = make_variant((bt_norm_kind)norm, BT_ACT_SILU,
                                                (bt_linear_kind)linear, linear == BT_LIN_DENSE,
                                                false);
            set_dropout(0);
            bt_model *plain = model_of(&c, BT_PREC_FP32, BT_RECOMPUTE_NONE);
            set_dropout(0.3);
            check_variant(&c);
            const bt_model_cfg normed = like_gemma(c);
            check_variant(&normed);
            bt_model *m = model_of(&c, BT_PREC_FP32, BT_RECOMPUTE_NONE);
            const double trained = bt_model_eval_micro(m, inputs, targets);
            bt_model_gradient_passes(m, false);
            const double evaluated = bt_model_eval_micro(m, inputs, targets),
                         want = bt_model_eval_micro(plain, inputs, targets);
            assert_true(trained != want && evaluated == want);
            bt_model_destroy(m);
            bt_model_destroy(plain);
        }
    }
    set_dropout(0);
}

static void bf16_with(const char *isa, double bound) {
    bt_err err = BT_ERR_INIT;
    double squares = 0;
    int n = 0;
    if (bt_kernels_select(isa, &err) != BT_OK) fail_msg("%s", err.msg);
    for (int norm = BT_NORM_SUBLN; norm <= BT_NORM_PRE; norm++) {
        for (int linear = BT_LIN_BITNET158; linear <= BT_LIN_DENSE; linear++) {
            for (int bits = 0; bits < 8; bits++) {
                bt_model_cfg c =
                    make_variant((bt_norm_kind)norm, bits & 1 ? BT_ACT_SILU : BT_ACT_RELU2,
                                 (bt_linear_kind)linear, (bits & 2) != 0, (bits & 4) != 0);
                if (bits == 2) c = with_biases(c);
                if (bits == 4) c = like_gemma(c);
                double off = check_bf16(&c, bound);
                squares += off * off;
                n++;
            }
        }
    }
    if (!(sqrt(squares / n) < 2.5e-3))
        fail_msg("%s: losses are %.2e from fp32's, root mean square of %d models", isa,
                 sqrt(squares / n), n);
}

/* Generic kernels use float operands, so only saved values differ. Other sets also round operands of attention, which
 * changes some int8 inputs: few in a usual model, many in a model of two layers and 24 columns. */
static void bf16_is_near_and_recomputed_alike(void **state) {
    (void)state;
    const char *isa = getenv("BT_TEST_ISA");
    bf16_with("generic", 0.05);
    bf16_with(isa ? isa : "auto", 0.4);
}

/* Compares d loss / d t of w + t * direction at 0 with central differences, for every tensor and a random direction. */
static void reference_equals_finite_differences(void **state) {
    (void)state;
    int32_t inputs[B * T], targets[B * T];
    tokens_of(inputs, targets);
    for (int norm = BT_NORM_SUBLN; norm <= BT_NORM_PRE; norm++) {
        for (int bits = 0; bits < 8; bits++) {
            bt_model_cfg c = make_variant((bt_norm_kind)norm, bits & 1 ? BT_ACT_SILU : BT_ACT_RELU2,
                                          BT_LIN_DENSE, (bits & 2) != 0, (bits & 4) != 0);
            if (bits > 5) c = with_limits(c);
            set_dropout(bits == 3 ? 0.3 : 0);
            if (bits % 3 == 1) c = with_biases(c);
            if (bits % 4 == 3) c = like_gemma(c);
            char name[96];
            name_of(name, sizeof name, &c);
            bt_model *m = model_of(&c, BT_PREC_FP32, BT_RECOMPUTE_NONE);
            const bt_params *p = bt_model_params(m);
            double *w = widen_to_float(bt_model_weights(m), p->total),
                   *g = calloc(p->total, sizeof *g), *at = calloc(p->total, sizeof *at);
            assert_non_null(g);
            assert_non_null(at);
            (void)ref_run(&c, p, w, inputs, targets, B, 1.0, g, NULL);
            for (size_t i = 0; i < p->n; i++) {
                const bt_tensor *t = &p->tensors[i];
                double slope = 0, loss[2], h = 1e-5;
                for (int side = 0; side < 2; side++) {
                    memcpy(at, w, p->total * sizeof *at);
                    for (size_t k = 0; k < t->count; k++)
                        at[t->offset + k] += (side ? h : -h) * (bt_rng_unit(9, i, k) - 0.5);
                    loss[side] = ref_run(&c, p, at, inputs, targets, B, 1.0, NULL, NULL);
                }
                for (size_t k = 0; k < t->count; k++)
                    slope += g[t->offset + k] * (bt_rng_unit(9, i, k) - 0.5);
                double measured = (loss[1] - loss[0]) / (2 * h);
                if (!(fabs(measured - slope) < 1e-6 + 1e-5 * fabs(slope)))
                    fail_msg("%s: %s: slope %.9g, measured %.9g", name, t->name, slope, measured);
            }
            free(at);
            free(g);
            free(w);
            bt_model_destroy(m);
        }
    }
    set_dropout(0);
}

/* Compares the engine's gradient with its own loss; in fp32 the tolerance is larger. */
static void check_slopes(const bt_model_cfg *c) {
    int32_t inputs[B * T], targets[B * T];
    tokens_of(inputs, targets);
    bt_model *m = model_of(c, BT_PREC_FP32, BT_RECOMPUTE_NONE);
    const bt_params *p = bt_model_params(m);
    bt_model_zero_grads(m);
    order o = {.next = p->total};
    (void)bt_model_train_micro(m, inputs, targets, 1.0, on_ready, &o);
    assert_int_equal(o.next, 0);
    for (size_t i = 0; i < p->n; i++) {
        const bt_tensor *t = &p->tensors[i];
        float *w = bt_model_weights(m) + t->offset, *g = bt_model_grads(m) + t->offset;
        double norm2 = 0, loss[2];
        for (size_t k = 0; k < t->count; k++) norm2 += (double)g[k] * (double)g[k];
        /* The step is along the gradient, so that the loss changes by 0.04 |g|. */
        float h = (float)(0.02 / sqrt(norm2));
        float *keep = malloc(t->count * sizeof *keep);
        assert_non_null(keep);
        memcpy(keep, w, t->count * sizeof *keep);
        for (int side = 0; side < 2; side++) {
            for (size_t k = 0; k < t->count; k++)
                w[k] = keep[k] + (side ? h : -h) * 0.5f * g[k] / (float)sqrt(norm2);
            loss[side] = bt_model_eval_micro(m, inputs, targets);
        }
        memcpy(w, keep, t->count * sizeof *keep);
        free(keep);
        double measured = (loss[1] - loss[0]) / (double)h, slope = sqrt(norm2);
        if (!(fabs(measured - slope) < 0.02 * slope))
            fail_msg("%s: slope %.6g, measured %.6g", t->name, slope, measured);
    }
    bt_model_destroy(m);
}

/* Counts the learned targets of one batch. */
static void count_followers(bt_followers *f, const int32_t *inputs, const int32_t *targets) {
    uint32_t n = 0;
    for (int32_t t = 0; t < V; t++) {
        const uint32_t row = n;
        float all = 0;
        f->at[t] = n;
        for (int32_t v = 0; v < V; v++) {
            float times = 0;
            for (size_t i = 0; i < B * T; i++) times += inputs[i] == t && targets[i] == v;
            if (times == 0) continue;
            f->token[n] = v;
            f->share[n++] = times;
            all += times;
        }
        for (uint32_t i = row; i < n; i++) f->share[i] /= all;
    }
    f->at[V] = n;
}

static float *gradient_of(bt_model *m, const int32_t *inputs, const int32_t *targets,
                          bt_follower_targets how) {
    const bt_params *p = bt_model_params(m);
    float *g = malloc(p->total * sizeof *g);
    assert_non_null(g);
    bt_model_follower_targets(m, how);
    bt_model_zero_grads(m);
    (void)bt_model_train_micro(m, inputs, targets, 0.5, NULL, NULL);
    memcpy(g, bt_model_grads(m), p->total * sizeof *g);
    return g;
}

/* A weight of 0.25 mixes a quarter of the gradient of the shares with three quarters of the gradient of the targets. */
static void shares_are_mixed(bt_model *m, const bt_followers *f, const int32_t *inputs,
                             const int32_t *targets) {
    const bt_params *p = bt_model_params(m);
    float *target = gradient_of(m, inputs, targets, (bt_follower_targets){0}),
          *share = gradient_of(m, inputs, targets, (bt_follower_targets){f, 1}),
          *mixed = gradient_of(m, inputs, targets, (bt_follower_targets){f, 0.25f});
    double *want = calloc(p->total, sizeof *want), apart = 0;
    assert_non_null(want);
    for (size_t i = 0; i < p->total; i++) {
        want[i] = 0.25 * (double)share[i] + 0.75 * (double)target[i];
        apart = fmax(apart, fabs((double)share[i] - (double)target[i]));
    }
    assert_true(apart > 1e-3);
    compare_tensors(m, mixed, want, 1e-4, "mixed");
    free(target);
    free(share);
    free(mixed);
    free(want);
}

static void zero_attention_projection(const bt_model *m, float *of) {
    const bt_params *p = bt_model_params(m);
    for (size_t i = 0; i < p->n; i++)
        if (p->tensors[i].id == BT_P_ATTN_O)
            memset(of + p->tensors[i].offset, 0, p->tensors[i].count * sizeof *of);
}

/* If attention adds nothing, equal inputs have equal outputs, so the counts of a batch have the gradient of its
 * targets, except for the projection of attention. The loss is always that of the targets. */
static void shares_of_the_batch_have_its_gradient(void **state) {
    (void)state;
    int32_t inputs[B * T], targets[B * T], token[B * T];
    uint32_t at[V + 1] = {0};
    float share[B * T];
    const bt_followers none = {.at = at};
    tokens_of(inputs, targets);
    for (size_t i = 0; i < B * T; i++) inputs[i] %= 4; /* each token several times */
    for (int bits = 0; bits < 4; bits++) {
        bt_model_cfg c = make_variant(bits & 1 ? BT_NORM_PRE : BT_NORM_SUBLN, BT_ACT_RELU2,
                                      BT_LIN_BITNET158, bits & 2, false);
        bt_model *m = model_of(&c, BT_PREC_FP32, BT_RECOMPUTE_NONE);
        const bt_params *p = bt_model_params(m);
        uint32_t counted_at[V + 1];
        bt_followers counted = {counted_at, token, share};
        double loss[2], *want;
        zero_attention_projection(m, bt_model_weights(m));
        bt_model_quantise(m);
        count_followers(&counted, inputs, targets);
        assert_true(counted.at[V] > 8);
        bt_model_follower_targets(m, (bt_follower_targets){&none, 1});
        bt_model_zero_grads(m);
        loss[0] = bt_model_train_micro(m, inputs, targets, 0.5, NULL, NULL);
        zero_attention_projection(m, bt_model_grads(m));
        want = widen_to_float(bt_model_grads(m), p->total);
        bt_model_follower_targets(m, (bt_follower_targets){&counted, 1});
        bt_model_zero_grads(m);
        loss[1] = bt_model_train_micro(m, inputs, targets, 0.5, NULL, NULL);
        assert_true(loss[0] == loss[1]);
        zero_attention_projection(m, bt_model_grads(m));
        compare_tensors(m, bt_model_grads(m), want, 1e-4, "shares");
        /* Other counts give another gradient. */
        counted.token[0] = (counted.token[0] + 1) % V;
        bt_model_zero_grads(m);
        (void)bt_model_train_micro(m, inputs, targets, 0.5, NULL, NULL);
        double apart = 0;
        for (size_t i = 0; i < p->total; i++)
            apart = fmax(apart, fabs((double)bt_model_grads(m)[i] - want[i]));
        assert_true(apart > 1e-3);
        shares_are_mixed(m, &counted, inputs, targets);
        free(want);
        bt_model_destroy(m);
    }
}

static void engine_equals_its_finite_differences(void **state) {
    (void)state;
    for (int norm = BT_NORM_SUBLN; norm <= BT_NORM_PRE; norm++) {
        const bt_model_cfg c = make_variant((bt_norm_kind)norm, BT_ACT_SILU, BT_LIN_DENSE,
                                            norm == BT_NORM_PRE, norm != BT_NORM_SUBLN);
        check_slopes(&c);
    }
}

static int start(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    const char *isa = getenv("BT_TEST_ISA");
    return bt_kernels_select(isa ? isa : "auto", &err) != BT_OK ||
           bt_threads_init(2, &err) != BT_OK;
}

static int stop(void **state) {
    (void)state;
    bt_ops_release();
    bt_threads_release();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference_equals_finite_differences),
        cmocka_unit_test(engine_equals_reference),
        cmocka_unit_test(dropout_equals_reference),
        cmocka_unit_test(engine_equals_its_finite_differences),
        cmocka_unit_test(shares_of_the_batch_have_its_gradient),
        cmocka_unit_test(bf16_is_near_and_recomputed_alike),
    };
    return cmocka_run_group_tests(tests, start, stop);
}

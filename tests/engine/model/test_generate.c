/* Decoding: logits with the key-value cache equal those of the whole network, a full cache drops its older half, and
 * sampling follows the documented probabilities. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engine/base/rng.h"
#include "engine/base/threads.h"
#include "engine/generate/generate.h"
#include "engine/kernels/ops/ops.h"
#include "tests/engine/model/engine_fixture.h"
#include "tests/engine/model/ref_model.h"
#include "tests/message.h"

enum { T = 11, V = 29 };

static bt_model *model_of(const bt_model_cfg *c, int B, bool train) {
    bt_model *m = NULL;
    bt_err err = BT_ERR_INIT;
    bt_model_setup s = {.cfg = *c, .B = B, .prec = BT_PREC_FP32, .train = train, .n_threads = 1};
    if (bt_model_create(&m, &s, &err) != BT_OK) fail_msg("%s", err.msg);
    bt_model_init_weights(m, 11);
    bt_model_quantise(m);
    return m;
}

static bt_model_cfg small_model_cfg(bt_norm_kind norm, bt_linear_kind linear, bool qk) {
    return (bt_model_cfg){.L = 2,
                          .C = 24,
                          .H = 4,
                          .KV = 2,
                          .D = 10,
                          .F = 37,
                          .T = T,
                          .V = V,
                          .norm = norm,
                          .act = qk ? BT_ACT_SILU : BT_ACT_RELU2,
                          .window = qk ? 4 : 0,
                          .linear = linear,
                          .tied = !qk,
                          .qk_norm = qk,
                          .rope_theta = 100,
                          .norm_eps = 1e-5,
                          .init_std = 0.25};
}

static bt_gen *gen_of(bt_model *m) {
    bt_gen *g = NULL;
    bt_err err = BT_ERR_INIT;
    if (bt_gen_create(&g, m, &err) != BT_OK) fail_msg("%s", err.msg);
    return g;
}

static void feed_tokens(bt_gen *g, const int32_t *tokens, size_t n) {
    bt_err err = BT_ERR_INIT;
    if (bt_gen_feed(g, tokens, n, &err) != BT_OK) fail_msg("%s", err.msg);
}

static void expect_logits(const bt_gen *g, const double *want, const char *what) {
    double diff = 0, norm = 0;
    for (size_t v = 0; v < V; v++) {
        diff += ((double)bt_gen_logits(g)[v] - want[v]) * ((double)bt_gen_logits(g)[v] - want[v]);
        norm += want[v] * want[v];
    }
    if (!(sqrt(diff) < 1e-4 * sqrt(norm)))
        fail_msg("%s: logits differ by %.2e of their norm", what, sqrt(diff / norm));
}

/* Decodes token by token, the whole prompt at once, and the prompt in pieces, with a model for inference and one for
 * training. */
static void cached_logits_equal_the_whole_forward(void **state) {
    (void)state;
    int32_t tokens[T], targets[T];
    for (size_t i = 0; i < T; i++) {
        tokens[i] = (int32_t)(bt_rng_u64(4, 0, i) % V);
        targets[i] = 0;
    }
    for (int norm = BT_NORM_SUBLN; norm <= BT_NORM_PRE; norm++) {
        for (int linear = BT_LIN_BITNET158; linear <= BT_LIN_DENSE; linear++) {
            for (int bits = 0; bits < 4; bits++) {
                bt_model_cfg c = small_model_cfg((bt_norm_kind)norm, (bt_linear_kind)linear,
                                                 bits & 1);
                bt_model *m = model_of(&c, bits & 2 ? 2 : 1, (bits & 2) != 0);
                const bt_params *p = bt_model_params(m);
                double *w = calloc(p->total, sizeof *w), want[T * V];
                assert_non_null(w);
                for (size_t i = 0; i < p->total; i++) w[i] = (double)bt_model_weights(m)[i];
                (void)ref_run(&c, p, w, tokens, targets, 1, 1.0, NULL, want);
                free(w);
                bt_gen *g = gen_of(m);
                for (size_t t = 0; t < T; t++) {
                    feed_tokens(g, tokens + t, 1);
                    expect_logits(g, want + t * V, "one by one");
                }
                bt_gen_reset(g);
                feed_tokens(g, tokens, 6);
                expect_logits(g, want + 5 * V, "prompt");
                feed_tokens(g, tokens + 6, 3);
                expect_logits(g, want + 8 * V, "second piece");
                feed_tokens(g, tokens + 9, 1);
                expect_logits(g, want + 9 * V, "after it");
                bt_gen_reset(g);
                feed_tokens(g, tokens, T);
                expect_logits(g, want + (T - 1) * V, "full context");
                bt_gen_destroy(g);
                bt_model_destroy(m);
            }
        }
    }
}

static void a_full_cache_drops_its_older_half(void **state) {
    (void)state;
    bt_model_cfg c = small_model_cfg(BT_NORM_SUBLN, BT_LIN_BITNET158, false);
    bt_model *m = model_of(&c, 1, false);
    bt_gen *g = gen_of(m), *fresh = gen_of(m);
    int32_t tokens[3 * T + 2];
    for (size_t i = 0; i < 3 * T + 2; i++) tokens[i] = (int32_t)(bt_rng_u64(6, 0, i) % V);
    feed_tokens(g, tokens, T); /* The cache is full; the next token keeps the newer half. */
    feed_tokens(g, tokens + T, 1);
    feed_tokens(fresh, tokens + T - T / 2, T / 2 + 1);
    double want[V];
    for (size_t v = 0; v < V; v++) want[v] = (double)bt_gen_logits(fresh)[v];
    expect_logits(g, want, "after sliding");
    feed_tokens(g, tokens + T + 1, 2 * T + 1); /* more tokens at once than the context holds */
    for (size_t v = 0; v < V; v++) assert_true(isfinite(bt_gen_logits(g)[v]));
    bt_gen_destroy(fresh);
    bt_gen_destroy(g);
    bt_model_destroy(m);
}

/* Compares the frequencies of each token over many seeds with the probabilities after top-k and top-p. */
static void sampling_follows_the_probabilities(void **state) {
    (void)state;
    bt_model_cfg c = small_model_cfg(BT_NORM_PRE, BT_LIN_BITNET158, true);
    bt_model *m = model_of(&c, 1, false);
    bt_gen *g = gen_of(m);
    const int32_t prompt[] = {3, 1, 4, 1, 5};
    feed_tokens(g, prompt, 5);
    const struct {
        double temperature, top_p;
        int top_k;
    } cases[] = {
        {1.0, 1.0, 0}, {3.0, 0, 0},    {3.0, 1.0, 5},          {3.0, 0.7, 0},
        {3.0, 0.6, 6}, {1.0, 1e-9, 0}, {3.0, 0.999999, V - 1}, {1.5, 2.0, 1000},
    };
    enum { DRAWS = 20000 };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double p[V], sum = 0, kept = 0;
        int order[V];
        for (int v = 0; v < V; v++) {
            sum += p[v] = exp((double)bt_gen_logits(g)[v] / cases[i].temperature);
            order[v] = v;
        }
        for (int a = 0; a < V; a++) { /* the likeliest token first */
            for (int b = a + 1; b < V; b++) {
                if (p[order[b]] > p[order[a]]) {
                    int t = order[a];
                    order[a] = order[b];
                    order[b] = t;
                }
            }
        }
        int n = cases[i].top_k > 0 && cases[i].top_k < V ? cases[i].top_k : V, left = 0;
        sum = 0;
        for (int a = 0; a < n; a++) sum += p[order[a]];
        double top_p = fmin(cases[i].top_p, 1); /* 0: the likeliest token */
        while (left < n && (left == 0 || kept < top_p * sum)) kept += p[order[left++]];
        for (int a = 0; a < V; a++) p[order[a]] = a < left ? p[order[a]] / kept : 0;
        int count[V] = {0};
        for (uint64_t seed = 0; seed < DRAWS; seed++) {
            bt_sampling s = {.temperature = cases[i].temperature,
                             .top_k = cases[i].top_k,
                             .top_p = cases[i].top_p,
                             .seed = seed};
            int32_t t = bt_gen_sample(g, &s);
            assert_in_range(t, 0, V - 1);
            count[t]++;
            /* The same seed gives the same token. */
            if (seed < 50) assert_int_equal(t, bt_gen_sample(g, &s));
        }
        for (int v = 0; v < V; v++) {
            double sigma = sqrt(DRAWS * p[v] * (1 - p[v]));
            if (!(fabs(count[v] - DRAWS * p[v]) <= 5 * sigma + 1e-6))
                fail_msg("case %zu: token %d drawn %d times, expected %.1f", i, v, count[v],
                         DRAWS * p[v]);
        }
    }
    bt_sampling greedy = {.temperature = 0}, one = {.temperature = 1, .top_k = 1, .top_p = 1};
    int32_t best = 0;
    for (int32_t v = 1; v < V; v++) best = bt_gen_logits(g)[v] > bt_gen_logits(g)[best] ? v : best;
    assert_int_equal(bt_gen_sample(g, &greedy), best);
    assert_int_equal(bt_gen_sample(g, &one), best);
    bt_gen_destroy(g);
    bt_model_destroy(m);
}

static void a_seed_gives_one_text(void **state) {
    (void)state;
    bt_model_cfg c = small_model_cfg(BT_NORM_SUBLN, BT_LIN_BITNET158, false);
    bt_model *m = model_of(&c, 1, false);
    int32_t text[3][40];
    const int32_t start_token = 7;
    for (int i = 0; i < 3; i++) {
        bt_threads_release();
        bt_err err = BT_ERR_INIT;
        assert_int_equal(bt_threads_init(1 + i % 2, &err), BT_OK);
        bt_gen *g = gen_of(m);
        bt_sampling s = {.temperature = 2.0, .top_p = 0.95, .seed = i < 2 ? 1 : 2};
        feed_tokens(g, &start_token, 1);
        for (int t = 0; t < 40; t++) assert_int_equal(bt_gen_next(g, &s, &text[i][t], &err), BT_OK);
        bt_gen_destroy(g);
    }
    assert_memory_equal(text[0], text[1], sizeof text[0]);
    assert_memory_not_equal(text[0], text[2], sizeof text[0]);
    bt_model_destroy(m);
}

static void bad_prompts_are_named(void **state) {
    (void)state;
    bt_model_cfg c = small_model_cfg(BT_NORM_SUBLN, BT_LIN_BITNET158, false);
    bt_model *m = model_of(&c, 1, false);
    bt_gen *g = gen_of(m);
    bt_err err = BT_ERR_INIT;
    const int32_t tokens[] = {1, 2, V}, negative[] = {-1};
    assert_int_equal(bt_gen_feed(g, tokens, 3, &err), BT_ARG);
    message_has(err.msg, "token 29 at position 2 is outside the");
    assert_int_equal(bt_gen_feed(g, negative, 1, &err), BT_ARG);
    assert_int_equal(bt_gen_feed(g, tokens, 0, &err), BT_ARG);
    bt_gen_destroy(g);
    bt_gen_destroy(NULL);
    bt_model_destroy(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cached_logits_equal_the_whole_forward),
        cmocka_unit_test(a_full_cache_drops_its_older_half),
        cmocka_unit_test(sampling_follows_the_probabilities),
        cmocka_unit_test(a_seed_gives_one_text),
        cmocka_unit_test(bad_prompts_are_named),
    };
    return cmocka_run_group_tests(tests, engine_start, engine_stop);
}

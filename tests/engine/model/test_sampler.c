/* Sampling: every limit (top-k, top-p, ...) alone and all together compared with a sorted list of probabilities, the
 * penalty with its formula, and frequencies with the remaining probabilities. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/base/rng.h"
#include "engine/model/net/sampler.h"

enum { V = 23, DRAWS = 20000 };

typedef struct entry {
    double p;
    int token;
} entry;

static int by_probability(const void *a, const void *b) {
    const entry *x = a, *y = b;
    if (x->p != y->p) return x->p < y->p ? 1 : -1;
    return x->token - y->token;
}

static double sum_of(const entry *e, int n) {
    double s = 0;
    for (int i = 0; i < n; i++) s += e[i].p;
    return s;
}

/* Computes the remaining probabilities by sorting, in the documented order of the limits. */
static void remaining_probabilities(double out[V], const float *logits, const bt_sampling *how,
                                    bt_history h) {
    double l[V];
    entry e[V];
    bool had[V] = {false};
    for (int i = 0; i < V; i++) l[i] = (double)logits[i];
    for (size_t i = 0; i < h.n; i++) had[h.tokens[i]] = true;
    for (int i = 0; i < V; i++) {
        if (had[i] && how->repetition_penalty > 0)
            l[i] = l[i] > 0 ? l[i] / how->repetition_penalty : l[i] * how->repetition_penalty;
        e[i] = (entry){exp(l[i] / how->temperature), i};
    }
    qsort(e, V, sizeof *e, by_probability);
    int n = V;
    if (how->top_k > 0 && how->top_k < n) n = how->top_k;
    if (how->top_p < 1) {
        const double total = sum_of(e, n);
        int keep = 1;
        while (keep < n && sum_of(e, keep) < how->top_p * total) keep++;
        n = keep;
    }
    while (n > 1 && e[n - 1].p < how->min_p * e[0].p) n--;
    const double total = sum_of(e, n);
    memset(out, 0, V * sizeof *out);
    for (int i = 0; i < n; i++) out[e[i].token] = e[i].p / total;
}

static void random_logits(float *logits, uint64_t seed) {
    for (uint64_t i = 0; i < V; i++) logits[i] = (float)(8 * bt_rng_unit(seed, 1, i) - 4);
}

static const bt_sampling cases[] = {
    {.temperature = 1, .top_p = 1},
    {.temperature = 0.3, .top_p = 1},
    {.temperature = 3, .top_p = 1},
    {.temperature = 1, .top_k = 1, .top_p = 1},
    {.temperature = 2, .top_k = 5, .top_p = 1},
    {.temperature = 2, .top_k = V + 10, .top_p = 1},
    {.temperature = 2, .top_p = 0.6},
    {.temperature = 1, .top_p = 1e-9},
    {.temperature = 3, .min_p = 0.2, .top_p = 1},
    {.temperature = 1, .min_p = 1, .top_p = 1},
    {.temperature = 3, .min_p = 1e-12, .top_p = 1},
    {.temperature = 1, .repetition_penalty = 1.5, .top_p = 1},
    {.temperature = 1, .repetition_penalty = 0.5, .top_p = 1},
    {.temperature = 1, .repetition_penalty = 1, .top_p = 1},
    {.temperature = 2, .top_k = 9, .top_p = 0.8},
    {.temperature = 2, .top_k = 9, .top_p = 0.9, .min_p = 0.3, .repetition_penalty = 1.3},
    {.temperature = 2, .top_p = 0.9, .min_p = 0.05, .repetition_penalty = 2},
    {.temperature = 2, .top_p = 0},
};

static void draws_follow_the_remaining_probabilities(void **state) {
    (void)state;
    static const int32_t had[] = {3, 5, 3, 3, 17, 22, 0, 5};
    const bt_history h = {had, sizeof had / sizeof *had};
    bt_sampler *s = NULL;
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_sampler_create(&s, V, &err), BT_OK);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        float logits[V];
        double p[V];
        int count[V] = {0};
        random_logits(logits, 40 + c);
        remaining_probabilities(p, logits, &cases[c], h);
        for (uint64_t draw = 0; draw < DRAWS; draw++) {
            const int32_t t = bt_sampler_draw(s, logits, &cases[c], h, draw);
            assert_in_range(t, 0, V - 1);
            count[t]++;
            if (draw < 20) assert_int_equal(t, bt_sampler_draw(s, logits, &cases[c], h, draw));
        }
        for (int v = 0; v < V; v++) {
            const double sigma = sqrt(DRAWS * p[v] * (1 - p[v]));
            if (!(fabs(count[v] - DRAWS * p[v]) <= 5 * sigma + 1e-6))
                fail_msg("case %zu: token %d drawn %d times, expected %.1f", c, v, count[v],
                         DRAWS * p[v]);
        }
    }
    bt_sampler_destroy(s);
    bt_sampler_destroy(NULL);
}

static void greedy_takes_the_likeliest_after_the_penalty(void **state) {
    (void)state;
    float logits[V] = {0};
    bt_sampler *s = NULL;
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_sampler_create(&s, V, &err), BT_OK);
    logits[4] = 2.0f;
    logits[9] = 1.8f;
    const int32_t had[] = {4};
    const bt_sampling plain = {0}, penalised = {.repetition_penalty = 1.2};
    assert_int_equal(bt_sampler_draw(s, logits, &plain, (bt_history){had, 1}, 0), 4);
    assert_int_equal(bt_sampler_draw(s, logits, &penalised, (bt_history){had, 1}, 0), 9);
    assert_int_equal(bt_sampler_draw(s, logits, &penalised, (bt_history){NULL, 0}, 0), 4);
    for (int i = 0; i < V; i++)
        logits[i] = -1; /* The smaller of two tokens with equal logits is chosen first. */
    logits[11] = logits[7] = 1;
    assert_int_equal(bt_sampler_draw(s, logits, &plain, (bt_history){NULL, 0}, 0), 7);
    bt_sampler_destroy(s);
}

static void log_probabilities_and_ranks(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 50; seed++) {
        float logits[V];
        double sum = 0;
        entry e[V];
        bt_ranked r[V];
        random_logits(logits, seed);
        if (seed % 3 == 0) logits[5] = logits[11] = logits[2] = 1;
        for (int i = 0; i < V; i++) {
            sum += exp((double)logits[i]);
            e[i] = (entry){(double)logits[i], i};
        }
        assert_true(fabs(bt_log_sum_exp(logits, V) - log(sum)) < 1e-12 * fabs(log(sum)) + 1e-12);
        qsort(e, V, sizeof *e, by_probability);
        const size_t sizes[] = {0, 1, 5, V};
        for (size_t k = 0; k < 4; k++) {
            bt_likeliest(r, sizes[k], logits, V);
            for (size_t i = 0; i < sizes[k]; i++) {
                assert_int_equal(r[i].token, e[i].token);
                assert_true((double)r[i].logit == e[i].p);
            }
        }
    }
    const float huge[] = {1000, 1000};
    assert_true(fabs(bt_log_sum_exp(huge, 2) - (1000 + log(2))) < 1e-9);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_follow_the_remaining_probabilities),
        cmocka_unit_test(greedy_takes_the_likeliest_after_the_penalty),
        cmocka_unit_test(log_probabilities_and_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

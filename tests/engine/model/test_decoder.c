/* Decoding of many sequences at once gives the logits of each sequence alone, whatever sequences share a step and in
 * whatever portions a prompt is read. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/base/rng.h"
#include "engine/base/threads.h"
#include "engine/kernels/ops/ops.h"
#include "engine/model/net/decoder.h"
#include "tests/engine/model/engine_fixture.h"
#include "tests/engine/model/small_model.h"

enum { T = 24, V = 61, SLOTS = 7 };

static bt_model *model_of(bt_linear_kind linear, bt_scale_kind scale, bt_prec prec, bool train) {
    bt_model_setup s = small_setup(2, T, V, 64, 96);
    s.cfg.linear = linear;
    s.cfg.scale = scale;
    s.cfg.init_std = 0.25;
    s.prec = prec;
    s.train = train;
    bt_model *m = small_model(&s, 5);
    bt_model_quantise(m);
    return m;
}

static bt_decoder *decoder_of(bt_model *m, int slots) {
    bt_decoder *d = NULL;
    bt_err err = BT_ERR_INIT;
    if (bt_decoder_create(&d, m, slots, &err) != BT_OK) fail_msg("%s", err.msg);
    return d;
}

typedef struct got {
    float logits[SLOTS][T][V];
    const bt_decode_part *parts;
    size_t at[SLOTS]; /* number of earlier tokens, by slot */
    size_t calls;
} got;

static void copy_decoded_logits(void *ctx, size_t part, size_t i, const float *logits) {
    got *g = ctx;
    const int slot = g->parts[part].slot;
    memcpy(g->logits[slot][g->at[slot] + i], logits, sizeof g->logits[0][0]);
    g->calls++;
}

static void decode_step(bt_decoder *d, const bt_decode_part *parts, size_t n, got *g) {
    g->parts = parts;
    for (size_t p = 0; p < n; p++) g->at[parts[p].slot] = bt_decoder_length(d, parts[p].slot);
    bt_decoder_step(d, parts, n, copy_decoded_logits, g);
}

static double difference(const float *a, const float *b) {
    double diff = 0, norm = 0;
    for (size_t v = 0; v < V; v++) {
        diff += ((double)a[v] - (double)b[v]) * ((double)a[v] - (double)b[v]);
        norm += (double)b[v] * (double)b[v];
    }
    return sqrt(diff / norm);
}

static void other_sequences_change_nothing(void **state) {
    (void)state;
    static got together, alone;
    for (int k = 0; k < 9; k++) {
        const bt_linear_kind linear = k % 2 ? BT_LIN_DENSE : BT_LIN_BITNET158;
        const bt_prec prec = k / 2 == 1 ? BT_PREC_BF16 : BT_PREC_FP32;
        /* Attention of a prompt, dense layers and a shared head round to bf16, and a rounded input may change an int8
         * code. The logits of another row would differ by about 1. */
        const double bound = prec == BT_PREC_BF16 ? 0.1 : 1e-5;
        const bt_scale_kind scale = k == 6   ? BT_SCALE_ROW
                                    : k == 8 ? BT_SCALE_GROUP32
                                             : BT_SCALE_TENSOR;
        bt_model *m = model_of(linear, scale, prec, k / 2 == 2);
        bt_decoder *d = decoder_of(m, SLOTS), *one = decoder_of(m, 1);
        int32_t tokens[SLOTS][T];
        for (uint64_t i = 0; i < SLOTS * T; i++)
            tokens[i / T][i % T] = (int32_t)(bt_rng_u64(9, (uint64_t)k, i) % V);
        for (int round = 0; round < 2; round++) { /* the second round uses the slots again */
            size_t have[SLOTS] = {0}, draw = 0;
            for (int s = 0; s < SLOTS; s++) bt_decoder_clear(d, s);
            for (size_t left = SLOTS * T; left > 0;) {
                bt_decode_part parts[SLOTS];
                size_t n = 0, rows = 0;
                for (int s = 0; s < SLOTS; s++) {
                    size_t take_n = bt_rng_u64(3 + (uint64_t)round, 1, draw++) % 6;
                    if (take_n == 5) take_n = 12;
                    if (take_n > T - have[s]) take_n = T - have[s];
                    if (take_n == 0 || rows + take_n > bt_decoder_rows(d)) continue;
                    parts[n++] = (bt_decode_part){s, tokens[s] + have[s], take_n, BT_LOGITS_ALL, 0};
                    have[s] += take_n;
                    rows += take_n;
                }
                together.calls = 0;
                decode_step(d, parts, n, &together);
                assert_int_equal(together.calls, rows);
                left -= rows;
            }
            for (int s = 0; s < SLOTS; s++) {
                assert_int_equal(bt_decoder_length(d, s), T);
                bt_decoder_clear(one, 0);
                for (size_t t = 0; t < T; t++) {
                    const bt_decode_part part = {0, tokens[s] + t, 1, BT_LOGITS_LAST, 0};
                    decode_step(one, &part, 1, &alone);
                    const double diff = difference(together.logits[s][t], alone.logits[0][t]);
                    if (!(diff < bound))
                        fail_msg("kind %d slot %d token %zu: logits differ by %.2e", k, s, t, diff);
                }
            }
        }
        bt_decoder_destroy(one);
        bt_decoder_destroy(d);
        bt_model_destroy(m);
    }
}

/* A model whose rotary frequencies depend on the length of a text: a text that grows token by token beyond the length
 * at which they change, one that was rewound below it, and a prompt in portions have the logits of the same text read
 * at once. */
static void rotation_follows_the_length(void **state) {
    (void)state;
    enum { CONTEXT = 10 };
    static got once, steps;
    bt_model_setup s = small_setup(2, T, V, 64, 96);
    s.cfg.linear = BT_LIN_DENSE;
    s.cfg.init_std = 0.25;
    s.cfg.rotary_dim = 4;
    s.cfg.rope = (bt_rope_scaling){.method = BT_ROPE_LONGROPE,
                                   .factor = 4,
                                   .context = CONTEXT,
                                   .shorter = {2, {1, 1}},
                                   .longer = {2, {2, 9}}};
    bt_model *m = small_model(&s, 5);
    bt_decoder *d = decoder_of(m, 2);
    int32_t tokens[T];
    for (uint64_t i = 0; i < T; i++) tokens[i] = (int32_t)(bt_rng_u64(9, 1, i) % V);
    for (size_t t = 0; t < T; t++) { /* slot 0: the whole text; slot 1: one token more */
        const bt_decode_part parts[] = {
            {.slot = 0, .tokens = tokens, .n = t + 1, .want = BT_LOGITS_LAST},
            {.slot = 1, .tokens = tokens + t, .n = 1, .want = BT_LOGITS_LAST}};
        bt_decoder_clear(d, 0);
        decode_step(d, parts, 1, &once);
        decode_step(d, parts + 1, 1, &steps);
        assert_true(difference(once.logits[0][t], steps.logits[1][t]) < 1e-5);
    }
    const bt_decode_part again = {.slot = 1, .tokens = tokens + 7, .n = 1, .want = BT_LOGITS_LAST};
    bt_decoder_rewind(d, 1, 7);
    static got rewound;
    decode_step(d, &again, 1, &rewound);
    assert_true(difference(rewound.logits[1][7], steps.logits[1][7]) < 1e-5);
    const bt_decode_part whole = {.slot = 0, .tokens = tokens, .n = T, .want = BT_LOGITS_ALL};
    bt_decoder_clear(d, 0);
    decode_step(d, &whole, 1, &once);
    bt_decoder_clear(d, 1);
    for (size_t t = 0; t < T; t += 6) { /* a long prompt in portions, the first of which is short */
        const bt_decode_part part = {
            .slot = 1, .tokens = tokens + t, .n = 6, .want = BT_LOGITS_ALL, .known = T};
        decode_step(d, &part, 1, &rewound);
        assert_true(difference(rewound.logits[1][t], once.logits[0][t]) < 1e-5);
    }
    assert_true(difference(once.logits[0][7], steps.logits[1][7]) > 1e-3); /* long and short */
    bt_decoder_destroy(d);
    bt_model_destroy(m);
}

/* Only requested rows are returned, in the order of the parts. */
static void requested_rows_are_in_order(void **state) {
    (void)state;
    static got g;
    bt_model *m = model_of(BT_LIN_BITNET158, BT_SCALE_TENSOR, BT_PREC_FP32, false);
    bt_decoder *d = decoder_of(m, 4);
    const int32_t tokens[] = {1, 2, 3, 4, 5};
    const bt_decode_part parts[] = {{2, tokens, 5, BT_LOGITS_LAST, 0},
                                    {0, tokens, 3, BT_LOGITS_NONE, 0},
                                    {3, tokens, 2, BT_LOGITS_ALL, 0},
                                    {1, tokens, 1, BT_LOGITS_NONE, 0}};
    decode_step(d, parts, 4, &g);
    assert_int_equal(g.calls, 3);
    assert_true(difference(g.logits[2][4], g.logits[3][1]) > 1e-3);
    assert_int_equal(bt_decoder_length(d, 0), 3);
    assert_int_equal(bt_decoder_length(d, 1), 1);
    assert_true(bt_decoder_slot_bytes(m) == 2 * 2 * T * 2 * 16 * sizeof(float));
    bt_decoder_step(d, parts, 0, NULL, NULL);
    bt_decoder_destroy(d);
    bt_decoder_destroy(NULL);
    bt_model_destroy(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_sequences_change_nothing),
        cmocka_unit_test(rotation_follows_the_length),
        cmocka_unit_test(requested_rows_are_in_order),
    };
    return cmocka_run_group_tests(tests, engine_start, engine_stop);
}

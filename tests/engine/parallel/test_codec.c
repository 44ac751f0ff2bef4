/* Each gradient codec equals plain loops on awkward sizes: encoding, decoding, adding; also conversion of each kind of
 * number to bf16, refusal of invalid payloads, and the names in the setting. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "engine/base/rng.h"
#include "engine/config/run_cfg.h"
#include "engine/kernels/table/kernels.h"
#include "engine/parallel/grad/codec.h"

enum { MOST = 3000, GUARD = 64 };
static const size_t sizes[] = {0, 1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 65, 255, 1024, 1025, MOST};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

/* Rounds to bf16, ties to even, by trying both neighbours. */
static float round_bf16(float x) {
    uint32_t bits;
    float low, high;
    if (isnan(x) || isinf(x)) return x;
    memcpy(&bits, &x, sizeof bits);
    uint32_t below = bits & 0xffff0000u, above = below + 0x10000u;
    memcpy(&low, &below, sizeof low);
    memcpy(&high, &above, sizeof high);
    /* Above the largest value the exponent range would continue. */
    double next = isinf(high) ? copysign(0x1p128, (double)x) : (double)high;
    double down = fabs((double)x - (double)low), up = fabs(next - (double)x);
    if (down != up) return down < up ? low : high;
    return below & 0x10000u ? high : low;
}

typedef void (*loop)(float *y, const float *v, size_t n);

static void bf16_loop(float *y, const float *v, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] = round_bf16(v[i]);
}

static void int8_loop(float *y, const float *v, size_t n) {
    for (size_t i = 0; i < n; i++) {
        float top = 0;
        for (size_t k = i / 256 * 256; k < n && k < i / 256 * 256 + 256; k++)
            top = fmaxf(top, fabsf(v[k]));
        float scale = top / 127.0f;
        y[i] = top > 0 ? (float)(int)nearbyintf(v[i] * (1 / scale)) * scale : 0;
    }
}

static void sign_loop(float *y, const float *v, size_t n) {
    for (size_t i = 0; i < n; i++) {
        size_t first = i / 256 * 256, end = first + 256 < n ? first + 256 : n;
        double sum = 0;
        for (size_t k = first; k < end; k++) sum += fabs((double)v[k]);
        float scale = (float)(sum / (double)(end - first));
        y[i] = v[i] < 0 ? -scale : scale;
    }
}

static void ternary_loop(float *y, const float *v, size_t n) {
    for (size_t i = 0; i < n; i++) {
        size_t first = i / 256 * 256, end = first + 256 < n ? first + 256 : n, large = 0;
        double sum = 0, of_large = 0;
        for (size_t k = first; k < end; k++) sum += fabs((double)v[k]);
        float threshold = 0.7f * (float)(sum / (double)(end - first));
        for (size_t k = first; k < end; k++) {
            if (!(fabsf(v[k]) > threshold)) continue;
            of_large += fabs((double)v[k]);
            large++;
        }
        float scale = large ? (float)(of_large / (double)large) : 0;
        y[i] = !(fabsf(v[i]) > threshold) ? 0 : v[i] < 0 ? -scale : scale;
    }
}

/* Sends the elements for which fewer than the block's share of elements are larger; of equal elements the lower index
 * is sent. */
static void topk_loop(float *y, const float *v, size_t n) {
    for (size_t i = 0; i < n; i++) {
        size_t first = i / 512 * 512, end = first + 512 < n ? first + 512 : n, before = 0;
        for (size_t k = first; k < end; k++)
            before += fabsf(v[k]) > fabsf(v[i]) || (fabsf(v[k]) == fabsf(v[i]) && k < i);
        y[i] = before < (end - first + 31) / 32 ? round_bf16(v[i]) : 0;
    }
}

static loop loop_of(const bt_codec *c) {
    if (strcmp(c->name, "bf16") == 0) return bf16_loop;
    if (strcmp(c->name, "int8") == 0) return int8_loop;
    if (strcmp(c->name, "sign") == 0) return sign_loop;
    if (strcmp(c->name, "ternary") == 0) return ternary_loop;
    if (strcmp(c->name, "topk") == 0) return topk_loop;
    fail_msg("%s: a new codec needs its loop here", c->name);
    return NULL;
}

static bool check_same_values(const float *a, const float *b, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!(isnan(a[i]) && isnan(b[i])) && memcmp(&a[i], &b[i], sizeof *a) != 0) return false;
    return true;
}

/* Encodes x with its residual (NULL: no error feedback), then decodes the payload and adds it twice. */
static void round_trip(const bt_codec *c, const float *x, size_t n, float *owed) {
    static float v[MOST], want[MOST], got[MOST + 1], sum[MOST + 1];
    size_t bound = c->bound(n);
    unsigned char *payload = malloc(bound + GUARD);
    assert_non_null(payload);
    memset(payload, 0x5a, bound + (size_t)GUARD);
    for (size_t i = 0; i < n; i++) v[i] = x[i] + (owed ? owed[i] : 0);
    loop_of(c)(want, v, n);
    size_t bytes = c->encode(payload, x, n, owed);
    assert_true(c->state_bytes ? bytes == bound : bytes <= bound);
    for (size_t i = 0; i < GUARD; i++) assert_int_equal(payload[bound + i], 0x5a);
    for (size_t i = 0; owed && i < n; i++) {
        float left = v[i] - want[i];
        if (memcmp(&owed[i], &left, sizeof left) != 0)
            fail_msg("%s, %zu gradients: the residual %a of element %zu is not %a", c->name, n,
                     (double)owed[i], i, (double)left);
    }
    got[n] = sum[n] = 77;
    assert_true(c->decode(got, n, payload, bytes));
    assert_true(check_same_values(got, want, n) && got[n] == 77);
    for (size_t i = 0; i < n; i++) sum[i] = x[i];
    assert_true(c->decode_add(sum, n, payload, bytes) && c->decode_add(sum, n, payload, bytes));
    for (size_t i = 0; i < n; i++) assert_true(sum[i] == x[i] + want[i] + want[i]);
    assert_true(sum[n] == 77);
    free(payload);
}

static void payloads_are_those_of_plain_loops(void **state) {
    (void)state;
    static float x[MOST], owed[MOST + 1];
    for (int k = 0; k < BT_CODEC_COUNT; k++) {
        const bt_codec *c = bt_codec_at((bt_codec_id)k);
        for (size_t s = 0; s < N_SIZES && c->encode; s++) {
            assert_true(c->state_bytes == 0 || c->state_bytes == sizeof(float));
            memset(owed, 0, sizeof owed);
            for (uint64_t step = 0; step < 3; step++) {
                bt_rng_normal(x, sizes[s], 0, 3, 5 + step, s);
                for (size_t i = 0; i < sizes[s]; i += 7) x[i] = 0;
                round_trip(c, x, sizes[s], c->state_bytes ? owed : NULL);
            }
            /* Many elements are equal, and a few at the beginning and the end are larger. */
            float none[MOST] = {0};
            for (size_t i = 0; i < sizes[s]; i++)
                x[i] = i % 256 == 0 || i % 256 == 255 ? 3 : i % 3 ? 1 : -1;
            round_trip(c, x, sizes[s], c->state_bytes ? none : NULL);
            memset(x, 0, sizeof x); /* Only the residual is encoded. */
            round_trip(c, x, sizes[s], c->state_bytes ? owed : NULL);
        }
    }
}

/* A block with a value that is not finite decodes as not finite and leaves its residual unchanged; all other blocks
 * decode as usual. */
static void nonfinite_values_leave_the_residual(void **state) {
    (void)state;
    static const float bad[] = {INFINITY, -INFINITY, NAN};
    static float x[MOST], y[MOST], owed[MOST], before[MOST];
    static unsigned char payload[8 * MOST];
    for (int k = 0; k < BT_CODEC_COUNT; k++) {
        const bt_codec *c = bt_codec_at((bt_codec_id)k);
        for (size_t b = 0; b < 3 && c->state_bytes; b++) {
            bt_rng_normal(x, MOST, 0, 1, 5, 1);
            bt_rng_normal(before, MOST, 0, 1e-2f, 5, 2);
            memcpy(owed, before, sizeof owed);
            x[1030] = bad[b];
            assert_true(c->bound(MOST) <= sizeof payload);
            memset(payload, 0, sizeof payload);
            size_t bytes = c->encode(payload, x, MOST, owed);
            assert_true(c->decode(y, MOST, payload, bytes));
            assert_true(!isfinite(y[1030]));
            assert_memory_equal(&owed[1030], &before[1030], sizeof *owed);
            for (size_t i = 0; i < MOST; i++) {
                assert_true(isfinite(owed[i]));
                if (i < 1024 || i >= 2048) assert_true(isfinite(y[i]));
            }
        }
    }
}

static void invalid_payloads_are_refused(void **state) {
    (void)state;
    static float x[33], y[33], before[33], owed[33];
    unsigned char payload[1024];
    for (int k = 0; k < BT_CODEC_COUNT; k++) {
        const bt_codec *c = bt_codec_at((bt_codec_id)k);
        if (!c->encode) continue;
        assert_true(c->bound(33) + 2 <= sizeof payload);
        bt_rng_normal(x, 33, 0, 1, 5, 1);
        bt_rng_normal(before, 33, 0, 1, 5, 2);
        size_t bytes = c->encode(payload, x, 33, c->state_bytes ? owed : NULL);
        const size_t wrong[] = {0, 1, bytes - 1, bytes + 1, bytes + 2};
        for (size_t i = 0; i < 5; i++) {
            memcpy(y, before, sizeof y);
            assert_false(c->decode(y, 33, payload, wrong[i]));
            assert_false(c->decode_add(y, 33, payload, wrong[i]));
            assert_memory_equal(y, before, sizeof y);
        }
        assert_false(c->decode(y, 32, payload, bytes));
    }
}

/* An index beyond its block would write beyond the gradients or into another block, so it is refused. */
static void indices_beyond_their_block_are_refused(void **state) {
    (void)state;
    enum { N = 512 + 88, SENT = 16 + 3 };
    static float x[N], y[N], owed[N];
    uint16_t payload[SENT][2];
    const bt_codec *c = bt_codec_at(BT_CODEC_TOPK);
    bt_rng_normal(x, N, 0, 1, 5, 1);
    assert_int_equal(c->encode(payload, x, N, owed), sizeof payload);
    static const struct {
        size_t sent;
        uint16_t place;
        bool good;
    } rows[] = {{15, 511, true}, {15, 512, false}, {18, 87, true},
                {18, 88, false}, {16, 511, false}, {0, UINT16_MAX, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint16_t *place = &payload[rows[i].sent][0], was = *place;
        *place = rows[i].place;
        assert_int_equal(c->decode(y, N, payload, sizeof payload), rows[i].good);
        assert_int_equal(c->decode_add(y, N, payload, sizeof payload), rows[i].good);
        *place = was;
    }
}

/* Sizes as drawn in the header of each codec's file: `head` bytes per block of `block` values, and `bytes` bytes per
 * `per` values or remainder. */
static void payloads_have_the_documented_size(void **state) {
    (void)state;
    static const struct {
        bt_codec_id id;
        size_t block, head, per, bytes;
    } rows[] = {{BT_CODEC_BF16, 1, 0, 1, 2},
                {BT_CODEC_INT8, 256, 4, 1, 1},
                {BT_CODEC_SIGN, 256, 4, 8, 1},
                {BT_CODEC_TERNARY, 256, 4, 5, 1},
                {BT_CODEC_TOPK, 512, 0, 32, 4}};
    /* every codec except "none" */
    assert_int_equal(sizeof rows / sizeof *rows, BT_CODEC_COUNT - 1);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t n = 0; n <= 1100; n++) {
            size_t want = 0;
            for (size_t at = 0; at < n; at += rows[i].block) {
                const size_t m = n - at < rows[i].block ? n - at : rows[i].block;
                want += rows[i].head + (m + rows[i].per - 1) / rows[i].per * rows[i].bytes;
            }
            assert_int_equal(bt_codec_at(rows[i].id)->bound(n), want);
        }
}

static void bf16_keeps_every_kind_of_number(void **state) {
    (void)state;
    const bt_codec *c = bt_codec_at(BT_CODEC_BF16);
    static const struct {
        float x, y;
    } rows[] = {
        {0.0f, 0.0f},
        {-0.0f, -0.0f},
        {1.0f, 1.0f},
        {0x1.01p0f, 0x1.00p0f}, /* halfway: to even */
        {0x1.03p0f, 0x1.04p0f},
        {-0x1.03p0f, -0x1.04p0f},
        {0x1.010002p0f, 0x1.02p0f}, /* just above halfway */
        {0x1.fefffep127f, 0x1.fep127f},
        {0x1.ffp127f, INFINITY}, /* rounds to a value above the largest */
        {INFINITY, INFINITY},
        {-INFINITY, -INFINITY},
        {0x1p-133f, 0x1p-133f}, /* the smallest value */
        {0x1p-134f, 0.0f},
        {0x1.8p-133f, 0x1p-132f},
        {NAN, NAN},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint16_t payload;
        float y;
        assert_int_equal(c->encode(&payload, &rows[i].x, 1, NULL), 2);
        assert_true(c->decode(&y, 1, &payload, 2));
        if (!check_same_values(&y, &rows[i].y, 1))
            fail_msg("%a became %a, not %a", (double)rows[i].x, (double)y, (double)rows[i].y);
    }
    static float x[MOST], y[MOST];
    uint16_t payload[MOST];
    bt_rng_normal(x, MOST, 0, 1, 9, 9);
    c->encode(payload, x, MOST, NULL);
    assert_true(c->decode(y, MOST, payload, sizeof payload));
    for (size_t i = 0; i < MOST; i++)
        assert_true(fabs((double)y[i] - (double)x[i]) <= 0x1p-8 * fabs((double)x[i]));
}

static void the_setting_accepts_every_codec_by_name(void **state) {
    (void)state;
    const char *word = NULL;
    for (size_t i = 0; i < bt_run_opts_n; i++)
        if (strcmp(bt_run_opts[i].key, "parallel.codec") == 0) word = bt_run_opts[i].choices;
    assert_non_null(word);
    assert_string_equal(bt_codec_at(BT_CODEC_NONE)->name, "none");
    assert_null(bt_codec_at(BT_CODEC_NONE)->encode);
    for (int k = 0; k < BT_CODEC_COUNT; k++) {
        const bt_codec *c = bt_codec_at((bt_codec_id)k);
        size_t n = strcspn(word, "|");
        assert_true(strlen(c->name) == n && strncmp(c->name, word, n) == 0);
        assert_true(!c->encode == !c->decode && !c->encode == !c->decode_add &&
                    !c->encode == !c->bound);
        word += n + (word[n] == '|');
    }
    assert_string_equal(word, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(payloads_are_those_of_plain_loops),
        cmocka_unit_test(nonfinite_values_leave_the_residual),
        cmocka_unit_test(invalid_payloads_are_refused),
        cmocka_unit_test(indices_beyond_their_block_are_refused),
        cmocka_unit_test(payloads_have_the_documented_size),
        cmocka_unit_test(bf16_keeps_every_kind_of_number),
        cmocka_unit_test(the_setting_accepts_every_codec_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

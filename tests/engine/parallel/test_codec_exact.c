/* The lossless codec of reproducible training: every kind of number is restored bit for bit and added as if it had not
 * been encoded; multiples of a power of two take the bits of their range; random bytes are refused or decoded without
 * reading beyond their end; payloads have the documented layout. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "engine/base/rng.h"
#include "engine/parallel/grad/codec.h"

enum { MOST = 2000, GUARD = 64 };
static const size_t sizes[] = {0, 1, 2, 7, 8, 9, 255, 256, 257, 511, 513, 1024, MOST};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

/* Returns element i of a kind of numbers. */
static float number_of_kind(int kind, uint64_t i) {
    uint64_t u = bt_rng_u64(7, (uint64_t)kind, i);
    uint32_t bits = (uint32_t)u;
    float x;
    switch (kind) {
    case 0: return 0;
    case 1: return (float)((int)(u % 255) - 127) * 0x1p-20f;
    case 2: return (float)((int)(u % 4001) - 2000) * 0x1p+90f;
    case 3: return (float)((int)(u % 9) - 4) * 0x1p-149f; /* subnormal */
    case 4: return u % 20 ? 0 : -0x1.8p-30f;
    case 5: return (float)((int)(u % 15) - 7) * (i / 256 % 2 ? 0x1p-30f : 0x1p-3f);
    case 6: return i == 300 ? -0.0f : (float)(u % 3) * 0.5f;
    case 7: return i == 3 ? 0x1.fffffep127f : (float)(u % 5) * 0x1p104f;
    /* The range is too wide for some blocks. */
    case 8: return (float)((int)(u % (1u << 24)) - (1 << 23)) * 0x1p-60f;
    /* Only the sign of zero distinguishes this block from zeros. */
    case 9: return i % 256 == 5 ? -0.0f : 0;
    default: memcpy(&x, &bits, sizeof x); return x; /* includes infinities and NaN */
    }
}
enum { KINDS = 11 };

static float x[MOST], y[MOST + 1], sum[MOST + 1], want[MOST];

static void every_number_is_restored(void **state) {
    (void)state;
    const bt_codec *c = &bt_codec_exact;
    for (int kind = 0; kind < KINDS; kind++) {
        for (size_t s = 0; s < N_SIZES; s++) {
            size_t n = sizes[s], bound = c->bound(n);
            unsigned char *payload = malloc(bound + GUARD);
            assert_non_null(payload);
            memset(payload, 0x5a, bound + (size_t)GUARD);
            for (size_t i = 0; i < n; i++) x[i] = number_of_kind(kind, i);
            size_t bytes = c->encode(payload, x, n, NULL);
            assert_true(bytes <= bound);
            for (size_t i = 0; i < GUARD; i++) assert_int_equal(payload[bound + i], 0x5a);
            y[n] = sum[n] = 77;
            assert_true(c->decode(y, n, payload, bytes));
            if (n > 0) assert_memory_equal(x, y, n * sizeof *x);
            for (size_t i = 0; i < n; i++) {
                sum[i] = (float)i * 0x1p-21f;
                want[i] = sum[i] + x[i];
            }
            assert_true(c->decode_add(sum, n, payload, bytes));
            for (size_t i = 0; i < n; i++)
                assert_true(sum[i] == want[i] || (isnan(sum[i]) && isnan(want[i])));
            assert_true(y[n] == 77 && sum[n] == 77);
            if (n > 0) assert_false(c->decode(y, n, payload, bytes - 1));
            assert_false(c->decode_add(sum, n, payload, bytes + 1));
            free(payload);
        }
    }
}

static void small_multiples_take_few_bits(void **state) {
    (void)state;
    static unsigned char payload[8 * MOST];
    const bt_codec *c = &bt_codec_exact;
    for (int width = 2; width <= 20; width++) {
        int32_t most = (int32_t)((1u << (width - 1)) - 1);
        for (size_t i = 0; i < 1024; i++)
            x[i] = (float)((int32_t)(bt_rng_u64(1, 2, i) % (2 * (uint64_t)most + 1)) - most) *
                   0x1p-33f;
        for (size_t i = 0; i < 1024; i += 256) {
            x[i] = (float)most * 0x1p-33f;
            x[i + 1] = 0x1p-33f;
        }
        assert_int_equal(c->encode(payload, x, 1024, NULL), 4 * (2 + 256 * width / 8));
    }
    memset(x, 0, sizeof x);
    assert_int_equal(c->encode(payload, x, 1024, NULL), 4 * 2);
}

static void random_bytes_are_refused_or_decoded(void **state) {
    (void)state;
    const bt_codec *c = &bt_codec_exact;
    size_t decoded = 0;
    for (uint64_t k = 0; k < 20000; k++) {
        size_t n = 1 + bt_rng_u64(3, 1, k) % 600, bytes = bt_rng_u64(3, 2, k) % 700;
        /* The buffer has the exact size, so that a sanitizer detects reads beyond its end. */
        unsigned char *payload = malloc(bytes + 1);
        assert_non_null(payload);
        for (size_t i = 0; i < bytes; i++)
            payload[i] = (unsigned char)bt_rng_u64(4, k, i / (k % 3 ? 1 : 97));
        bool whole = c->decode(y, n, payload, bytes);
        assert_true(whole == c->decode_add(sum, n, payload, bytes));
        decoded += whole;
        free(payload);
    }
    assert_true(decoded < 200);
}

/* Returns bit k of a byte array. */
static unsigned bit_at(const unsigned char *bytes, size_t k) { return bytes[k / 8] >> k % 8 & 1; }

/* Returns number i of the block after a head as documented: w bits, two's complement, times 2^e. */
static float documented_number(const unsigned char *block, size_t i, unsigned w, int e) {
    int64_t q = 0;
    float raw;
    memcpy(&raw, block + i * sizeof raw, w == 32 ? sizeof raw : 0);
    if (w == 32) return raw;
    for (unsigned k = 0; k < w; k++) q |= (int64_t)bit_at(block, i * w + k) << k;
    if (w && q >> (w - 1)) q -= INT64_C(1) << w;
    return (float)ldexp((double)q, e);
}

/* Every possible head, valid or not: a block is decoded only if it has the length that the head states. */
static void each_head_has_the_documented_meaning(void **state) {
    (void)state;
    enum { N = 5 };
    unsigned char payload[2 + 4 * N + 1];
    const bt_codec *c = &bt_codec_exact;
    for (unsigned head = 0; head < 65536; head++) {
        const unsigned w = head >> 10;
        const int e = (int)(head & 1023) - 200;
        const bool good = (w <= 24 || w == 32) && w != 1 && e >= -149 && e <= 127;
        const size_t bytes = 2 + (w == 32 ? sizeof(float) * N : (N * w + 7) / 8);
        for (size_t i = 2; i < sizeof payload; i++)
            payload[i] = (unsigned char)bt_rng_u64(9, head % 7, i);
        payload[0] = (unsigned char)head;
        payload[1] = (unsigned char)(head >> 8);
        if (bytes > sizeof payload) { /* invalid width */
            assert_false(good || c->decode(y, N, payload, sizeof payload));
            continue;
        }
        for (size_t i = 0; i < N; i++) sum[i] = 1;
        assert_int_equal(c->decode(y, N, payload, bytes), good);
        assert_int_equal(c->decode_add(sum, N, payload, bytes), good);
        assert_false(c->decode(y, N, payload, bytes - 1) || c->decode(y, N, payload, 1));
        if (bytes < sizeof payload) assert_false(c->decode(y, N, payload, bytes + 1));
        for (size_t i = 0; i < N && good; i++) {
            const float v = documented_number(payload + 2, i, w, e);
            if (isnan(v)) continue;
            if (y[i] != v || sum[i] != 1 + v) fail_msg("head %u, number %zu", head, i);
        }
    }
}

/* The encoder uses the largest exponent of which all values are multiples and the least width; a block is stored as
 * fp32 if that is shorter. */
static void each_block_has_the_documented_layout(void **state) {
    (void)state;
    static unsigned char payload[8 * MOST];
    const bt_codec *c = &bt_codec_exact;
    for (int kind = 0; kind < KINDS; kind++) {
        const unsigned char *from = payload;
        for (size_t i = 0; i < MOST; i++) x[i] = number_of_kind(kind, i);
        const size_t bytes = c->encode(payload, x, MOST, NULL);
        for (size_t at = 0; at < MOST; at += 256) {
            const size_t n = MOST - at < 256 ? MOST - at : 256;
            int low = 1000, high = -1000;
            bool raw = false;
            for (size_t i = at; i < at + n; i++) {
                int e = 0;
                raw |= !isfinite(x[i]) || (x[i] == 0 && signbit(x[i]));
                if (x[i] == 0 || !isfinite(x[i])) continue;
                double m = frexp((double)x[i], &e);
                if (e > high) high = e;
                for (; m != trunc(m); e--) m *= 2;
                if (e < low) low = e;
            }
            unsigned w = low > high ? 0 : (unsigned)(high - low) + 1;
            if (raw || w > 24) w = 32;
            const int e = w == 0 || w == 32 ? 0 : low;
            assert_int_equal(from[0] | from[1] << 8, w << 10 | (unsigned)(e + 200));
            for (size_t i = 0; i < n; i++) {
                const float v = documented_number(from + 2, i, w, e);
                assert_true(memcmp(&v, &x[at + i], sizeof v) == 0);
            }
            from += 2 + (n * w + 7) / 8;
        }
        assert_ptr_equal(from, payload + bytes);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_number_is_restored),
        cmocka_unit_test(small_multiples_take_few_bits),
        cmocka_unit_test(random_bytes_are_refused_or_decoded),
        cmocka_unit_test(each_head_has_the_documented_meaning),
        cmocka_unit_test(each_block_has_the_documented_layout),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

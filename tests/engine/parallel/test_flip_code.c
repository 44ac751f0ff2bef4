/* The code for changed ternary values: decoding restores them for any share of changes and any size; a message is never
 * longer than all values, and its length is near the entropy of independent changes; damaged messages are refused. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "engine/base/hash.h"
#include "engine/base/rng.h"
#include "engine/parallel/shard/flip_code.h"

enum { MOST = 40000 };
static unsigned char from[MOST], to[MOST], got[MOST], message[MOST + BT_FLIPS_HEAD + 8];

static void set_code(unsigned char *x, size_t i, unsigned v) {
    x[i / 4] = (unsigned char)((x[i / 4] & ~(3u << i % 4 * 2)) | v << i % 4 * 2);
}

/* Makes ternary codes of which a given number per million change, one in twenty of these between -1 and +1. */
static size_t make_changed_codes(size_t bytes, uint64_t per_million, uint64_t seed) {
    size_t flips = 0;
    for (size_t i = 0; i < 4 * bytes; i++) {
        unsigned v = (unsigned)(bt_rng_u64(seed, 1, i) % 3), other = v == 1 ? 0 : 1;
        set_code(from, i, v);
        if (bt_rng_u64(seed, 2, i) % 1000000 < per_million) {
            uint64_t u = bt_rng_u64(seed, 3, i) % 20;
            v = v == 1 ? (u < 10 ? 0 : 2) : u == 0 ? 2 - v : other;
            flips++;
        }
        set_code(to, i, v);
    }
    return flips;
}

static const size_t sizes[] = {0, 1, 2, 7, 8, 9, 31, 32, 33, 4096, 39999};
static const uint64_t shares[] = {0, 1, 100, 5000, 18000, 75000, 300000, 900000, 1000000};

static void changed_codes_are_restored(void **state) {
    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (size_t p = 0; p < sizeof shares / sizeof *shares; p++) {
            size_t bytes = sizes[s];
            (void)make_changed_codes(bytes, shares[p], s * 100 + p);
            memset(message, 0x5a, sizeof message);
            size_t n = bt_flip_encode(message, from, to, bytes);
            assert_true(n <= bytes + BT_FLIPS_HEAD);
            for (size_t i = bytes + BT_FLIPS_HEAD; i < sizeof message; i++)
                assert_int_equal(message[i], 0x5a);
            memcpy(got, from, sizeof got);
            assert_true(bt_flip_decode(got, bytes, message, n));
            assert_memory_equal(got, to, bytes + 1);
        }
    }
}

/* An invalid field makes the encoder send all codes. */
static void invalid_fields_are_restored_too(void **state) {
    (void)state;
    (void)make_changed_codes(1000, 100, 3);
    set_code(to, 17, 3);
    size_t n = bt_flip_encode(message, from, to, 1000);
    assert_int_equal(n, 1000 + BT_FLIPS_HEAD);
    assert_true(bt_flip_decode(from, 1000, message, n));
    assert_memory_equal(from, to, 1000);
}

static void length_is_near_the_entropy(void **state) {
    (void)state;
    for (size_t p = 2; p < 6; p++) {
        size_t bytes = 39999, flips = make_changed_codes(bytes, shares[p], 7);
        double n = 4.0 * (double)bytes, q = (double)flips / n,
               least = n * -(q * log2(q) + (1 - q) * log2(1 - q)),
               bits = 8.0 * (double)(bt_flip_encode(message, from, to, bytes) - BT_FLIPS_HEAD);
        /* one more bit per change for the new value */
        if (!(bits < 1.01 * least + 1.06 * (double)flips + 16))
            fail_msg("%g flips: %.4f bits a code, entropy %.4f", q, bits / n, least / n);
    }
}

/* All builds whose ranks train together must use the same format. */
static void messages_are_the_same_bytes(void **state) {
    (void)state;
    uint64_t all = 0;
    static const unsigned char zeros[8], ones[8] = {0x55, 0x55, 0x55, 0x55, 0x55, 0x55, 0x55, 0x55};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t p = 0; p < sizeof shares / sizeof *shares; p++) {
            (void)make_changed_codes(sizes[s], shares[p], s * 100 + p);
            all = XXH3_64bits_withSeed(message, bt_flip_encode(message, from, to, sizes[s]), all);
        }
    assert_int_equal(all, 0xe15e682e258dcc);
    /* All of 32 fields changed: gaps would be longer than fields. */
    assert_int_equal(bt_flip_encode(message, zeros, ones, 8), 8 + BT_FLIPS_HEAD);
    assert_memory_equal(message + BT_FLIPS_HEAD, ones, 8);
    /* One of 32 fields changed: the parameter, a gap of at least 4 bits, and one bit for the new value. */
    unsigned char one[8] = {0, 0, 0, 0x10};
    assert_int_equal(bt_flip_encode(message, zeros, one, 8), BT_FLIPS_HEAD + 2);
    static const unsigned char body[] = {4, 0x1c};
    assert_memory_equal(message + BT_FLIPS_HEAD, body, 2);
}

static void damage_is_refused(void **state) {
    (void)state;
    for (size_t p = 0; p < sizeof shares / sizeof *shares; p++) {
        (void)make_changed_codes(4096, shares[p], 11);
        size_t n = bt_flip_encode(message, from, to, 4096);
        memcpy(got, from, sizeof got);
        for (uint64_t i = 0; i < 500; i++) {
            size_t bit = bt_rng_u64(1, p, i) % (8 * n);
            message[bit / 8] ^= (unsigned char)(1u << bit % 8);
            assert_false(bt_flip_decode(got, 4096, message, n));
            message[bit / 8] ^= (unsigned char)(1u << bit % 8);
        }
        for (size_t k = 0; k < n; k += 1 + k / 8)
            assert_false(bt_flip_decode(got, 4096, message, k));
        assert_false(bt_flip_decode(got, 4096, message, n + 1));
        assert_memory_equal(got, from, sizeof got);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(changed_codes_are_restored),
        cmocka_unit_test(invalid_fields_are_restored_too),
        cmocka_unit_test(length_is_near_the_entropy),
        cmocka_unit_test(messages_are_the_same_bytes),
        cmocka_unit_test(damage_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_grad_digest.c - the digest of gradients equals its definition, bit by bit, for any array, whole or in pieces, in
 * any order. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "engine/base/rng.h"
#include "engine/parallel/grad/grad_digest.h"

enum { MOST = 3 * 65536 + 5 };
static float x[MOST];

static uint32_t bits_of_number(float v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

static bt_grad_digest digest_by_definition(const float *v, size_t n) {
    bt_grad_digest d = {0};
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = bits_of_number(v[i]), magnitude = bits_of_number(fabsf(v[i]));
        d.sum += bits;
        if (magnitude > d.largest) d.largest = magnitude;
    }
    return d;
}

static void check_same_digest(bt_grad_digest got, bt_grad_digest want, size_t n) {
    if (got.sum != want.sum || got.largest != want.largest)
        fail_msg("%zu: sum %x, not %x; largest %x, not %x", n, got.sum, want.sum, got.largest,
                 want.largest);
}

static void the_digest_equals_its_definition(void **state) {
    static const size_t sizes[] = {0, 1, 2, 65535, 65536, 65537, 131072, MOST - 1, MOST};
    (void)state;
    bt_rng_normal(x, MOST, 0, 1, 5, 1);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        const size_t n = sizes[s];
        bt_grad_digest whole = {0}, pieces = {0};
        bt_grad_digest_add(&whole, x, n);
        check_same_digest(whole, digest_by_definition(x, n), n);
        assert_true(bt_grad_digest_finite(&whole));
        for (size_t end = n, begin; end > 0; end = begin) {
            begin = end > 70001 ? end - 70001 : 0;
            bt_grad_digest_add(&pieces, x + begin, end - begin);
        }
        check_same_digest(pieces, whole, n);
    }
}

/* The digest changes with one element at any position and of either sign. */
static void one_element_counts(void **state) {
    static const size_t places[] = {0, 1, 65535, 65536, 131071, 131072, MOST - 1};
    (void)state;
    for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
        for (int sign = -1; sign < 2; sign += 2) {
            bt_grad_digest d = {0};
            memset(x, 0, sizeof x);
            x[places[p]] = (float)sign * 3;
            bt_grad_digest_add(&d, x, MOST);
            check_same_digest(
                d, (bt_grad_digest){bits_of_number((float)sign * 3), bits_of_number(3)}, places[p]);
        }
    }
}

static void nonfinite_values_are_detected(void **state) {
    static const struct {
        float v;
        bool finite;
    } rows[] = {{3.402823466e38f, true},
                {-3.402823466e38f, true},
                {INFINITY, false},
                {-INFINITY, false},
                {NAN, false},
                {-NAN, false}};
    (void)state;
    memset(x, 0, sizeof x);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bt_grad_digest d = {0};
        x[70000] = rows[i].v;
        bt_grad_digest_add(&d, x, MOST);
        assert_int_equal(bt_grad_digest_finite(&d), rows[i].finite);
        bt_grad_digest_add(&d, x, 10); /* Later finite values do not hide it. */
        assert_int_equal(bt_grad_digest_finite(&d), rows[i].finite);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_digest_equals_its_definition),
        cmocka_unit_test(one_element_counts),
        cmocka_unit_test(nonfinite_values_are_detected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

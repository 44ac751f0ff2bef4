/* isa_util.h - guarded buffers and comparisons for the kernel tests. */
#ifndef BT_TESTS_ISA_UTIL_H
#define BT_TESTS_ISA_UTIL_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/base/rng.h"
#include "engine/kernels/table/cpu.h"
#include "engine/kernels/table/kernels.h"
#include "tests/engine/kernels/asked_set.h"

enum { GUARD = 64, BUFFERS = 64 };

static struct {
    unsigned char *raw;
    size_t bytes;
} buffers[BUFFERS];
static size_t n_buffers;
static uint64_t draw; /* counter of random values */

/* Allocates between guard bytes, at an address that is 4 (elements of 4 bytes) or 1 (bytes) modulo 64. */
static inline void *take(size_t bytes, size_t elem) {
    assert_true(n_buffers < BUFFERS);
    unsigned char *raw = aligned_alloc(64, (bytes + 2 * GUARD + 64 + 63) / 64 * 64);
    assert_non_null(raw);
    size_t at = GUARD + (elem >= 4 ? 4 : 1);
    memset(raw, 0xA5, at);
    memset(raw + at + bytes, 0xA5, GUARD);
    buffers[n_buffers].raw = raw;
    buffers[n_buffers++].bytes = bytes + (elem >= 4 ? 4 : 1);
    return raw + at;
}

/* Checks the guard bytes and frees everything allocated since the last call. */
static inline void drop_all(const char *what) {
    for (size_t i = 0; i < n_buffers; i++) {
        for (size_t j = 0; j < GUARD; j++) {
            if (buffers[i].raw[j] != 0xA5 || buffers[i].raw[GUARD + buffers[i].bytes + j] != 0xA5) {
                fail_msg("%s: wrote outside its buffer %zu (%zu bytes)", what, i, buffers[i].bytes);
            }
        }
        free(buffers[i].raw);
    }
    n_buffers = 0;
}

static inline double unit(void) { return bt_rng_unit(7, 1, draw++); }

static inline float *floats(size_t n) { /* returns n values, mostly in (-1, 1), some larger */
    float *p = take(n * 4, 4);
    for (size_t i = 0; i < n; i++) {
        double u = 2 * unit() - 1;
        p[i] = (float)(u * (i % 13 == 5 ? 4.0 : 1.0));
    }
    return p;
}

static inline float *filled(size_t n, float value) {
    float *p = take(n * 4, 4);
    for (size_t i = 0; i < n; i++) p[i] = value;
    return p;
}

static inline float *copy_of(const float *x, size_t n) {
    float *p = take(n * 4, 4);
    if (n) memcpy(p, x, n * 4);
    return p;
}

static inline float *abs_of(const float *x, size_t n) {
    float *p = copy_of(x, n);
    for (size_t i = 0; i < n; i++) p[i] = fabsf(p[i]);
    return p;
}

static inline int8_t *bytes_in(size_t n, int lo, int hi) {
    int8_t *p = take(n, 1);
    for (size_t i = 0; i < n; i++) p[i] = (int8_t)(lo + (int)(unit() * (hi - lo + 1)));
    return p;
}

/* Requires |got - expected| <= tol * size[i] + tiny for each element. */
static inline void near_scaled(const char *what, const float *got, const float *want,
                               const float *size, double tol, size_t n) {
    for (size_t i = 0; i < n; i++) {
        double bound = tol * fabs((double)size[i]) + 1e-30;
        if (!(fabs((double)got[i] - (double)want[i]) <= bound)) {
            fail_msg("%s: element %zu of %zu is %.9g, not %.9g (off by %.3g, bound %.3g)", what, i,
                     n, (double)got[i], (double)want[i], fabs((double)got[i] - (double)want[i]),
                     bound);
        }
    }
}

static inline void near_rel(const char *what, const float *got, const float *want, double rel,
                            double abs, size_t n) {
    for (size_t i = 0; i < n; i++) {
        double bound = rel * fabs((double)want[i]) + abs;
        if (!(fabs((double)got[i] - (double)want[i]) <= bound)) {
            fail_msg("%s: element %zu of %zu is %.9g, not %.9g (bound %.3g)", what, i, n,
                     (double)got[i], (double)want[i], bound);
        }
    }
}

/* Requires |got - want| <= tol * (|want| + rms of want) + floor, for sums of many terms of either sign. */
static inline void near_rms(const char *what, const float *got, const float *want, double tol,
                            double floor, size_t n) {
    double sq = 0;
    for (size_t i = 0; i < n; i++) sq += (double)want[i] * (double)want[i];
    double rms = sqrt(sq / (double)(n ? n : 1));
    for (size_t i = 0; i < n; i++) {
        double bound = tol * (rms + fabs((double)want[i])) + floor;
        if (!(fabs((double)got[i] - (double)want[i]) <= bound)) {
            fail_msg("%s: element %zu of %zu is %.9g, not %.9g (bound %.3g)", what, i, n,
                     (double)got[i], (double)want[i], bound);
        }
    }
}

static inline void same_bits(const char *what, const void *got, const void *want, size_t bytes) {
    const unsigned char *a = got, *b = want;
    if (bytes == 0 || memcmp(got, want, bytes) == 0) return;
    for (size_t i = 0; i < bytes; i++) {
        if (a[i] != b[i])
            fail_msg("%s: byte %zu of %zu is %02x, not %02x", what, i, bytes, a[i], b[i]);
    }
}

enum { SLOTS_MOST = 64 };
static jmp_buf slot_reached;
static const char *slot_name_reached;

static inline void forget_all(void) {
    for (size_t i = 0; i < n_buffers; i++) free(buffers[i].raw);
    n_buffers = 0;
}

#define BT_SLOT(slot) \
    static inline void reach_##slot(void) { \
        slot_name_reached = #slot; \
        longjmp(slot_reached, 1); \
    }
#define BT_TERN_SLOT(slot) BT_SLOT(slot)
#include "engine/kernels/table/slots.def"
#undef BT_SLOT
#undef BT_TERN_SLOT

/* Makes the slot jump out of the test when it is called, or restores the slot of the generic set. */
static inline void slot_put(bt_kernels *k, const char *name, bool jumps) {
#define BT_SLOT(s) \
    if (strcmp(name, #s) == 0) \
        k->s = jumps ? (__typeof__(k->s))(void (*)(void))reach_##s : bt_kernels_generic.s;
#define BT_TERN_SLOT(s) BT_SLOT(s)
#include "engine/kernels/table/slots.def"
#undef BT_SLOT
#undef BT_TERN_SLOT
}

/* Marks the slots that `run` calls in `called`, an array of bt_kernels_slots(). */
static inline void slots_called(bool *called, void (*run)(const bt_kernels *)) {
    static bt_kernels k;
    static volatile size_t left;
    k = bt_kernels_generic;
    for (size_t i = 0; i < bt_kernels_slots(); i++) slot_put(&k, bt_kernels_slot_name(i), true);
    for (left = bt_kernels_slots() + 1; left > 0; left--) {
        if (setjmp(slot_reached) == 0) {
            run(&k);
            return;
        }
        forget_all();
        slot_put(&k, slot_name_reached, false);
        for (size_t i = 0; i < bt_kernels_slots(); i++)
            if (strcmp(slot_name_reached, bt_kernels_slot_name(i)) == 0) called[i] = true;
    }
    fail_msg("a case never ends");
}

/* The slots that test_products.c tests; test_isa.c tests all other slots. */
static const char *const product_slots[] = {"tern_bytes",
                                            "tern_pack",
                                            "packed_2bit_bytes",
                                            "packed_2bit_pack",
                                            "packed_2bit_codes",
                                            "tern_fwd",
                                            "tern_dx",
                                            "tern_dx8",
                                            "w8_bytes",
                                            "w8_pack",
                                            "w8_dx8",
                                            "w8_fwd",
                                            "tern_dw",
                                            "tern_dw8",
                                            "gemm",
                                            "attn_fwd",
                                            "attn_bwd",
                                            "tern_gemv",
                                            "gemv",
                                            "peak_ops"};
static inline bool is_product_slot(const char *name) {
    for (size_t i = 0; i < sizeof product_slots / sizeof *product_slots; i++)
        if (strcmp(name, product_slots[i]) == 0) return true;
    return false;
}
static inline void slots_owed(const bool *called, bool products) {
    for (size_t i = 0; i < bt_kernels_slots(); i++) {
        const char *name = bt_kernels_slot_name(i);
        if (is_product_slot(name) == products && !called[i])
            fail_msg("no case compares slot %s with generic's", name);
    }
}

static inline void *scratch_for(const bt_kernels *k, size_t M, size_t N, size_t K, size_t T,
                                size_t D) {
    /* 64-byte aligned, as in ops.c */
    return (char *)take(k->scratch_bytes(M, N, K, T, D) + 60, 4) + 60;
}

/* Runs the code of the AMX set with emulated tiles, on the vector set that it falls back to. Returns false if this
 * processor does not support that set. */
static inline bool emulated_amx(bt_kernels *k) {
#if defined(__x86_64__)
    bt_err err = BT_ERR_INIT;
    const bt_kernels *e = &bt_kernels_emulated_amx;
    if (bt_kernels_select("avx512", &err) != BT_OK || !bt_cpu_get()->avx512_bf16) return false;
    *k = *bt_active_kernels();
#define BT_SLOT(slot) \
    if (e->slot) k->slot = e->slot;
#define BT_TERN_SLOT(slot) k->slot = e->slot;
#include "engine/kernels/table/slots.def"
#undef BT_SLOT
#undef BT_TERN_SLOT
    k->scratch_bytes = e->scratch_bytes;
    k->row_grain = e->row_grain;
    return true;
#else
    (void)k;
    return false;
#endif
}

static const size_t awkward[] = {0, 1, 2, 3, 15, 16, 17, 31, 33, 63, 65, 127, 255, 513};
enum { N_AWKWARD = sizeof awkward / sizeof *awkward };

/* The rows of a head have a stride, which may be odd. */
static inline bt_attn_shape uneven_heads(size_t T, size_t D, size_t window) {
    return (bt_attn_shape){.T = T,
                           .D = D,
                           .ldq = 2 * D + 1,
                           .ldk = D + 2,
                           .ldv = D,
                           .ldo = D + 3,
                           .scale = 1.0f / sqrtf((float)D),
                           .window = window,
                           .cap = window ? 0.9f : 0};
}

#endif

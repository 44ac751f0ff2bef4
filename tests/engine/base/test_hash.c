/* The vectorized hash functions return the same values as the plain ones and clear the upper halves of vector
 * registers, which otherwise slow down SSE code. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <xxhash.h>
#include <cmocka.h>

/* These functions precede the header that redefines the names. */
static uint64_t plain_64(const void *bytes, size_t n) { return XXH3_64bits(bytes, n); }

#include "engine/base/hash.h"

enum { BYTES = 100000 };
static unsigned char data[BYTES];

#if defined(BT_XXH_DISPATCH) && defined(__x86_64__)
/* Returns a mask of the vector registers whose upper half is not zero. */
static unsigned dirty_upper_halves(void) {
    unsigned char upper[16][16];
    unsigned found = 0;
    __asm__ volatile("vextractf128 $1, %%ymm0, 0(%0)\n vextractf128 $1, %%ymm1, 16(%0)\n"
                     "vextractf128 $1, %%ymm2, 32(%0)\n vextractf128 $1, %%ymm3, 48(%0)\n"
                     "vextractf128 $1, %%ymm4, 64(%0)\n vextractf128 $1, %%ymm5, 80(%0)\n"
                     "vextractf128 $1, %%ymm6, 96(%0)\n vextractf128 $1, %%ymm7, 112(%0)\n"
                     "vextractf128 $1, %%ymm8, 128(%0)\n vextractf128 $1, %%ymm9, 144(%0)\n"
                     "vextractf128 $1, %%ymm10, 160(%0)\n vextractf128 $1, %%ymm11, 176(%0)\n"
                     "vextractf128 $1, %%ymm12, 192(%0)\n vextractf128 $1, %%ymm13, 208(%0)\n"
                     "vextractf128 $1, %%ymm14, 224(%0)\n vextractf128 $1, %%ymm15, 240(%0)\n"
                     :
                     : "r"(upper)
                     : "memory");
    for (int k = 0; k < 16; k++)
        for (int i = 0; i < 16; i++)
            if (upper[k][i]) found |= 1u << k;
    return found;
}

static void dirty_vector_registers(void) {
    __asm__ volatile("vcmpps $15, %%ymm0, %%ymm0, %%ymm0\n vmovaps %%ymm0, %%ymm7" ::
                         : "xmm0", "xmm7");
}

static void upper_halves_are_clear(void **state) {
    (void)state;
    if (!__builtin_cpu_supports("avx")) skip();
    dirty_vector_registers();
    /* The check detects registers that were not cleared. */
    assert_int_equal(dirty_upper_halves(), 0x81);
    XXH3_state_t *s = XXH3_createState();
    (void)XXH3_64bits_reset(s);
    dirty_vector_registers();
    (void)XXH3_64bits(data, BYTES);
    assert_int_equal(dirty_upper_halves(), 0);
    dirty_vector_registers();
    (void)XXH3_64bits_withSeed(data, BYTES, 5);
    assert_int_equal(dirty_upper_halves(), 0);
    dirty_vector_registers();
    (void)XXH3_64bits_update(s, data, BYTES);
    assert_int_equal(dirty_upper_halves(), 0);
    dirty_vector_registers();
    (void)XXH3_128bits(data, BYTES);
    assert_int_equal(dirty_upper_halves(), 0);
    (void)XXH3_128bits_reset(s);
    dirty_vector_registers();
    (void)XXH3_128bits_update(s, data, BYTES);
    assert_int_equal(dirty_upper_halves(), 0);
    XXH3_freeState(s);
}
#else
static void upper_halves_are_clear(void **state) {
    (void)state;
    skip(); /* The library has only one form of the functions. */
}
#endif

static void vectorized_hashes_equal_the_plain_one(void **state) {
    (void)state;
    for (size_t n = 0; n < BYTES; n = 2 * n + 13)
        assert_true(XXH3_64bits(data, n) == plain_64(data, n));
    assert_true(XXH3_64bits(data, BYTES) == plain_64(data, BYTES));
    assert_true(XXH3_64bits_withSeed(data, BYTES, 0) == plain_64(data, BYTES));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(upper_halves_are_clear),
                                       cmocka_unit_test(vectorized_hashes_equal_the_plain_one)};
    for (int i = 0; i < BYTES; i++) data[i] = (unsigned char)(i * 7919 >> 5);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* hash.h - XXH3 in the widest form that the processor has.
 *
 * The hash is the same everywhere. Plain XXH3_64bits of a library for every x86 reads with SSE2; the library's own
 * dispatch, where it was built with one, takes AVX2 or AVX-512 at run time: from cache 2 to 3 times as fast.
 *
 * Those forms may return with the upper halves of the vector registers in use: libxxhash 0.8.1 of Debian 12 has no
 * VZEROUPPER. SSE instructions, which all of this program but its kernels is made of, then take 3 to 6 times as
 * long (AMD Zen 4), until a kernel or the system clears them. So whoever hashes clears them at once. */
#ifndef BT_ENGINE_BASE_HASH_H
#define BT_ENGINE_BASE_HASH_H

#include <have_xxh.h> /* made by cmake */

#ifdef BT_XXH_DISPATCH
#define XXH_DISPATCH_DISABLE_REPLACE
#include <xxh_x86dispatch.h>

static inline void bt_hash_clear(void) {
    if (__builtin_cpu_supports("avx"))
        __asm__ volatile("vzeroupper" ::
                             : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",
                               "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14",
                               "xmm15");
}

static inline XXH64_hash_t bt_hash_64(const void *data, size_t n) {
    const XXH64_hash_t h = XXH3_64bits_dispatch(data, n);
    bt_hash_clear();
    return h;
}
static inline XXH64_hash_t bt_hash_64_seed(const void *data, size_t n, XXH64_hash_t seed) {
    const XXH64_hash_t h = XXH3_64bits_withSeed_dispatch(data, n, seed);
    bt_hash_clear();
    return h;
}
static inline XXH_errorcode bt_hash_64_update(XXH3_state_t *state, const void *data, size_t n) {
    const XXH_errorcode code = XXH3_64bits_update_dispatch(state, data, n);
    bt_hash_clear();
    return code;
}
static inline XXH128_hash_t bt_hash_128(const void *data, size_t n) {
    const XXH128_hash_t h = XXH3_128bits_dispatch(data, n);
    bt_hash_clear();
    return h;
}
static inline XXH_errorcode bt_hash_128_update(XXH3_state_t *state, const void *data, size_t n) {
    const XXH_errorcode code = XXH3_128bits_update_dispatch(state, data, n);
    bt_hash_clear();
    return code;
}

/* the library's header defines the same names */
#undef XXH3_64bits
#define XXH3_64bits bt_hash_64
#undef XXH3_64bits_withSeed
#define XXH3_64bits_withSeed bt_hash_64_seed
#undef XXH3_64bits_update
#define XXH3_64bits_update bt_hash_64_update
#undef XXH3_128bits
#define XXH3_128bits bt_hash_128
#undef XXH3_128bits_update
#define XXH3_128bits_update bt_hash_128_update
#else
#include <xxhash.h>
#endif

#endif

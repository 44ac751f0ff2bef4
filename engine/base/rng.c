/* rng.c - counter-based generator; its normals are in normal.c. */
#include "engine/base/rng.h"

uint64_t bt_splitmix64(uint64_t i) {
    uint64_t z = i + 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

uint64_t bt_rng_u64(uint64_t seed, uint64_t stream, uint64_t index) {
    return bt_splitmix64(bt_splitmix64(bt_splitmix64(seed) ^ stream) ^ index);
}

double bt_rng_unit(uint64_t seed, uint64_t stream, uint64_t index) {
    return (double)(bt_rng_u64(seed, stream, index) >> 11) * 0x1.0p-53;
}

uint64_t bt_hash_name(const char *name) {
    uint64_t h = 0xcbf29ce484222325u;
    for (; *name; name++) h = (h ^ (unsigned char)*name) * 0x100000001b3u;
    return h;
}

uint64_t bt_rng_permute(uint64_t i, uint64_t n, uint64_t key) {
    if (n < 2) return 0;
    unsigned half = 1;
    while (half < 32 && (1ull << (2 * half)) < n) half++;
    uint64_t mask = (1ull << half) - 1;
    /* the Feistel network permutes [0, 4^half) and is applied until the result is in [0, n) */
    do {
        uint64_t l = i >> half, r = i & mask;
        for (uint64_t round = 0; round < 4; round++) {
            uint64_t next = l ^ (bt_rng_u64(key, round, r) & mask);
            l = r;
            r = next;
        }
        i = (l << half) | r;
    } while (i >= n);
    return i;
}

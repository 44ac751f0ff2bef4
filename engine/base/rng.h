/* rng.h - counter-based randomness: value = f(seed, stream, index).
 *
 * Checkpoints need no state: a value does not depend on the rank, the order of calls or the number of ranks. The
 * function is the finaliser of splitmix64 (Steele, Lea, Flood 2014) over mixed counters; normals use Box-Muller in
 * double. */
#ifndef BT_ENGINE_BASE_RNG_H
#define BT_ENGINE_BASE_RNG_H

#include <stddef.h>
#include <stdint.h>

/* The finaliser of i + golden ratio. */
uint64_t bt_splitmix64(uint64_t i);
uint64_t bt_rng_u64(uint64_t seed, uint64_t stream, uint64_t index);
double bt_rng_unit(uint64_t seed, uint64_t stream, uint64_t index); /* [0, 1), 53 bits */
/* Writes numbers of a normal distribution with mean 0 and standard deviation sigma for the global indices first to
 * first + n - 1. A slice equals the same part of a longer array. */
void bt_rng_normal(float *out, size_t n, uint64_t first, float sigma, uint64_t seed,
                   uint64_t stream);
/* FNV-1a hash of a tensor's name, used as a stream number. */
uint64_t bt_hash_name(const char *name);
/* Returns the position of index i in a pseudo-random permutation of [0, n) selected by key (cycle-walking Feistel). */
uint64_t bt_rng_permute(uint64_t i, uint64_t n, uint64_t key);

#endif

/* rng.h - counter-based randomness: value = f(seed, stream, index).
 *
 * No state: nothing to save in a checkpoint, the same value on any rank, in any order, on any
 *           number of ranks.
 * splitmix64's finaliser (Steele, Lea, Flood 2014) over mixed counters; normals by Box-Muller in
 * double. */
#ifndef BT_ENGINE_BASE_RNG_H
#define BT_ENGINE_BASE_RNG_H

#include <stddef.h>
#include <stdint.h>

/* finaliser of i + golden ratio, as peer_torch */
uint64_t bt_splitmix64(uint64_t i);
uint64_t bt_rng_u64(uint64_t seed, uint64_t stream, uint64_t index);
double bt_rng_unit(uint64_t seed, uint64_t stream, uint64_t index); /* [0, 1), 53 bits */
/* out[i] = mean 0, std sigma, for global indices first .. first+n-1: any slice equals the slice of
 * the whole */
void bt_rng_normal(float *out, size_t n, uint64_t first, float sigma, uint64_t seed,
                   uint64_t stream);
/* FNV-1a; a stream number from a tensor's name */
uint64_t bt_hash_name(const char *name);
/* a pseudo-random permutation of [0, n): position of index i under key (cycle-walking Feistel) */
uint64_t bt_rng_permute(uint64_t i, uint64_t n, uint64_t key);

#endif

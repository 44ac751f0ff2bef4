/* grad_digest.h - detects in one pass whether two computations of a rank's gradients differ, and whether they are
 * finite.
 *
 * The sum is over the bits of the floats as integers, modulo 2^32, so it depends neither on the order nor on the number
 * of threads. One changed element always changes it, several almost always.
 * Threads: the training thread; uses the pool. */
#ifndef BT_ENGINE_PARALLEL_GRAD_GRAD_DIGEST_H
#define BT_ENGINE_PARALLEL_GRAD_GRAD_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct bt_grad_digest {
    uint32_t sum; /* sum of the bits; 0 for no elements */
    uint32_t
        largest; /* maximum of the bits without signs: of the largest magnitude, an infinity, or a NaN */
} bt_grad_digest;

void bt_grad_digest_add(bt_grad_digest *d, const float *x, size_t n);
bool bt_grad_digest_finite(const bt_grad_digest *d);

#endif

/* grad_digest.h - what tells a rank's own gradients of two computations of one step apart, and
 * whether they are finite, at the price of reading them once.
 *
 * The sum is of the floats' bits as integers, modulo 2^32, so that it depends neither on the order of
 * reading nor on the number of threads; one changed element changes it always, several almost always.
 * Threads: the training thread; uses the pool. */
#ifndef BT_ENGINE_PARALLEL_GRAD_GRAD_DIGEST_H
#define BT_ENGINE_PARALLEL_GRAD_GRAD_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct bt_grad_digest {
    uint32_t sum;     /* of the bits; 0 of nothing */
    uint32_t largest; /* of the bits without signs: the largest magnitude, or infinity, or NaN */
} bt_grad_digest;

void bt_grad_digest_add(bt_grad_digest *d, const float *x, size_t n);
bool bt_grad_digest_finite(const bt_grad_digest *d);

#endif

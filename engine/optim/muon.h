/* muon.h - the direction of a Muon update: the nearest semi-orthogonal matrix to the momentum.
 *
 * Newton-Schulz, five steps of a quintic whose coefficients are tuned for slope at zero (Jordan et
 * al., "Muon", 2024):   X <- a X + (b A + c A A) X,   A = X X^T,   X of Frobenius norm 1 at first.
 * The singular values of the result are near 1 (0.7 to 1.2). Products are in bf16, as published. A direction times
 * sqrt(max(rows, cols)) has a root mean square of 1, like AdamW's updates while a ternary model learns fast, so AdamW's
 * learning rate and decay can be used. Full-precision models use 0.2 of it (Liu et al., "Muon is scalable for LLM
 * training", arXiv:2502.16982, eq. 4). Ternary models need more to change codes: the validation loss of `nano` after
 * 256 steps with the factors 0.2, 0.5, 1, 2, 4 was 1.891, 1.642, 1.558, 1.564, 1.638.
 *
 * The bits depend only on the matrix and the kernel set, not on threads.
 * Order:    create (of the largest matrix) -> direction* -> destroy. Threads: the training thread. No
 *           allocation in direction. */
#ifndef BT_ENGINE_OPTIM_MUON_H
#define BT_ENGINE_OPTIM_MUON_H

#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"

typedef struct bt_muon bt_muon;

/* Creates scratch memory for matrices of at most max_short x max_long elements, the shorter side first. */
bt_code bt_muon_create(bt_muon **out, size_t max_short, size_t max_long, bt_err *err) BT_MUST_CHECK;
void bt_muon_destroy(bt_muon *m); /* accepts NULL */
/* Returns the memory used by create, without the kernels' scratch. */
size_t bt_muon_bytes(size_t max_short, size_t max_long);
/* Replaces the momentum x (rows, cols) in bf16 by its direction; a zero matrix is unchanged. */
void bt_muon_direction(bt_muon *m, uint16_t *x, size_t rows, size_t cols);
/* Returns the factor of a direction in addition to the learning rate. */
float bt_muon_scale(size_t rows, size_t cols);
/* Returns the operations of a direction (a multiply-add is two), by which matrices are distributed over ranks. */
double bt_muon_flops(size_t rows, size_t cols);

/* Computes n elements of the Nesterov momentum after the step of bt_rule_muon, in bf16. Any thread. */
void bt_muon_momentum(uint16_t *out, const float *g, const float *m, float grad_scale, float mu,
                      size_t n);

#endif

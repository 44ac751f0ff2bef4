/* unit_rounding.c - quanta of groups of rows, and the rounding of ranges. */
#include "engine/parallel/grad/unit_rounding.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/rng.h"
#include "engine/base/small.h"
#include "engine/kernels/table/noise.h"

/* FINER: log2 of the number of quanta in the largest gradient. MOST: a value of more quanta is not rounded; sums of
 * fewer quanta are exact. */
enum { FINER = 6, FINITE = 0x7f800000, LEAST_EXPONENT = -140 };
#define MOST 0x1p20f

size_t bt_rounding_groups(size_t whole_rows) {
    return whole_rows < BT_ROUNDING_GROUPS ? whole_rows : BT_ROUNDING_GROUPS;
}

bt_code bt_rounding_create(bt_unit_rounding *r, bt_rounding_tensor *tensors, size_t n_tensors,
                           size_t n_groups, uint64_t seed, bt_err *err) {
    *r = (bt_unit_rounding){.tensors = tensors,
                            .n_tensors = n_tensors,
                            .n_groups = n_groups,
                            .seed = seed,
                            .exponents = calloc(n_groups + 1, sizeof *r->exponents),
                            .largest = calloc(n_groups + 1, sizeof *r->largest),
                            .agreed = calloc(n_groups + 1, sizeof *r->agreed)};
    if (!tensors || !r->exponents || !r->largest || !r->agreed) {
        bt_rounding_release(r);
        return bt_fail(err, BT_NOMEM, "cannot take memory for the quanta of %zu tensors",
                       n_tensors);
    }
    for (size_t g = 0; g < n_groups; g++) r->exponents[g] = BT_ROUNDING_NONE;
    return BT_OK;
}

void bt_rounding_release(bt_unit_rounding *r) {
    free(r->tensors);
    free(r->exponents);
    free(r->largest);
    free(r->agreed);
    *r = (bt_unit_rounding){0};
}

void bt_rounding_begin(bt_unit_rounding *r, int64_t step, double loss_scale) {
    r->step = (uint64_t)step;
    (void)frexp(loss_scale, &r->scale);
    r->scale--;
    for (size_t g = 0; g < r->n_groups; g++) atomic_store(&r->largest[g], 0);
}

typedef struct quantum {
    float size, over; /* 2^e and 2^-e */
} quantum;

/* Rounds columns first .. first+n of the tensor's row. */
static void round_unit_row(float *x, size_t n, size_t first, quantum q, uint32_t key) {
    for (size_t i = 0; i < n; i++) {
        size_t column = first + i;
        uint32_t word = bt_noise_word(key, (uint32_t)(column / 64 * 16 + column % 16)),
                 u = word >> (column / 16 % 4 * 8) & 0xff;
        float v = x[i] * q.over;
        /* also keeps NaN */
        if (fabsf(v) < MOST) x[i] = (float)bt_noise_round(v, u) * q.size;
    }
}

static void note_largest(_Atomic uint32_t *group, const float *x, size_t n) {
    uint32_t top = 0, was = atomic_load_explicit(group, memory_order_relaxed);
    for (size_t i = 0; i < n; i++) top = bt_noise_absmax(top, x[i]);
    while (top > was && !atomic_compare_exchange_weak_explicit(
                            group, &was, top, memory_order_relaxed, memory_order_relaxed)) {}
}

static uint32_t rounding_key(const bt_unit_rounding *r, const bt_rounding_tensor *t, size_t row,
                             int64_t unit) {
    return (uint32_t)bt_rng_u64(r->seed ^ t->name, r->step << 20 ^ (uint64_t)unit, row);
}

/* Rounds elements [begin, end) of row `row` of the block. */
static void round_stretch(bt_unit_rounding *r, const bt_rounding_tensor *t, float *x, size_t row,
                          bt_range columns, int64_t unit) {
    size_t whole = t->row0 + row, n = columns.end - columns.begin,
           group = t->first_group + whole * bt_rounding_groups(t->whole_rows) / t->whole_rows;
    note_largest(&r->largest[group], x, n);
    if (r->exponents[group] == BT_ROUNDING_NONE) return;
    int e = r->exponents[group] + r->scale;
    const quantum q = {ldexpf(1, e), ldexpf(1, -e)};
    round_unit_row(x, n, t->col0 + columns.begin, q, rounding_key(r, t, whole, unit));
}

void bt_rounding_range(bt_unit_rounding *r, float *x, bt_range range, int64_t unit) {
    size_t lo = 0, hi = r->n_tensors;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        const bt_rounding_tensor *t = &r->tensors[mid];
        if (t->offset + t->rows * t->cols <= range.begin)
            lo = mid + 1;
        else
            hi = mid;
    }
    for (; lo < r->n_tensors && r->tensors[lo].offset < range.end; lo++) {
        const bt_rounding_tensor *t = &r->tensors[lo];
        size_t at = bt_max_size(range.begin, t->offset) - t->offset,
               end = bt_min_size(range.end, t->offset + t->rows * t->cols) - t->offset;
        while (at < end) {
            size_t row = at / t->cols, stop = bt_min_size((row + 1) * t->cols, end);
            round_stretch(r, t, x + (t->offset + at - range.begin), row,
                          (bt_range){at - row * t->cols, stop - row * t->cols}, unit);
            at = stop;
        }
    }
}

/* a gradient that is not finite does not change the estimate for later gradients */
static void update_exponent(int16_t *exponent, uint32_t largest, int scale) {
    int e;
    if (largest == 0 || largest >= FINITE) return;
    (void)frexpf(bt_noise_bits(largest), &e);
    e = e - 1 - FINER - scale;
    if (e < LEAST_EXPONENT) e = LEAST_EXPONENT;
    if (*exponent != BT_ROUNDING_NONE && e < *exponent - 1) e = *exponent - 1;
    *exponent = (int16_t)e;
}

bt_code bt_rounding_agree(bt_unit_rounding *r, bt_comm *world, bt_err *err) {
    for (size_t g = 0; g < r->n_groups; g++) r->agreed[g] = (int64_t)atomic_load(&r->largest[g]);
    BT_TRY(bt_all_reduce_i64(world, r->agreed, r->n_groups, BT_MAX, err));
    for (size_t g = 0; g < r->n_groups; g++)
        update_exponent(&r->exponents[g], (uint32_t)r->agreed[g], r->scale);
    return BT_OK;
}

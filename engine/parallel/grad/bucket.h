/* bucket.h - a flat gradient array cut into buckets, from its end backward: backward finishes
 * gradients in that order.
 *
 *     begin                                                                end
 *     [    bucket n-1     |  ...        |     bucket 1      | bucket 0 (short) ]     <- finished first
 *
 * Buckets begin at multiples of their size.
 * Pure arithmetic, no communication. Threads: one owner. */
#ifndef BT_ENGINE_PARALLEL_GRAD_BUCKET_H
#define BT_ENGINE_PARALLEL_GRAD_BUCKET_H

#include <stddef.h>

#include "engine/base/range.h"

typedef struct bt_buckets {
    size_t total; /* elements of the array */
    size_t elems; /* elements of every bucket except bucket 0 */
    size_t n;
    size_t low; /* elements from here to the end are finished */
} bt_buckets;

/* Sets the bucket size to at most bucket_bytes of fp32, as `parts` equal parts of whole cache lines, at least one
 * line each. */
void bt_buckets_init(bt_buckets *b, size_t total, size_t bucket_bytes, int parts);
bt_range bt_bucket_at(const bt_buckets *b, size_t i);
/* A new backward begins: no element is finished. */
void bt_buckets_reset(bt_buckets *b);
/* Marks a range as finished. Ranges arrive in descending order; gaps between them are padding and count as finished. */
void bt_buckets_finished(bt_buckets *b, size_t begin, size_t end);
/* Returns the number of finished buckets: 0 .. ready-1. */
size_t bt_buckets_ready(const bt_buckets *b);

#endif

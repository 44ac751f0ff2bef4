/* bucket.c - buckets of equal size, counted from the end of the flat array. */
#include "engine/parallel/grad/bucket.h"

#include <assert.h>

enum { LINE_ELEMS = 16 };

void bt_buckets_init(bt_buckets *b, size_t total, size_t bucket_bytes, int parts) {
    size_t unit = (size_t)LINE_ELEMS * (size_t)parts,
           elems = bucket_bytes / sizeof(float) / unit * unit;
    b->total = total;
    b->elems = elems ? elems : unit;
    b->n = (total + b->elems - 1) / b->elems;
    b->low = total;
}

bt_range bt_bucket_at(const bt_buckets *b, size_t i) {
    size_t begin = (b->n - 1 - i) * b->elems, end = begin + b->elems;
    return (bt_range){begin, end < b->total ? end : b->total};
}

void bt_buckets_reset(bt_buckets *b) { b->low = b->total; }

void bt_buckets_finished(bt_buckets *b, size_t begin, size_t end) {
    assert(begin <= end && end <= b->low);
    (void)end;
    if (begin < b->low) b->low = begin;
}

size_t bt_buckets_ready(const bt_buckets *b) { return b->n - (b->low + b->elems - 1) / b->elems; }

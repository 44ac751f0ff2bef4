/* bucket.c - the cutting of bucket.h. */
#include "engine/parallel/bucket.h"

#include <assert.h>

enum { LINE_ELEMS = 16 };

void bt_buckets_init(bt_buckets *b, size_t total, size_t bucket_bytes) {
    size_t elems = bucket_bytes / sizeof(float) / LINE_ELEMS * LINE_ELEMS;
    b->total = total;
    b->elems = elems ? elems : LINE_ELEMS;
    b->n = (total + b->elems - 1) / b->elems;
    b->low = total;
}

bt_range bt_bucket_at(const bt_buckets *b, size_t i) {
    size_t end = b->total - i * b->elems;
    return (bt_range){end > b->elems ? end - b->elems : 0, end};
}

void bt_buckets_reset(bt_buckets *b) { b->low = b->total; }

void bt_buckets_finished(bt_buckets *b, size_t begin, size_t end) {
    assert(begin <= end && end <= b->low);
    (void)end;
    if (begin < b->low) b->low = begin;
}

size_t bt_buckets_ready(const bt_buckets *b) {
    if (b->low == 0) return b->n;
    return (b->total - b->low) / b->elems;
}

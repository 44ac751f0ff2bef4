/* encode_pool.h - encodes batches of texts on several threads and returns them in the order in which they were sent.
 *
 * The ids of a text do not depend on the number of threads. The calling thread encodes as well while it waits; with
 * `threads` = 1 no other thread is started.
 * Order:    create -> { begin -> add* -> send; take -> recycle }* -> destroy. A batch is valid until `recycle`.
 * Owns:     its threads, and up to `threads + 2` batches with their texts and ids.
 * Threads:  one caller. */
#ifndef BT_ENGINE_DATA_SHARDS_ENCODE_POOL_H
#define BT_ENGINE_DATA_SHARDS_ENCODE_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"
#include "engine/base/text.h"
#include "engine/data/tokenizer/tokenizer.h"

enum { BT_ENCODE_THREADS_MAX = 64, BT_ENCODE_BATCH_BYTES = 256 << 10 };

typedef struct bt_encode_pool bt_encode_pool;

typedef struct bt_encode_part { /* one text of a batch */
    size_t n;                   /* bytes */
    size_t n_ids;
    unsigned tag; /* a value of the caller */
} bt_encode_part;

typedef struct bt_encode_batch {
    bt_text text;          /* the texts, concatenated */
    bt_encode_part *parts; /* (n_parts) */
    size_t n_parts;
    int32_t *ids; /* ids of all parts, in order; valid after `take` */
} bt_encode_batch;

int bt_encode_threads_allowed(void);
/* t is borrowed until destroy. threads is limited to 1..BT_ENCODE_THREADS_MAX. It may start fewer. */
bt_code bt_encode_pool_create(bt_encode_pool **out, const bt_tokenizer *t, int threads, bt_err *err)
    BT_MUST_CHECK;
bool bt_encode_pool_full(const bt_encode_pool *p);  /* call `take` and `recycle` before `begin` */
bool bt_encode_pool_empty(const bt_encode_pool *p); /* every batch was recycled */
/* Returns an empty batch to fill and to send. The pool must not be full. */
bt_encode_batch *bt_encode_pool_begin(bt_encode_pool *p);
bt_code bt_encode_batch_add(bt_encode_batch *b, const char *text, size_t n, unsigned tag,
                            bt_err *err) BT_MUST_CHECK;
void bt_encode_pool_send(bt_encode_pool *p);
/* Returns the oldest batch with its ids, or the error of its encoding. The pool must not be empty. */
bt_code bt_encode_pool_take(bt_encode_pool *p, bt_encode_batch **out, bt_err *err) BT_MUST_CHECK;
void bt_encode_pool_recycle(bt_encode_pool *p); /* releases the oldest batch */
void bt_encode_pool_destroy(bt_encode_pool *p); /* accepts NULL */

#endif

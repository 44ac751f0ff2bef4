/* skipped_data.h - set of the sequences that were skipped because their step was bad.
 *
 * Sequence numbers count all epochs, as in the loader (data/shards/loader.h): step s of S sequences has [s S, (s + 1)
 * S). The set is part of a checkpoint and equal on all ranks and layouts. A skipped step counts as done, so its
 * sequences are not read again in this epoch; later epochs train on the same text in other batches.
 * Threads: the training thread. Memory grows only with skipped steps. */
#ifndef BT_ENGINE_TRAIN_SKIPPED_DATA_H
#define BT_ENGINE_TRAIN_SKIPPED_DATA_H

#include "engine/ckpt/state.h"

typedef struct bt_skipped {
    int64_t (*ranges)[2]; /* (n) [first, end) of sequences, ascending and disjoint */
    size_t n, cap;
} bt_skipped;

void bt_skipped_release(bt_skipped *s); /* accepts an all-zero struct */
/* Appends sequences [first, first + count), which must follow all sequences of the set. */
bt_code bt_skipped_add(bt_skipped *s, int64_t first, int64_t count, bt_err *err) BT_MUST_CHECK;

void bt_skipped_add_state(bt_skipped *s, bt_state *state);

#endif

/* skipped_data.h - which sequences of the data a training has left out, because the step that they made
 * was bad.
 *
 * Numbers of sequences count all epochs, as the loader does (data/shards/loader.h): step s of S
 * sequences has [s S, (s + 1) S). The set is part of a checkpoint, the same on all ranks and
 * layouts. A step that is skipped counts as done, so its sequences are not drawn again; in a later
 * epoch the same text comes in other batches and is trained on.
 * Threads: the training thread. Memory grows by a step that is skipped, not by others. */
#ifndef BT_ENGINE_TRAIN_SKIPPED_DATA_H
#define BT_ENGINE_TRAIN_SKIPPED_DATA_H

#include "engine/ckpt/state.h"

typedef struct bt_skipped {
    int64_t (*ranges)[2]; /* (n) [first, end) of sequences, ascending, apart from each other */
    size_t n, cap;
} bt_skipped;

void bt_skipped_release(bt_skipped *s); /* accepts an all-zero struct */
/* sequences [first, first + count) behind all others in the set */
bt_code bt_skipped_add(bt_skipped *s, int64_t first, int64_t count, bt_err *err) BT_MUST_CHECK;

/* row "skipped" */
void bt_skipped_add_state(bt_skipped *s, bt_state *state);

#endif

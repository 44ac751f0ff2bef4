/* followers.h - counts which tokens follow which in the first data of a run. Threads: one caller. */
#ifndef BT_ENGINE_DATA_SHARDS_FOLLOWERS_H
#define BT_ENGINE_DATA_SHARDS_FOLLOWERS_H

#include "engine/base/numbers/bigrams.h"
#include "engine/data/shards/loader.h"

enum { BT_FOLLOWERS_TOKENS = 1 << 22 };

/* Counts the learned targets of the first sequences of `cfg` in the order of training: at most one epoch and
 * BT_FOLLOWERS_TOKENS tokens. The counts depend only on the data, V and T, so all ranks of any layout have the same.
 * Needs 16 bytes a token while counting, and 8 bytes for each pair that occurs. */
bt_code bt_followers_count(bt_followers *out, const bt_loader_cfg *cfg, bt_err *err) BT_MUST_CHECK;
void bt_followers_release(bt_followers *f);

#endif

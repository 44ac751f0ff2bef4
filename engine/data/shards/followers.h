/* followers.h - which tokens follow which in the data that a run begins with: the statistics of a bigram model.
 * Threads: one. */
#ifndef BT_ENGINE_DATA_SHARDS_FOLLOWERS_H
#define BT_ENGINE_DATA_SHARDS_FOLLOWERS_H

#include "engine/base/numbers/bigrams.h"
#include "engine/data/shards/loader.h"

enum { BT_FOLLOWERS_TOKENS = 1 << 22 };

/* Of the learned targets of the first sequences of `cfg`, in the order of training: an epoch of them, of at most
 * BT_FOLLOWERS_TOKENS tokens. A function of the data, V and T: the same on every rank of every layout. Takes 16
 * bytes a token while it counts, and keeps 8 for each pair that occurs */
bt_code bt_followers_count(bt_followers *out, const bt_loader_cfg *cfg, bt_err *err) BT_MUST_CHECK;
void bt_followers_release(bt_followers *f);

#endif

/* shard_open.h - private to engine/data: opens a shard from a file descriptor, for its writer and for the fuzzer. */
#ifndef BT_ENGINE_DATA_SHARDS_SHARD_OPEN_H
#define BT_ENGINE_DATA_SHARDS_SHARD_OPEN_H

#include "engine/data/shards/shard.h"

/* Takes ownership of fd, also on failure; `name` is for messages. */
bt_code bt_shard_open_fd(bt_shard **out, int fd, const char *name, bt_err *err) BT_MUST_CHECK;

#endif

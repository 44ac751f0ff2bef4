/* data_lease.h - records which island trains on which sequences. A sequence number belongs to at most one island at a
 * time, and to none after its update was applied.
 *
 * The data are a line of sequence numbers (data/shards/loader.h). Numbers from `next` on were never leased. Ranges of
 * islands that died or left are returned; they are below `next` and are leased first, to any island for whose step they
 * are large enough.
 * Threads: one owner. */
#ifndef BT_ENGINE_ISLANDS_RULES_DATA_LEASE_H
#define BT_ENGINE_ISLANDS_RULES_DATA_LEASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"

typedef struct bt_lease {
    int64_t begin, end;
    int64_t owner; /* number of the island; -1: the range was returned */
} bt_lease;

typedef struct bt_leases {
    bt_lease *at; /* (n) unordered */
    size_t n, cap;
    int64_t next; /* first sequence that was never leased */
} bt_leases;

void bt_leases_release(bt_leases *l); /* accepts an all-zero struct */
/* Leases n consecutive sequences to an island; *begin is the first of them. */
bt_code bt_leases_take(bt_leases *l, int64_t owner, int64_t n, int64_t *begin, bt_err *err)
    BT_MUST_CHECK;
/* Marks [begin, end) as done after the update was applied. Returns false if the island does not own all of it. */
bool bt_leases_done(bt_leases *l, int64_t owner, int64_t begin, int64_t end);
/* Returns all ranges of the island, which become free. The result is the number of sequences. */
int64_t bt_leases_give_back(bt_leases *l, int64_t owner);
/* Adds [begin, end) to the returned ranges when a restarted hub restores its state. */
bt_code bt_leases_return(bt_leases *l, int64_t begin, int64_t end, bt_err *err) BT_MUST_CHECK;
/* Leases [begin, end) again to its island after a restart. Returns false if any of it is leased or done. */
bool bt_leases_claim(bt_leases *l, int64_t owner, int64_t begin, int64_t end);

#endif

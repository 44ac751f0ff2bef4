/* data_lease.h - which island owns which training sequences. Every sequence number belongs to at most one island
 * at a time, and to none after its update was applied.
 *
 * The data are a line of sequence numbers (data/shards/loader.h). Numbers that were never leased begin at `next`.
 * Ranges returned by islands that died or left are below `next`; they are leased first, to any island whose step
 * they can hold.
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
/* Leases n consecutive sequences, the first of which is *begin, to an island. */
bt_code bt_leases_take(bt_leases *l, int64_t owner, int64_t n, int64_t *begin, bt_err *err)
    BT_MUST_CHECK;
/* Marks [begin, end) as done after its update was applied. Returns false if the island does not own all of it. */
bool bt_leases_done(bt_leases *l, int64_t owner, int64_t begin, int64_t end);
/* Returns all ranges of the island to the free ones; the result is the number of sequences. */
int64_t bt_leases_give_back(bt_leases *l, int64_t owner);
/* Adds [begin, end) to the returned ranges when a restarted hub restores its state. */
bt_code bt_leases_return(bt_leases *l, int64_t begin, int64_t end, bt_err *err) BT_MUST_CHECK;
/* Leases [begin, end) to an island that held it before the hub restarted. Returns false, and leases nothing, if any of
 * it is leased or done. */
bool bt_leases_claim(bt_leases *l, int64_t owner, int64_t begin, int64_t end);

#endif

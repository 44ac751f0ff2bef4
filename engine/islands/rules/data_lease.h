/* data_lease.h - which island owns which training sequences: every sequence number belongs to one island
 * at most at a time, and to none after its update was applied.
 *
 * The data are a line of sequence numbers (data/shards/loader.h). What was never dealt begins at
 * `next`; stretches that came back, of islands that died or left, lie in front of it and are dealt first
 * to whoever they are large enough for.
 * Threads: one owner. */
#ifndef BT_ENGINE_ISLANDS_RULES_DATA_LEASE_H
#define BT_ENGINE_ISLANDS_RULES_DATA_LEASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"

typedef struct bt_lease {
    int64_t begin, end;
    int64_t owner; /* of an island; -1: it came back */
} bt_lease;

typedef struct bt_leases {
    bt_lease *at; /* (n) in no order */
    size_t n, cap;
    int64_t next; /* no sequence from here on has been dealt */
} bt_leases;

void bt_leases_release(bt_leases *l); /* accepts an all-zero struct */
/* n sequences in a row for an island: *begin is the first */
bt_code bt_leases_take(bt_leases *l, int64_t owner, int64_t n, int64_t *begin, bt_err *err)
    BT_MUST_CHECK;
/* the update made of [begin, end) was applied: nobody owns them any more. false: the island does not own
 * them all */
bool bt_leases_done(bt_leases *l, int64_t owner, int64_t begin, int64_t end);
/* what the island owns comes back; how many sequences */
int64_t bt_leases_give_back(bt_leases *l, int64_t owner);
/* [begin, end) of another time comes back (a hub that starts again) */
bt_code bt_leases_return(bt_leases *l, int64_t begin, int64_t end, bt_err *err) BT_MUST_CHECK;
/* An island says that it has [begin, end) from a time that the hub does not remember: it gets them if nobody
 * owns any of them and none was done. false: it does not */
bool bt_leases_claim(bt_leases *l, int64_t owner, int64_t begin, int64_t end);

#endif

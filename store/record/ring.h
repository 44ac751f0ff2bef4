/* ring.h - private to store/: the newest records of rank 0 in a mapped file, in case they are
 * never committed.
 *
 * Rank 0 appends every record before it queues it. The pages of the file belong to the system,
 * so they survive kill -9 of the rank, the supervisor or both. There is no acknowledgement: the
 * reader (bt_writer_recover) skips records that the database has.
 * Layout:   a page with the header, then a circle of {head, payload padded to 8}; positions grow
 *           for ever, modulo the circle's size. An append first releases the oldest records in
 *           its way, then writes, then moves `head`: a kill between any two of these leaves
 *           complete records only. Every record has a checksum.
 * Limits:   Records are lost in a power cut, because nothing is synced. A file on a network file
 *           system is refused, because a failed page access would kill the rank.
 * Threads:  one appends; reading is for a file whose writer has ended. */
#ifndef BT_STORE_RECORD_RING_H
#define BT_STORE_RECORD_RING_H

#include "engine/base/status.h"
#include "store/record/record.h"

enum { BT_RING_BYTES = 2 << 20 };

typedef struct bt_ring bt_ring;

/* Creates a new file, replacing an old one, and reserves its space on disk. */
bt_code bt_ring_create(bt_ring **out, const char *path, int attempt, size_t bytes, bt_err *err)
    BT_MUST_CHECK;
/* Appends a record; does nothing if r or rec is NULL. Skips records larger than an eighth of the circle. */
void bt_ring_append(bt_ring *r, const bt_record *rec);
void bt_ring_close(bt_ring *r); /* accepts NULL; keeps the file */

/* Returns true if a ring exists and its writer has ended. */
bool bt_ring_left(const char *path);
/* Reads all records, oldest first; free them with bt_records_free. BT_NOTFOUND: no file. BT_FORMAT: not a ring, or
 * of another build. */
bt_code bt_ring_read(const char *path, int *attempt, bt_record **list, bt_err *err) BT_MUST_CHECK;

#endif

/* ring.h - private to store/: the newest records of rank 0 in a mapped file, for the case that they
 * are never committed.
 *
 * Rank 0 appends every record before it queues it. The file's pages belong to the system, so what
 * was appended is there after kill -9 of the rank, of the supervisor, of both. Nobody acknowledges:
 * a reader (bt_writer_recover) skips what the database has.
 * Layout:   a page with the header, then a circle of {head, payload padded to 8}; positions grow
 *           for ever, modulo the circle's size. An append first gives up the oldest records in its
 *           way, then writes, then moves `head`: a kill between any two of these leaves whole
 *           records only. Every record has a checksum.
 * Not for:  power cuts (nothing is synced) and disks of other machines (refused: a lost page would
 *           end the rank).
 * Threads:  one appends; reading is for a file whose writer has gone. */
#ifndef BT_STORE_RECORD_RING_H
#define BT_STORE_RECORD_RING_H

#include "engine/base/status.h"
#include "store/record/record.h"

enum { BT_RING_BYTES = 2 << 20 };

typedef struct bt_ring bt_ring;

/* a new file in the place of an old one; its room is taken from the disk now */
bt_code bt_ring_create(bt_ring **out, const char *path, int attempt, size_t bytes, bt_err *err)
    BT_MUST_CHECK;
/* accepts NULL for both; a record above an eighth of the circle is left out */
void bt_ring_append(bt_ring *r, const bt_record *rec);
void bt_ring_close(bt_ring *r); /* accepts NULL; the file stays */

/* there is one and its writer has gone */
bool bt_ring_left(const char *path);
/* everything in the file, oldest first; bt_records_free. BT_NOTFOUND: no file. BT_FORMAT: not one
 * of ours, or of another build */
bt_code bt_ring_read(const char *path, int *attempt, bt_record **list, bt_err *err) BT_MUST_CHECK;

#endif

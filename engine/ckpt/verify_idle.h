/* verify_idle.h - reads a checkpoint again from the disk, in a thread that uses at most 1 % of a processor, and
 * compares every byte with its hashes.
 *
 * The read-back after writing used the page cache, so it does not detect bytes that a disk loses or changes. Cached
 * pages are dropped first (posix_fadvise), which the kernel may decline. The reads have the idle I/O priority.
 * Order:    start -> done* -> destroy. One process, no MPI. Threads: one caller. */
#ifndef BT_ENGINE_CKPT_VERIFY_IDLE_H
#define BT_ENGINE_CKPT_VERIFY_IDLE_H

#include "engine/ckpt/ckpt.h"

typedef struct bt_ckpt_reread bt_ckpt_reread;

typedef struct bt_ckpt_checked {
    bt_code code; /* BT_OK: intact; BT_FORMAT: damaged; BT_IO: cannot be read */
    bt_err err;
    int64_t bytes; /* bytes read */
    double took_s;
} bt_ckpt_checked;

/* path: the folder of one checkpoint. */
bt_code bt_ckpt_reread_start(bt_ckpt_reread **out, const char *path, bt_err *err) BT_MUST_CHECK;
/* Returns false while the thread reads. */
bool bt_ckpt_reread_done(bt_ckpt_reread *c, bt_ckpt_checked *out);
void bt_ckpt_reread_destroy(bt_ckpt_reread *c); /* stops reading. Accepts NULL */

#endif

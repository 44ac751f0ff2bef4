/* memory_state.h - the state after each of the newest steps in shared memory, for a restart on the same host.
 *
 *     DIR/state-RANK-LAYOUT-0, -1      two segments a rank, written in turn
 *     segment = head (64 KiB) | table of sections (section_head each) | data, 64-byte aligned
 *
 * A rank writes the slices that it would write to a checkpoint (every element of a tensor by exactly one rank), so
 * any layout can read them. The head is written last and covers every byte by hashes: a rank killed during a write
 * leaves no valid head. A state counts if all ranks of its world have one with the same attempt and number.
 * Because no rank can finish a step before all have begun it, ranks are at most one state apart: with two segments
 * each, one state is complete in every rank at any moment.
 *
 * A run on several hosts stores states on rank 0's host only, where the supervisor runs, if the ranks of this host
 * have the whole state (plain data parallelism): they also write the parts of their replicas on other hosts, so
 * that the loss of another host loses no part. Otherwise (ZeRO, tensor and pipeline parallelism, codecs with error
 * feedback) a state is *spread*: every rank writes its part on its own host, and a rank of the next host in a ring
 * keeps a copy of it, sent in the same step (parts of the first host are not copied). So all parts survive the
 * loss of any one host but the first, but not of two neighbours. Rank 0's head is made valid only after all ranks
 * have written and sent theirs, so that it is valid for all.
 *
 * A state survives the death of any ranks, but not the loss of the first host. The supervisor creates DIR in its
 * scratch folder in /dev/shm; on other hosts ranks create it (bt_memory_dir_make). The next attempt reuses segments of
 * the same layout, because their first use costs ten times a later one.
 *
 * Order:    open -> {write -> publish}* -> close. In the next attempt, before open: the supervisor calls find, its
 *           ranks found_open -> found_load -> found_close.
 * Ranks:    open, found_open and found_load are collective, and so is write if the state is spread; all other
 *           functions are not.
 * Threads:  the training thread; write copies with the thread pool. No allocation after open. */
#ifndef BT_ENGINE_CKPT_MEMORY_STATE_H
#define BT_ENGINE_CKPT_MEMORY_STATE_H

#include "engine/ckpt/ckpt.h"

typedef struct bt_memory_state bt_memory_state;

/* identifies a state: attempt as in the fence; `number` counts the attempt's states */
typedef struct bt_memory_id {
    int64_t attempt, number, step;
    int64_t disk_ns; /* time of the newest checkpoint on disk (bt_now_ns), 0: none yet */
} bt_memory_id;

typedef struct bt_memory_cfg {
    const char *dir;             /* an existing folder of a memory file system */
    bt_comm *world;              /* ranks that write; borrowed, like the slices' data */
    const bt_ckpt_slice *slices; /* (n) slices that this rank contributes; copied */
    size_t n;
    int attempt;
    bool spread; /* every rank writes its own part on its host, because there are several hosts */
    const bt_memory_id *begun_from; /* state that this attempt loaded; NULL: none */
} bt_memory_cfg;

/* Creates DIR on a host without a supervisor: NAME/states in /dev/shm, both accessible to this user only. BT_IO. */
bt_code bt_memory_dir_make(const char *dir, bt_err *err) BT_MUST_CHECK;
/* Removes the folder made by bt_memory_dir_make with all states. Does nothing to a folder of a supervisor. */
void bt_memory_dir_remove(const char *dir);

/* Returns the size of this rank's two segments for slices of `data` bytes in n pieces. */
size_t bt_memory_state_bytes(size_t data, size_t n);
/* Allocates the segments. All ranks return BT_UNSUPPORTED (not in memory) or BT_IO (no room), and remove everything
 * they created. */
bt_code bt_memory_state_open(bt_memory_state **out, const bt_memory_cfg *cfg, bt_err *err)
    BT_MUST_CHECK;
void bt_memory_state_close(bt_memory_state *m); /* accepts NULL; the segment files remain */
size_t bt_memory_state_total(
    const bt_memory_state *m); /* size of this rank's segments, including copies that it keeps */

/* Writes the current content of the slices into the older segment. meta: step, tokens, hashes, isa, build and state
 * are stored. The state is not valid before publish. BT_UNSUPPORTED: meta's values do not fit; earlier states are
 * unchanged. */
bt_code bt_memory_state_write(bt_memory_state *m, const bt_ckpt_meta *meta, int64_t disk_ns,
                              bt_err *err) BT_MUST_CHECK;
/* Makes the last written state valid; does nothing if there is none. */
void bt_memory_state_publish(bt_memory_state *m);

/* Finds the newest state in dir whose heads and tables are complete on all its ranks (for a spread state, on rank
 * 0); returns false if there is none. Called by one process; reads heads and tables only. meta (may be NULL): metadata
 * passed to write. */
bool bt_memory_state_find(const char *dir, bt_memory_id *id, bt_ckpt_meta *meta);
/* Reads slices of that state. Every section that is used is compared with its hash: BT_FORMAT. */
bt_code bt_memory_state_load(const char *dir, const bt_memory_id *id, const bt_ckpt_slice *slices,
                             size_t n, bt_err *err) BT_MUST_CHECK;
/* ---- called by the ranks that restart from it --------------------------------------------------------- */

/* Return true if the rank is on rank 0's host; if all ranks are. */
bool bt_memory_is_here(int rank);
bool bt_memory_all_here(const bt_comm *world);

typedef struct bt_memory_found bt_memory_found;
/* Opens the state found by bt_memory_state_find; BT_FORMAT unless all ranks of rank 0's host find the same one. If
 * it is not spread, each rank of another host receives a copy in memory. Collective over the world; id and meta,
 * which the caller releases, are equal on all ranks. */
bt_code bt_memory_found_open(bt_memory_found **out, const char *dir, bt_comm *world,
                             bt_memory_id *id, bt_ckpt_meta *meta, bt_err *err) BT_MUST_CHECK;
/* Acts like bt_memory_state_load. Missing parts of a spread state that slices of a host's ranks touch are received
 * from another host, once per host, and stored in DIR while reading: BT_FORMAT if no host has a part. Collective;
 * all ranks return the same code. */
bt_code bt_memory_found_load(bt_memory_found *f, const bt_ckpt_slice *slices, size_t n, bt_err *err)
    BT_MUST_CHECK;
void bt_memory_found_close(bt_memory_found *f); /* accepts NULL */

/* Removes all states in dir before a restart from a checkpoint on disk, so that they are not found again. */
void bt_memory_state_drop(const char *dir);

#endif

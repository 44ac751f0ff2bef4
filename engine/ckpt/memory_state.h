/* memory_state.h - the state after each of the newest steps in shared memory, from which a restart on
 * the same host goes on.
 *
 *     DIR/state-RANK-LAYOUT-0, -1      two segments a rank, written in turn
 *     segment = head (4 KiB) | table of sections (section_head each) | data, 64-byte aligned
 *
 * What a rank writes are the slices that it would write to a checkpoint (every element of a tensor by
 * exactly one rank), so any layout can read them. The head is written last and covers every byte
 * by hashes: a rank that is killed while it writes leaves no valid head. A state counts when all ranks
 * of its world have one with the same attempt and number. As no rank can finish a step before all
 * have begun it, ranks are at most one state apart: with two segments each, one state is whole in
 * every rank at any moment.
 *
 * A run on several hosts keeps states on rank 0's, where the supervisor is: its ranks alone write, the
 * parts of their replicas on other hosts too, so that whichever other host is lost, none is missing.
 *
 * It survives the death of ranks, not of the host. Whoever makes DIR (the supervisor, in its scratch
 * folder in /dev/shm) removes it; segments of the same layout are taken over by the next attempt,
 * as their first use costs ten times a later one.
 *
 * Order:    open -> {write -> publish}* -> close. The next attempt, before it opens: the supervisor finds, its ranks
 *           found_open -> found_load -> found_close.
 * Ranks:    open and found_open are collective; all else is not.
 * Threads:  the training thread; write copies with the thread pool. No allocation after open. */
#ifndef BT_ENGINE_CKPT_MEMORY_STATE_H
#define BT_ENGINE_CKPT_MEMORY_STATE_H

#include "engine/ckpt/ckpt.h"

typedef struct bt_memory_state bt_memory_state;

/* which state it is; the attempt is that of the fence, and `number` counts the attempt's states */
typedef struct bt_memory_id {
    int64_t attempt, number, step;
    int64_t disk_ns; /* clock of the newest checkpoint on disk (bt_now_ns), 0: none yet */
} bt_memory_id;

typedef struct bt_memory_cfg {
    const char *dir;             /* exists; a memory file system */
    bt_comm *world;              /* the ranks that write; borrowed, as the slices' data */
    const bt_ckpt_slice *slices; /* (n) what this rank contributes; copied */
    size_t n;
    int attempt;
    const bt_memory_id *begun_from; /* the state that this attempt loaded; NULL: none */
} bt_memory_cfg;

/* bytes of this rank's two segments, for slices of `data` bytes in n pieces */
size_t bt_memory_state_bytes(size_t data, size_t n);
/* Takes the room. On all ranks alike BT_UNSUPPORTED (not in memory) or BT_IO (no room), with nothing
 * left behind */
bt_code bt_memory_state_open(bt_memory_state **out, const bt_memory_cfg *cfg, bt_err *err)
    BT_MUST_CHECK;
void bt_memory_state_close(bt_memory_state *m);         /* accepts NULL; the segments stay */
size_t bt_memory_state_total(const bt_memory_state *m); /* bytes of this rank's segments */

/* The slices as they are now, into the older segment. meta: step, tokens, hashes, isa, build and state
 * count. The state is not valid before publish. BT_UNSUPPORTED: meta's values do not
 * fit, the states before it are untouched. */
bt_code bt_memory_state_write(bt_memory_state *m, const bt_ckpt_meta *meta, int64_t disk_ns,
                              bt_err *err) BT_MUST_CHECK;
/* makes what was written last valid; nothing where nothing is waiting */
void bt_memory_state_publish(bt_memory_state *m);

/* The newest state in dir whose heads and tables are whole on all its ranks; false: none. One
 * process; reads no data. meta (may be NULL) gets what was given to write. */
bool bt_memory_state_find(const char *dir, bt_memory_id *id, bt_ckpt_meta *meta);
/* reads slices out of that state, every section that is used checked against its hash: BT_FORMAT */
bt_code bt_memory_state_load(const char *dir, const bt_memory_id *id, const bt_ckpt_slice *slices,
                             size_t n, bt_err *err) BT_MUST_CHECK;
/* ---- by the ranks that go on from it --------------------------------------------------------- */

/* on rank 0's host, as far as ranks of the world are asked for; all of them */
bool bt_memory_is_here(int rank);
bool bt_memory_all_here(const bt_comm *world);

typedef struct bt_memory_found bt_memory_found;
/* The state that bt_memory_state_find finds, if all ranks of rank 0's host find the same: BT_FORMAT. Each
 * rank of another host gets a copy of it, in memory. Collective over the world; id and meta, which the
 * caller releases, are the same on all ranks. dir is borrowed */
bt_code bt_memory_found_open(bt_memory_found **out, const char *dir, bt_comm *world,
                             bt_memory_id *id, bt_ckpt_meta *meta, bt_err *err) BT_MUST_CHECK;
/* as bt_memory_state_load; this rank alone */
bt_code bt_memory_found_load(const bt_memory_found *f, const bt_ckpt_slice *slices, size_t n,
                             bt_err *err) BT_MUST_CHECK;
void bt_memory_found_close(bt_memory_found *f); /* accepts NULL */

/* removes all states in dir: whoever goes back to a checkpoint on disk must not find them again */
void bt_memory_state_drop(const char *dir);

#endif

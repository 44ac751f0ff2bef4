/* memory_state.h - the state after each of the newest steps in shared memory, for a restart on the same host.
 *
 *     DIR/state-RANK-LAYOUT-0, -1      two segments per rank, written alternately
 *     segment = head (64 KiB) | table of sections (section_head each) | data, 64-byte aligned
 *
 * A rank writes the slices that it would write to a checkpoint (every element of a tensor by exactly one rank), so
 * any layout can read them. The head is written last, and its hashes cover every byte, so a rank that is killed
 * during a write leaves no valid head. A state is complete if all ranks of its world have a part with the same attempt
 * and number. No rank can finish a step before all have begun it, so ranks are at most one state apart, and with two
 * segments each, some state is complete at any moment.
 *
 * If the ranks of rank 0's host have the whole state (plain data parallelism), a run on several hosts stores states
 * only there, where the supervisor runs. These ranks also write the parts of their replicas on other hosts, so the
 * loss of another host loses no part. Otherwise (ZeRO, tensor and pipeline parallelism, codecs with error feedback) a
 * state is *spread*: every rank writes its part on its own host and sends it in the same step to a rank of the next
 * host in a ring, which keeps a copy; parts of the first host are not copied. All parts then survive the loss of any
 * single host except the first, but not of two neighbouring hosts. The head of rank 0 becomes valid only after all
 * ranks have written and sent their parts, so it stands for all.
 *
 * A state survives the death of any ranks, but not the loss of the first host. The supervisor creates DIR in its
 * scratch folder in /dev/shm; on other hosts ranks create it (bt_memory_dir_make). The next attempt reuses segments of
 * the same layout, because the first use of a segment costs ten times as
 * much as a later one.
 *
 * Order:    open -> {write -> publish}* -> close. In the next attempt, before open: the supervisor calls find, its
 *           ranks found_open -> found_load -> found_close.
 * Ranks:    open, found_open and found_load are collective; write is collective if the state is spread.
 * Threads:  the training thread; write copies with the thread pool. No allocation after open. */
#ifndef BT_ENGINE_CKPT_MEMORY_STATE_H
#define BT_ENGINE_CKPT_MEMORY_STATE_H

#include "engine/ckpt/ckpt.h"

typedef struct bt_memory_state bt_memory_state;

/* Identifies a state: the attempt as in the fence (ckpt.h), and the number of the state within the attempt. */
typedef struct bt_memory_id {
    int64_t attempt, number, step;
    int64_t disk_ns; /* time of the newest checkpoint on disk (bt_now_ns); 0: none */
} bt_memory_id;

typedef struct bt_memory_cfg {
    const char *dir;             /* an existing folder of a memory file system */
    bt_comm *world;              /* ranks that write; borrowed, like the slices' data */
    const bt_ckpt_slice *slices; /* (n) slices that this rank contributes; copied */
    size_t n;
    int attempt;
    /* true: every rank writes its own part on its host, because there are several hosts */
    bool spread;
    const bt_memory_id *begun_from; /* the state that this attempt loaded; NULL: none */
} bt_memory_cfg;

/* Creates DIR on a host without a supervisor: NAME and NAME/states in /dev/shm, for this user only. BT_IO. */
bt_code bt_memory_dir_make(const char *dir, bt_err *err) BT_MUST_CHECK;
/* Removes a folder that bt_memory_dir_make created, with all states; leaves a folder of a supervisor. */
void bt_memory_dir_remove(const char *dir);

/* Returns the size of this rank's two segments for n slices with `data` bytes. */
size_t bt_memory_state_bytes(size_t data, size_t n);
/* Allocates the segments. After BT_UNSUPPORTED (not in memory) or BT_IO (no room) all ranks remove what they made. */
bt_code bt_memory_state_open(bt_memory_state **out, const bt_memory_cfg *cfg, bt_err *err)
    BT_MUST_CHECK;
void bt_memory_state_close(bt_memory_state *m); /* accepts NULL; the segment files remain */
/* size of this rank's segments, including copies that it keeps */
size_t bt_memory_state_total(const bt_memory_state *m);

/* Writes the current content of the slices into the older segment, with step, tokens, hashes, isa, build and state of
 * meta. The state is not valid before publish. BT_UNSUPPORTED: the values of meta do not fit; earlier states are
 * unchanged. */
bt_code bt_memory_state_write(bt_memory_state *m, const bt_ckpt_meta *meta, int64_t disk_ns,
                              bt_err *err) BT_MUST_CHECK;
/* Makes the last written state, if any, valid. */
void bt_memory_state_publish(bt_memory_state *m);

/* Finds the newest state in dir whose heads and tables are complete on all its ranks; for a spread state only rank 0's
 * part is required. Returns false if there is none. One process; reads only heads and tables. meta (may be NULL):
 * receives the metadata that was passed to write. */
bool bt_memory_state_find(const char *dir, bt_memory_id *id, bt_ckpt_meta *meta);
/* Reads slices of this state. BT_FORMAT: a section that is needed does not have its hash. */
bt_code bt_memory_state_load(const char *dir, const bt_memory_id *id, const bt_ckpt_slice *slices,
                             size_t n, bt_err *err) BT_MUST_CHECK;

/* The first returns true if the rank is on rank 0's host, the second if all ranks are. */
bool bt_memory_is_here(int rank);
bool bt_memory_all_here(const bt_comm *world);

typedef struct bt_memory_found bt_memory_found;
/* Opens the state that bt_memory_state_find returned. BT_FORMAT: ranks of rank 0's host find different states. If the
 * state is not spread, each rank of another host receives a copy in memory. Collective over the world. id and meta are
 * equal on all ranks; the caller releases meta. */
bt_code bt_memory_found_open(bt_memory_found **out, const char *dir, bt_comm *world,
                             bt_memory_id *id, bt_ckpt_meta *meta, bt_err *err) BT_MUST_CHECK;
/* Like bt_memory_state_load. Missing parts of a spread state that slices of a host's ranks need are received from
 * another host, once per host, and stored in DIR while reading. BT_FORMAT: no host has a part. Collective; all ranks
 * return the same code. */
bt_code bt_memory_found_load(bt_memory_found *f, const bt_ckpt_slice *slices, size_t n, bt_err *err)
    BT_MUST_CHECK;
void bt_memory_found_close(bt_memory_found *f); /* accepts NULL */

/* Removes all states in dir before a restart from a checkpoint on disk, so that no later search finds them. */
void bt_memory_state_drop(const char *dir);

#endif

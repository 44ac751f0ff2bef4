/* save_steps.h - the steps of saving a checkpoint: collective steps, and steps of a single rank, which may run in a
 * thread. Private to engine/ckpt.
 *
 *     begin          collective    a random generation, the same on all ranks
 *     make_folder    rank 0        removes older checkpoints first if the disk lacks room
 *     write          each rank     its file
 *     gather         collective    rank 0 receives the rows of all files
 *     commit         rank 0        the manifest; removes older checkpoints
 *     tell           collective    seal and bytes
 *     end            collective    removes a failed save
 *
 * If a local step fails, the next collective step receives its code, and all ranks fail alike. `end` must follow any
 * failure after begin. Threads: make_folder, write and commit make no MPI call. */
#ifndef BT_ENGINE_CKPT_SAVE_STEPS_H
#define BT_ENGINE_CKPT_SAVE_STEPS_H

#include <limits.h>

#include "engine/ckpt/format.h"

typedef struct ckpt_save {
    bt_comm *c;
    bt_ckpt_job job; /* its pointers are borrowed */
    int rank, size;
    char folder[PATH_MAX];
    uint64_t generation;
    ckpt_file mine, *rows; /* rows: files of all ranks, on rank 0 */
    char seal[40];
    int replaced; /* on rank 0: number of older checkpoints removed for lack of disk space */
    bool made;    /* the folder exists; the caller sets it after all ranks agree */
    bool renamed; /* on rank 0: the manifest is on disk */
} ckpt_save;

bt_code ckpt_save_begin(ckpt_save *s, bt_comm *c, const bt_ckpt_job *job, bt_err *err)
    BT_MUST_CHECK;
bt_code ckpt_save_make_folder(ckpt_save *s, bt_err *err) BT_MUST_CHECK;
bt_code ckpt_save_write(ckpt_save *s, bt_err *err) BT_MUST_CHECK;
/* written: the result of this rank's write. */
bt_code ckpt_save_gather(ckpt_save *s, bt_code written, bt_err *err) BT_MUST_CHECK;
bt_code ckpt_save_commit(ckpt_save *s, bt_err *err) BT_MUST_CHECK;
/* committed: the result of rank 0's commit; BT_OK on all other ranks. out may be NULL. */
bt_code ckpt_save_tell(ckpt_save *s, bt_code committed, bt_ckpt_saved *out, bt_err *err)
    BT_MUST_CHECK;
void ckpt_save_end(ckpt_save *s, bt_code code);

/* BT_DAMAGED: the error names the first tensor with a number that is not finite. */
bt_code ckpt_check_finite(const bt_ckpt_slice *slices, size_t n, bt_err *err) BT_MUST_CHECK;

#endif

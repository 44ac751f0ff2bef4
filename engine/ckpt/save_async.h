/* save_async.h - writes a checkpoint during training.
 *
 *     start      copies the data of this rank to preallocated memory      the only part that training waits for
 *     MAKING     a thread of rank 0 creates the folder
 *     WRITING    each rank's thread writes its file from the copy, syncs it and reads it back
 *     COMMITTING a thread of rank 0 writes the manifest (ckpt.h: Commit), and removes older checkpoints
 *
 * Between two stages all ranks must agree that the stage is complete everywhere: the trainer sends `busy` with the
 * exchange of gradients, and when no rank is busy, all call `advance`, which makes a few small collective calls. A
 * kill at any moment has the same effect as in a synchronous save.
 *
 * Order:    create -> { start -> advance* until *finished }* -> destroy.
 * Ranks:    start and advance are collective. After an error all ranks agree that the save has failed; its files are
 *           removed, and the next save may start.
 * Threads:  the training thread, which starts and joins the thread of each stage. These threads make no MPI calls
 *           and have a lower scheduling priority (nice 10). */
#ifndef BT_ENGINE_CKPT_SAVE_ASYNC_H
#define BT_ENGINE_CKPT_SAVE_ASYNC_H

#include "engine/ckpt/ckpt.h"

typedef struct bt_ckpt_async bt_ckpt_async;

size_t bt_ckpt_copy_bytes(const bt_ckpt_slice *slices, size_t n);
/* Allocates and touches memory for a copy of `bytes` bytes. */
bt_code bt_ckpt_async_create(bt_ckpt_async **out, size_t bytes, bt_err *err) BT_MUST_CHECK;
/* Waits for the thread and discards a save that is not committed. Accepts NULL. */
void bt_ckpt_async_destroy(bt_ckpt_async *a);

/* Takes ownership of job->meta, which is empty afterwards, and copies the data of the slices; the rest of the job is
 * borrowed until the save ends. All slices must have data (no produce), and no save may be pending. */
bt_code bt_ckpt_async_start(bt_ckpt_async *a, bt_comm *c, const bt_ckpt_job *job,
                            bt_ckpt_meta *meta, bt_err *err) BT_MUST_CHECK;
bool bt_ckpt_async_pending(const bt_ckpt_async *a); /* equal on all ranks; false for NULL */
bool bt_ckpt_async_busy(bt_ckpt_async *a); /* this rank's thread is running; false for NULL */
/* Waits for this rank's thread, then begins the next stage. *finished: it is complete, and out describes it. */
bt_code bt_ckpt_async_advance(bt_ckpt_async *a, bool *finished, bt_ckpt_saved *out, bt_err *err)
    BT_MUST_CHECK;

#endif

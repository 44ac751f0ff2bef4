/* mailbox.h - a batch of messages between ranks of a communicator; all are posted first, then one call waits for all
 * of them.
 *
 * Both ranks of a pair must post their messages in the same order.
 * Order:    create -> { begin -> (send | recv)* -> wait }* -> destroy. Buffers belong to the caller
 *           and are not touched between posting and wait.
 * Time:     wait is charged as exposed communication (base/span.h).
 * Threads:  the training thread. No allocation after create. */
#ifndef BT_ENGINE_PARALLEL_MPI_MAILBOX_H
#define BT_ENGINE_PARALLEL_MPI_MAILBOX_H

#include "engine/parallel/mpi/comm.h"

typedef struct bt_mailbox bt_mailbox;

/* Creates a mailbox for batches of at most `max` messages; comm is borrowed */
bt_code bt_mailbox_create(bt_mailbox **out, bt_comm *comm, size_t max, bt_err *err) BT_MUST_CHECK;
void bt_mailbox_destroy(bt_mailbox *b); /* accepts NULL */
void bt_mailbox_begin(bt_mailbox *b);
/* logical_bytes: bytes of the same data in fp32 */
bt_code bt_mailbox_send(bt_mailbox *b, int to, const void *data, size_t bytes, size_t logical_bytes,
                        bt_err *err) BT_MUST_CHECK;
bt_code bt_mailbox_recv(bt_mailbox *b, int from, void *data, size_t bytes, bt_err *err)
    BT_MUST_CHECK;
bt_code bt_mailbox_wait(bt_mailbox *b, bt_err *err) BT_MUST_CHECK;
/* Returns the time between begin and the end of wait, summed since the last call. */
int64_t bt_mailbox_take_busy_ns(bt_mailbox *b);

#endif

/* spare_socket.h - starts the ranks of a spare job that waits beside a run: a Unix socket in its folder, one
 * connection per rank, one message to each.
 *
 * Order: supervisor: listen -> accept* -> go | close. Rank: wait, once.
 * A waiting rank sleeps in recv and uses no processor time. Its connection ends when the supervisor exits or releases
 * the rank.
 * Threads: no shared state. */
#ifndef BT_MONITOR_JOB_SPARE_SOCKET_H
#define BT_MONITOR_JOB_SPARE_SOCKET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "engine/base/status.h"

enum { BT_SPARE_RANKS = 256 };

/* parameters of an attempt, which a job receives at its start and a spare later */
typedef struct bt_spare_go {
    uint32_t magic;         /* set by bt_spare_send */
    int32_t attempt, fence; /* number in the database; fence of the checkpoints */
    char resume_from[1024]; /* checkpoint, or folder of states in memory; "": start from scratch */
} bt_spare_go;

typedef struct bt_spare_socket {
    int listen; /* -1: none */
    int rank[BT_SPARE_RANKS], n;
} bt_spare_socket;

bt_code bt_spare_listen(bt_spare_socket *s, const char *path, bt_err *err) BT_MUST_CHECK;
/* Accepts waiting ranks; returns false if one of them sent a message or disconnected. */
bool bt_spare_accept(bt_spare_socket *s);
pid_t bt_spare_pid(const bt_spare_socket *s, int i); /* pid of the i-th connection; 0: unknown */
/* Sends the message to all waiting ranks; returns false if one of them has exited, which makes the spare unusable. */
bool bt_spare_send(bt_spare_socket *s, const bt_spare_go *go);
void bt_spare_close(bt_spare_socket *s); /* ends the waiting ranks. Sets listen to -1 and n to 0 */

/* Called by a rank. BT_STOPPED: the spare is no longer needed. */
bt_code bt_spare_wait(const char *path, bt_spare_go *go, bt_err *err) BT_MUST_CHECK;

#endif

/* spare_socket.h - how ranks that wait beside a run are told to go on with it: a Unix socket in the folder
 * of their job, one connection a rank, one message down each.
 *
 * Order:    supervisor: listen -> accept* -> go | close. A rank: wait, once.
 * Waiting:  a rank sleeps in recv and takes no processor time. Its connection ends when the supervisor ends,
 *           or has no use for it.
 * Threads:  none shared. */
#ifndef BT_MONITOR_JOB_SPARE_SOCKET_H
#define BT_MONITOR_JOB_SPARE_SOCKET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "engine/base/status.h"

enum { BT_SPARE_RANKS = 256 };

/* what a job learns at its start, and a spare only now */
typedef struct bt_spare_go {
    uint32_t magic;         /* set by bt_spare_send */
    int32_t attempt, fence; /* of the run's record; of its checkpoints */
    char resume_from[1024]; /* checkpoint, or folder of states in memory; "": from the beginning */
} bt_spare_go;

typedef struct bt_spare_socket {
    int listen; /* -1: none */
    int rank[BT_SPARE_RANKS], n;
} bt_spare_socket;

bt_code bt_spare_listen(bt_spare_socket *s, const char *path, bt_err *err) BT_MUST_CHECK;
/* takes the ranks that have come; a message or an end from one that waits: false */
bool bt_spare_accept(bt_spare_socket *s);
pid_t bt_spare_pid(const bt_spare_socket *s, int i); /* of the i-th that came; 0: not known */
/* to all; false: one of them is gone, and none may be relied on */
bool bt_spare_send(bt_spare_socket *s, const bt_spare_go *go);
void bt_spare_close(bt_spare_socket *s); /* who waits ends. listen -1 and n 0 afterwards */

/* in a rank. BT_STOPPED: it is not needed any more */
bt_code bt_spare_wait(const char *path, bt_spare_go *go, bt_err *err) BT_MUST_CHECK;

#endif

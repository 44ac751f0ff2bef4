/* local_peer.h - identity of the process at the other end of a Unix socket. Threads: any. */
#ifndef BT_ENGINE_BASE_OS_LOCAL_PEER_H
#define BT_ENGINE_BASE_OS_LOCAL_PEER_H

#include <stdbool.h>
#include <sys/types.h>

/* True if it connected as the effective user of this process or as root. */
bool bt_local_peer_is_ours(int fd);
/* Returns its process number in the namespace of this process; 0: unknown. */
pid_t bt_local_peer_pid(int fd);

#endif

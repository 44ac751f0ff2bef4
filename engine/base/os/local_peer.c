/* local_peer.c - SO_PEERCRED. */
#include "engine/base/os/local_peer.h"

#include <sys/socket.h>
#include <unistd.h>

static bool read_credentials(int fd, struct ucred *who) {
    socklen_t size = sizeof *who;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, who, &size) == 0;
}

bool bt_local_peer_is_ours(int fd) {
    struct ucred who;
    return read_credentials(fd, &who) && (who.uid == geteuid() || who.uid == 0);
}

pid_t bt_local_peer_pid(int fd) {
    struct ucred who;
    return read_credentials(fd, &who) ? who.pid : 0;
}

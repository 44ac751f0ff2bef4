/* listen.h - the socket the dashboard listens on: an address and port, or a Unix socket that only
 * its owner may open. */
#ifndef BT_WEB_HTTP_LISTEN_H
#define BT_WEB_HTTP_LISTEN_H

#include "engine/base/status.h"

/* fd: close-on-exec, non-blocking, listening. port: the one given, or the free one that was found
 * for 0. BT_BUSY: taken; the message says by whom, where the system tells, and what to do. */
bt_code bt_listen_tcp(const char *host, int port, int *fd, int *port_found, bt_err *err)
    BT_MUST_CHECK;
/* mode 0600; a socket left behind by a program that is gone is replaced, a live one is BT_BUSY */
bt_code bt_listen_unix(const char *path, int *fd, bt_err *err) BT_MUST_CHECK;

/* "bitrain (pid 123)" of who listens on this TCP port of this machine; "" when it cannot be told
 * (another user's process) */
void bt_listen_holder(int port, char *out, size_t size);

#endif

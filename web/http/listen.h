/* listen.h - the socket the dashboard listens on: an address and port, or a Unix socket that only
 * its owner may open. */
#ifndef BT_WEB_HTTP_LISTEN_H
#define BT_WEB_HTTP_LISTEN_H

#include "engine/base/status.h"

/* fd: close-on-exec, non-blocking, listening. port: the given one, or a free one for 0. BT_BUSY:
 * the port is taken; the message names the owner, if known, and the remedy. */
bt_code bt_listen_tcp(const char *host, int port, int *fd, int *port_found, bt_err *err)
    BT_MUST_CHECK;
/* mode 0600; the socket of an ended program is replaced, a live one is BT_BUSY */
bt_code bt_listen_unix(const char *path, int *fd, bt_err *err) BT_MUST_CHECK;

/* "bitrain (pid 123)" for the process that listens on this TCP port of this machine; "" if
 * unknown (another user's process) */
void bt_listen_holder(int port, char *out, size_t size);

#endif

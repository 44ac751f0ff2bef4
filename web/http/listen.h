/* listen.h - the socket on which the dashboard listens: an address and port, or a Unix socket that only its owner may
 * open. */
#ifndef BT_WEB_HTTP_LISTEN_H
#define BT_WEB_HTTP_LISTEN_H

#include "engine/base/status.h"

/* fd: close-on-exec, non-blocking, listening. port_found: the given port, or a free one if it is 0. BT_BUSY: the port
 * is used; the message names the process, if known, and the remedy. */
bt_code bt_listen_tcp(const char *host, int port, int *fd, int *port_found, bt_err *err)
    BT_MUST_CHECK;
/* Mode 0600. The socket of an ended program is replaced; BT_BUSY: a live program uses it. */
bt_code bt_listen_unix(const char *path, int *fd, bt_err *err) BT_MUST_CHECK;

/* Writes "bitrain (pid 123)" for the process that listens on this TCP port of this machine; "" if it is unknown
 * (another user's process). */
void bt_listen_holder(int port, char *out, size_t size);

#endif

/* hub_socket.h - the hub's ZeroMQ sockets: one ROUTER socket, and the handler that decides which public keys may
 * connect (ZAP, rfc.zeromq.org/spec/27).
 *
 * Threads: one, which polls. The I/O thread of libzmq inherits the processor affinity of the thread that creates it. */
#ifndef BT_ENGINE_ISLANDS_ZMQ_HUB_SOCKET_H
#define BT_ENGINE_ISLANDS_ZMQ_HUB_SOCKET_H

#include "engine/islands/wire/hub_port.h"
#include "engine/islands/zmq/curve_keys.h"

typedef struct bt_hub_socket bt_hub_socket;

typedef struct bt_hub_socket_cfg {
    const char *listen;        /* "127.0.0.1:8160"; port 0: any free port */
    const bt_curve_keys *keys; /* copied */
    const char *allowed_dir;   /* directory of public keys; copied */
    double link_s;             /* see bt_zmq_options */
} bt_hub_socket_cfg;

bt_code bt_hub_socket_open(bt_hub_socket **out, const bt_hub_socket_cfg *cfg, bt_err *err)
    BT_MUST_CHECK;
/* Closes all connections and listens at the same address again, which frees all memory that libzmq uses for
 * connections; neither its high-water mark nor its frame limit bounds a message with more and more frames. Islands
 * reconnect automatically. After an error only close may be called. */
bt_code bt_hub_socket_renew(bt_hub_socket *s, bt_err *err) BT_MUST_CHECK;
void bt_hub_socket_close(bt_hub_socket *s);                /* accepts NULL */
const char *bt_hub_socket_address(const bt_hub_socket *s); /* "127.0.0.1:8160" */
bt_hub_port bt_hub_socket_port(bt_hub_socket *s);

/* Handles connection requests and receives one frame. *bytes is 0 if none arrived within timeout_ms. The socket owns
 * *frame until the next call. *many: a message of several frames arrived and was discarded. */
bt_code bt_hub_socket_receive(bt_hub_socket *s, int timeout_ms, bt_hub_peer *from,
                              const void **frame, size_t *bytes, bool *many, bt_err *err)
    BT_MUST_CHECK;
/* Returns the number of refused keys so far; `key` receives the last of them. */
uint64_t bt_hub_socket_refused(const bt_hub_socket *s, char key[BT_CURVE_KEY]);
uint64_t bt_hub_socket_traffic(const bt_hub_socket *s); /* bytes of frames, both directions */

#endif

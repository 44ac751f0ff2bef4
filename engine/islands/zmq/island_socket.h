/* island_socket.h - an island's ZeroMQ sockets: a DEALER socket that reconnects automatically, and a monitor that
 * records why a connection failed.
 *
 * Threads: one. Create it after the process has forked for the last time. */
#ifndef BT_ENGINE_ISLANDS_ZMQ_ISLAND_SOCKET_H
#define BT_ENGINE_ISLANDS_ZMQ_ISLAND_SOCKET_H

#include "engine/islands/wire/hub_port.h"
#include "engine/islands/zmq/curve_keys.h"

typedef struct bt_island_socket bt_island_socket;

/* hub: "HOST:PORT"; keys: those of an island. Both are copied. link_s: see bt_zmq_options. */
bt_code bt_island_socket_open(bt_island_socket **out, const char *hub, const bt_curve_keys *keys,
                              double link_s, bt_err *err) BT_MUST_CHECK;
void bt_island_socket_close(bt_island_socket *s); /* accepts NULL */
bt_island_port bt_island_socket_port(bt_island_socket *s);

#endif

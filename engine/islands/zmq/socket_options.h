/* socket_options.h - what both ends of a connection between hub and island set before they connect. */
#ifndef BT_ENGINE_ISLANDS_ZMQ_SOCKET_OPTIONS_H
#define BT_ENGINE_ISLANDS_ZMQ_SOCKET_OPTIONS_H

#include <stdint.h>

#include <zmq.h>

#include "engine/islands/wire/island_message.h"

typedef enum { BT_ZMQ_HUB, BT_ZMQ_ISLAND } bt_zmq_end;

/* not 0: libzmq refused one. The hub's queues hold so few frames that 64 islands stay below 128 MB; a
 * connection whose other end has vanished is closed after seconds, and made anew by the island.
 *
 * The system's keep-alives find that out, not libzmq's heartbeats: libzmq 4.3.4 aborts the process
 * (stream_engine_base.cpp: !_io_error) when a heartbeat is due, or one that has come is to be answered, on a
 * connection that broke while the queue of received frames was full. The island's queue has no limit: what a hub
 * sends unasked is a ping each half second. */
static inline int bt_zmq_options(void *socket, bt_zmq_end end) {
    const struct {
        int option, value;
    } all[] = {{ZMQ_SNDHWM, 4},
               {ZMQ_RCVHWM, end == BT_ZMQ_HUB ? 4 : 0},
               {ZMQ_TCP_KEEPALIVE, 1},
               {ZMQ_TCP_KEEPALIVE_IDLE, 1},
               {ZMQ_TCP_KEEPALIVE_INTVL, 1},
               {ZMQ_TCP_KEEPALIVE_CNT, 3},
               {ZMQ_TCP_MAXRT, 10000}, /* ms: data that nobody acknowledges */
               {ZMQ_HANDSHAKE_IVL, 5000},
               {ZMQ_LINGER, 0}};
    const int64_t largest = BT_ISLAND_FRAME + 4096; /* CURVE adds its own head to a frame */
    int failed = zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &largest, sizeof largest);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        failed |= zmq_setsockopt(socket, all[i].option, &all[i].value, sizeof all[i].value);
    return failed;
}

#endif

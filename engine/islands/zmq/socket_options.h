/* socket_options.h - sets the socket options that hub and island need before they connect. */
#ifndef BT_ENGINE_ISLANDS_ZMQ_SOCKET_OPTIONS_H
#define BT_ENGINE_ISLANDS_ZMQ_SOCKET_OPTIONS_H

#include <stdint.h>

#include <zmq.h>

#include "engine/islands/wire/island_message.h"

typedef enum { BT_ZMQ_HUB, BT_ZMQ_ISLAND } bt_zmq_end;

/* Returns nonzero if libzmq refused an option.
 *
 * The send queue of the hub holds 3 x BT_ISLAND_WINDOW frames. It must have room for a window of weight chunks, a go
 * and a ping; a chunk without room waits (bt_hub_serve). The factor 3 is needed because libzmq returns credit in
 * batches of half the high-water mark. 64 islands with full windows use 64 MB.
 *
 * link_s: a connection is closed, and reconnected by the island, when its peer has acknowledged neither data
 * (TCP_USER_TIMEOUT) nor keep-alive probes for this time; the kernel applies the same limit to both (tcp(7)). Both
 * sides thus detect a cut link and a machine that was switched off. 0: the kernel's default, hours.
 *
 * libzmq's own heartbeats are not used: libzmq 4.3.4 aborts the process (stream_engine_base.cpp: !_io_error) when
 * a heartbeat is sent or handled on a connection that broke while the receive queue was full. The island's queue
 * has no limit: the only unsolicited message of a hub is a ping every 0.5 s. */
static inline int bt_zmq_options(void *socket, bt_zmq_end end, double link_s) {
    const int link_ms = link_s < 1e6 ? (int)(link_s * 1000) : 1000000000,
              probe_s = link_s < 3     ? 1
                        : link_s > 180 ? 60
                                       : (int)(link_s / 3);
    const struct {
        int option, value;
    } all[] = {{ZMQ_SNDHWM, end == BT_ZMQ_HUB ? 3 * BT_ISLAND_WINDOW : 4},
               {ZMQ_RCVHWM, end == BT_ZMQ_HUB ? 4 : 0},
               {ZMQ_TCP_KEEPALIVE, 1},
               {ZMQ_TCP_KEEPALIVE_IDLE, probe_s},
               {ZMQ_TCP_KEEPALIVE_INTVL, probe_s},
               {ZMQ_TCP_MAXRT, link_ms},
               {ZMQ_HANDSHAKE_IVL, 5000},
               {ZMQ_LINGER, 0}};
    const int64_t largest = BT_ISLAND_FRAME + 4096; /* CURVE adds its own head to a frame */
    int failed = zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &largest, sizeof largest);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        failed |= zmq_setsockopt(socket, all[i].option, &all[i].value, sizeof all[i].value);
    return failed;
}

#endif

/* socket_options.h - what both ends of a connection between hub and island set before they connect. */
#ifndef BT_ENGINE_ISLANDS_ZMQ_SOCKET_OPTIONS_H
#define BT_ENGINE_ISLANDS_ZMQ_SOCKET_OPTIONS_H

#include <stdint.h>

#include <zmq.h>

#include "engine/islands/wire/island_message.h"

typedef enum { BT_ZMQ_HUB, BT_ZMQ_ISLAND } bt_zmq_end;

/* not 0: libzmq refused one.
 *
 * The hub's queues hold few frames. What an island may have on its way, BT_ISLAND_WINDOW parts of the weights, and a go
 * and a ping beside them shall find room; a part that does not waits for it (bt_hub_serve). A queue counts as free what
 * its reader has told, and that tells in batches of half the queue: so it is three times as long, of which 64 islands
 * with whole windows use 64 MB.
 *
 * link_s: a connection is closed, and made anew by the island, when its other end has acknowledged nothing for so
 * long: neither data (TCP_USER_TIMEOUT) nor, where none are on their way, the probes that keep-alives send, to
 * which the system applies the same time (tcp(7)). So a cut link and a machine that was switched off are missed on
 * both sides. 0: the system's times, hours.
 *
 * The system finds that out, not libzmq's heartbeats: libzmq 4.3.4 aborts the process (stream_engine_base.cpp:
 * !_io_error) when a heartbeat is due, or one that has come is to be answered, on a connection that broke while the
 * queue of received frames was full. The island's queue has no limit: what a hub sends unasked is a ping each half
 * second. */
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

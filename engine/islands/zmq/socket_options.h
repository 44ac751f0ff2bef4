/* socket_options.h - what both ends of a connection between hub and island set before they connect. */
#ifndef BT_ENGINE_ISLANDS_ZMQ_SOCKET_OPTIONS_H
#define BT_ENGINE_ISLANDS_ZMQ_SOCKET_OPTIONS_H

#include <stdint.h>

#include <zmq.h>

#include "engine/islands/wire/island_message.h"

/* not 0: libzmq refused one. Queues hold so few frames that 64 islands stay below 128 MB at the hub;
 * a connection without a sign of life for 3 s is closed, and made anew by the island */
static inline int bt_zmq_options(void *socket) {
    static const struct {
        int option, value;
    } all[] = {{ZMQ_SNDHWM, 4},
               {ZMQ_RCVHWM, 4},
               {ZMQ_HEARTBEAT_IVL, 500},
               {ZMQ_HEARTBEAT_TIMEOUT, 3000},
               {ZMQ_HEARTBEAT_TTL, 3000},
               {ZMQ_HANDSHAKE_IVL, 5000},
               {ZMQ_LINGER, 0}};
    const int64_t largest = BT_ISLAND_FRAME + 4096; /* CURVE adds its own head to a frame */
    int failed = zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &largest, sizeof largest);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        failed |= zmq_setsockopt(socket, all[i].option, &all[i].value, sizeof all[i].value);
    return failed;
}

#endif

/* hub_port.h - the transport between the hub and an island: ZeroMQ, or a queue in tests.
 *
 * A frame arrives completely or not at all. Frames of one connection arrive in order; a reconnect may lose frames.
 * Threads: one thread owns both ends of the struct. */
#ifndef BT_ENGINE_ISLANDS_WIRE_HUB_PORT_H
#define BT_ENGINE_ISLANDS_WIRE_HUB_PORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"

typedef struct bt_hub_peer { /* a connection as seen by the hub */
    size_t n;                /* number of bytes in id */
    unsigned char id[64];
    char key[44]; /* public key of the island as text; "": the transport has no keys */
} bt_hub_peer;

typedef enum { BT_PORT_SENT, BT_PORT_FULL, BT_PORT_GONE } bt_port_state;

typedef struct bt_hub_port {
    void *ctx;
    bt_port_state (*send)(void *ctx, const bt_hub_peer *to, const void *frame, size_t bytes);
} bt_hub_port;

typedef struct bt_island_port {
    void *ctx;
    /* Waits at most timeout_ms for room in the queue. Returns FULL if there was none. */
    bt_port_state (*send)(void *ctx, const void *frame, size_t bytes, int timeout_ms);
    /* frame: room for BT_ISLAND_FRAME bytes. *bytes is 0 after a timeout. An error is permanent: the hub does not
     * accept this island's key, or the hub's own key is not the expected one. */
    bt_code (*receive)(void *ctx, void *frame, size_t *bytes, int timeout_ms, bt_err *err);
    /* Messages in flight may be lost. */
    bt_code (*reconnect)(void *ctx, bt_err *err);
    /* Returns true if the peer refuses connections. NULL: the transport cannot detect this. */
    bool (*closed)(void *ctx);
} bt_island_port;

#endif

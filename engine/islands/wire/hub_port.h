/* hub_port.h - what the hub and an island need of a transport, which may be ZeroMQ or a test's queue.
 *
 * Frames arrive whole or not at all, in order while a connection lasts; any of them may be lost when
 * it is made anew.
 * Threads: of one thread, which owns both ends of the struct. */
#ifndef BT_ENGINE_ISLANDS_WIRE_HUB_PORT_H
#define BT_ENGINE_ISLANDS_WIRE_HUB_PORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"

typedef struct bt_hub_peer { /* one connection as the hub sees it */
    size_t n;                /* bytes of id */
    unsigned char id[64];
    char key[44]; /* the island's public key, as text; "": the transport has none */
} bt_hub_peer;

typedef enum { BT_PORT_SENT, BT_PORT_FULL, BT_PORT_GONE } bt_port_state;

typedef struct bt_hub_port {
    void *ctx;
    bt_port_state (*send)(void *ctx, const bt_hub_peer *to, const void *frame, size_t bytes);
} bt_hub_port;

typedef struct bt_island_port {
    void *ctx;
    /* until there is room, at most timeout_ms; FULL: there was none */
    bt_port_state (*send)(void *ctx, const void *frame, size_t bytes, int timeout_ms);
    /* *bytes 0: nothing came. frame: room for BT_ISLAND_FRAME. An error says that nothing will come: a
     * key that the hub does not have, another key than it should have */
    bt_code (*receive)(void *ctx, void *frame, size_t *bytes, int timeout_ms, bt_err *err);
    /* connects anew; what was on its way may be lost */
    bt_code (*reconnect)(void *ctx, bt_err *err);
    bool (*closed)(void *ctx); /* nothing accepts connections there; NULL: it is not known */
} bt_island_port;

#endif

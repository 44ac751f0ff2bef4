/* island_socket.c - a DEALER socket and its monitor. */
#include "engine/islands/zmq/island_socket.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zmq.h>

#include "engine/islands/wire/island_message.h"
#include "engine/islands/zmq/socket_options.h"

/* After so many consecutive handshakes that fail without a reason, the key is assumed to be wrong. Fewer failures may
 * be caused by a hub that just died. */
enum { FAILED_HANDSHAKES = 5, FAILED_CONNECTS = 5 };
/* A connect without a reply is abandoned and restarted after this time. The kernel would repeat its packet after 1, 2,
 * 4 ... 64 s, and so use a restored link up to a minute too late. */
enum { REACH_MS = 3000 };

struct bt_island_socket {
    void *context, *dealer, *monitor;
    char hub[128];
    bt_curve_keys keys;
    double link_s;
    int failed;    /* consecutive failed handshakes */
    int unreached; /* consecutive failed connects */
    bool not_listed, no_curve;
};

static bt_code fail_island_socket(const char *what, bt_err *err) {
    return bt_fail(err, BT_IO, "%s: %s", what, zmq_strerror(zmq_errno()));
}

static void close_dealer(bt_island_socket *s) {
    if (s->dealer) zmq_socket_monitor(s->dealer, NULL, 0);
    if (s->monitor) zmq_close(s->monitor);
    if (s->dealer) zmq_close(s->dealer);
    s->dealer = s->monitor = NULL;
}

static bt_code connect_anew(void *ctx, bt_err *err) {
    bt_island_socket *s = ctx;
    char endpoint[160];
    const int on = 1, again_ms = 100, constant = 0,
              reach_ms = s->link_s > 0 && s->link_s * 1000 < REACH_MS ? (int)(s->link_s * 1000)
                                                                      : REACH_MS;
    close_dealer(s);
    s->failed = s->unreached = 0;
    if (!(s->dealer = zmq_socket(s->context, ZMQ_DEALER)) ||
        bt_zmq_options(s->dealer, BT_ZMQ_ISLAND, s->link_s) != 0 ||
        zmq_setsockopt(s->dealer, ZMQ_CONNECT_TIMEOUT, &reach_ms, sizeof reach_ms) != 0 ||
        zmq_setsockopt(s->dealer, ZMQ_IMMEDIATE, &on, sizeof on) != 0 ||
        zmq_setsockopt(s->dealer, ZMQ_RECONNECT_IVL, &again_ms, sizeof again_ms) != 0 ||
        zmq_setsockopt(s->dealer, ZMQ_RECONNECT_IVL_MAX, &constant, sizeof constant) != 0 ||
        zmq_setsockopt(s->dealer, ZMQ_CURVE_SERVERKEY, s->keys.hub, BT_CURVE_KEY) != 0 ||
        zmq_setsockopt(s->dealer, ZMQ_CURVE_PUBLICKEY, s->keys.own_public, BT_CURVE_KEY) != 0 ||
        zmq_setsockopt(s->dealer, ZMQ_CURVE_SECRETKEY, s->keys.own_secret, BT_CURVE_KEY) != 0 ||
        zmq_socket_monitor(s->dealer, "inproc://monitor",
                           ZMQ_EVENT_CONNECTED | ZMQ_EVENT_CONNECT_RETRIED |
                               ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH |
                               ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                               ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL) != 0 ||
        !(s->monitor = zmq_socket(s->context, ZMQ_PAIR)) ||
        zmq_connect(s->monitor, "inproc://monitor") != 0)
        return fail_island_socket("cannot set up the island's socket", err);
    snprintf(endpoint, sizeof endpoint, "tcp://%s", s->hub);
    if (zmq_connect(s->dealer, endpoint) != 0)
        return bt_fail(err, BT_ARG,
                       "cannot connect to the hub at '%s': %s (is it of the form HOST:PORT?)",
                       s->hub, zmq_strerror(zmq_errno()));
    return BT_OK;
}

bt_code bt_island_socket_open(bt_island_socket **out, const char *hub, const bt_curve_keys *keys,
                              double link_s, bt_err *err) {
    *out = NULL;
    bt_island_socket *s = calloc(1, sizeof *s);
    if (!s) return bt_fail(err, BT_NOMEM, "cannot allocate memory for the island's socket");
    snprintf(s->hub, sizeof s->hub, "%s", hub);
    s->keys = *keys;
    s->link_s = link_s;
    bt_code code = (s->context = zmq_ctx_new()) ? BT_OK
                                                : fail_island_socket("cannot start libzmq", err);
    if (code == BT_OK) code = connect_anew(s, err);
    if (code != BT_OK) {
        bt_island_socket_close(s);
        return code;
    }
    *out = s;
    return BT_OK;
}

void bt_island_socket_close(bt_island_socket *s) {
    if (!s) return;
    close_dealer(s);
    if (s->context) zmq_ctx_term(s->context);
    bt_curve_wipe(&s->keys);
    free(s);
}

static void listen_to_monitor(bt_island_socket *s) {
    for (;;) {
        struct {
            uint16_t event;
            int32_t value;
        } __attribute__((packed)) e;
        char where[256];
        if (zmq_recv(s->monitor, &e, sizeof e, ZMQ_DONTWAIT) < 0) return;
        zmq_recv(s->monitor, where, sizeof where, ZMQ_DONTWAIT);
        if (e.event == ZMQ_EVENT_CONNECTED) s->unreached = 0;
        if (e.event == ZMQ_EVENT_CONNECT_RETRIED) s->unreached++;
        if (e.event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) s->failed = 0;
        if (e.event == ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL) s->failed++;
        if (e.event == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH) s->not_listed = true;
        if (e.event == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL) s->no_curve = true;
    }
}

static bt_code connection_error(const bt_island_socket *s, bt_err *err) {
    if (s->not_listed)
        return bt_fail(err, BT_BUSY,
                       "the hub at '%s' does not accept this island's key '%s': put it into the "
                       "hub's folder 'allowed'",
                       s->hub, s->keys.own_public);
    if (s->no_curve)
        return bt_fail(err, BT_FORMAT, "the server at '%s' is not a hub that uses keys", s->hub);
    if (s->failed >= FAILED_HANDSHAKES)
        return bt_fail(err, BT_BUSY,
                       "the server at '%s' is not the hub with the key '%s' in this island's key "
                       "file (islands.keys), or not a hub at all",
                       s->hub, s->keys.hub);
    return BT_OK;
}

static bt_port_state send_frame_to_hub(void *ctx, const void *frame, size_t bytes, int timeout_ms) {
    bt_island_socket *s = ctx;
    zmq_setsockopt(s->dealer, ZMQ_SNDTIMEO, &timeout_ms, sizeof timeout_ms);
    if (zmq_send(s->dealer, frame, bytes, 0) < 0)
        return zmq_errno() == EAGAIN || zmq_errno() == EINTR ? BT_PORT_FULL : BT_PORT_GONE;
    return BT_PORT_SENT;
}

/* Discards all parts of a message of several frames. Returns true if there was only one. */
static bool check_single_frame(bt_island_socket *s) {
    int more = 0;
    size_t size = sizeof more;
    bool only = true;
    while (zmq_getsockopt(s->dealer, ZMQ_RCVMORE, &more, &size) == 0 && more) {
        zmq_msg_t rest;
        only = false;
        zmq_msg_init(&rest);
        zmq_msg_recv(&rest, s->dealer, ZMQ_DONTWAIT);
        zmq_msg_close(&rest);
    }
    return only;
}

static bt_code receive_frame(void *ctx, void *frame, size_t *bytes, int timeout_ms, bt_err *err) {
    bt_island_socket *s = ctx;
    *bytes = 0;
    zmq_pollitem_t items[] = {{.socket = s->dealer, .events = ZMQ_POLLIN},
                              {.socket = s->monitor, .events = ZMQ_POLLIN}};
    if (zmq_poll(items, 2, timeout_ms) < 0 && zmq_errno() != EINTR)
        return fail_island_socket("cannot wait for the hub", err);
    if (items[1].revents & ZMQ_POLLIN) listen_to_monitor(s);
    const int n = zmq_recv(s->dealer, frame, BT_ISLAND_FRAME, ZMQ_DONTWAIT);
    if (n < 0) return connection_error(s, err);
    if (!check_single_frame(s) || n > BT_ISLAND_FRAME) return BT_OK;
    *bytes = (size_t)n;
    return BT_OK;
}

static bool is_closed(void *ctx) { return ((bt_island_socket *)ctx)->unreached >= FAILED_CONNECTS; }

bt_island_port bt_island_socket_port(bt_island_socket *s) {
    return (bt_island_port){.ctx = s,
                            .send = send_frame_to_hub,
                            .receive = receive_frame,
                            .reconnect = connect_anew,
                            .closed = is_closed};
}

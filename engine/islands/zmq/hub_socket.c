/* hub_socket.c - polls the ROUTER socket and the ZAP handler together. */
#include "engine/islands/zmq/hub_socket.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zmq.h>

#include "engine/islands/wire/island_message.h"
#include "engine/islands/zmq/socket_options.h"

struct bt_hub_socket {
    void *context, *router, *zap;
    zmq_msg_t frame;
    bool has_frame;
    char allowed_dir[PATH_MAX], address[128];
    bt_curve_keys keys;
    double link_s;
    uint64_t refused, traffic;
    char refused_key[BT_CURVE_KEY];
};

static bt_code fail_hub_socket(const char *what, bt_err *err) {
    return bt_fail(err, BT_IO, "%s: %s", what, zmq_strerror(zmq_errno()));
}

static bt_code listen_on(bt_hub_socket *s, const char *address, bt_err *err) {
    char endpoint[160];
    size_t n = sizeof endpoint;
    const int on = 1;
    if (bt_zmq_options(s->router, BT_ZMQ_HUB, s->link_s) != 0 ||
        zmq_setsockopt(s->router, ZMQ_ROUTER_MANDATORY, &on, sizeof on) != 0 ||
        zmq_setsockopt(s->router, ZMQ_CURVE_SERVER, &on, sizeof on) != 0 ||
        zmq_setsockopt(s->router, ZMQ_CURVE_SECRETKEY, s->keys.own_secret, BT_CURVE_KEY) != 0)
        return fail_hub_socket("cannot set up the hub's socket", err);
    snprintf(endpoint, sizeof endpoint, "tcp://%s", address);
    if (zmq_bind(s->router, endpoint) != 0)
        return bt_fail(err, errno == EADDRINUSE ? BT_BUSY : BT_ARG,
                       "cannot listen on the address '%s': %s", address, zmq_strerror(zmq_errno()));
    if (zmq_getsockopt(s->router, ZMQ_LAST_ENDPOINT, endpoint, &n) != 0)
        return fail_hub_socket("cannot read the hub's address", err);
    snprintf(s->address, sizeof s->address, "%.120s", endpoint + strlen("tcp://"));
    return BT_OK;
}

static bt_code open_router(bt_hub_socket *s, const char *address, bt_err *err) {
    /* The ZAP handler is created first, because libzmq accepts every key without a handler. */
    if (!(s->context = zmq_ctx_new()) || !(s->zap = zmq_socket(s->context, ZMQ_REP)) ||
        zmq_bind(s->zap, "inproc://zeromq.zap.01") != 0 ||
        !(s->router = zmq_socket(s->context, ZMQ_ROUTER)))
        return fail_hub_socket("cannot create the hub's sockets", err);
    return listen_on(s, address, err);
}

static void close_sockets(bt_hub_socket *s) {
    if (s->has_frame) zmq_msg_close(&s->frame);
    if (s->router) zmq_close(s->router);
    if (s->zap) zmq_close(s->zap);
    if (s->context) zmq_ctx_term(s->context);
    s->has_frame = false;
    s->router = s->zap = s->context = NULL;
}

bt_code bt_hub_socket_open(bt_hub_socket **out, const bt_hub_socket_cfg *cfg, bt_err *err) {
    *out = NULL;
    bt_hub_socket *s = calloc(1, sizeof *s);
    if (!s) return bt_fail(err, BT_NOMEM, "cannot allocate memory for the hub's socket");
    snprintf(s->allowed_dir, sizeof s->allowed_dir, "%s", cfg->allowed_dir);
    s->keys = *cfg->keys;
    s->link_s = cfg->link_s;
    const bt_code code = open_router(s, cfg->listen, err);
    if (code != BT_OK) {
        bt_hub_socket_close(s);
        return code;
    }
    *out = s;
    return BT_OK;
}

bt_code bt_hub_socket_renew(bt_hub_socket *s, bt_err *err) {
    char address[sizeof s->address];
    memcpy(address, s->address, sizeof address);
    close_sockets(s);
    return open_router(s, address, err);
}

void bt_hub_socket_close(bt_hub_socket *s) {
    if (!s) return;
    close_sockets(s);
    bt_curve_wipe(&s->keys);
    free(s);
}

const char *bt_hub_socket_address(const bt_hub_socket *s) { return s->address; }
uint64_t bt_hub_socket_traffic(const bt_hub_socket *s) { return s->traffic; }

uint64_t bt_hub_socket_refused(const bt_hub_socket *s, char key[BT_CURVE_KEY]) {
    memcpy(key, s->refused_key, BT_CURVE_KEY);
    return s->refused;
}

/* Parts of a ZAP request: version, request id, domain, address, identity, mechanism; for CURVE the public key. */
enum { ZAP_PARTS = 7, ZAP_PART = 256, ZAP_KEY = 6 };

static void authenticate_connection(bt_hub_socket *s) {
    char part[ZAP_PARTS][ZAP_PART], key[BT_CURVE_KEY] = "", name[64] = "";
    int n[ZAP_PARTS] = {0}, parts = 0, more = 1;
    size_t size = sizeof more;
    while (more) {
        char *into = part[parts < ZAP_PARTS ? parts : ZAP_PARTS - 1];
        const int got = zmq_recv(s->zap, into, ZAP_PART, ZMQ_DONTWAIT);
        if (got < 0) return;
        if (parts < ZAP_PARTS) n[parts] = got < ZAP_PART ? got : ZAP_PART;
        parts++;
        if (zmq_getsockopt(s->zap, ZMQ_RCVMORE, &more, &size) != 0) return;
    }
    const bool curve = parts == ZAP_PARTS && n[5] == 5 && memcmp(part[5], "CURVE", 5) == 0 &&
                       n[ZAP_KEY] == 32;
    if (curve) zmq_z85_encode(key, (const uint8_t *)part[ZAP_KEY], 32);
    const bool ok = curve && bt_curve_allowed(s->allowed_dir, key, name, sizeof name);
    if (!ok) {
        s->refused++;
        memcpy(s->refused_key, key, sizeof key);
    }
    const char *status = ok ? "200" : "400", *text = ok ? "OK" : "key not listed";
    zmq_send(s->zap, "1.0", 3, ZMQ_SNDMORE);
    zmq_send(s->zap, part[1], (size_t)n[1], ZMQ_SNDMORE);
    zmq_send(s->zap, status, 3, ZMQ_SNDMORE);
    zmq_send(s->zap, text, strlen(text), ZMQ_SNDMORE);
    zmq_send(s->zap, ok ? key : "", ok ? strlen(key) : 0, ZMQ_SNDMORE); /* the User-Id */
    zmq_send(s->zap, "", 0, 0);
}

static bool has_more_parts(bt_hub_socket *s) {
    int more = 0;
    size_t size = sizeof more;
    zmq_getsockopt(s->router, ZMQ_RCVMORE, &more, &size);
    return more;
}

/* Reads [routing id][frame]. A message with another number of parts is read completely and discarded. */
static void receive_island_frame(bt_hub_socket *s, bt_hub_peer *from, size_t *bytes, bool *many) {
    *bytes = 0;
    const int n = zmq_recv(s->router, from->id, sizeof from->id, ZMQ_DONTWAIT);
    if (n < 0 || !has_more_parts(s)) return;
    from->n = (size_t)n < sizeof from->id ? (size_t)n : sizeof from->id;
    zmq_msg_init(&s->frame);
    s->has_frame = true;
    if (zmq_msg_recv(&s->frame, s->router, ZMQ_DONTWAIT) < 0) return;
    const char *user = zmq_msg_gets(&s->frame, "User-Id");
    snprintf(from->key, sizeof from->key, "%s", user ? user : "");
    s->traffic += zmq_msg_size(&s->frame);
    *bytes = zmq_msg_size(&s->frame);
    while (has_more_parts(s)) {
        zmq_msg_t rest;
        *many = true;
        zmq_msg_init(&rest);
        zmq_msg_recv(&rest, s->router, ZMQ_DONTWAIT);
        zmq_msg_close(&rest);
    }
    if (*many) *bytes = 0;
}

bt_code bt_hub_socket_receive(bt_hub_socket *s, int timeout_ms, bt_hub_peer *from,
                              const void **frame, size_t *bytes, bool *many, bt_err *err) {
    zmq_pollitem_t items[] = {{.socket = s->router, .events = ZMQ_POLLIN},
                              {.socket = s->zap, .events = ZMQ_POLLIN}};
    *bytes = 0;
    *many = false;
    *from = (bt_hub_peer){.n = 0};
    if (s->has_frame) zmq_msg_close(&s->frame);
    s->has_frame = false;
    if (zmq_poll(items, 2, timeout_ms) < 0) {
        if (zmq_errno() == EINTR) return BT_OK;
        return fail_hub_socket("cannot wait for islands", err);
    }
    if (items[1].revents & ZMQ_POLLIN) authenticate_connection(s);
    if (!(items[0].revents & ZMQ_POLLIN)) return BT_OK;
    receive_island_frame(s, from, bytes, many);
    if (*bytes) *frame = zmq_msg_data(&s->frame);
    return BT_OK;
}

static bt_port_state send_to_island(void *ctx, const bt_hub_peer *to, const void *frame,
                                    size_t bytes) {
    bt_hub_socket *s = ctx;
    if (zmq_send(s->router, to->id, to->n, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0)
        return zmq_errno() == EAGAIN ? BT_PORT_FULL : BT_PORT_GONE;
    if (zmq_send(s->router, frame, bytes, ZMQ_DONTWAIT) < 0) return BT_PORT_GONE;
    s->traffic += bytes;
    return BT_PORT_SENT;
}

bt_hub_port bt_hub_socket_port(bt_hub_socket *s) {
    return (bt_hub_port){.ctx = s, .send = send_to_island};
}

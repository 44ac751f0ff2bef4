/* hub_wire.h - a hub with its real socket, and two clients whose keys it accepts. */
#ifndef BT_TESTS_ENGINE_ISLANDS_HUB_WIRE_H
#define BT_TESTS_ENGINE_ISLANDS_HUB_WIRE_H

#include <math.h>
#include <zmq.h>

#include "engine/islands/zmq/hub_socket.h"
#include "tests/engine/islands/hub_world.h"

enum { LOOKS = 400, LOOK_MS = 20 };

typedef struct wire {
    world *w;
    bt_hub_socket *socket;
    void *context, *client[2];
    char dir[64];
    unsigned char frame[BT_ISLAND_FRAME];
} wire;

static inline void *connect_as(wire *x, const char *name) {
    char path[96], endpoint[160];
    bt_curve_keys keys;
    bt_err err = BT_ERR_INIT;
    const int linger = 0;
    snprintf(path, sizeof path, "%s/%s.key", x->dir, name);
    if (bt_curve_read(&keys, path, name, true, &err) != BT_OK) fail_msg("%s", err.msg);
    snprintf(endpoint, sizeof endpoint, "tcp://%s", bt_hub_socket_address(x->socket));
    void *s = zmq_socket(x->context, ZMQ_DEALER);
    assert_int_equal(zmq_setsockopt(s, ZMQ_LINGER, &linger, sizeof linger), 0);
    assert_int_equal(zmq_setsockopt(s, ZMQ_CURVE_SERVERKEY, keys.hub, BT_CURVE_KEY), 0);
    assert_int_equal(zmq_setsockopt(s, ZMQ_CURVE_PUBLICKEY, keys.own_public, BT_CURVE_KEY), 0);
    assert_int_equal(zmq_setsockopt(s, ZMQ_CURVE_SECRETKEY, keys.own_secret, BT_CURVE_KEY), 0);
    assert_int_equal(zmq_connect(s, endpoint), 0);
    return s;
}

static inline void open_wire(wire *x) {
    char allowed[96];
    bt_curve_keys keys;
    bt_err err = BT_ERR_INIT;
    bool made;
    *x = (wire){.dir = "/tmp/bitrain-wire-XXXXXX"};
    assert_non_null(mkdtemp(x->dir));
    x->w = WORLD(1, "--mode", "diloco", "--inner", "2", "--steps", "1000", "--set",
                 "islands.warmup=0", "--set", "islands.outer_lr=1", "--set",
                 "islands.outer_momentum=0");
    if (bt_curve_make(x->dir, "a", &made, &err) != BT_OK ||
        bt_curve_make(x->dir, "b", &made, &err) != BT_OK ||
        bt_curve_read(&keys, x->dir, "hub", false, &err) != BT_OK)
        fail_msg("%s", err.msg);
    snprintf(allowed, sizeof allowed, "%s/allowed", x->dir);
    const bt_hub_socket_cfg cfg = {.listen = "127.0.0.1:0", .keys = &keys, .allowed_dir = allowed};
    if (bt_hub_socket_open(&x->socket, &cfg, &err) != BT_OK) fail_msg("%s", err.msg);
    x->w->hub->cfg.port = bt_hub_socket_port(x->socket);
    x->context = zmq_ctx_new();
    x->client[0] = connect_as(x, "a");
    x->client[1] = connect_as(x, "b");
}

static inline void close_wire(wire *x) {
    char command[96];
    for (int k = 0; k < 2; k++) zmq_close(x->client[k]);
    zmq_ctx_term(x->context);
    close_world(x->w);
    bt_hub_socket_close(x->socket);
    snprintf(command, sizeof command, "rm -rf %s", x->dir);
    assert_int_equal(system(command), 0);
}

static inline void serve(wire *x) {
    bt_hub_peer from;
    const void *frame;
    size_t bytes;
    bool many;
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_hub_socket_receive(x->socket, LOOK_MS, &from, &frame, &bytes, &many, &err),
                     BT_OK);
    if (many) bt_hub_refuse_frames(x->w->hub, &from);
    if (bytes && bt_hub_receive(x->w->hub, &from, frame, bytes, now_ns, &err) != BT_OK)
        fail_msg("%s", err.msg);
}

/* Takes the next reply to client k; returns false if none arrives within `looks` polls. */
static inline bool take_answer(wire *x, int k, int looks, bt_island_head *head,
                               const void **payload) {
    bt_err err = BT_ERR_INIT;
    for (int i = 0; i < looks; i++) {
        const int n = zmq_recv(x->client[k], x->frame, sizeof x->frame, ZMQ_DONTWAIT);
        if (n >= 0) {
            assert_int_equal(
                bt_island_parse(x->frame, (size_t)n, BT_SENT_BY_HUB, head, payload, &err), BT_OK);
            return true;
        }
        serve(x);
    }
    return false;
}

/* Takes replies until one of this type arrives, and copies its payload to out. */
static inline bt_island_head expect(wire *x, int k, bt_island_type type, void *out, size_t size) {
    bt_island_head head;
    const void *payload;
    while (take_answer(x, k, LOOKS, &head, &payload)) {
        if (head.type == BT_ISLAND_REFUSED && type != BT_ISLAND_REFUSED)
            fail_msg("refused: %.*s", (int)head.bytes, (const char *)payload);
        if (head.type != type) continue;
        if (out) memcpy(out, payload, head.bytes < size ? head.bytes : size);
        return head;
    }
    fail_msg("no '%s' came", bt_island_type_name(type));
    return head;
}

static inline void send_bytes(wire *x, int k, const void *bytes, size_t n) {
    assert_int_equal(zmq_send(x->client[k], bytes, n, 0), (int)n);
}

static inline void send_message(wire *x, int k, bt_island_head head, const void *payload) {
    static unsigned char frame[BT_ISLAND_FRAME];
    const peer *p = &x->w->at[k];
    if (!head.epoch) head.epoch = p->epoch;
    head.island = (uint32_t)p->welcome.island;
    head.incarnation = (uint32_t)p->welcome.incarnation;
    send_bytes(x, k, frame, bt_island_write(frame, &head, payload));
}

static inline void send_hello(wire *x, int k, const char *more) {
    bt_text t;
    bt_text_init(&t);
    bt_text_put(&t, more);
    bt_text_put(&t, bt_text_str(&x->w->hello));
    bt_text_printf(&t, "name=island-%d\nhost=h\npid=1\nranks=1\nsequences=4\n", k);
    send_message(x, k, (bt_island_head){.type = BT_ISLAND_HELLO, .bytes = (uint32_t)t.len},
                 bt_text_str(&t));
    bt_text_release(&t);
}

/* Sends an update of island 0 in which every element is `value`. */
static inline void push(wire *x, bt_push_kind kind, float value) {
    peer *p = &x->w->at[0];
    const size_t bytes = x->w->elements * sizeof(float);
    float *v = malloc(bytes);
    assert_true(bytes <= BT_ISLAND_CHUNK);
    for (size_t i = 0; i < x->w->elements; i++) v[i] = value;
    const bt_island_push what = {.kind = kind,
                                 .bytes = (int64_t)bytes,
                                 .base = p->go.version,
                                 .tokens = kind == BT_PUSH_WEIGHTS ? 0 : 10,
                                 .steps = p->go.steps,
                                 .sequences = 4,
                                 .loss = 1};
    send_message(
        x, 0,
        (bt_island_head){
            .type = BT_ISLAND_CHUNK_MESSAGE, .seq = p->seq, .chunks = 1, .bytes = (uint32_t)bytes},
        v);
    send_message(
        x, 0, (bt_island_head){.type = BT_ISLAND_PUSH, .seq = p->seq, .bytes = sizeof what}, &what);
    free(v);
}

static inline void push_new(wire *x, float value) {
    x->w->at[0].seq++;
    push(x, BT_PUSH_DELTA, value);
    expect(x, 0, BT_ISLAND_GO, &x->w->at[0].go, sizeof x->w->at[0].go);
    assert_int_equal(x->w->at[0].go.seq, x->w->at[0].seq);
}

/* Makes island 0 a member that has uploaded the weights. */
static inline void join_hub(wire *x) {
    peer *p = &x->w->at[0];
    p->epoch = 0;
    send_hello(x, 0, "");
    p->epoch = expect(x, 0, BT_ISLAND_WELCOME, &p->welcome, sizeof p->welcome).epoch;
    p->seq = (uint64_t)p->welcome.applied;
    if (p->welcome.want_weights) {
        p->seq++;
        push(x, BT_PUSH_WEIGHTS, 0.5f);
    }
    expect(x, 0, BT_ISLAND_GO, &p->go, sizeof p->go);
}

#endif

/* test_hub_peers.c - peers that are no islands (without a key, with another protocol, or with an accepted key and
 * libzmq heartbeats) do not affect the weights, and the hub continues. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/engine/islands/hub_wire.h"

/* Sends bytes over plain TCP until the hub has read them or closed the connection. */
static void send_plain(wire *x, const void *bytes, size_t n) {
    const char *address = bt_hub_socket_address(x->socket);
    const struct sockaddr_in to = {.sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                   .sin_port = htons((uint16_t)atoi(strchr(address, ':') + 1))};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&to, sizeof to), 0);
    (void)!send(fd, bytes, n, MSG_NOSIGNAL);
    for (int i = 0; i < 3; i++) serve(x);
    close(fd);
}

/* A libzmq client without keys; none of its messages arrive. */
static void connect_without_key(wire *x) {
    char endpoint[160];
    const int linger = 0;
    bt_island_head head;
    const void *payload;
    void *s = zmq_socket(x->context, ZMQ_DEALER), *listed = x->client[1];
    snprintf(endpoint, sizeof endpoint, "tcp://%s", bt_hub_socket_address(x->socket));
    assert_int_equal(zmq_setsockopt(s, ZMQ_LINGER, &linger, sizeof linger), 0);
    assert_int_equal(zmq_connect(s, endpoint), 0);
    x->client[1] = s;
    send_hello(x, 1, "");
    assert_false(take_answer(x, 1, 10, &head, &payload));
    x->client[1] = listed;
    zmq_close(s);
}

/* Sends the greeting of ZMTP 3.1 followed by another mechanism, frames that are too long, or unknown commands. */
static void send_odd_greetings(wire *x) {
    enum { GREETING = 64, MORE = 512 };
    unsigned char bytes[GREETING + MORE];
    uint64_t seed = 88172645463325252ull;
    for (int round = 0; round < 60; round++) {
        const char *mechanism = round % 3 == 0 ? "CURVE" : round % 3 == 1 ? "NULL" : "PLAIN";
        memset(bytes, 0, sizeof bytes);
        bytes[0] = 0xff;
        bytes[9] = 0x7f;
        bytes[10] = round % 5 == 4 ? 1 : 3;
        bytes[11] = (unsigned char)(round % 2);
        memcpy(bytes + 12, mechanism, strlen(mechanism));
        for (int i = GREETING; i < GREETING + MORE; i++) {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            bytes[i] = (unsigned char)seed;
        }
        if (round % 4 == 0) bytes[GREETING] = 4; /* a command */
        if (round % 7 == 0) bytes[round % GREETING] ^= 0x55;
        send_plain(x, bytes, round % 6 == 5 ? (size_t)round : sizeof bytes);
    }
}

/* Another program with an accepted key sends a heartbeat request every millisecond. */
static void send_heartbeat_requests(wire *x) {
    const int every_ms = 1, timeout_ms = 500;
    bt_island_head head;
    const void *payload;
    void *quiet = x->client[1], *s = connect_as(x, "b");
    char endpoint[160];
    snprintf(endpoint, sizeof endpoint, "tcp://%s", bt_hub_socket_address(x->socket));
    assert_int_equal(zmq_disconnect(s, endpoint), 0);
    assert_int_equal(zmq_setsockopt(s, ZMQ_HEARTBEAT_IVL, &every_ms, sizeof every_ms), 0);
    assert_int_equal(zmq_setsockopt(s, ZMQ_HEARTBEAT_TIMEOUT, &timeout_ms, sizeof timeout_ms), 0);
    assert_int_equal(zmq_connect(s, endpoint), 0);
    x->client[1] = s;
    bool answered = false; /* A message may be lost together with its connection. */
    for (int i = 0; i < 50 && !answered; i++) {
        send_hello(x, 1, "model=00\n");
        answered = take_answer(x, 1, 20, &head, &payload) && head.type == BT_ISLAND_REFUSED;
    }
    assert_true(answered);
    x->client[1] = quiet;
    zmq_close(s);
}

static void other_peers_change_nothing(void **state) {
    static const char http[] = "GET / HTTP/1.1\r\nHost: hub\r\n\r\n";
    static void (*const peers[])(wire *) = {connect_without_key, send_odd_greetings,
                                            send_heartbeat_requests};
    wire x;
    (void)state;
    open_wire(&x);
    join_hub(&x);
    push_new(&x, 0.01f);
    send_plain(&x, http, sizeof http - 1);
    send_plain(&x, "", 0);
    for (size_t i = 0; i < sizeof peers / sizeof *peers; i++) {
        const int64_t version = x.w->hub->model->version;
        const float theta = x.w->hub->model->theta[0];
        peers[i](&x);
        assert_int_equal(x.w->hub->model->version, version);
        assert_true(x.w->hub->model->theta[0] == theta);
        push_new(&x, 0.01f);
        assert_int_equal(x.w->hub->model->version, version + 1);
    }
    close_wire(&x);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(other_peers_change_nothing)};
    bt_err err = BT_ERR_INIT;
    if (bt_comm_init(&err) != BT_OK || bt_threads_init(1, &err) != BT_OK) return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_comm_finalize();
    return failed;
}

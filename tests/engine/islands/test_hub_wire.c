/* test_hub_wire.c - a hub with its real socket and a client that sends invalid messages: each is refused with one line
 * or reported as foreign, and the hub's weights do not change. */
#include "engine/islands/hub/hub_internal.h"
#include "tests/engine/islands/hub_wire.h"

static size_t write_hello_frame(const wire *x, unsigned char *frame) {
    const char *text = bt_text_str(&x->w->hello);
    return bt_island_write(
        frame, &(bt_island_head){.type = BT_ISLAND_HELLO, .bytes = (uint32_t)strlen(text)}, text);
}

static void send_message_of_another_program(wire *x) {
    static const char text[] = "GET / HTTP/1.1\r\nHost: hub.example.org\r\nAccept: */*\r\n"
                               "User-Agent: somebody/1.0\r\nConnection: close\r\n\r\n";
    send_bytes(x, 1, text, sizeof text - 1);
}
static void send_message_too_short(wire *x) { send_bytes(x, 1, "short", 5); }

static void send_message_of_another_version(wire *x) {
    unsigned char *frame = malloc(BT_ISLAND_FRAME);
    const size_t n = write_hello_frame(x, frame);
    frame[4]++; /* changes the low byte */
    send_bytes(x, 1, frame, n);
    free(frame);
}

static void send_damaged_messages(wire *x) {
    unsigned char *frame = malloc(BT_ISLAND_FRAME);
    const size_t n = write_hello_frame(x, frame);
    frame[n - 1] ^= 1;
    send_bytes(x, 1, frame, n);
    free(frame);
}

static void send_message_of_a_hub(wire *x) {
    send_message(x, 1, (bt_island_head){.type = BT_ISLAND_PING}, NULL);
}

static void send_message_a_byte_too_long(wire *x) {
    unsigned char *bytes = calloc(1, BT_ISLAND_FRAME + 1);
    send_bytes(x, 1, bytes, BT_ISLAND_FRAME + 1);
    free(bytes);
}

static void send_many_frames(wire *x) {
    unsigned char *frame = malloc(BT_ISLAND_FRAME);
    const size_t n = write_hello_frame(x, frame);
    for (int i = 0; i < 50; i++)
        assert_int_equal(zmq_send(x->client[1], frame, n, ZMQ_SNDMORE), (int)n);
    send_bytes(x, 1, frame, n);
    free(frame);
}

static void send_hello_with_another_model(wire *x) { send_hello(x, 1, "model=00\n"); }
static void send_hello_with_another_tokenizer(wire *x) { send_hello(x, 1, "data=00\n"); }
static void send_hello_of_another_program_version(wire *x) { send_hello(x, 1, "program=0.0.1\n"); }
static void send_hello_with_another_setting(wire *x) { send_hello(x, 1, "islands.inner=3\n"); }
static void send_hello_with_another_name(wire *x) { send_hello(x, 1, "name=island-0\n"); }

static void send_update_out_of_order(wire *x) {
    peer *p = &x->w->at[0];
    p->seq += 5;
    push(x, BT_PUSH_DELTA, 0.1f);
    p->seq -= 5;
}

static void send_update_longer_than_the_model(wire *x) {
    send_message(x, 0,
                 (bt_island_head){.type = BT_ISLAND_CHUNK_MESSAGE,
                                  .seq = x->w->at[0].seq + 1,
                                  .chunks = 1000,
                                  .bytes = 4},
                 "abcd");
}

static void send_delta_of_future_weights(wire *x) {
    peer *p = &x->w->at[0];
    p->go.version += 100;
    p->seq++;
    push(x, BT_PUSH_DELTA, 0.1f);
    p->seq--;
    p->go.version -= 100;
}

static void send_old_update(wire *x) {
    const bt_island_fetch f = {.kind = BT_FETCH_UPDATE, .version = 1, .n = 1};
    send_message(x, 0, (bt_island_head){.type = BT_ISLAND_FETCH, .bytes = sizeof f}, &f);
}

static void send_to_another_hub(wire *x) {
    send_message(x, 0, (bt_island_head){.type = BT_ISLAND_BEAT, .epoch = 5}, NULL);
}

static void send_heartbeat_before_hello(wire *x) {
    send_message(x, 1, (bt_island_head){.type = BT_ISLAND_BEAT, .epoch = x->w->hub->cfg.epoch},
                 NULL);
}

static const struct {
    const char *name;
    void (*send)(wire *x);
    int client;
    bt_island_type answer;
    const char *says; /* text of the refusal */
} rows[] = {
    {"another program", send_message_of_another_program, 1, BT_ISLAND_REFUSED,
     "of another program"},
    {"too short", send_message_too_short, 1, BT_ISLAND_REFUSED, "shorter than its head"},
    {"a version to come", send_message_of_another_version, 1, BT_ISLAND_REFUSED,
     "of version 5 of the protocol"},
    {"damaged", send_damaged_messages, 1, BT_ISLAND_REFUSED, "with a wrong checksum"},
    {"of a hub", send_message_of_a_hub, 1, BT_ISLAND_REFUSED, "unknown type"},
    {"a byte too long", send_message_a_byte_too_long, 1, BT_ISLAND_REFUSED, "longer than"},
    {"many frames", send_many_frames, 1, BT_ISLAND_REFUSED, "several frames"},
    {"another model", send_hello_with_another_model, 1, BT_ISLAND_REFUSED, "the model (by hash)"},
    {"another tokenizer", send_hello_with_another_tokenizer, 1, BT_ISLAND_REFUSED,
     "the data or the tokenizer"},
    {"another program's version", send_hello_of_another_program_version, 1, BT_ISLAND_REFUSED,
     "program is '0.0.1'"},
    {"another setting", send_hello_with_another_setting, 1, BT_ISLAND_REFUSED,
     "islands.inner is '3' here"},
    {"the name of another", send_hello_with_another_name, 1, BT_ISLAND_REFUSED, "another key"},
    {"not a member", send_heartbeat_before_hello, 1, BT_ISLAND_STRANGER, NULL},
    {"out of order", send_update_out_of_order, 0, BT_ISLAND_REFUSED, "out of order"},
    {"longer than the model", send_update_longer_than_the_model, 0, BT_ISLAND_REFUSED,
     "longer than the model"},
    {"of weights to come", send_delta_of_future_weights, 0, BT_ISLAND_REFUSED, "size for this job"},
    {"an update of long ago", send_old_update, 0, BT_ISLAND_REFUSED, "too old"},
    {"of another hub", send_to_another_hub, 0, BT_ISLAND_STRANGER, NULL},
};

static void invalid_messages_are_refused(void **state) {
    wire x;
    (void)state;
    open_wire(&x);
    join_hub(&x);
    for (int i = 0; i < 2; i++) push_new(&x, 0.01f);
    const int64_t version = x.w->hub->model->version;
    const float theta = x.w->hub->model->theta[0];
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        const uint64_t refused = x.w->hub->refused;
        char text[512] = "";
        rows[r].send(&x);
        const bt_island_head head = expect(&x, rows[r].client, rows[r].answer, text,
                                           sizeof text - 1);
        if (rows[r].says && !strstr(text, rows[r].says))
            fail_msg("%s: '%.*s' does not contain '%s'", rows[r].name, (int)head.bytes, text,
                     rows[r].says);
        if (rows[r].says && rows[r].send != send_old_update && x.w->hub->refused != refused + 1)
            fail_msg("%s: the hub did not count it", rows[r].name);
        if (x.w->hub->model->version != version || x.w->hub->model->theta[0] != theta)
            fail_msg("%s: changed the weights", rows[r].name);
    }
    push_new(&x, 0.01f);
    assert_int_equal(x.w->hub->model->version, version + 1);
    close_wire(&x);
}

/* libzmq closes such a connection; the client reconnects and is served. */
static void a_message_of_megabytes_is_not_delivered(void **state) {
    wire x;
    bt_island_head head;
    const void *payload;
    const size_t n = 8 << 20;
    (void)state;
    open_wire(&x);
    join_hub(&x);
    char *bytes = calloc(1, n);
    send_bytes(&x, 1, bytes, n);
    free(bytes);
    push_new(&x, 0.01f);
    assert_false(take_answer(&x, 1, 5, &head, &payload));
    assert_int_equal(x.w->hub->refused, 0);
    bool welcome = false;
    /* One message may be lost together with the connection. */
    for (int i = 0; i < 20 && !welcome; i++) {
        send_hello(&x, 1, "");
        welcome = take_answer(&x, 1, LOOKS / 20, &head, &payload) && head.type == BT_ISLAND_WELCOME;
    }
    assert_true(welcome);
    close_wire(&x);
}

/* Repeats the update as an island does, because a message may be lost together with its connection. */
static void push_until_heard(wire *x, float value) {
    peer *p = &x->w->at[0];
    bt_island_head head;
    const void *payload;
    p->seq++;
    for (int i = 0; i < 40; i++) {
        push(x, BT_PUSH_DELTA, value);
        while (take_answer(x, 0, LOOKS / 40, &head, &payload)) {
            if (head.type != BT_ISLAND_GO) continue;
            memcpy(&p->go, payload, sizeof p->go);
            if ((uint64_t)p->go.seq == p->seq) return;
        }
    }
    fail_msg("the hub does not answer on a new connection");
}

/* A message with an unlimited number of frames is freed with its connection, and the islands reconnect. */
static void connections_are_restored(void **state) {
    enum { FRAMES = 64 };
    wire x;
    bt_err err = BT_ERR_INIT;
    char address[128];
    (void)state;
    open_wire(&x);
    join_hub(&x);
    push_new(&x, 0.01f);
    snprintf(address, sizeof address, "%s", bt_hub_socket_address(x.socket));
    char *bytes = calloc(1, BT_ISLAND_CHUNK);
    for (int i = 0; i < FRAMES; i++)
        assert_int_equal(zmq_send(x.client[1], bytes, BT_ISLAND_CHUNK,
                                  i + 1 < FRAMES ? ZMQ_SNDMORE : 0),
                         BT_ISLAND_CHUNK);
    free(bytes);
    for (int i = 0; i < 3; i++) {
        if (bt_hub_socket_renew(x.socket, &err) != BT_OK) fail_msg("%s", err.msg);
        assert_string_equal(bt_hub_socket_address(x.socket), address);
        push_until_heard(&x, 0.01f);
    }
    assert_int_equal(x.w->hub->model->version, 4);
    bt_hub_refuse_memory(x.w->hub, 700, 512);
    assert_non_null(strstr(x.w->sink->events[x.w->sink->n_events - 1].title,
                           "took 700 MiB, more than 512 (--memory)"));
    close_wire(&x);
}

static void an_update_is_applied_once(void **state) {
    wire x;
    (void)state;
    open_wire(&x);
    join_hub(&x);
    peer *p = &x.w->at[0];
    push_new(&x, 0.01f);
    const bt_island_go first = p->go;
    p->go.version = 0;
    push(&x, BT_PUSH_DELTA, 0.01f); /* sends the same update again */
    expect(&x, 0, BT_ISLAND_GO, &p->go, sizeof p->go);
    assert_memory_equal(&p->go, &first, sizeof first);
    assert_int_equal(x.w->hub->model->version, 1);
    push_new(&x, 0.01f);
    p->seq -= 1; /* The update before the newest acknowledged one is ignored. */
    push(&x, BT_PUSH_DELTA, 0.01f);
    p->seq += 1;
    push_new(&x, 0.01f);
    assert_int_equal(x.w->hub->model->version, 3);
    assert_int_equal(x.w->hub->members[0].updates, 3);
    assert_true(fabs(x.w->hub->model->theta[0] - (0.5 - 3 * 0.01)) < 1e-5);
    close_wire(&x);
}

static void a_dead_island_joins_again(void **state) {
    wire x;
    bt_err err = BT_ERR_INIT;
    (void)state;
    open_wire(&x);
    join_hub(&x);
    push_new(&x, 0.01f);
    now_ns += INT64_C(101000000000); /* The island has been silent for this time. */
    assert_int_equal(bt_hub_tick(x.w->hub, now_ns, &err), BT_OK);
    assert_int_equal(x.w->hub->members[0].state, BT_MEMBER_DEAD);
    x.w->at[0].seq++;
    push(&x, BT_PUSH_DELTA, 0.01f);
    expect(&x, 0, BT_ISLAND_STRANGER, NULL, 0);
    assert_int_equal(x.w->hub->model->version, 1);
    assert_non_null(strstr(x.w->sink->events[x.w->sink->n_events - 1].title, "declared dead"));
    join_hub(&x);
    push_new(&x, 0.01f);
    assert_int_equal(x.w->hub->model->version, 2);
    close_wire(&x);
}

static void a_poisoned_delta_is_left_out(void **state) {
    static const float poison[] = {5, NAN, INFINITY};
    wire x;
    (void)state;
    open_wire(&x);
    join_hub(&x);
    for (int i = 0; i < 5; i++) push_new(&x, 0.01f);
    for (int i = 0; i < 3; i++) {
        push_new(&x, poison[i]);
        assert_int_equal(x.w->at[0].go.outcome, BT_UPDATE_POISONED);
        assert_int_equal(x.w->hub->members[0].left_out, i + 1);
        assert_int_equal(x.w->hub->model->version, 5);
        /* The island continues with further data. */
        assert_int_equal(x.w->at[0].go.clock, 2 * (6 + i));
    }
    push_new(&x, 0.01f);
    assert_int_equal(x.w->at[0].go.outcome, BT_UPDATE_APPLIED);
    assert_int_equal(x.w->hub->members[0].updates, 6);
    assert_true(fabs(x.w->hub->model->theta[0] - (0.5 - 6 * 0.01)) < 1e-5);
    close_wire(&x);
}

/* The parts that one island may have in flight fit into the hub's queue, even while parts of earlier rounds are
 * counted; otherwise parts of weights would wait. */
static void a_window_of_parts_finds_room(void **state) {
    enum {
        ROUNDS = 30,
        SENT = BT_ISLAND_WINDOW + 2
    }; /* a whole window of parts, one reply and one ping */
    static unsigned char part[BT_ISLAND_CHUNK];
    wire x;
    (void)state;
    open_wire(&x);
    join_hub(&x);
    for (int round = 0; round < ROUNDS; round++) {
        const bt_island_head head = {.type = BT_ISLAND_PART, .chunks = 1, .bytes = sizeof part};
        serve(&x);
        for (int i = 0; i < SENT; i++)
            if (bt_hub_send(x.w->hub, &x.w->hub->members[0].peer, &head, part) != BT_PORT_SENT)
                fail_msg("round %d: part %d of %d finds no room", round, i, SENT);
        for (int i = 0; i < SENT; i++)
            assert_true(zmq_recv(x.client[0], x.frame, sizeof x.frame, 0) > 0);
    }
    close_wire(&x);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(invalid_messages_are_refused),
                                       cmocka_unit_test(a_message_of_megabytes_is_not_delivered),
                                       cmocka_unit_test(connections_are_restored),
                                       cmocka_unit_test(an_update_is_applied_once),
                                       cmocka_unit_test(a_dead_island_joins_again),
                                       cmocka_unit_test(a_poisoned_delta_is_left_out),
                                       cmocka_unit_test(a_window_of_parts_finds_room)};
    bt_err err = BT_ERR_INIT;
    if (bt_comm_init(&err) != BT_OK || bt_threads_init(1, &err) != BT_OK) return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_comm_finalize();
    return failed;
}

/* test_hub_copy.c - an island's copy of the weights equals the hub's, whatever updates an asynchronous hub applies
 * between its reply and the fetch, or between two chunks. */
#include "engine/islands/island/hub_copy.h"

#include <math.h>

#include "tests/engine/islands/hub_world.h"
#include "tests/message.h"

enum { QUEUE = 64 };

typedef struct line { /* connection of island 0 to the hub, in this process */
    world *w;
    unsigned char *frames[QUEUE];
    size_t bytes[QUEUE], head, tail;
    int fetches;
    const char *refuses; /* reply of the hub to all fetches; NULL: the requested parts */
    int late_at;         /* island 1's next update reaches the hub before this fetch; 0: never */
} line;

static bt_port_state queue_for_line(void *ctx, const bt_hub_peer *to, const void *frame,
                                    size_t bytes) {
    line *l = ctx;
    if (to->id[0] != 0) return to_peer(l->w, to, frame, bytes);
    const size_t k = l->tail++ % QUEUE;
    assert_true(l->tail - l->head < QUEUE);
    l->frames[k] = realloc(l->frames[k], bytes);
    memcpy(l->frames[k], frame, bytes);
    l->bytes[k] = bytes;
    return BT_PORT_SENT;
}

static bt_port_state send_line(void *ctx, const void *frame, size_t bytes, int timeout_ms) {
    line *l = ctx;
    const bt_hub_peer from = {.n = 1, .id = {0}, .key = "key-0"};
    bt_island_head head;
    const void *payload;
    bt_err err = BT_ERR_INIT;
    (void)timeout_ms;
    assert_int_equal(bt_island_parse(frame, bytes, BT_SENT_BY_ISLAND, &head, &payload, &err),
                     BT_OK);
    if (head.type == BT_ISLAND_FETCH && ++l->fetches == l->late_at)
        send_update(l->w, 1, BT_PUSH_GRADIENT, 0.002f, 10);
    if (head.type == BT_ISLAND_FETCH && l->refuses) {
        unsigned char out[BT_ISLAND_HEAD + 512];
        head = (bt_island_head){.type = BT_ISLAND_REFUSED, .bytes = (uint32_t)strlen(l->refuses)};
        assert_true(l->fetches < 10000);
        return queue_for_line(l, &from, out, bt_island_write(out, &head, l->refuses));
    }
    assert_int_equal(bt_hub_receive(l->w->hub, &from, frame, bytes, now_ns, &err), BT_OK);
    return BT_PORT_SENT;
}

static bt_code receive_line(void *ctx, void *frame, size_t *bytes, int timeout_ms, bt_err *err) {
    line *l = ctx;
    (void)timeout_ms, (void)err;
    *bytes = 0;
    if (l->head == l->tail) return BT_OK;
    const size_t k = l->head++ % QUEUE;
    *bytes = l->bytes[k];
    memcpy(frame, l->frames[k], l->bytes[k]);
    return BT_OK;
}

typedef struct copy_world {
    line l;
    bt_text hello;
    bt_island_client client;
    bt_hub_copy copy;
    bt_island_go go;
    float *work;
    bool fetched;
} copy_world;

static void follow_hub(copy_world *c) {
    bt_err err = BT_ERR_INIT;
    if (bt_hub_copy_follow(&c->copy, &c->client, c->go.version, c->work, &c->fetched, &err) !=
        BT_OK)
        fail_msg("%s", err.msg);
}

/* Island 1 joins and uploads the weights, then island 0 joins through the client. */
static void begin_copy(copy_world *c, const char *vocab) {
    bt_err err = BT_ERR_INIT;
    *c = (copy_world){.work = NULL};
    world *w = c->l.w = WORLD(2, "--mode", "ps", "--staleness", "-1", "--codec", "int8", "--steps",
                              "100", "--lr", "0.1", "--lr-schedule", "constant", "--set", vocab);
    w->hub->cfg.port = (bt_hub_port){&c->l, queue_for_line};
    hello(w, 1, "");
    send_update(w, 1, BT_PUSH_WEIGHTS, 0.5f, 0);
    bt_text_init(&c->hello);
    bt_text_put(&c->hello, bt_text_str(&w->hello));
    bt_text_put(&c->hello, "name=island-0\nhost=h\npid=1\nranks=1\nsequences=4\n");
    const bt_island_client_cfg cfg = {.port = {&c->l, send_line, receive_line, NULL, NULL},
                                      .hello = bt_text_str(&c->hello),
                                      .patience_s = 10,
                                      .lost_s = 10};
    assert_int_equal(bt_island_client_init(&c->client, &cfg, &err), BT_OK);
    const bt_hub_model *m = w->hub->model;
    assert_int_equal(bt_hub_copy_init(&c->copy, &m->setup.params, bt_codec_at(BT_CODEC_INT8), &err),
                     BT_OK);
    c->work = calloc(m->n, sizeof *c->work);
    if (bt_island_client_join(&c->client, c->copy.bytes, bt_vector_bytes(&c->copy.plain), &c->go,
                              &err) != BT_OK)
        fail_msg("%s", err.msg);
    follow_hub(c);
    assert_true(c->fetched);
}

static void end_copy(copy_world *c) {
    bt_island_client_release(&c->client);
    bt_hub_copy_release(&c->copy);
    bt_text_release(&c->hello);
    for (int k = 0; k < QUEUE; k++) free(c->l.frames[k]);
    free(c->work);
    close_world(c->l.w);
}

/* Island 0 skips a step, so only updates of island 1 raise the hub's version. */
static void skip_step(copy_world *c) {
    bt_err err = BT_ERR_INIT;
    bool rejoined;
    const bt_island_push none = {
        .kind = BT_PUSH_GRADIENT, .base = c->copy.version, .steps = c->go.steps, .sequences = 4};
    if (bt_island_client_push(&c->client, &none, c->copy.bytes, &c->go, &rejoined, &err) != BT_OK)
        fail_msg("%s", err.msg);
    assert_false(rejoined);
}

static double largest_weight_difference(const copy_world *c) {
    const bt_hub_model *m = c->l.w->hub->model;
    double most = 0;
    for (size_t t = 0; t < m->setup.params.n; t++) {
        const bt_tensor *x = &m->setup.params.tensors[t];
        for (size_t k = x->offset; k < x->offset + x->count; k++)
            most = fmax(most, fabs((double)c->copy.x[k] - m->published[k]));
    }
    return most;
}

static void the_copy_follows_the_updates(void **state) {
    copy_world c;
    (void)state;
    begin_copy(&c, "model.vocab=64");
    for (int r = 0; r < 3; r++) {
        send_update(c.l.w, 1, BT_PUSH_GRADIENT, 0.001f, 10);
        skip_step(&c);
        assert_int_equal(c.go.version, r + 1);
        follow_hub(&c);
        assert_false(c.fetched); /* A copy that is one update old is recent enough. */
        assert_int_equal(c.copy.version, r + 1);
        assert_true(largest_weight_difference(&c) < 1e-6);
    }
    end_copy(&c);
}

/* If the fetched weights are newer than requested, the update they contain is not added again. */
static void newer_weights_are_recognized(void **state) {
    copy_world c;
    (void)state;
    begin_copy(&c, "model.vocab=64");
    for (int r = 0; r < 2; r++) send_update(c.l.w, 1, BT_PUSH_GRADIENT, 0.001f, 10);
    skip_step(&c);
    assert_int_equal(c.go.version, 2);
    c.l.late_at = c.l.fetches + 1;
    follow_hub(&c);
    assert_true(c.fetched);
    assert_int_equal(c.l.w->hub->model->version, 3);
    assert_true(largest_weight_difference(&c) < 1e-6);
    skip_step(&c);
    assert_int_equal(c.go.version, 3);
    follow_hub(&c);
    assert_true(largest_weight_difference(&c) < 1e-6); /* The third update is not added twice. */
    end_copy(&c);
}

/* Chunks of two versions arrive, some of which contain the newer update. */
static void chunks_of_two_versions_are_recognized(void **state) {
    copy_world c;
    (void)state;
    begin_copy(&c, "model.vocab=8192");
    assert_true(bt_vector_bytes(&c.copy.plain) > 4 * (size_t)BT_ISLAND_CHUNK);
    for (int r = 0; r < 2; r++) send_update(c.l.w, 1, BT_PUSH_GRADIENT, 0.001f, 10);
    skip_step(&c);
    c.l.late_at = c.l.fetches + 3; /* Two requests are in flight before the first reply. */
    follow_hub(&c);
    assert_true(c.fetched);
    assert_true(largest_weight_difference(&c) >
                0.01); /* The first chunks belong to the previous version. */
    assert_int_equal(c.copy.version, 2);
    skip_step(&c);
    assert_int_equal(c.go.version, 3);
    follow_hub(&c);
    assert_true(largest_weight_difference(&c) < 1e-6);
    assert_int_equal(c.copy.version, 3);
    end_copy(&c);
}

/* A delayed chunk of an earlier request is ignored. */
static void stale_chunks_are_ignored(void **state) {
    copy_world c;
    (void)state;
    begin_copy(&c, "model.vocab=64");
    for (int r = 0; r < 2; r++) send_update(c.l.w, 1, BT_PUSH_GRADIENT, 0.001f, 10);
    skip_step(&c);
    const bt_island_fetch old = {.kind = BT_FETCH_WEIGHTS, .version = 2, .n = 2};
    unsigned char *frame = malloc(BT_ISLAND_FRAME);
    const bt_island_head head = {.type = BT_ISLAND_FETCH,
                                 .epoch = c.client.epoch,
                                 .island = c.client.island,
                                 .incarnation = c.client.incarnation,
                                 .bytes = sizeof old};
    send_line(&c.l, frame, bt_island_write(frame, &head, &old), 0);
    free(frame);
    for (int r = 0; r < 2; r++) send_update(c.l.w, 1, BT_PUSH_GRADIENT, 0.001f, 10);
    c.go.version = 4;
    follow_hub(&c);
    assert_int_equal(c.copy.version, 4);
    assert_true(largest_weight_difference(&c) < 1e-6);
    end_copy(&c);
}

/* A hub process in the wrong position of --hub refuses every request. One or two refusals may still be replies to an
 * earlier request. */
static void a_hub_that_refuses_all_is_reported(void **state) {
    copy_world c;
    bt_err err = BT_ERR_INIT;
    (void)state;
    begin_copy(&c, "model.vocab=64");
    c.l.refuses = "this is process 2 of the hub's 2";
    c.go.version = c.copy.version + 2;
    assert_int_equal(bt_hub_copy_follow(&c.copy, &c.client, c.go.version, c.work, &c.fetched, &err),
                     BT_BUSY);
    message_has(err.msg, "the hub refused this island");
    end_copy(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_copy_follows_the_updates),
                                       cmocka_unit_test(newer_weights_are_recognized),
                                       cmocka_unit_test(chunks_of_two_versions_are_recognized),
                                       cmocka_unit_test(stale_chunks_are_ignored),
                                       cmocka_unit_test(a_hub_that_refuses_all_is_reported)};
    bt_err err = BT_ERR_INIT;
    if (bt_comm_init(&err) != BT_OK || bt_threads_init(1, &err) != BT_OK) return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_comm_finalize();
    return failed;
}

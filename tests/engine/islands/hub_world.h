/* hub_world.h - a hub and simulated islands that exchange frames in one process, for tests of the hub's replies. */
#ifndef BT_TESTS_ENGINE_ISLANDS_HUB_WORLD_H
#define BT_TESTS_ENGINE_ISLANDS_HUB_WORLD_H

#include "engine/islands/hub/hub_server.h"
#include "engine/islands/rules/job_settings.h"
#include "tests/tiny_run.h"

enum { PEERS = 4 };

typedef struct peer { /* an island with the newest reply of the hub */
    bt_island_welcome welcome;
    bt_island_go go;
    int64_t gos, resends, strangers;
    char refused[512], notice[512];
    bool gone;
    bool narrow; /* the connection accepts only some parts of the weights at a time */
    int64_t room, parts, next_part;
    uint64_t seq, epoch;
} peer;

typedef struct world {
    bt_hub *hub;
    peer at[PEERS];
    bt_text hello;
    size_t elements;
    unsigned char *frame;
    fake_sink *sink;
    bt_sink port_sink;
} world;

static inline bt_port_state to_peer(void *ctx, const bt_hub_peer *to, const void *frame,
                                    size_t bytes) {
    world *w = ctx;
    peer *p = &w->at[to->id[0]];
    bt_island_head head;
    const void *payload;
    bt_err err = BT_ERR_INIT;
    if (p->gone) return BT_PORT_GONE;
    assert_int_equal(bt_island_parse(frame, bytes, BT_SENT_BY_HUB, &head, &payload, &err), BT_OK);
    if (head.type == BT_ISLAND_PART) {
        if (p->narrow && p->room-- <= 0) return BT_PORT_FULL;
        assert_int_equal(head.chunk, p->next_part++);
        p->parts++;
    }
    p->epoch = head.epoch;
    if (head.type == BT_ISLAND_WELCOME) memcpy(&p->welcome, payload, sizeof p->welcome);
    if (head.type == BT_ISLAND_GO) memcpy(&p->go, payload, sizeof p->go);
    if (head.type == BT_ISLAND_REFUSED)
        snprintf(p->refused, sizeof p->refused, "%.*s", (int)head.bytes, (const char *)payload);
    if (head.type == BT_ISLAND_NOTICE)
        snprintf(p->notice, sizeof p->notice, "%.*s", (int)head.bytes, (const char *)payload);
    p->gos += head.type == BT_ISLAND_GO;
    p->resends += head.type == BT_ISLAND_RESEND;
    p->strangers += head.type == BT_ISLAND_STRANGER;
    return BT_PORT_SENT;
}

static int64_t now_ns = 1000000000;

static inline void post(world *w, int i, bt_island_head head, const void *payload) {
    bt_hub_peer from = {.n = 1, .id = {(unsigned char)i}};
    bt_err err = BT_ERR_INIT;
    snprintf(from.key, sizeof from.key, "key-%d", i);
    head.epoch = w->at[i].epoch;
    head.island = (uint32_t)w->at[i].welcome.island;
    head.incarnation = (uint32_t)w->at[i].welcome.incarnation;
    const size_t n = bt_island_write(w->frame, &head, payload);
    if (bt_hub_receive(w->hub, &from, w->frame, n, now_ns, &err) != BT_OK) fail_msg("%s", err.msg);
}

static inline world *open_world(int islands, const char *const *words) {
    world *w = calloc(1, sizeof *w);
    bt_run_cfg cfg;
    bt_err err = BT_ERR_INIT;
    tiny_cfg(&cfg, words);
    assert_int_equal(bt_kernels_select("generic", &err), BT_OK);
    bt_model_cfg model;
    bt_params p;
    bt_run_cfg_model(&cfg, &model);
    assert_int_equal(bt_params_init(&p, &model, (bt_model_slice){.tp_rank = 0}, &err), BT_OK);
    w->elements = p.count;
    bt_text_init(&w->hello);
    bt_job_settings_put(&w->hello, &cfg, &(bt_job_hashes){bt_params_hash(&p), 7});
    bt_params_release(&p);
    w->frame = malloc(BT_ISLAND_FRAME);
    w->sink = calloc(1, sizeof *w->sink);
    w->port_sink = fake_sink_of(w->sink);
    const bt_hub_cfg hub = {.port = {w, to_peer},
                            .islands = islands,
                            .grace_s = 1,
                            .silence_s = 100,
                            .late = 1,
                            .sink = &w->port_sink,
                            .epoch = 77};
    assert_int_equal(bt_hub_create(&w->hub, &hub, &err), BT_OK);
    return w;
}
#define WORLD(islands, ...) open_world(islands, (const char *const[]){__VA_ARGS__, NULL})

static inline void close_world(world *w) {
    bt_hub_destroy(w->hub);
    bt_text_release(&w->hello);
    free(w->frame);
    free(w->sink);
    free(w);
}

static inline void hello(world *w, int i, const char *more) {
    bt_text t;
    bt_text_init(&t);
    bt_text_put(&t, more);
    bt_text_put(&t, bt_text_str(&w->hello));
    bt_text_printf(&t, "name=island-%d\nhost=h\npid=1\nranks=1\nsequences=4\n", i);
    w->at[i].refused[0] = 0;
    post(w, i, (bt_island_head){.type = BT_ISLAND_HELLO, .bytes = (uint32_t)t.len},
         bt_text_str(&t));
    w->at[i].seq = (uint64_t)w->at[i].welcome.applied;
    bt_text_release(&t);
}

/* Sends an update in which every element is `value`; a delta contains the fragment of its round. */
static inline void send_update(world *w, int i, bt_push_kind kind, float value, int64_t tokens) {
    peer *p = &w->at[i];
    const bt_hub_model *m = w->hub->model;
    static const bt_codec plain = {.name = "fp32"};
    bt_vector_code code = {.params = &m->setup.params,
                           .codec = kind == BT_PUSH_WEIGHTS ? &plain : m->up.codec};
    size_t begin, n_elements;
    if (kind == BT_PUSH_DELTA && m->fragments > 1)
        bt_vector_fragment(&code, p->go.fragment, m->fragments, &begin, &n_elements);
    const size_t bytes = bt_vector_bytes(&code);
    float *values = malloc(m->n * sizeof *values), *owed = calloc(m->n, sizeof *owed);
    char *x = malloc(bytes);
    for (size_t k = 0; k < m->n; k++) values[k] = value;
    bt_vector_encode(&code, x, values, owed);
    free(values);
    free(owed);
    p->seq++;
    const uint32_t chunks = (uint32_t)((bytes + BT_ISLAND_CHUNK - 1) / BT_ISLAND_CHUNK);
    for (uint32_t c = 0; c < chunks; c++) {
        const size_t at = (size_t)c * BT_ISLAND_CHUNK, n = bytes - at;
        post(w, i,
             (bt_island_head){.type = BT_ISLAND_CHUNK_MESSAGE,
                              .seq = p->seq,
                              .chunk = c,
                              .chunks = chunks,
                              .bytes = n < BT_ISLAND_CHUNK ? (uint32_t)n : BT_ISLAND_CHUNK},
             x + at);
    }
    free(x);
    const bt_island_push push = {.kind = kind,
                                 .bytes = tokens || kind == BT_PUSH_WEIGHTS ? (int64_t)bytes : 0,
                                 .base = p->go.version,
                                 .tokens = tokens,
                                 .steps = p->go.steps,
                                 .sequences = 4,
                                 .loss = 1};
    post(w, i, (bt_island_head){.type = BT_ISLAND_PUSH, .seq = p->seq, .bytes = sizeof push},
         &push);
}

static inline void join(world *w, int n) {
    for (int i = 0; i < n; i++) {
        hello(w, i, "");
        assert_string_equal(w->at[i].refused, "");
        if (w->at[i].welcome.want_weights) send_update(w, i, BT_PUSH_WEIGHTS, 0.5f, 0);
    }
}

#endif

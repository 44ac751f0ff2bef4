/* timeout: 60
 * frames between rank and supervisor: everything arrives once and equal, older generations are
 * fenced, garbage is cut off. */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "store/record/wire_frame.h"
#include "store/wire/wire.h"
#include "store_test.h"

typedef struct heard {
    int comm, pairs, ranks, facts, steps, layers, events, ckpts, bad;
    int64_t last_step;
    char title[64];
} heard;

static void h_ranks(void *ctx, const bt_rank_info *r, size_t n) {
    heard *h = ctx;
    h->ranks += (int)n;
    h->bad += strcmp(r[n - 1].host, "n2") != 0;
}
static void h_fact(void *ctx, const char *k, const char *v) {
    heard *h = ctx;
    h->facts++;
    h->bad += strcmp(k, "key") != 0 || strcmp(v, "value") != 0;
}
static void h_step(void *ctx, const bt_step_record *r) {
    heard *h = ctx;
    h->steps++;
    h->last_step = r->step;
    for (int i = 0; i < BT_MS_COUNT; i++) h->bad += r->values[i] != bt_truth(r->step, i);
    for (int k = 0; k < r->n_ranks; k++)
        h->bad += r->rank_values[k * BT_MR_COUNT + 3] != bt_rank_truth(r->step, k, 3);
}
static void h_layers(void *ctx, const bt_layer_record *r, size_t n) {
    heard *h = ctx;
    h->layers += (int)n;
    h->bad += strcmp(r[0].tensor, "attn_q") != 0 || r[0].values[1] != 0.25;
}
static void h_comm(void *ctx, const bt_comm_record *r, size_t n) {
    heard *h = ctx;
    h->comm += (int)n;
    h->bad += strcmp(r[0].op, "all_reduce") != 0 || strcmp(r[n - 1].axis, "shard") != 0 ||
              r[n - 1].rank != 1 || r[n - 1].values[BT_MC_CALLS] != 4;
}
static void h_pairs(void *ctx, const bt_pair_record *r, size_t n) {
    heard *h = ctx;
    h->pairs += (int)n;
    h->bad += r[0].rank != 0 || r[n - 1].peer != 5 || r[n - 1].values[BT_MP_FLIGHT] != 1.5;
}
static void h_event(void *ctx, const bt_event *e) {
    heard *h = ctx;
    h->events++;
    snprintf(h->title, sizeof h->title, "%s", e->title);
    h->bad += e->body != NULL;
}
static void h_ckpt(void *ctx, const bt_ckpt_record *c) {
    heard *h = ctx;
    h->ckpts++;
    h->bad += strcmp(c->hash, "00ff") != 0;
}

static bt_sink hearing(heard *h) {
    return (bt_sink){h, h_ranks, h_fact, h_step, h_layers, h_comm, h_event, h_ckpt, h_pairs};
}

static void serve_for(bt_wire_server *s, int attempt, heard *h, int ms, const int *count,
                      int wanted) {
    bt_sink sink = hearing(h);
    int64_t end = bt_now_ns() + (int64_t)ms * 1000000;
    while (bt_now_ns() < end && (!count || *count < wanted)) {
        int fds[2], n = bt_wire_poll_fds(s, fds);
        struct pollfd p[2] = {{fds[0], POLLIN, 0}, {fds[1], POLLIN, 0}};
        poll(p, (nfds_t)n, 20);
        bt_err ignored;
        bt_code code = bt_wire_serve(s, attempt, &sink, &ignored);
        if (code != BT_OK) h->bad += 1000;
    }
}

typedef struct verbs {
    _Atomic int n, lost;
    _Atomic double value;
    _Atomic int verb;
} verbs;
static void on_control(void *ctx, const bt_ctl *c) {
    verbs *t = ctx;
    atomic_store(&t->verb, (int)c->verb);
    atomic_store(&t->value, c->value);
    atomic_fetch_add(&t->n, 1);
}
static void on_lost(void *ctx) { atomic_fetch_add(&((verbs *)ctx)->lost, 1); }

static void everything_arrives_both_ways(void **state) {
    const bt_tmp *t = *state;
    char path[100];
    verbs told = {0};
    heard h = {0};
    bt_wire_server *s = NULL;
    bt_wire *w = NULL;
    snprintf(path, sizeof path, "%s/sock", t->dir);
    OK(bt_wire_listen(&s, path, err));
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    bt_err why;
    assert_int_equal(bt_wire_send_control(s, &(bt_ctl){BT_CTL_STOP, 0}, &why), BT_BUSY);
    OK(bt_wire_connect(&w, path, 7, &(bt_wire_handlers){&told, on_control, on_lost}, err));
    const bt_sink *sink = bt_wire_sink(w);
    bt_rank_info ranks[2] = {{.rank = 0, .host = "n1"}, {.rank = 1, .host = "n2"}};
    bt_fake f;
    double lv[BT_ML_COUNT] = {0.5, 0.25};
    sink->ranks(sink->ctx, ranks, 2);
    sink->fact(sink->ctx, "key", "value");
    for (int64_t step = 0; step < 500; step++)
        sink->step(sink->ctx, bt_fake_step(&f, step, step % 2 ? 16 : 0));
    sink->layers(sink->ctx,
                 (bt_layer_record[]){{.step = 1, .layer = 0, .tensor = "attn_q", .values = lv}}, 1);
    const double cv[BT_MC_COUNT] = {[BT_MC_CALLS] = 4};
    sink->comm(sink->ctx,
               (bt_comm_record[]){
                   {.step = 1, .rank = 0, .op = "all_reduce", .axis = "dp", .values = cv},
                   {.step = 1, .rank = 1, .op = "all_gather", .axis = "shard", .values = cv}},
               2);
    const double pv[BT_MP_COUNT] = {[BT_MP_FLIGHT] = 1.5};
    sink->pairs(sink->ctx,
                (bt_pair_record[]){{.step = 1, .rank = 0, .peer = 1, .values = pv},
                                   {.step = 1, .rank = 1, .peer = 5, .values = pv}},
                2);
    sink->checkpoint(sink->ctx, &(bt_ckpt_record){.step = 3, .path = "p", .hash = "00ff"});
    sink->event(sink->ctx,
                &(bt_event){.kind = "started", .step = -1, .rank = -1, .title = "it runs"});
    serve_for(s, 7, &h, 5000, &h.events, 1);
    assert_int_equal(h.steps, 500);
    assert_int_equal(h.ranks, 2);
    assert_int_equal(h.facts + h.layers + h.ckpts + h.events, 4);
    assert_int_equal(h.comm, 2);
    assert_int_equal(h.pairs, 2);
    assert_int_equal(h.bad, 0);
    assert_string_equal(h.title, "it runs");
    assert_true(bt_wire_connected(s));
    OK(bt_wire_send_control(s, &(bt_ctl){BT_CTL_LR, 0.5}, err));
    for (int i = 0; i < 500 && atomic_load(&told.n) == 0; i++) bt_sleep_ns(10000000);
    assert_int_equal(atomic_load(&told.verb), BT_CTL_LR);
    assert_true(atomic_load(&told.value) == 0.5);
    sink->step(sink->ctx, bt_fake_step(&f, 500, 16)); /* sent by close */
    bt_wire_close(w);
    serve_for(s, 7, &h, 2000, &h.steps, 501);
    assert_int_equal(h.steps, 501);
    serve_for(s, 7, &h, 60, NULL, 0);
    assert_false(bt_wire_connected(s));
    assert_int_equal(atomic_load(&told.lost), 0);
    bt_wire_server_close(s);
    assert_int_not_equal(stat(path, &st), 0);
}

static void an_older_generation_is_ignored(void **state) {
    const bt_tmp *t = *state;
    char path[100];
    heard h = {0};
    bt_wire_server *s = NULL;
    bt_wire *old = NULL, *new = NULL;
    bt_fake f;
    snprintf(path, sizeof path, "%s/sock", t->dir);
    OK(bt_wire_listen(&s, path, err));
    OK(bt_wire_connect(&old, path, 1, NULL, err));
    OK(bt_wire_connect(&new, path, 2, NULL, err));
    bt_wire_sink(old)->step(bt_wire_sink(old)->ctx, bt_fake_step(&f, 99, 0));
    serve_for(s, 2, &h, 100, NULL, 0);
    bt_wire_sink(new)->step(bt_wire_sink(new)->ctx, bt_fake_step(&f, 50, 0));
    serve_for(s, 2, &h, 3000, &h.steps, 1);
    serve_for(s, 2, &h, 100, NULL, 0);
    assert_int_equal(h.steps, 1);
    assert_int_equal(h.last_step, 50);
    assert_true(bt_wire_connected(s));
    bt_wire_close(new);
    serve_for(s, 2, &h, 100, NULL, 0);
    /* the old one is connected, but nobody to talk to */
    assert_false(bt_wire_connected(s));
    bt_wire_close(old);
    bt_wire_server_close(s);
}

static void a_lost_supervisor_is_told_once(void **state) {
    const bt_tmp *t = *state;
    char path[100];
    verbs told = {0};
    bt_wire_server *s = NULL;
    bt_wire *w = NULL;
    bt_fake f;
    snprintf(path, sizeof path, "%s/sock", t->dir);
    bt_err why;
    assert_int_equal(bt_wire_connect(&w, path, 1, NULL, &why), BT_IO);
    OK(bt_wire_listen(&s, path, err));
    OK(bt_wire_connect(&w, path, 1, &(bt_wire_handlers){&told, on_control, on_lost}, err));
    bt_wire_server_close(s);
    for (int i = 0; i < 500 && atomic_load(&told.lost) == 0; i++) bt_sleep_ns(10000000);
    for (int64_t step = 0; step < 100; step++)
        bt_wire_sink(w)->step(bt_wire_sink(w)->ctx, bt_fake_step(&f, step, 16));
    assert_int_equal(atomic_load(&told.lost), 1);
    bt_wire_close(w);
}

/* a rank whose supervisor does not read keeps its step values and lets old rank values go */
static void a_slow_reader_costs_rank_rows_only(void **state) {
    const bt_tmp *t = *state;
    char path[100];
    heard h = {0};
    bt_wire_server *s = NULL;
    bt_wire *w = NULL;
    bt_fake f;
    /* 30000 x 16 ranks x 17 values = 65 MB, twice what the queue holds */
    const int n = 30000;
    snprintf(path, sizeof path, "%s/sock", t->dir);
    OK(bt_wire_listen(&s, path, err));
    OK(bt_wire_connect(&w, path, 1, NULL, err));
    for (int64_t step = 0; step < n; step++)
        bt_wire_sink(w)->step(bt_wire_sink(w)->ctx, bt_fake_step(&f, step, 16));
    assert_true(bt_wire_dropped(w) > 0);
    serve_for(s, 1, &h, 20000, &h.steps, n);
    assert_int_equal(h.steps, n);
    assert_int_equal(h.bad, 0);
    bt_wire_close(w);
    bt_wire_server_close(s);
}

static int raw_connect(const char path[100]) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%.99s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

static uint32_t next_random(uint32_t *x) {
    *x ^= *x << 13;
    *x ^= *x >> 17;
    *x ^= *x << 5;
    return *x;
}

/* random bytes, and valid frames with one damaged byte, in pieces of random size */
static void garbage_is_survived(void **state) {
    const bt_tmp *t = *state;
    char path[100];
    heard h = {0};
    bt_wire_server *s = NULL;
    uint32_t seed = 20240517;
    bt_fake f;
    snprintf(path, sizeof path, "%s/sock", t->dir);
    OK(bt_wire_listen(&s, path, err));
    bt_record *good[] = {
        bt_record_step(bt_fake_step(&f, 5, 4)),
        bt_record_event(&(bt_event){.kind = "k", .title = "t", .body = "{}"}),
        bt_record_fact("key", "value"),
        bt_record_ckpt(&(bt_ckpt_record){.path = "p", .hash = "00ff"}),
        bt_record_ranks((bt_rank_info[]){{.host = "n2"}}, 1),
        bt_record_comm((bt_comm_record[]){{.op = "all_reduce",
                                           .axis = "shard",
                                           .rank = 1,
                                           .values = (double[BT_MC_COUNT]){[BT_MC_CALLS] = 4}}},
                       1),
        bt_record_pairs(&(bt_pair_record){.rank = 0,
                                          .peer = 5,
                                          .values = (double[BT_MP_COUNT]){[BT_MP_FLIGHT] = 1.5}},
                        1)};
    bt_sink sink = hearing(&h);
    for (int round = 0; round < 600; round++) {
        unsigned char bytes[8192];
        size_t n;
        int fd = raw_connect(path);
        if (round % 3 == 0) {
            n = next_random(&seed) % 2000;
            for (size_t i = 0; i < n; i++) bytes[i] = (unsigned char)next_random(&seed);
        } else {
            bt_hello hello = bt_hello_mine();
            bt_frame head = {BT_FRAME_MAGIC, BT_FRAME_HELLO, 1, sizeof hello};
            bt_record *r = good[next_random(&seed) % (sizeof good / sizeof good[0])];
            memcpy(bytes, &head, sizeof head);
            memcpy(bytes + 16, &hello, sizeof hello);
            n = 16 + sizeof hello;
            head = (bt_frame){BT_FRAME_MAGIC, r->kind, 1, r->bytes};
            memcpy(bytes + n, &head, sizeof head);
            memcpy(bytes + n + 16, r->data, r->bytes);
            n += 16 + r->bytes;
            bytes[next_random(&seed) % n] ^= (unsigned char)(1u << (next_random(&seed) % 8));
            if (round % 3 == 2) n -= next_random(&seed) % 40; /* and cut short */
        }
        for (size_t at = 0; at < n;) {
            size_t k = next_random(&seed) % 700 + 1;
            if (k > n - at) k = n - at;
            if (send(fd, bytes + at, k, MSG_NOSIGNAL) < 0) break;
            at += k;
            bt_err ignored;
            bt_code code = bt_wire_serve(s, 1, &sink, &ignored);
            assert_true(code == BT_OK || code == BT_FORMAT);
        }
        close(fd);
    }
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) free(good[i]);
    h = (heard){0}; /* and an honest rank is served as ever */
    bt_wire *w = NULL;
    OK(bt_wire_connect(&w, path, 1, NULL, err));
    bt_wire_sink(w)->step(bt_wire_sink(w)->ctx, bt_fake_step(&f, 5, 16));
    serve_for(s, 1, &h, 3000, &h.steps, 1);
    assert_int_equal(h.steps, 1);
    assert_int_equal(h.bad, 0);
    bt_wire_close(w);
    bt_wire_server_close(s);
}

/* every cut and every single-bit damage of a record is refused or delivered, never read out of
 * bounds (run under ASan too) */
static void records_check_every_length(void **state) {
    (void)state;
    bt_fake f;
    heard h = {0};
    bt_sink sink = hearing(&h);
    double lv[BT_ML_COUNT] = {0.5, 0.25};
    bt_record *good[] = {bt_record_step(bt_fake_step(&f, 5, 2)),
                         bt_record_event(&(bt_event){.kind = "k", .title = "title", .body = "{}"}),
                         bt_record_layers((bt_layer_record[]){{.tensor = "attn_q", .values = lv},
                                                              {.tensor = "x", .values = lv}},
                                          2),
                         bt_record_ranks((bt_rank_info[]){{.host = "n2"}, {.host = "n2"}}, 2),
                         bt_record_fact("key", NULL)};
    for (int k = 0; k < 5; k++) {
        bt_record *r = good[k];
        assert_true(bt_record_deliver(r->kind, r->data, r->bytes, &sink));
        for (uint32_t n = 0; n < r->bytes; n++) {
            unsigned char *cut = malloc(n ? n : 1);
            memcpy(cut, r->data, n);
            assert_false(bt_record_deliver(r->kind, cut, n, &sink));
            free(cut);
        }
        for (uint32_t bit = 0; bit < 8 * (r->bytes < 64 ? r->bytes : 64); bit++) {
            r->data[bit / 8] ^= (unsigned char)(1u << bit % 8);
            bt_record_deliver(r->kind, r->data, r->bytes, &sink);
            r->data[bit / 8] ^= (unsigned char)(1u << bit % 8);
        }
        assert_false(bt_record_deliver(99, r->data, r->bytes, &sink));
        free(r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(everything_arrives_both_ways, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(an_older_generation_is_ignored, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(a_lost_supervisor_is_told_once, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(a_slow_reader_costs_rank_rows_only, bt_tmp_make,
                                        bt_tmp_drop),
        cmocka_unit_test_setup_teardown(garbage_is_survived, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test(records_check_every_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// ctest: timeout=60
/* The protocol between ranks and supervisor: each record arrives once and unchanged, processes of older attempts are
 * excluded, and invalid data close the connection. */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "store/record/wire_frame.h"
#include "store/wire/control_client.h"
#include "store/wire/wire.h"
#include "store_test.h"

typedef struct heard {
    int comm, pairs, ranks, rank_rows, facts, steps, layers, events, ckpts, results, taken, bad;
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
    h->rank_rows += r->n_ranks;
    h->last_step = r->step;
    for (int i = 0; i < BT_MS_COUNT; i++) h->bad += r->values[i] != bt_truth(r->step, i);
    for (int k = 0; k < r->n_ranks; k++)
        h->bad += r->rank_values[k * BT_MR_COUNT + 3] != bt_rank_truth(r->step, k, 3);
}
static void h_layers(heard *h, const bt_row_record *r) {
    h->layers += (int)r->n;
    h->bad += strcmp(r->keys[1].s, "attn_q") != 0 || r->values[1] != 0.25;
}
static void h_comm(heard *h, const bt_row_record *r) {
    const bt_key *last = r->keys + 3 * (r->n - 1);
    h->comm += (int)r->n;
    h->bad += strcmp(r->keys[1].s, "all_reduce") != 0 || strcmp(last[2].s, "shard") != 0 ||
              last[0].i != 1 || r->values[(r->n - 1) * BT_MC_COUNT + BT_MC_CALLS] != 4;
}
static void h_pairs(heard *h, const bt_row_record *r) {
    const bt_key *last = r->keys + 2 * (r->n - 1);
    h->pairs += (int)r->n;
    h->bad += r->keys[0].i != 0 || last[1].i != 5 ||
              r->values[(r->n - 1) * BT_MP_COUNT + BT_MP_FLIGHT] != 1.5;
}
static void h_rows(void *ctx, const bt_row_record *r) {
    if (r->scope == BT_SCOPE_LAYER) h_layers(ctx, r);
    if (r->scope == BT_SCOPE_COMM) h_comm(ctx, r);
    if (r->scope == BT_SCOPE_PAIR) h_pairs(ctx, r);
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
    h->bad += strcmp(c->hash, "00ff") != 0 || c->wall_us != 77;
}

static void h_result(void *ctx, const char *json) {
    heard *h = ctx;
    h->results++;
    h->bad += strcmp(json, "{}") != 0;
}

/* Checks that the received bytes are valid records, and counts the records. */
static void h_take(void *ctx, struct bt_record *r) {
    heard *h = ctx;
    h->taken++;
    h->bad += !bt_record_deliver(&r->head, r->data, &(bt_sink){.ctx = NULL});
    free(r);
}

static bt_sink recording_sink(heard *h) {
    return (bt_sink){h, h_ranks, h_fact, h_step, h_rows, h_event, h_ckpt, h_result};
}
static bt_wire_into handlers_for(heard *h) {
    return (bt_wire_into){.look = recording_sink(h), .taker = h, .take = h_take};
}

static void serve_for(bt_wire_server *s, int attempt, heard *h, int ms, const int *count,
                      int wanted) {
    bt_wire_into into = handlers_for(h);
    int64_t end = bt_now_ns() + (int64_t)ms * 1000000;
    while (bt_now_ns() < end && (!count || *count < wanted)) {
        struct pollfd p = {bt_wire_fd(s), POLLIN, 0};
        poll(&p, 1, 20);
        bt_err ignored;
        bt_code code = bt_wire_serve(s, attempt, &into, &ignored);
        if (code != BT_OK) h->bad += 1000;
    }
}

typedef struct verbs {
    char text[BT_PROMPT_MAX + 1]; /* The thread writes the text before it increases n. */
    _Atomic int n, lost;
    _Atomic double value;
    _Atomic int verb;
} verbs;
static void on_control(void *ctx, const bt_ctl *c) {
    verbs *t = ctx;
    atomic_store(&t->verb, (int)c->verb);
    atomic_store(&t->value, c->value);
    snprintf(t->text, sizeof t->text, "%s", c->text);
    atomic_fetch_add(&t->n, 1);
}
static void on_lost(void *ctx) { atomic_fetch_add(&((verbs *)ctx)->lost, 1); }

static const double layer_values[BT_ML_COUNT] = {0.5, 0.25};
static const bt_row_record layer_rows = {.scope = BT_SCOPE_LAYER,
                                         .step = 1,
                                         .n = 1,
                                         .keys = (const bt_key[]){{.i = 0}, {.s = "attn_q"}},
                                         .values = layer_values};
static const double comm_values[2][BT_MC_COUNT] = {{[BT_MC_CALLS] = 4}, {[BT_MC_CALLS] = 4}};
static const bt_row_record comm_rows = {.scope = BT_SCOPE_COMM,
                                        .step = 1,
                                        .n = 2,
                                        .keys = (const bt_key[]){{.i = 0},
                                                                 {.s = "all_reduce"},
                                                                 {.s = "dp"},
                                                                 {.i = 1},
                                                                 {.s = "all_gather"},
                                                                 {.s = "shard"}},
                                        .values = comm_values[0]};
static const double pair_values[2][BT_MP_COUNT] = {{[BT_MP_FLIGHT] = 1.5}, {[BT_MP_FLIGHT] = 1.5}};
static const bt_row_record pair_rows = {
    .scope = BT_SCOPE_PAIR,
    .step = 1,
    .n = 2,
    .keys = (const bt_key[]){{.i = 0}, {.i = 1}, {.i = 1}, {.i = 5}},
    .values = pair_values[0]};

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
    assert_int_equal(bt_wire_send_control(s, &(bt_ctl){.verb = BT_VERB_STOP}, &why), BT_BUSY);
    OK(bt_wire_connect(&w, path, 7, &(bt_wire_handlers){&told, on_control, on_lost}, err));
    const bt_sink *sink = bt_wire_sink(w);
    bt_rank_info ranks[2] = {{.rank = 0, .host = "n1"}, {.rank = 1, .host = "n2"}};
    bt_fake f;
    sink->ranks(sink->ctx, ranks, 2);
    sink->fact(sink->ctx, "key", "value");
    for (int64_t step = 0; step < 500; step++)
        sink->step(sink->ctx, bt_fake_step(&f, step, step % 2 ? 16 : 0));
    const bt_row_record *rows[] = {&layer_rows, &comm_rows, &pair_rows};
    for (int k = 0; k < 3; k++) sink->rows(sink->ctx, rows[k]);
    sink->checkpoint(sink->ctx,
                     &(bt_ckpt_record){.step = 3, .wall_us = 77, .path = "p", .hash = "00ff"});
    sink->result(sink->ctx, "{}");
    sink->event(sink->ctx,
                &(bt_event){.kind = BT_EVENT_STARTED, .step = -1, .rank = -1, .title = "it runs"});
    serve_for(s, 7, &h, 5000, &h.events, 1);
    assert_int_equal(h.steps, 500);
    assert_int_equal(h.ranks, 2);
    assert_int_equal(h.facts + h.layers + h.ckpts + h.events, 4);
    assert_int_equal(h.comm, 2);
    assert_int_equal(h.pairs, 2);
    assert_int_equal(h.results, 1);
    /* ranks and a fact, steps, three calls of rows, and checkpoint, result and event */
    assert_int_equal(h.taken, 1 + 1 + 500 + 3 + 3);
    assert_int_equal(h.bad, 0);
    assert_string_equal(h.title, "it runs");
    assert_true(bt_wire_connected(s));
    OK(bt_wire_send_control(s, &(bt_ctl){BT_VERB_LR, 0.5, NULL}, err));
    for (int i = 0; i < 500 && atomic_load(&told.n) == 0; i++) bt_sleep_ns(10000000);
    assert_int_equal(atomic_load(&told.verb), BT_VERB_LR);
    assert_true(atomic_load(&told.value) == 0.5);
    assert_string_equal(told.text, "");
    char longest[BT_PROMPT_MAX + 1]; /* Texts of any length follow one another. */
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    for (int k = 0; k < 6; k++) {
        const char *prompt = k % 2 ? longest : "Once upon\na \"time\" #1 %";
        OK(bt_wire_send_control(s, &(bt_ctl){BT_VERB_SAMPLE, 0, prompt}, err));
        for (int i = 0; i < 500 && atomic_load(&told.n) < 2 + k; i++) bt_sleep_ns(10000000);
        assert_int_equal(atomic_load(&told.verb), BT_VERB_SAMPLE);
        assert_string_equal(told.text, prompt);
    }
    sink->step(sink->ctx, bt_fake_step(&f, 500, 16)); /* bt_wire_close sends this step. */
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
    /* The older rank is connected but receives no messages. */
    assert_false(bt_wire_connected(s));
    bt_wire_close(old);
    bt_wire_server_close(s);
}

static void a_lost_supervisor_is_reported_once(void **state) {
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

/* If the supervisor does not read, the rank keeps the values of steps and drops the oldest values of ranks. */
static void a_slow_reader_costs_rank_rows_only(void **state) {
    const bt_tmp *t = *state;
    char path[100];
    heard h = {0};
    bt_wire_server *s = NULL;
    bt_wire *w = NULL;
    bt_fake f;
    /* 30000 x 16 ranks x 17 values = 65 MB, twice the queue's capacity */
    const int n = 30000;
    snprintf(path, sizeof path, "%s/sock", t->dir);
    OK(bt_wire_listen(&s, path, err));
    OK(bt_wire_connect(&w, path, 1, NULL, err));
    for (int64_t step = 0; step < n; step++)
        bt_wire_sink(w)->step(bt_wire_sink(w)->ctx, bt_fake_step(&f, step, 16));
    serve_for(s, 1, &h, 20000, &h.steps, n);
    assert_int_equal(h.steps, n);
    assert_true(h.rank_rows < 16 * n);
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

/* Sends random bytes, and valid frames with one damaged byte, in pieces of random size. */
static void invalid_frames_close_only_their_connection(void **state) {
    const bt_tmp *t = *state;
    char path[100];
    heard h = {0};
    bt_wire_server *s = NULL;
    uint32_t seed = 20240517;
    bt_fake f;
    snprintf(path, sizeof path, "%s/sock", t->dir);
    OK(bt_wire_listen(&s, path, err));
    bt_record *good[] = {bt_record_step(bt_fake_step(&f, 5, 4)),
                         bt_record_event(&(bt_event){.kind = BT_EVENT_NOTICE, .title = "t"}),
                         bt_record_fact("key", "value"),
                         bt_record_ckpt(&(bt_ckpt_record){.path = "p", .hash = "00ff"}),
                         bt_record_ranks((bt_rank_info[]){{.host = "n2"}}, 1),
                         bt_record_rows(&comm_rows),
                         bt_record_rows(&pair_rows),
                         bt_record_result("{}")};
    bt_wire_into into = handlers_for(&h);
    for (int round = 0; round < 600; round++) {
        unsigned char bytes[8192];
        size_t n;
        int fd = raw_connect(path);
        if (round % 3 == 0) {
            n = next_random(&seed) % 2000;
            for (size_t i = 0; i < n; i++) bytes[i] = (unsigned char)next_random(&seed);
        } else {
            bt_record *r = good[next_random(&seed) % (sizeof good / sizeof good[0])];
            bt_hello_frame hello = {bt_frame_of(BT_FRAME_HELLO, 1, sizeof hello.mark),
                                    bt_record_mark()};
            bt_frame head = {BT_FRAME_MAGIC, 1, r->head};
            memcpy(bytes, &hello, sizeof hello);
            memcpy(bytes + sizeof hello, &head, sizeof head);
            memcpy(bytes + sizeof hello + sizeof head, r->data, r->head.bytes);
            n = sizeof hello + sizeof head + r->head.bytes;
            bytes[next_random(&seed) % n] ^= (unsigned char)(1u << (next_random(&seed) % 8));
            if (round % 3 == 2)
                n -= next_random(&seed) % 40; /* Every third frame is truncated as well. */
        }
        for (size_t at = 0; at < n;) {
            size_t k = next_random(&seed) % 700 + 1;
            if (k > n - at) k = n - at;
            if (send(fd, bytes + at, k, MSG_NOSIGNAL) < 0) break;
            at += k;
            bt_err ignored;
            bt_code code = bt_wire_serve(s, 1, &into, &ignored);
            assert_true(code == BT_OK || code == BT_FORMAT);
        }
        close(fd);
    }
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) free(good[i]);
    h = (heard){0}; /* The supervisor still serves a valid rank. */
    bt_wire *w = NULL;
    OK(bt_wire_connect(&w, path, 1, NULL, err));
    bt_wire_sink(w)->step(bt_wire_sink(w)->ctx, bt_fake_step(&f, 5, 16));
    serve_for(s, 1, &h, 3000, &h.steps, 1);
    assert_int_equal(h.steps, 1);
    assert_int_equal(h.bad, 0);
    bt_wire_close(w);
    bt_wire_server_close(s);
}

/* Every truncation and every flipped bit of a record is refused or delivered without reading out of bounds; the test
 * also runs with ASan. */
static void truncated_records_are_never_read_beyond_their_end(void **state) {
    (void)state;
    bt_fake f;
    heard h = {0};
    bt_sink sink = recording_sink(&h);
    bt_record *good[] = {
        bt_record_step(bt_fake_step(&f, 5, 2)),
        bt_record_event(&(bt_event){.kind = BT_EVENT_NOTICE, .title = "title", .body = "{}"}),
        bt_record_rows(&comm_rows),
        bt_record_ranks((bt_rank_info[]){{.host = "n2"}, {.host = "n2"}}, 2),
        bt_record_fact("key", NULL)};
    for (int k = 0; k < 5; k++) {
        bt_record *r = good[k];
        bt_record_head head = r->head;
        assert_true(bt_record_deliver(&head, r->data, &sink));
        for (head.bytes = 0; head.bytes < r->head.bytes; head.bytes++) {
            unsigned char *cut = malloc(head.bytes ? head.bytes : 1);
            memcpy(cut, r->data, head.bytes);
            assert_false(bt_record_deliver(&head, cut, &sink));
            free(cut);
        }
        for (uint32_t bit = 0; bit < 8 * (r->head.bytes < 64 ? r->head.bytes : 64); bit++) {
            r->data[bit / 8] ^= (unsigned char)(1u << bit % 8);
            bt_record_deliver(&r->head, r->data, &sink);
            r->data[bit / 8] ^= (unsigned char)(1u << bit % 8);
        }
        /* The head has a wrong kind, step, number of rows or length. Lengths are only reduced, because a longer body
         * never arrives. */
        for (uint32_t bit = 0; bit < 8 * sizeof head; bit++) {
            head = r->head;
            ((unsigned char *)&head)[bit / 8] ^= (unsigned char)(1u << bit % 8);
            if (head.bytes <= r->head.bytes) bt_record_deliver(&head, r->data, &sink);
        }
        head = r->head;
        head.kind = 99;
        assert_false(bt_record_deliver(&head, r->data, &sink));
        free(r);
    }
}

/* Returns the reply to a request sent to the run `r`. */
static const char *reply_of_run(const char *db_path) {
    static bt_err why;
    bt_db *db = NULL;
    char reply[64];
    OK(bt_db_open(&db, db_path, err));
    assert_int_equal(bt_control_request(db, "r", "pause", reply, sizeof reply, &why), BT_BUSY);
    assert_int_equal(why.code, BT_BUSY);
    bt_db_close(db);
    return why.msg;
}

static void start_run(bt_writer *w, const char *folder, const char *host, int pid, bool again) {
    bt_run_start s = bt_fake_run("r");
    int attempt;
    s.out_dir = folder;
    s.host = host;
    s.pid = pid;
    s.resume = again;
    OK(bt_writer_begin(w, &s, &attempt, err));
}

/* If the run does not respond, the message depends on its state, and the commands in it name the database. */
static void an_unreachable_run_has_a_fitting_message(void **state) {
    const bt_tmp *t = *state;
    bt_writer *w = NULL;
    bt_fake f;
    char here[BT_HOST_MAX] = "", want[480], path[100];
    gethostname(here, sizeof here - 1);
    OK(bt_writer_open(&w, t->db, 1, err));
    start_run(w, t->dir, here, (int)getpid(), false);
    snprintf(
        want, sizeof want,
        "run 'r' takes no requests now: its process %d begins or ends at this moment, or has no "
        "supervisor, as when mpirun starts 'bitrain train' (to stop it with a checkpoint: kill "
        "%d)",
        (int)getpid(), (int)getpid());
    assert_string_equal(reply_of_run(t->db), want);
    bt_writer_sink(w)->step(bt_writer_sink(w)->ctx, bt_fake_step(&f, 0, 2));
    OK(bt_writer_end(w, "stopped", "", 0, err));
    snprintf(want, sizeof want,
             "run 'r' is not live: it was stopped after 1 step (to continue it: bitrain train "
             "--resume r --store %s)",
             t->db);
    assert_string_equal(reply_of_run(t->db), want);

    start_run(w, t->dir, "elsewhere", (int)getpid(), true);
    assert_string_equal(reply_of_run(t->db),
                        "run 'r' is not live on this host: its supervisor takes "
                        "requests on host 'elsewhere' only");
    bt_writer_sink(w)->step(bt_writer_sink(w)->ctx, bt_fake_step(&f, 1, 2));
    OK(bt_writer_end(w, "failed", "error", 1, err));
    assert_non_null(
        strstr(reply_of_run(t->db), "is not live: it failed after 2 steps (to continue"));

    /* A killed supervisor leaves its socket file behind. */
    snprintf(path, sizeof path, "%s/control", t->dir);
    FILE *left = fopen(path, "w");
    assert_non_null(left);
    fprintf(left, "%s/nobody\n", t->dir);
    fclose(left);
    start_run(w, t->dir, here, 0x7ffffff0, true); /* No process has this number. */
    snprintf(want, sizeof want,
             "run 'r' is not live: its process %d has ended (to continue it: bitrain train "
             "--resume r --store %s)",
             0x7ffffff0, t->db);
    assert_string_equal(reply_of_run(t->db), want);
    for (int64_t step = 2; step < 36; step++)
        bt_writer_sink(w)->step(bt_writer_sink(w)->ctx, bt_fake_step(&f, step, 2));
    OK(bt_writer_end(w, "done", "", 0, err));
    snprintf(
        want, sizeof want,
        "run 'r' is not live: it has done its 36 steps (to train it for as many again: bitrain "
        "train --resume r --steps 72 --store %s)",
        t->db);
    assert_string_equal(reply_of_run(t->db), want);
    bt_writer_close(w);

    setenv("HOME", t->dir, 1); /* Commands omit --store for the default path. */
    unsetenv("XDG_DATA_HOME");
    unsetenv("BITRAIN_STORE");
    char usual[160];
    bt_text flag;
    snprintf(usual, sizeof usual, "%s/.local/share/bitrain/bitrain.db", t->dir);
    bt_text_init(&flag);
    bt_store_flag(&flag, usual);
    assert_string_equal(bt_text_str(&flag), "");
    /* Commands include --store if the variable sets the path, because another shell may lack the variable. */
    setenv("BITRAIN_STORE", usual, 1);
    bt_store_flag(&flag, usual);
    snprintf(want, sizeof want, " --store %s", usual);
    assert_string_equal(bt_text_str(&flag), want);
    unsetenv("BITRAIN_STORE");
    bt_text_release(&flag);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(everything_arrives_both_ways, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(an_older_generation_is_ignored, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(a_lost_supervisor_is_reported_once, bt_tmp_make,
                                        bt_tmp_drop),
        cmocka_unit_test_setup_teardown(a_slow_reader_costs_rank_rows_only, bt_tmp_make,
                                        bt_tmp_drop),
        cmocka_unit_test_setup_teardown(invalid_frames_close_only_their_connection, bt_tmp_make,
                                        bt_tmp_drop),
        cmocka_unit_test(truncated_records_are_never_read_beyond_their_end),
        cmocka_unit_test_setup_teardown(an_unreachable_run_has_a_fitting_message, bt_tmp_make,
                                        bt_tmp_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

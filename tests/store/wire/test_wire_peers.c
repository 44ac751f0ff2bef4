// ctest: timeout=60
/* Each end of the wire protocol against a simulated peer: a peer that violates the protocol is disconnected, messages
 * for another rank or attempt are ignored, and control messages go to the newest connection. */
#include <errno.h>
#include <linux/sockios.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "../store_test.h"
#include "store/record/wire_frame.h"
#include "store/wire/wire.h"
#include "tests/message.h"

typedef struct scene {
    char path[100];
    bt_wire_server *server;
    int events;     /* number of received events */
    char title[64]; /* title of the last event */
} scene;

static void on_event(void *ctx, const bt_event *e) {
    scene *s = ctx;
    s->events++;
    snprintf(s->title, sizeof s->title, "%s", e->title);
}

static scene listening(const bt_tmp *t) {
    scene s = {0};
    snprintf(s.path, sizeof s.path, "%s/sock", t->dir);
    OK(bt_wire_listen(&s.server, s.path, err));
    assert_false(bt_wire_connected(s.server));
    return s;
}

static bt_code serve_until(scene *s, int attempt, bt_err *err) {
    const bt_wire_into into = {.look = {.ctx = s, .event = on_event}};
    return bt_wire_serve(s->server, attempt, &into, err);
}

static void serve_well(scene *s, int attempt) { OK(serve_until(s, attempt, err)); }

static int connect_peer(const char *path) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    strcpy(a.sun_path, path);
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

static void put(int fd, const void *bytes, size_t n) {
    assert_int_equal(send(fd, bytes, n, MSG_NOSIGNAL), (ssize_t)n);
}

static bt_hello_frame send_greeting(uint32_t attempt) {
    bt_hello_frame f = {bt_frame_of(BT_FRAME_HELLO, attempt, sizeof f.mark), bt_record_mark()};
    return f;
}

static int dial_with_hello(scene *s, uint32_t attempt) {
    const bt_hello_frame f = send_greeting(attempt);
    const int fd = connect_peer(s->path);
    put(fd, &f, sizeof f);
    return fd;
}

/* Encodes an event after the frame header. */
static size_t event_frame(unsigned char *out, uint32_t attempt, const char *title) {
    bt_record *r =
        bt_record_event(&(bt_event){.kind = BT_EVENT_NOTICE, .rank = -1, .title = title});
    const bt_frame head = {BT_FRAME_MAGIC, attempt, r->head};
    const size_t n = r->head.bytes;
    memcpy(out, &head, sizeof head);
    memcpy(out + sizeof head, r->data, n);
    free(r);
    return sizeof head + n;
}

/* Reads and drops pending data; returns whether the peer has closed the connection. */
static bool is_cut(int fd) {
    char junk[4096];
    for (;;) {
        const ssize_t n = recv(fd, junk, sizeof junk, MSG_DONTWAIT);
        if (n > 0) continue;
        return n == 0 || errno == ECONNRESET;
    }
}

typedef enum { UNGREETED, GREETED } manners;

/* Serves one peer that sends these bytes: it is disconnected and none of its data are delivered. Only a fault of rank 0
 * is an error. */
static void is_refused(scene *s, manners m, const void *bytes, size_t n) {
    bt_err why = BT_ERR_INIT;
    const int fd = m == GREETED ? dial_with_hello(s, 3) : connect_peer(s->path);
    put(fd, bytes, n);
    s->events = 0;
    const bt_code code = serve_until(s, 3, &why);
    assert_int_equal(code, m == GREETED ? BT_FORMAT : BT_OK);
    if (code != BT_OK) message_has(why.msg, "rank 0 of attempt 3 sent a frame that makes no sense");
    assert_int_equal(s->events, 0);
    assert_true(is_cut(fd));
    assert_false(bt_wire_connected(s->server));
    close(fd);
}

static void changed_frame_is_refused(scene *s, const bt_frame *changed) {
    unsigned char bytes[512];
    const size_t n = event_frame(bytes, 3, "heard?");
    memcpy(bytes, changed, sizeof *changed);
    is_refused(s, GREETED, bytes, n);
}

static void a_peer_that_violates_the_protocol_is_disconnected(void **state) {
    scene s = listening(*state);
    unsigned char bytes[512];
    bt_frame f;
    size_t n = event_frame(bytes, 3, "heard?");
    is_refused(&s, UNGREETED, bytes, n);
    memcpy(&f, bytes, sizeof f);

    bt_frame g = f;
    g.magic++;
    changed_frame_is_refused(&s, &g);
    g = f, g.attempt = 2;
    changed_frame_is_refused(&s, &g);
    g = f, g.head.bytes = BT_FRAME_MAX + 1;
    changed_frame_is_refused(&s, &g);
    g = f, g.head.bytes--; /* The text of this event has no terminator. */
    changed_frame_is_refused(&s, &g);
    const uint32_t kinds[] = {0, BT_REC_COUNT, BT_FRAME_CONTROL, BT_FRAME_BYE};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        g = f, g.head.kind = kinds[i];
        changed_frame_is_refused(&s, &g);
    }

    bt_hello_frame h = send_greeting(3);
    is_refused(&s, GREETED, &h, sizeof h); /* a second greeting */
    h.mark ^= 1;
    is_refused(&s, UNGREETED, &h, sizeof h); /* a peer with other metric tables */
    h = send_greeting(3);
    h.frame.head.bytes = 4;
    is_refused(&s, UNGREETED, &h, sizeof h);
    h = send_greeting(3);
    h.frame.head.bytes = 16;
    memcpy(bytes, &h, sizeof h);
    is_refused(&s, UNGREETED, bytes, sizeof h + 8);

    const int fd = dial_with_hello(&s, 3); /* A valid peer is served afterwards. */
    put(fd, bytes, event_frame(bytes, 3, "well"));
    serve_well(&s, 3);
    assert_int_equal(s.events, 1);
    assert_true(bt_wire_connected(s.server));
    close(fd);
    bt_wire_server_close(s.server);
}

/* Silent peers occupy all places. Rank 0 connects last and replaces one of them. */
static void rank_0_replaces_a_silent_peer(void **state) {
    scene s = listening(*state);
    unsigned char bytes[512];
    int silent[8];
    for (int n = 0; n <= 8; n++) {
        for (int i = 0; i < n; i++) silent[i] = connect_peer(s.path);
        const int fd = dial_with_hello(&s, 3);
        put(fd, bytes, event_frame(bytes, 3, "here"));
        s.events = 0;
        serve_well(&s, 3);
        assert_int_equal(s.events, 1);
        assert_true(bt_wire_connected(s.server));
        OK(bt_wire_send_control(s.server, &(bt_ctl){.verb = BT_VERB_STOP}, err));
        close(fd);
        for (int i = 0; i < n; i++) close(silent[i]);
        serve_well(&s, 3);
        assert_false(bt_wire_connected(s.server));
    }
    bt_wire_server_close(s.server);
}

/* Frames arrive in pieces of any size while other peers send. */
static void frames_arrive_in_any_pieces(void **state) {
    scene s = listening(*state);
    unsigned char bytes[1024];
    const int fd = dial_with_hello(&s, 1), other = dial_with_hello(&s, 1);
    size_t n = event_frame(bytes, 1, "first");
    n += event_frame(bytes + n, 1, "the second of one piece");
    put(fd, bytes, n);
    serve_well(&s, 1);
    assert_int_equal(s.events, 2);
    assert_string_equal(s.title, "the second of one piece");
    n = event_frame(bytes, 1, "in single bytes");
    for (size_t i = 0; i < n; i++) {
        put(fd, bytes + i, 1);
        put(other, bytes + i, 1);
        serve_well(&s, 1);
        assert_int_equal(s.events, i + 1 < n ? 2 : 4);
    }
    assert_string_equal(s.title, "in single bytes");
    close(fd);
    close(other);
    bt_wire_server_close(s.server);
}

/* At most eight connections are kept. A ninth replaces a connection without a greeting, or is refused. */
static void at_most_eight_connections_are_kept(void **state) {
    scene s = listening(*state);
    int fds[8];
    for (int i = 0; i < 8; i++) fds[i] = i == 3 ? connect_peer(s.path) : dial_with_hello(&s, 1);
    serve_well(&s, 1);
    for (int i = 0; i < 8; i++) assert_false(is_cut(fds[i]));
    const int ninth = dial_with_hello(&s, 1);
    serve_well(&s, 1);
    for (int i = 0; i < 8; i++) assert_int_equal(is_cut(fds[i]), i == 3);
    assert_false(is_cut(ninth));
    const int tenth = dial_with_hello(&s, 1);
    serve_well(&s, 1);
    for (int i = 0; i < 8; i++) assert_int_equal(is_cut(fds[i]), i == 3);
    assert_false(is_cut(ninth));
    assert_true(is_cut(tenth));
    unsigned char bytes[256];
    for (int i = 0; i < 8; i++) {
        if (i != 3) put(fds[i], bytes, event_frame(bytes, 1, "still heard"));
    }
    serve_well(&s, 1);
    assert_int_equal(s.events, 7);
    for (int i = 0; i < 8; i++) close(fds[i]);
    close(ninth);
    close(tenth);
    bt_wire_server_close(s.server);
}

/* Returns the next control frame that a simulated rank 0 receives. */
static bt_control_frame control_received_by(int fd, char text[BT_PROMPT_MAX + 1]) {
    bt_control_frame f = {.verb = BT_VERB_COUNT};
    if (recv(fd, &f, sizeof f, MSG_DONTWAIT) != (ssize_t)sizeof f) return f;
    assert_true(f.text_bytes <= BT_PROMPT_MAX);
    if (f.text_bytes) assert_int_equal(recv(fd, text, f.text_bytes, MSG_DONTWAIT), f.text_bytes);
    text[f.text_bytes] = '\0';
    assert_int_equal(f.frame.magic, BT_FRAME_MAGIC);
    assert_int_equal(f.frame.head.kind, BT_FRAME_CONTROL);
    assert_int_equal(f.frame.head.bytes, sizeof f - sizeof f.frame + f.text_bytes);
    return f;
}

static void the_newest_connection_gets_the_controls(void **state) {
    scene s = listening(*state);
    char text[BT_PROMPT_MAX + 1], longer[BT_PROMPT_MAX + 90];
    bt_err why = BT_ERR_INIT;
    const bt_ctl lr = {BT_VERB_LR, 0.25, NULL};
    const int older = dial_with_hello(&s, 3);
    serve_well(&s, 3);
    const int newer = dial_with_hello(&s, 3), another = dial_with_hello(&s, 4);
    serve_well(&s, 3);
    OK(bt_wire_send_control(s.server, &lr, err));
    bt_control_frame f = control_received_by(newer, text);
    assert_int_equal(f.frame.attempt, 3);
    assert_int_equal(f.verb, BT_VERB_LR);
    assert_true(f.value == 0.25);
    assert_int_equal(f.text_bytes, 0);
    assert_int_equal(control_received_by(older, text).verb, BT_VERB_COUNT);
    close(newer); /* The older connection of the rank remains. */
    serve_well(&s, 3);
    serve_well(&s, 3);
    memset(longer, 'y', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    OK(bt_wire_send_control(s.server, &(bt_ctl){BT_VERB_SAMPLE, 0, longer}, err));
    assert_int_equal(control_received_by(older, text).verb, BT_VERB_SAMPLE);
    assert_int_equal(strlen(text), BT_PROMPT_MAX); /* The text was truncated to this length. */
    assert_int_equal(control_received_by(another, text).verb, BT_VERB_COUNT);
    serve_well(&s, 4); /* The rank of the new attempt was connected before. */
    OK(bt_wire_send_control(s.server, &lr, err));
    assert_int_equal(control_received_by(another, text).frame.attempt, 4);
    assert_int_equal(control_received_by(older, text).verb, BT_VERB_COUNT);
    serve_well(&s, 5);
    assert_false(bt_wire_connected(s.server));
    assert_int_equal(bt_wire_send_control(s.server, &lr, &why), BT_BUSY);
    assert_string_equal(why.msg, "no rank is connected to be told 'set'");
    close(older);
    close(another);
    bt_wire_server_close(s.server);
}

/* Data of a finished attempt are dropped without an error, and its rank may close the connection. */
static void a_finished_attempt_may_close(void **state) {
    scene s = listening(*state);
    unsigned char bytes[512];
    const int old = dial_with_hello(&s, 1), now = dial_with_hello(&s, 2);
    const bt_frame bye = bt_frame_of(BT_FRAME_BYE, 2, 0);
    size_t n = event_frame(bytes, 1, "of attempt 1");
    put(old, bytes, n);
    put(old, bytes, n);
    n = event_frame(bytes, 2, "of attempt 2");
    put(now, bytes, n);
    put(now, &bye, sizeof bye);
    serve_well(&s, 2);
    assert_int_equal(s.events, 1);
    assert_string_equal(s.title, "of attempt 2");
    assert_false(is_cut(old));
    close(now);
    serve_well(&s, 2);
    assert_false(bt_wire_connected(s.server));
    close(old);
    bt_wire_server_close(s.server);
}

/* A rank that does not read gets no message and remains connected; a rank that has exited is removed. */
static void a_rank_that_does_not_read_receives_nothing(void **state) {
    scene s = listening(*state);
    bt_err why = BT_ERR_INIT;
    char text[BT_PROMPT_MAX + 1];
    const bt_ctl c = {BT_VERB_EVAL, 0, NULL};
    const int fd = dial_with_hello(&s, 1);
    serve_well(&s, 1);
    int told = 0;
    while (told < 1000000 && bt_wire_send_control(s.server, &c, &why) == BT_OK) told++;
    assert_int_equal(why.code, BT_BUSY);
    message_has(why.msg, "rank 0 does not listen");
    assert_true(bt_wire_connected(s.server));
    for (; told > 0; told--) assert_int_equal(control_received_by(fd, text).verb, BT_VERB_EVAL);
    OK(bt_wire_send_control(s.server, &c, err));
    assert_int_equal(control_received_by(fd, text).verb, BT_VERB_EVAL);
    close(fd);
    assert_int_equal(bt_wire_send_control(s.server, &c, &why), BT_BUSY);
    assert_false(bt_wire_connected(s.server));
    bt_wire_server_close(s.server);
}

static void a_socket_has_one_owner(void **state) {
    scene s = listening(*state);
    const bt_tmp *t = *state;
    bt_wire_server *second = NULL;
    bt_err why = BT_ERR_INIT;
    struct stat st;
    struct sockaddr_un a;
    char want[200], longest[sizeof a.sun_path + 1];
    assert_int_equal(bt_wire_listen(&second, s.path, &why), BT_IO);
    assert_null(second);
    snprintf(want, sizeof want, "cannot listen for ranks at '%s'", s.path);
    assert_int_equal(strncmp(why.msg, want, strlen(want)), 0);
    assert_int_equal(stat(s.path, &st), 0); /* The socket of the first server remains. */
    assert_int_equal(bt_wire_listen(&second, "", &why), BT_ARG);
    memset(longest, 'x', sizeof longest);
    memcpy(longest, t->dir, strlen(t->dir));
    longest[strlen(t->dir)] = '/';
    longest[sizeof a.sun_path] = '\0';
    assert_int_equal(bt_wire_listen(&second, longest, &why), BT_ARG);
    assert_non_null(strstr(why.msg, "has 108 bytes, at most 107 are possible"));
    longest[sizeof a.sun_path - 1] = '\0';
    OK(bt_wire_listen(&second, longest, err));
    close(connect_peer(longest));
    bt_wire_server_close(second);
    assert_int_equal(stat(longest, &st), -1);
    bt_wire_server_close(s.server);
}

typedef struct rank_end {
    int listen_fd, fd; /* sockets of the simulated supervisor */
    bt_wire *wire;
    _Atomic int n, lost;
    char told[4096]; /* "set 0.5 text;", complete once n counts it */
} rank_end;

static void on_control(void *ctx, const bt_ctl *c) {
    rank_end *r = ctx;
    const size_t n = strlen(r->told);
    snprintf(r->told + n, sizeof r->told - n, "%s %g %s;", bt_verbs[c->verb].word, c->value,
             c->text);
    atomic_fetch_add(&r->n, 1);
}

static void on_lost(void *ctx) { atomic_fetch_add(&((rank_end *)ctx)->lost, 1); }

/* Connects a rank to attempt 7 and waits until its greeting has arrived. */
static void connect_rank(rank_end *r, const bt_tmp *t) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    bt_hello_frame f;
    *r = (rank_end){0};
    snprintf(a.sun_path, sizeof a.sun_path, "%s/up", t->dir);
    r->listen_fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(r->listen_fd, (const struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(r->listen_fd, 1), 0);
    OK(bt_wire_connect(&r->wire, a.sun_path, 7, &(bt_wire_handlers){r, on_control, on_lost}, err));
    r->fd = accept(r->listen_fd, NULL, NULL);
    assert_int_equal(recv(r->fd, &f, sizeof f, MSG_WAITALL), sizeof f);
    const bt_hello_frame want = send_greeting(7);
    assert_memory_equal(&f, &want, sizeof f);
    unlink(a.sun_path);
}

static void close_rank(rank_end *r) {
    bt_wire_close(r->wire);
    close(r->fd);
    close(r->listen_fd);
}

static void wait_until(const _Atomic int *n, int wanted) {
    for (int i = 0; i < 3000 && atomic_load(n) < wanted; i++) bt_sleep_ns(10000000);
    assert_int_equal(atomic_load(n), wanted);
}

static void wait_until_read(int fd) {
    int unread = 1;
    while (unread > 0) {
        assert_int_equal(ioctl(fd, SIOCOUTQ, &unread), 0);
        sched_yield();
    }
}

static size_t control_frame(unsigned char *out, uint32_t verb, double value, const char *text) {
    const size_t n = strlen(text);
    const bt_control_frame f = {bt_frame_of(BT_FRAME_CONTROL, 7, sizeof f - sizeof f.frame + n),
                                verb, (uint32_t)n, value};
    memcpy(out, &f, sizeof f);
    memcpy(out + sizeof f, text, n);
    return sizeof f + n;
}

/* A frame with an unknown verb is skipped, and later frames take effect. */
static void a_rank_obeys_its_own_messages(void **state) {
    rank_end r;
    unsigned char bytes[2048];
    connect_rank(&r, *state);
    size_t n = control_frame(bytes, BT_VERB_COUNT, 1, "");
    n += control_frame(bytes + n, UINT32_MAX, 1, "");
    n += control_frame(bytes + n, BT_VERB_STATUS, 1, "");
    n += control_frame(bytes + n, BT_VERB_LR, NAN, "");
    n += control_frame(bytes + n, BT_VERB_LR, INFINITY, "");
    const size_t at = n;
    n += control_frame(bytes + n, BT_VERB_STOP, 0, "");
    bytes[at + offsetof(bt_frame, attempt)] = 6;
    n += control_frame(bytes + n, BT_VERB_SAMPLE, 0, "of two words");
    n += control_frame(bytes + n, BT_VERB_LR, 0.5, "");
    put(r.fd, bytes, n);
    wait_until(&r.n, 2);
    assert_string_equal(r.told, "sample 0 of two words;set 0.5 ;");
    r.told[0] = '\0';
    n = control_frame(bytes, BT_VERB_MIXTURE, 0, "3:1");
    n += control_frame(bytes + n, BT_VERB_PAUSE, 0, "");
    for (size_t i = 0; i < n; i++) {
        put(r.fd, bytes + i, 1);
        wait_until_read(r.fd); /* Waiting keeps the rank from receiving several bytes at once. */
    }
    wait_until(&r.n, 4);
    assert_string_equal(r.told, "mixture 0 3:1;pause 0 ;");
    close_rank(&r);
    assert_int_equal(atomic_load(&r.lost), 0);
}

/* A rank treats a supervisor that violates the protocol as lost. */
static void a_rank_leaves_an_invalid_supervisor(void **state) {
    for (int k = 0; k < 5; k++) {
        rank_end r;
        bt_control_frame f;
        unsigned char bytes[sizeof f + BT_PROMPT_MAX + 1] = {0};
        connect_rank(&r, *state);
        const size_t n = control_frame(bytes, BT_VERB_STOP, 0, "");
        memcpy(&f, bytes, sizeof f);
        if (k == 0) f.frame.magic++;
        if (k == 1) f.frame.head.kind = BT_FRAME_HELLO;
        if (k == 2) f.frame.head.bytes++;
        if (k == 3) f.text_bytes = 1;
        if (k == 4) f.text_bytes = BT_PROMPT_MAX + 1, f.frame.head.bytes += BT_PROMPT_MAX + 1;
        memcpy(bytes, &f, sizeof f);
        put(r.fd, bytes, k == 4 ? sizeof bytes : n);
        wait_until(&r.lost, 1);
        close_rank(&r);
        assert_int_equal(atomic_load(&r.n), 0);
        assert_int_equal(atomic_load(&r.lost), 1);
    }
}

/* A fact above 16 MiB cannot be sent; later records and the end are sent. */
static void records_that_cannot_be_sent_are_skipped(void **state) {
    rank_end r;
    unsigned char want[512], got[sizeof want + sizeof(bt_frame) + 1];
    connect_rank(&r, *state);
    const bt_sink *sink = bt_wire_sink(r.wire);
    char *huge = malloc(BT_FRAME_MAX + 1);
    memset(huge, 'h', BT_FRAME_MAX);
    huge[BT_FRAME_MAX] = '\0';
    sink->fact(sink->ctx, "k", huge);
    sink->event(sink->ctx, &(bt_event){.kind = BT_EVENT_NOTICE, .rank = -1, .title = "behind it"});
    free(huge);
    bt_wire_close(r.wire);
    const size_t n = event_frame(want, 7, "behind it");
    bt_frame bye;
    assert_int_equal(recv(r.fd, got, sizeof got, MSG_WAITALL), n + sizeof bye);
    bt_frame f;
    memcpy(&f, got, sizeof f);
    assert_int_equal(f.attempt, 7);
    assert_int_equal(f.head.kind, BT_REC_EVENT);
    memcpy(&bye, got + n, sizeof bye);
    const bt_frame end = bt_frame_of(BT_FRAME_BYE, 7, 0);
    assert_memory_equal(&bye, &end, sizeof end);
    close(r.fd);
    close(r.listen_fd);
}

/* a reader that starts when the rank is about to exit, and counts all bytes */
typedef struct late_reader {
    int fd;
    size_t bytes;
    _Atomic int leaving;
} late_reader;

static void *read_late(void *arg) {
    late_reader *l = arg;
    char junk[65536];
    while (!atomic_load(&l->leaving)) bt_sleep_ns(1000000);
    bt_sleep_ns(50000000);
    for (ssize_t n; (n = recv(l->fd, junk, sizeof junk, 0)) > 0;) l->bytes += (size_t)n;
    return NULL;
}

/* Closing the wire sends all queued records, even if they exceed the socket's buffer. */
static void queued_records_are_sent_before_the_end(void **state) {
    enum { EVENTS = 3000 };
    static char body[1001];
    rank_end r;
    pthread_t thread;
    connect_rank(&r, *state);
    late_reader l = {.fd = r.fd};
    const bt_sink *sink = bt_wire_sink(r.wire);
    const bt_event e = {.kind = BT_EVENT_NOTICE, .rank = -1, .title = "one of many", .body = body};
    memset(body, 'b', sizeof body - 1);
    bt_record *one = bt_record_event(&e);
    const size_t want = EVENTS * (sizeof(bt_frame) + one->head.bytes) + sizeof(bt_frame);
    free(one);
    assert_int_equal(pthread_create(&thread, NULL, read_late, &l), 0);
    for (int i = 0; i < EVENTS; i++) sink->event(sink->ctx, &e);
    atomic_store(&l.leaving, 1);
    bt_wire_close(r.wire);
    pthread_join(thread, NULL);
    assert_int_equal(l.bytes, want);
    close(r.fd);
    close(r.listen_fd);
}

/* If the ring file cannot be created, an error is returned and the connection works without it. */
static void a_ring_that_cannot_be_created_is_an_error(void **state) {
    rank_end r;
    bt_err why = BT_ERR_INIT;
    connect_rank(&r, *state);
    assert_int_equal(bt_wire_keep(r.wire, "/nonexistent/folder/ring", &why), BT_IO);
    close_rank(&r);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, bt_tmp_make, bt_tmp_drop)

int main(void) {
    const struct CMUnitTest tests[] = {CASE(a_peer_that_violates_the_protocol_is_disconnected),
                                       CASE(rank_0_replaces_a_silent_peer),
                                       CASE(frames_arrive_in_any_pieces),
                                       CASE(at_most_eight_connections_are_kept),
                                       CASE(the_newest_connection_gets_the_controls),
                                       CASE(a_finished_attempt_may_close),
                                       CASE(a_rank_that_does_not_read_receives_nothing),
                                       CASE(a_socket_has_one_owner),
                                       CASE(a_rank_obeys_its_own_messages),
                                       CASE(a_rank_leaves_an_invalid_supervisor),
                                       CASE(records_that_cannot_be_sent_are_skipped),
                                       CASE(queued_records_are_sent_before_the_end),
                                       CASE(a_ring_that_cannot_be_created_is_an_error)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

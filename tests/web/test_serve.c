// ctest: timeout=60 labels=web
/* The model server over its sockets, with replies made by the test instead of a model: guards, limits, complete, late
 * and partial replies, clients that disconnect, and the stop. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/base/clock.h"
#include "web/serve/serve.h"
#include "web_client.h"

static const char token[] = "0123456789abcdef0123456789abcdef";

typedef struct work {
    bt_reply *reply;
    atomic_bool gone, go; /* go: ends the waiting replies */
    char path[32];
    pthread_t thread;
} work;

enum { WORKS = 400 };
static work works[WORKS];
static atomic_int n_works, n_gone, n_ended;

static void *reply_later(void *ctx) {
    work *w = ctx;
    if (strcmp(w->path, "/v1/stream") == 0) {
        for (int i = 0; i < 3; i++) {
            char piece[32];
            snprintf(piece, sizeof piece, "data: %d\n\n", i);
            bt_sleep_ns(20000000);
            bt_reply_put(w->reply, piece, strlen(piece));
        }
    } else if (strcmp(w->path, "/v1/never") == 0) {
        while (!atomic_load(&w->gone) && !atomic_load(&w->go)) bt_sleep_ns(2000000);
        bt_reply_send(w->reply, 200, "text/plain", "at last", 7);
    } else if (strcmp(w->path, "/v1/linger") == 0) { /* sends more to a client that disconnected */
        for (int i = 0; i < 20; i++) {
            bt_reply_put(w->reply, "data: 0\n\n", 9);
            while (i == 0 && !atomic_load(&w->gone)) bt_sleep_ns(2000000);
            bt_sleep_ns(5000000);
        }
    } else if (strcmp(w->path, "/v1/flood") == 0) {
        static char block[65536];
        memset(block, 'x', sizeof block);
        while (!atomic_load(&w->gone)) bt_reply_put(w->reply, block, sizeof block);
    } else {
        bt_sleep_ns(50000000);
        bt_reply_send(w->reply, 200, NULL, "{\"late\":1}", 10);
    }
    bt_reply_end(w->reply);
    atomic_fetch_add(&n_ended, 1);
    return NULL;
}

static void pass_to_source(void *ctx, bt_reply *r, const char *method, const char *path,
                           const char *body, size_t n) {
    assert_ptr_equal(ctx, works);
    if (strcmp(path, "/v1/echo") == 0) {
        char text[256];
        snprintf(text, sizeof text, "%s %zu %.20s", method, n, body);
        bt_reply_send(r, 200, "text/plain", text, strlen(text));
        bt_reply_send(r, 500, NULL, "twice", 5); /* The first reply counts. */
        bt_reply_end(r);
        return;
    }
    if (strcmp(path, "/v1/bad") == 0) {
        bt_reply_error(r, 400,
                       &(bt_serve_error){.type = "invalid_request_error",
                                         .code = "invalid_value",
                                         .param = "prompt",
                                         .message = "no \"such\" thing"});
        bt_reply_end(r);
        return;
    }
    work *w = &works[atomic_fetch_add(&n_works, 1) % WORKS];
    memset(w, 0, sizeof *w);
    w->reply = r;
    snprintf(w->path, sizeof w->path, "%s", path);
    bt_reply_set(r, w);
    pthread_create(&w->thread, NULL, reply_later, w);
    pthread_detach(w->thread);
}

static void note_gone(void *ctx, void *work_of) {
    work *w = work_of;
    (void)ctx;
    atomic_fetch_add(&n_gone, 1);
    atomic_store(&w->gone, true);
}

static bt_serve *serve_reply(bool open, int max_replies, int64_t deadline_ns) {
    bt_serve *s = NULL;
    bt_err err = BT_ERR_INIT;
    const bt_serve_cfg cfg = {.host = "127.0.0.1",
                              .token = token,
                              .open = open,
                              .max_replies = max_replies,
                              .max_body = 100000,
                              .deadline_ns = deadline_ns,
                              .source = {works, pass_to_source, note_gone}};
    atomic_store(&n_works, 0);
    atomic_store(&n_gone, 0);
    atomic_store(&n_ended, 0);
    if (bt_serve_start(&s, &cfg, &err) != BT_OK) fail_msg("%s", err.msg);
    return s;
}

/* Sends a request such as "POST /v1/echo" with further header lines and a body. */
static void send_to_serve(client *c, const bt_serve *s, const char *what, const char *more,
                          const char *body) {
    char text[2048];
    dial(c, bt_serve_port(s));
    const int n = snprintf(text, sizeof text,
                           "%s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: close\r\n%s"
                           "Content-Length: %zu\r\n\r\n%s",
                           what, bt_serve_port(s), more, strlen(body), body);
    say(c, text, (size_t)n);
}

#define AUTH "Authorization: Bearer 0123456789abcdef0123456789abcdef\r\n"

/* Reads until the server closes; returns the status. */
static int read_until_close(client *c) {
    ssize_t k;
    while ((k = recv(c->fd, c->text + c->n, sizeof c->text - c->n - 1, 0)) > 0) c->n += (size_t)k;
    c->text[c->n] = '\0';
    close(c->fd);
    int status = 0;
    sscanf(c->text, "HTTP/1.1 %d", &status);
    return status;
}

static int status_of(const bt_serve *s, const char *what, const char *more, const char *body) {
    static client c;
    send_to_serve(&c, s, what, more, body);
    return read_until_close(&c);
}

static void wait_for(atomic_int *counter, int n, const char *what) {
    const int64_t until = bt_now_ns() + (int64_t)10e9;
    while (atomic_load(counter) < n)
        if (bt_now_ns() > until)
            fail_msg("%s: %d, not %d", what, atomic_load(counter), n);
        else
            bt_sleep_ns(5000000);
}

static void guards_admit_authorized_clients(void **state) {
    (void)state;
    static client c;
    bt_serve *s = serve_reply(false, 8, 0);
    assert_string_equal(bt_serve_token(s), token);
    assert_int_equal(status_of(s, "GET /healthz", "", ""), 200);
    assert_int_equal(status_of(s, "POST /v1/echo", "", "x"), 401);
    assert_int_equal(status_of(s, "POST /v1/echo", "Authorization: Bearer \r\n", "x"), 401);
    assert_int_equal(status_of(s, "POST /v1/echo", "Authorization: Bearer 0123\r\n", "x"), 401);
    assert_int_equal(status_of(s, "POST /v1/echo", AUTH, "x"), 200);
    assert_int_equal(status_of(s, "POST /v1/echo", AUTH "Origin: http://evil.example\r\n", "x"),
                     403);
    assert_int_equal(status_of(s, "GET /v1/echo", AUTH "Sec-Fetch-Site: cross-site\r\n", ""), 403);
    assert_int_equal(status_of(s, "PUT /v1/echo", AUTH, "x"), 405);
    assert_int_equal(status_of(s, "DELETE /", AUTH, ""), 405);
    /* Other paths are answered after 50 ms. */
    assert_int_equal(status_of(s, "GET /../../etc/passwd", AUTH "X: y\r\n", ""), 200);
    dial(&c, bt_serve_port(s));
    static const char evil[] =
        "GET /healthz HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    say(&c, evil, sizeof evil - 1);
    assert_int_equal(read_until_close(&c), 403);
    assert_non_null(strstr(c.text, "\"error\":{\"message\":\"this Host is not served here"));
    /* The page's login sets a cookie that replaces the header. */
    send_to_serve(&c, s, "GET /api/v1/login", AUTH, "");
    assert_int_equal(read_until_close(&c), 200);
    char cookie[128];
    snprintf(cookie, sizeof cookie, "Cookie: bitrain_%d=%s\r\n", bt_serve_port(s), token);
    assert_non_null(strstr(c.text, "HttpOnly; SameSite=Strict"));
    assert_int_equal(status_of(s, "POST /v1/echo", cookie, "x"), 200);
    bt_serve_stop(s);
    s = serve_reply(true, 8, 0);
    assert_int_equal(status_of(s, "POST /v1/echo", "", "x"), 200);
    assert_int_equal(status_of(s, "POST /v1/echo", "Authorization: Bearer \r\n", "x"), 200);
    assert_int_equal(status_of(s, "POST /v1/echo", "Origin: http://evil.example\r\n", "x"), 403);
    bt_serve_stop(s);
}

static void the_page_is_compiled_in(void **state) {
    (void)state;
    static client c;
    static const char *const paths[] = {"/", "/assets/chat.js", "/assets/chat.css",
                                        "/assets/style.css", "/assets/icon.svg"};
    bt_serve *s = serve_reply(false, 8, 0);
    size_t bytes = 0;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        char what[64];
        snprintf(what, sizeof what, "GET %s", paths[i]);
        send_to_serve(&c, s, what, "Accept-Encoding: gzip\r\n", "");
        assert_int_equal(read_until_close(&c), 200);
        assert_non_null(strstr(c.text, "Content-Security-Policy: default-src 'none'"));
        bytes += c.n;
    }
    assert_true(bytes < 20000);
    bt_serve_stop(s);
}

static void replies_may_be_complete_late_or_in_pieces(void **state) {
    (void)state;
    static client c;
    bt_serve *s = serve_reply(true, 8, 0);
    send_to_serve(&c, s, "POST /v1/echo", "", "hello");
    assert_int_equal(read_until_close(&c), 200);
    assert_non_null(strstr(c.text, "\r\n\r\nPOST 5 hello"));
    send_to_serve(&c, s, "POST /v1/bad", "", "");
    assert_int_equal(read_until_close(&c), 400);
    assert_non_null(strstr(
        c.text, "{\"error\":{\"message\":\"no \\\"such\\\" thing\",\"type\":"
                "\"invalid_request_error\",\"param\":\"prompt\",\"code\":\"invalid_value\"}}"));
    send_to_serve(&c, s, "POST /v1/late", "", "");
    assert_int_equal(read_until_close(&c), 200);
    assert_non_null(strstr(c.text, "{\"late\":1}"));
    send_to_serve(&c, s, "POST /v1/stream", "", "");
    assert_int_equal(read_until_close(&c), 200);
    assert_non_null(strstr(c.text, "\r\nContent-Type: text/event-stream\r\n"));
    assert_non_null(strstr(c.text, "\r\nCache-Control: no-store\r\n"));
    assert_non_null(strstr(c.text, "\r\nX-Accel-Buffering: no\r\n"));
    for (int i = 0; i < 3; i++) {
        char piece[32];
        snprintf(piece, sizeof piece, "data: %d\n\n", i);
        assert_non_null(strstr(c.text, piece));
    }
    bt_serve_stop(s);
    assert_int_equal(atomic_load(&n_gone), 0);
}

/* Many clients send requests at once, and each gets its own reply. */
static void many_clients_at_once(void **state) {
    (void)state;
    enum { MANY = 64 };
    client *c = calloc(MANY, sizeof *c);
    bt_serve *s = serve_reply(true, MANY, 0);
    assert_non_null(c);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < MANY; i++)
            send_to_serve(&c[i], s, i % 2 ? "POST /v1/late" : "POST /v1/stream", "", "");
        for (int i = 0; i < MANY; i++) {
            assert_int_equal(read_until_close(&c[i]), 200);
            assert_non_null(strstr(c[i].text, i % 2 ? "late" : "data: 2"));
        }
    }
    bt_serve_stop(s);
    assert_int_equal(atomic_load(&n_ended), 3 * MANY);
    free(c);
}

static void a_body_that_is_too_large_is_not_kept(void **state) {
    (void)state;
    static client c;
    bt_serve *s = serve_reply(true, 3, (int64_t)60e9);
    assert_true(post_much(&c, bt_serve_port(s), "/v1/echo") < MUCH / 2);
    assert_int_equal(read_until_close(&c), 413);
    bt_serve_stop(s);
}

static void limits_of_requests_and_replies(void **state) {
    (void)state;
    static client c, held[3];
    bt_serve *s = serve_reply(true, 3, (int64_t)300e6);
    /* a body over the limit */
    char head[128];
    dial(&c, bt_serve_port(s));
    int n = snprintf(head, sizeof head,
                     "POST /v1/echo HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: close\r\n"
                     "Content-Length: 200000\r\n\r\n",
                     bt_serve_port(s));
    say(&c, head, (size_t)n);
    char *body = calloc(1, 200000);
    assert_non_null(body);
    memset(body, ' ', 200000);
    say(&c, body, 200000);
    free(body);
    assert_int_equal(read_until_close(&c), 413);
    /* A body that never arrives: the connection is closed after the deadline, not after libmicrohttpd's ten seconds. */
    dial(&c, bt_serve_port(s));
    say(&c, head, (size_t)n);
    const int64_t began = bt_now_ns();
    assert_int_equal(read_until_close(&c), 0);
    assert_true(bt_now_ns() - began < (int64_t)5e9);
    /* Long replies have no deadline; more than the maximum number are refused at once. */
    for (int i = 0; i < 3; i++) send_to_serve(&held[i], s, "POST /v1/never", "", "");
    wait_for(&n_works, 3, "at work");
    send_to_serve(&c, s, "POST /v1/late", "", "");
    assert_int_equal(read_until_close(&c), 429);
    assert_non_null(strstr(c.text, "Retry-After"));
    assert_int_equal(status_of(s, "GET /healthz", "", ""), 200);
    bt_sleep_ns((int64_t)800e6);
    for (int i = 0; i < 3; i++) {
        atomic_store(&works[i].go, true);
        assert_int_equal(read_until_close(&held[i]), 200);
    }
    assert_int_equal(status_of(s, "POST /v1/late", "", ""), 200);
    /* Between two requests there is a deadline of twice the time. */
    dial(&c, bt_serve_port(s));
    n = snprintf(head, sizeof head,
                 "POST /v1/echo HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Length: 1\r\n\r\nx",
                 bt_serve_port(s));
    say(&c, head, (size_t)n);
    const int64_t answered = bt_now_ns();
    assert_int_equal(read_until_close(&c), 200);
    assert_true(bt_now_ns() - answered < (int64_t)5e9);
    bt_serve_stop(s);
}

/* A client that disconnects is detected while its connection sleeps, and while it does not read a stream. */
static void the_source_is_notified_of_disconnected_clients(void **state) {
    (void)state;
    static client c;
    bt_serve *s = serve_reply(true, 8, 0);
    send_to_serve(&c, s, "POST /v1/never", "", "");
    wait_for(&n_works, 1, "at work");
    close(c.fd);
    wait_for(&n_gone, 1, "gone");
    wait_for(&n_ended, 1, "ended");
    send_to_serve(&c, s, "POST /v1/flood", "", ""); /* never read */
    wait_for(&n_gone, 2, "a reader that does not read");
    wait_for(&n_ended, 2, "ended");
    close(c.fd);
    send_to_serve(&c, s, "POST /v1/flood", "", "");
    assert_true(recv(c.fd, c.text, 1000, 0) > 0);
    close(c.fd); /* in the middle of the reply */
    wait_for(&n_gone, 3, "gone in the middle");
    wait_for(&n_ended, 3, "ended");
    assert_int_equal(status_of(s, "POST /v1/late", "", ""), 200);
    send_to_serve(&c, s, "POST /v1/linger", "", "");
    assert_true(recv(c.fd, c.text, 1000, 0) > 0);
    close(c.fd);
    wait_for(&n_ended, 5, "ended");
    bt_serve_stop(s);
    assert_int_equal(atomic_load(&n_gone), 4); /* each once */
}

static void *release_later(void *ctx) {
    (void)ctx;
    bt_sleep_ns((int64_t)200e6);
    for (int i = 0; i < 2; i++) atomic_store(&works[i].go, true);
    return NULL;
}

/* Replies in progress are completed before the server ends. */
static void the_stop_waits_for_answers(void **state) {
    (void)state;
    static client c[2];
    pthread_t t;
    bt_serve *s = serve_reply(true, 8, 0);
    for (int i = 0; i < 2; i++) send_to_serve(&c[i], s, "POST /v1/never", "", "");
    wait_for(&n_works, 2, "at work");
    pthread_create(&t, NULL, release_later, NULL);
    bt_serve_stop(s);
    pthread_join(t, NULL);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(read_until_close(&c[i]), 200);
        assert_non_null(strstr(c[i].text, "at last"));
    }
    bt_serve_stop(NULL);
}

static void a_failed_start_is_reported(void **state) {
    (void)state;
    bt_serve *s = serve_reply(true, 8, 0), *other = NULL;
    bt_err err = BT_ERR_INIT;
    bt_serve_cfg cfg = {.host = "127.0.0.1", .port = bt_serve_port(s), .max_replies = 1};
    assert_int_equal(bt_serve_start(&other, &cfg, &err), BT_BUSY);
    cfg.port = 0;
    cfg.token = "short";
    assert_int_equal(bt_serve_start(&other, &cfg, &err), BT_ARG);
    assert_null(other);
    bt_serve_stop(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(guards_admit_authorized_clients),
        cmocka_unit_test(the_page_is_compiled_in),
        cmocka_unit_test(replies_may_be_complete_late_or_in_pieces),
        cmocka_unit_test(many_clients_at_once),
        cmocka_unit_test(a_body_that_is_too_large_is_not_kept),
        cmocka_unit_test(limits_of_requests_and_replies),
        cmocka_unit_test(the_source_is_notified_of_disconnected_clients),
        cmocka_unit_test(the_stop_waits_for_answers),
        cmocka_unit_test(a_failed_start_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// ctest: timeout=60 labels=web
/* Responses of the model server: status, headers and body of each guard and each kind of reply; accepted tokens and
 * hosts; unfinished replies while other replies end. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "../web_client.h"
#include "engine/base/clock.h"
#include "web/serve/serve.h"

#define TOKEN "00112233445566778899aabbccddeeff"
#define AUTH "Authorization: Bearer " TOKEN "\r\n"

enum { BODY_MOST = 1000, HELD = 8 };

static bt_reply *_Atomic held[HELD]; /* replies that the test itself ends */
static atomic_int n_held, gone[HELD];
static int numbers[HELD]; /* work: pointer to its own number */

static void pass_to_source(void *ctx, bt_reply *r, const char *method, const char *path,
                           const char *body, size_t n) {
    char text[2048];
    (void)ctx;
    int status;
    if (strcmp(path, "/v1/held") == 0 || strcmp(path, "/v1/without_work") == 0) {
        const int k = atomic_load(&n_held);
        numbers[k] = k;
        if (path[4] == 'h') bt_reply_set(r, &numbers[k]);
        atomic_store(&held[k], r);
        atomic_fetch_add(&n_held, 1);
        return;
    }
    if (sscanf(path, "/v1/error/%d", &status) == 1) {
        bt_reply_error(r, status,
                       &(bt_serve_error){.type = "of_the_source", .message = "it says why"});
    } else if (strcmp(path, "/v1/json") == 0) {
        bt_reply_send(r, 201, NULL, "[1]", 3);
        bt_reply_put(r, "more", 4); /* a complete reply has no further pieces */
    } else if (strcmp(path, "/v1/pieces") == 0) {
        bt_reply_put(r, "data: a\n\n", 9);
        /* A reply in pieces cannot also be complete. */
        bt_reply_send(r, 500, "text/plain", "whole", 5);
        bt_reply_put(r, "data: b\n\n", 9);
    } else {
        const int k = snprintf(text, sizeof text, "%s %s %zu %s", method, path, n, body);
        bt_reply_send(r, 200, "text/plain", text, (size_t)k);
    }
    bt_reply_end(r);
}

static void note_gone(void *ctx, void *work) {
    (void)ctx;
    atomic_fetch_add(&gone[*(int *)work], 1);
}

static bt_serve *start(bt_serve_cfg cfg) {
    bt_serve *s = NULL;
    bt_err err = BT_ERR_INIT;
    if (!cfg.host) cfg.host = "127.0.0.1";
    if (!cfg.max_replies) cfg.max_replies = 8;
    cfg.max_body = BODY_MOST;
    cfg.source = (bt_serve_source){NULL, pass_to_source, note_gone};
    atomic_store(&n_held, 0);
    for (int i = 0; i < HELD; i++) atomic_store(&gone[i], 0);
    if (bt_serve_start(&s, &cfg, &err) != BT_OK) fail_msg("%s", err.msg);
    return s;
}

static void send_serve_request(client *c, const bt_serve *s, const char *what, const char *more,
                               const char *body, const char *host) {
    char text[4096];
    dial(c, bt_serve_port(s));
    const int n = snprintf(text, sizeof text,
                           "%s HTTP/1.1\r\nHost: %s:%d\r\nConnection: close\r\n%s"
                           "Content-Length: %zu\r\n\r\n%s",
                           what, host, bt_serve_port(s), more, strlen(body), body);
    say(c, text, (size_t)n);
}

static void read_serve_response(client *c) {
    ssize_t k;
    while ((k = recv(c->fd, c->text + c->n, sizeof c->text - c->n - 1, 0)) > 0) c->n += (size_t)k;
    c->text[c->n] = '\0';
    close(c->fd);
}

static const char *body_of(const client *c) {
    const char *end = strstr(c->text, "\r\n\r\n");
    return end ? end + 4 : "";
}

/* Returns the value of a header line, or "". */
static const char *header_of(const client *c, const char *name) {
    static char value[256];
    char line[64];
    snprintf(line, sizeof line, "\r\n%s: ", name);
    const char *at = strstr(c->text, line);
    if (!at || at > body_of(c)) return "";
    at += strlen(line);
    snprintf(value, sizeof value, "%.*s", (int)strcspn(at, "\r"), at);
    return value;
}

#define ERROR(type, message, code) \
    "{\"error\":{\"message\":\"" message "\",\"type\":\"" type "\",\"param\":null,\"code\":" code \
    "}}"
#define WRONG(message, code) ERROR("invalid_request_error", message, "\"" code "\"")
#define NO_ORIGIN \
    WRONG("requests from other sites are refused: start serve with --allow-origin and the site's " \
          "address", \
          "origin_not_allowed")
#define NO_TOKEN \
    ERROR("authentication_error", \
          "the token is missing or wrong: send the one that `bitrain serve` printed as " \
          "'Authorization: Bearer TOKEN'", \
          "\"invalid_api_key\"")
#define NO_HOST \
    WRONG("this Host is not served here: use localhost, or start serve with --allow-host", \
          "host_not_allowed")

static void every_reply_is_complete(void **state) {
    (void)state;
    static const struct {
        const char *what, *more, *body, *host;
        int status;
        const char *type, *says, *header, *value;
    } rows[] = {
        {"GET /healthz", "", "", NULL, 200, "text/plain", "ok\n", NULL, NULL},
        {"GET /healthz/", "", "", NULL, 200, "text/plain", "ok\n", NULL, NULL},
        {"GET /v1/x/", AUTH, "", NULL, 200, "text/plain", "GET /v1/x 0 ", NULL, NULL},
        {"GET /healthz", "Host: evil.example\r\n", "", NULL, 400, NULL,
         ERROR("invalid_request_error", "more than one Host header", "null"), NULL, NULL},
        {"GET /v1/x%00y", AUTH, "", NULL, 400, NULL,
         ERROR("invalid_request_error", "the address contains %00", "null"), NULL, NULL},
        {"HEAD /healthz", "", "", NULL, 200, "text/plain", "", "Content-Length", "3"},
        {"GET /healthz", "", "", "evil.example", 403, NULL, NO_HOST, NULL, NULL},
        {"GET /healthz", "Origin: http://evil.example\r\n", "", NULL, 403, NULL, NO_ORIGIN, NULL,
         NULL},
        {"GET /healthz", "Sec-Fetch-Site: cross-site\r\n", "", NULL, 403, NULL, NO_ORIGIN, NULL,
         NULL},
        {"PUT /v1/x", AUTH, "", NULL, 405, NULL,
         WRONG("only GET, HEAD and POST are served", "method_not_allowed"), "Allow",
         "GET, HEAD, POST"},
        {"POST /healthz", "", "", NULL, 401, NULL, NO_TOKEN, "WWW-Authenticate", "Bearer"},
        {"GET /v1/x", "", "", NULL, 401, NULL, NO_TOKEN, "WWW-Authenticate", "Bearer"},
        {"GET /api/v1/login", "", "", NULL, 401, NULL, NO_TOKEN, "WWW-Authenticate", "Bearer"},
        {"GET /v1/x", "Authorization: Bearer 00112233445566778899aabbccddeefe\r\n", "", NULL, 401,
         NULL, NO_TOKEN, "WWW-Authenticate", "Bearer"},
        {"GET /api/v1/login", AUTH, "", NULL, 200, "application/json", "{\"ok\":true}", NULL, NULL},
        {"POST /api/v1/login", AUTH, "x", NULL, 200, "text/plain", "POST /api/v1/login 1 x", NULL,
         NULL},
        {"POST /", AUTH, "yz", NULL, 200, "text/plain", "POST / 2 yz", NULL, NULL},
        {"GET /v1/x", AUTH, "", NULL, 200, "text/plain", "GET /v1/x 0 ", NULL, NULL},
        {"POST /v1/x", AUTH "Origin: http://localhost\r\n", "q", "localhost", 200, "text/plain",
         "POST /v1/x 1 q", NULL, NULL},
        {"GET /v1/json", AUTH, "", NULL, 201, "application/json", "[1]", NULL, NULL},
        {"GET /v1/error/400", AUTH, "", NULL, 400, NULL,
         ERROR("of_the_source", "it says why", "null"), NULL, NULL},
        {"GET /v1/error/429", AUTH, "", NULL, 429, NULL,
         ERROR("of_the_source", "it says why", "null"), "Retry-After", "2"},
        {"GET /v1/error/503", AUTH, "", NULL, 503, NULL,
         ERROR("of_the_source", "it says why", "null"), "Retry-After", "2"},
        {"GET /v1/pieces", AUTH, "", NULL, 200, "text/event-stream", NULL, "X-Accel-Buffering",
         "no"},
    };
    static const char *const only[] = {"WWW-Authenticate", "Allow", "Retry-After",
                                       "X-Accel-Buffering"};
    static const char *const safe[][2] = {{"X-Content-Type-Options", "nosniff"},
                                          {"Referrer-Policy", "no-referrer"},
                                          {"Cross-Origin-Opener-Policy", "same-origin"},
                                          {"Cross-Origin-Resource-Policy", "same-origin"},
                                          {"X-Frame-Options", "DENY"},
                                          {"Cache-Control", "no-store"}};
    static client c;
    bt_serve *s = start((bt_serve_cfg){.token = TOKEN});
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int status = 0;
        send_serve_request(&c, s, rows[i].what, rows[i].more, rows[i].body,
                           rows[i].host ? rows[i].host : "127.0.0.1");
        read_serve_response(&c);
        sscanf(c.text, "HTTP/1.1 %d", &status);
        if (status != rows[i].status) fail_msg("%s: %s", rows[i].what, c.text);
        assert_string_equal(header_of(&c, "Content-Type"),
                            rows[i].type ? rows[i].type : "application/json");
        if (rows[i].says) assert_string_equal(body_of(&c), rows[i].says);
        if (rows[i].header) assert_string_equal(header_of(&c, rows[i].header), rows[i].value);
        for (size_t k = 0; k < sizeof only / sizeof *only; k++)
            if (!rows[i].header || strcmp(only[k], rows[i].header) != 0)
                assert_string_equal(header_of(&c, only[k]), "");
        for (size_t k = 0; k < sizeof safe / sizeof *safe; k++)
            assert_string_equal(header_of(&c, safe[k][0]), safe[k][1]);
        assert_non_null(strstr(header_of(&c, "Content-Security-Policy"), "default-src 'none'; "));
    }
    const char *a = strstr(c.text, "data: a\n\n"),
               *b = strstr(c.text, "data: b\n\n"); /* the last row */
    assert_true(a && b && a < b && !strstr(c.text, "whole"));
    bt_serve_stop(s);
}

static void bodies_up_to_the_limit(void **state) {
    (void)state;
    static client c;
    char body[BODY_MOST + 2], want[BODY_MOST + 32];
    bt_serve *s = start((bt_serve_cfg){.open = true});
    memset(body, 'b', sizeof body);
    body[BODY_MOST] = '\0';
    snprintf(want, sizeof want, "POST /v1/x %d %s", BODY_MOST, body);
    send_serve_request(&c, s, "POST /v1/x", "", body, "localhost");
    read_serve_response(&c);
    assert_string_equal(body_of(&c), want);
    body[BODY_MOST] = 'b';
    body[BODY_MOST + 1] = '\0';
    send_serve_request(&c, s, "POST /v1/x", "", body, "localhost");
    read_serve_response(&c);
    assert_non_null(strstr(c.text, "HTTP/1.1 413 "));
    assert_string_equal(body_of(&c), WRONG("the request body is too large", "request_too_large"));
    send_serve_request(&c, s, "POST /v1/x", "Transfer-Encoding: chunked\r\n", "1\r\nx\r\n0\r\n\r\n",
                       "localhost");
    read_serve_response(&c); /* libmicrohttpd may refuse it itself */
    assert_non_null(strstr(c.text, "HTTP/1.1 400 "));
    if (strstr(c.text, "error"))
        assert_string_equal(body_of(&c),
                            ERROR("invalid_request_error",
                                  "Content-Length and Transfer-Encoding together", "null"));
    bt_serve_stop(s);
}

/* HTTP/1.1 requires a Host; libmicrohttpd itself refuses requests without one. */
static void a_request_without_a_host(void **state) {
    (void)state;
    static client c;
    static const char text[] = "GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n";
    bt_serve *s = start((bt_serve_cfg){.open = true});
    dial(&c, bt_serve_port(s));
    say(&c, text, sizeof text - 1);
    read_serve_response(&c);
    assert_non_null(strstr(c.text, "HTTP/1.1 400 "));
    bt_serve_stop(s);
}

/* Two requests with a body each use one connection. */
static void a_connection_is_kept(void **state) {
    (void)state;
    static client c;
    char text[512], close_it[] = "Connection: close\r\n";
    bt_serve *s = start((bt_serve_cfg){.open = true});
    dial(&c, bt_serve_port(s));
    for (int i = 0; i < 2; i++) {
        const int n = snprintf(text, sizeof text,
                               "POST /v1/%d HTTP/1.1\r\nHost: localhost:%d\r\n%sContent-Length: "
                               "%d\r\n\r\n%.*s",
                               i, bt_serve_port(s), i ? close_it : "", 3 - i, 3 - i, "abc");
        say(&c, text, (size_t)n);
        while (!i && !strstr(c.text, "POST /v1/0 3 abc")) {
            const ssize_t k = recv(c.fd, c.text + c.n, sizeof c.text - c.n - 1, 0);
            assert_true(k > 0);
            c.text[c.n += (size_t)k] = '\0';
        }
    }
    read_serve_response(&c);
    assert_non_null(strstr(c.text, "POST /v1/1 2 ab"));
    assert_null(strstr(c.text, "POST /v1/1 2 abc"));
    bt_serve_stop(s);
}

static void hosts_that_are_allowed(void **state) {
    (void)state;
    static client c;
    static const struct {
        const char *host;
        bool ok;
    } rows[] = {{"one.example", true}, {"two.example", true}, {"three.example", false},
                {"localhost", true},   {"two.exampl", false}, {"0.0.0.0", false}};
    bt_serve *s = start(
        (bt_serve_cfg){.host = "0.0.0.0", .open = true, .allow_hosts = "one.example,two.example"});
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        send_serve_request(&c, s, "GET /healthz", "", "", rows[i].host);
        read_serve_response(&c);
        assert_non_null(strstr(c.text, rows[i].ok ? "HTTP/1.1 200 " : "HTTP/1.1 403 "));
    }
    bt_serve_stop(s);
}

static void tokens_are_given_or_made(void **state) {
    (void)state;
    static const char *const wrong[] = {"0",
                                        "fifteen-letters",
                                        "a key with spaces in it",
                                        "quotes\"in-the-key!",
                                        "semicolon;in-the-key",
                                        "umlaut-\xc3\xa4-in-the-key"};
    static const char sixteen[] = "sk-of/16+letters";
    char long_key[BT_SERVE_KEY_MAX + 2];
    bt_err good = BT_ERR_INIT;
    bt_serve *keyed = NULL;
    memset(long_key, 'x', sizeof long_key - 1);
    long_key[sizeof long_key - 1] = '\0';
    char made[2][64];
    for (int i = 0; i < 2; i++) {
        bt_serve *s = start((bt_serve_cfg){.token = i ? "" : NULL});
        snprintf(made[i], sizeof made[i], "%s", bt_serve_token(s));
        assert_int_equal(strlen(made[i]), 32);
        assert_int_equal(strspn(made[i], "0123456789abcdef"), 32);
        bt_serve_stop(s);
    }
    assert_string_not_equal(made[0], made[1]);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        bt_serve *s = (bt_serve *)made;
        bt_err err = BT_ERR_INIT;
        assert_int_equal(bt_serve_start(&s, &(bt_serve_cfg){.host = "127.0.0.1", .token = wrong[i]},
                                        &err),
                         BT_ARG);
        assert_non_null(strstr(err.msg, "an API key has 16 to 128 visible ASCII characters"));
        assert_null(s);
    }
    assert_int_equal(bt_serve_start(&keyed, &(bt_serve_cfg){.host = "127.0.0.1", .token = long_key},
                                    &good),
                     BT_ARG);
    long_key[BT_SERVE_KEY_MAX] = '\0';
    for (size_t i = 0; i < 2; i++) {
        keyed = start((bt_serve_cfg){.token = i ? long_key : sixteen});
        assert_string_equal(bt_serve_token(keyed), i ? long_key : sixteen);
        bt_serve_stop(keyed);
    }
}

static void wait_for(atomic_int *counter, int n) {
    for (const int64_t until = bt_now_ns() + (int64_t)10e9; atomic_load(counter) < n;) {
        if (bt_now_ns() > until) fail_msg("%d, not %d", atomic_load(counter), n);
        bt_sleep_ns(2000000);
    }
}

static void end_held(int k) {
    bt_reply_send(atomic_load(&held[k]), 200, NULL, "{}", 2);
    bt_reply_end(atomic_load(&held[k]));
}

/* Replies end in any order and free their place, and the server still detects clients that disconnect. */
static void replies_end_in_any_order(void **state) {
    (void)state;
    static const int orders[][2] = {{0, 1}, {1, 0}, {2, 0}, {0, 2}, {1, 2}, {2, 1}};
    static client c[3], more;
    for (size_t o = 0; o < sizeof orders / sizeof *orders; o++) {
        bt_serve *s = start((bt_serve_cfg){.open = true, .max_replies = 3});
        for (int i = 0; i < 3; i++) {
            send_serve_request(&c[i], s, "POST /v1/held", "", "", "localhost");
            wait_for(&n_held, i + 1);
        }
        send_serve_request(&more, s, "GET /v1/x", "", "", "localhost");
        read_serve_response(&more);
        assert_non_null(strstr(more.text, "HTTP/1.1 429 "));
        assert_string_equal(header_of(&more, "Retry-After"), "2");
        assert_string_equal(body_of(&more),
                            ERROR("rate_limit_error", "too many requests are being answered",
                                  "\"rate_limit_exceeded\""));
        for (int i = 0; i < 2; i++) {
            end_held(orders[o][i]);
            read_serve_response(&c[orders[o][i]]);
            assert_string_equal(body_of(&c[orders[o][i]]), "{}");
            send_serve_request(&more, s, "GET /v1/x", "", "", "localhost");
            read_serve_response(&more);
            assert_non_null(strstr(more.text, "HTTP/1.1 200 "));
        }
        const int last = 3 - orders[o][0] - orders[o][1];
        close(c[last].fd);
        wait_for(&gone[last], 1);
        end_held(last);
        bt_serve_stop(s);
        for (int i = 0; i < 3; i++)
            assert_int_equal(gone[i], i == last); /* each client is reported once */
    }
}

static int64_t processor_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* A connection without data to send, whole or in pieces, uses no processor time. */
static void waiting_connections_sleep(void **state) {
    (void)state;
    static client c;
    bt_serve *s = start((bt_serve_cfg){.open = true});
    send_serve_request(&c, s, "POST /v1/held", "", "", "localhost");
    wait_for(&n_held, 1);
    for (int piece = 0; piece < 3; piece++) {
        bt_sleep_ns(20000000);
        const int64_t before = processor_ns();
        bt_sleep_ns(150000000);
        if (processor_ns() - before > 75000000)
            fail_msg("after %d pieces it does not sleep", piece);
        if (piece == 2) break;
        char text[2] = {(char)('x' + piece), 0};
        bt_reply_put(atomic_load(&held[0]), text, 1);
        while (!strchr(body_of(&c), text[0])) {
            const ssize_t k = recv(c.fd, c.text + c.n, sizeof c.text - c.n - 1, 0);
            assert_true(k > 0);
            c.text[c.n += (size_t)k] = '\0';
        }
    }
    bt_reply_end(atomic_load(&held[0]));
    read_serve_response(&c);
    bt_serve_stop(s);
}

/* While the server stops, it completes its replies and begins no new one; a reply without work has no recipient. */
static void *stop_server(void *ctx) {
    bt_serve_stop(ctx);
    return NULL;
}

static void a_stop_refuses_new_requests(void **state) {
    (void)state;
    static client c, silent, more;
    pthread_t t;
    bt_serve *s = start((bt_serve_cfg){.open = true});
    send_serve_request(&c, s, "POST /v1/held", "", "", "localhost");
    wait_for(&n_held, 1);
    send_serve_request(&silent, s, "POST /v1/without_work", "", "", "localhost");
    wait_for(&n_held, 2);
    close(silent.fd);
    pthread_create(&t, NULL, stop_server, s);
    do { /* waits until the stop takes effect */
        send_serve_request(&more, s, "GET /v1/x", "", "", "localhost");
        read_serve_response(&more);
    } while (strstr(more.text, "HTTP/1.1 200 "));
    assert_non_null(strstr(more.text, "HTTP/1.1 503 "));
    assert_string_equal(header_of(&more, "Retry-After"), "2");
    assert_string_equal(body_of(&more), ERROR("server_error", "the server is stopping", "null"));
    end_held(0);
    end_held(1);
    read_serve_response(&c);
    assert_string_equal(body_of(&c), "{}");
    pthread_join(t, NULL);
    for (int i = 0; i < HELD; i++) assert_int_equal(gone[i], 0);
}

int main(void) {
    alarm(30); /* a test that hangs is ended */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_reply_is_complete),     cmocka_unit_test(bodies_up_to_the_limit),
        cmocka_unit_test(a_request_without_a_host),    cmocka_unit_test(a_connection_is_kept),
        cmocka_unit_test(hosts_that_are_allowed),      cmocka_unit_test(tokens_are_given_or_made),
        cmocka_unit_test(replies_end_in_any_order),    cmocka_unit_test(waiting_connections_sleep),
        cmocka_unit_test(a_stop_refuses_new_requests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

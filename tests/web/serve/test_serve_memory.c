// ctest: timeout=90 labels=web
/* The model server while its threads are refused memory: each request of the program's own code, then also of its
 * libraries, is refused once. The client gets a response or a closed connection; the next client is served as usual,
 * and no place is lost. */
#include "../../memory/refuse_memory.h"
#include "../web_client.h"
#include "web/serve/serve.h"

static const char token[] = "0123456789abcdef0123456789abcdef";

/* Replies to /v1/pieces in two pieces, and to other paths with the size of the body and the way it ended. */
static void reply_by_path(void *ctx, bt_reply *r, const char *method, const char *path,
                          const char *body, size_t n) {
    char text[100];
    (void)ctx;
    (void)method;
    if (strcmp(path, "/v1/pieces") == 0) {
        bt_reply_put(r, "data: 1\n\n", 9);
        bt_reply_put(r, "data: 2\n\n", 9);
    } else if (n == 0) {
        bt_reply_error(r, 400,
                       &(bt_serve_error){.type = "invalid_request_error",
                                         .message = "there is nothing"});
    } else {
        snprintf(text, sizeof text, "%zu, %.9s", n, body + n - 9);
        bt_reply_send(r, 200, "text/plain", text, strlen(text));
    }
    bt_reply_end(r);
}

static void ignore_disconnect(void *ctx, void *work) {
    (void)ctx;
    (void)work;
}

/* Returns the status of the response, or 0; `answer` is the text after the headers. */
static int request_with_memory_refused(client *c, const bt_serve *s, const char *what,
                                       size_t n_body, const char **answer) {
    static char text[40000];
    dial(c, bt_serve_port(s));
    int n = snprintf(text, sizeof text,
                     "%s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAuthorization: Bearer %s\r\n"
                     "Accept-Encoding: gzip\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n",
                     what, bt_serve_port(s), token, n_body);
    assert_true((size_t)n + n_body < sizeof text);
    memset(text + n, 'b', n_body);
    if (n_body >= 9) memcpy(text + (size_t)n + n_body - 9, "the end.\n", 9);
    /* The server may close the connection meanwhile. */
    for (size_t sent = 0; sent < (size_t)n + n_body;) {
        const ssize_t k = send(c->fd, text + sent, (size_t)n + n_body - sent, MSG_NOSIGNAL);
        if (k <= 0) break;
        sent += (size_t)k;
    }
    for (ssize_t k; (k = recv(c->fd, c->text + c->n, sizeof c->text - c->n - 1, 0)) > 0;)
        c->n += (size_t)k;
    c->text[c->n] = '\0';
    close(c->fd);
    *answer = strstr(c->text, "\r\n\r\n");
    return c->n ? atoi(c->text + strlen("HTTP/1.1 ")) : 0;
}

static const struct row {
    const char *what;
    size_t n_body;
    int status;
    const char *answer; /* NULL: a file of the page */
} rows[] = {
    {"GET /healthz", 0, 200, "ok\n"},
    {"GET /", 0, 200, NULL},
    {"GET /api/v1/login", 0, 200, "{\"ok\":true}"},
    {"POST /v1/chat", 30000, 200, "30000, the end.\n"},
    {"POST /v1/chat", 0, 400, NULL},
    {"POST /v1/pieces", 10, 200, "data: 2\n\n"},
};

static void each_request_for_memory_refused_once(void **state) {
    static client c;
    bt_serve *s = NULL;
    bt_err err = BT_ERR_INIT;
    const char *answer;
    long refused = 0;
    (void)state;
    if (bt_serve_start(&s,
                       &(bt_serve_cfg){.host = "127.0.0.1",
                                       .token = token,
                                       .max_replies = 1,
                                       .max_body = 100000,
                                       .source = {NULL, reply_by_path, ignore_disconnect}},
                       &err) != BT_OK)
        fail_msg("%s", err.msg);
    for (size_t i = 0; i < 2 * (sizeof rows / sizeof *rows); i++) {
        const struct row *r = &rows[i / 2];
        const bool libraries = i % 2;
        bool any = true;
        for (long k = 0; any; k += 1 + k / 25) {
            refuse_memory(&(refusal){.after = k, .own = !libraries, .everywhere = true});
            const int status = request_with_memory_refused(&c, s, r->what, r->n_body, &answer);
            any = grant_memory();
            if (status != 0 && status != r->status && status != 500 && status != 503 &&
                status != 429)
                fail_msg("%s, request for memory %ld: %s", r->what, k, c.text);
            says_what_it_is(&c);
            refused += any;
            assert_int_equal(request_with_memory_refused(&c, s, r->what, r->n_body, &answer),
                             r->status);
            if (r->answer) assert_non_null(strstr(answer, r->answer));
        }
    }
    assert_true(refused > 30);
    bt_serve_stop(s);
}

int main(void) {
    if (!refuse_memory_works()) return 77;
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_request_for_memory_refused_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

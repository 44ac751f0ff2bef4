// ctest: timeout=90 labels=web
/* The server while its threads are refused memory: each request of the program's own code, then also of its libraries,
 * is refused once. The client gets a response or a closed connection; the next client is served as usual. */
#include "../../memory/refuse_memory.h"
#include "../web_client.h"
#include "../web_test.h"
#include "web/web.h"

static const char token[] = "0123456789abcdef0123456789abcdef";

/* Reads until the end or until `enough` arrives; returns the status, or 0 if there are no data. */
static int request_page(client *c, const bt_web *w, const char *path, const char *enough) {
    char text[512];
    dial(c, bt_web_port(w));
    const int n = snprintf(text, sizeof text,
                           "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAuthorization: Bearer %s\r\n"
                           "Accept-Encoding: gzip\r\nConnection: close\r\n\r\n",
                           path, bt_web_port(w), token);
    say(c, text, (size_t)n);
    for (ssize_t k; c->n < sizeof c->text - 1 &&
                    (k = recv(c->fd, c->text + c->n, sizeof c->text - c->n - 1, 0)) > 0;) {
        c->n += (size_t)k;
        c->text[c->n] = '\0';
        if (strstr(c->text, enough)) break;
    }
    close(c->fd);
    return c->n ? atoi(c->text + strlen("HTTP/1.1 ")) : 0;
}

static const struct row {
    const char *path, *enough; /* text in a response without an end */
} rows[] = {
    {"/healthz", "\r\nok"},
    {"/api/v1/login", "\r\n\r\n{"},
    {"/api/v1/runs?limit=1", "no such text"},
    {"/api/v1/runs/base/series?metric=loss&width=300",
     "no such text"}, /* no such text, because the response is
                                                                         * compressed */
    {"/assets/style.css", "no such text"},
    {"/api/v1/runs/live/stream", "event: tick"},
    {"/api/v1/query?sql=SELECT%2040%2B2", "[[42]]"},
};

static void each_request_for_memory_refused_once(void **state) {
    static client c;
    const bt_tmp *t = *state;
    bt_web *w = NULL;
    long refused = 0;
    bt_web_runs(t->db);
    OK(bt_web_start(&w,
                    &(bt_web_cfg){.store = t->db,
                                  .host = "127.0.0.1",
                                  .socket = "",
                                  .token = token,
                                  .heartbeat_ns = 100000000,
                                  .query_program = getenv("BITRAIN")},
                    err));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *r = &rows[i];
        assert_int_equal(request_page(&c, w, r->path, r->enough), 200);
        for (int libraries = 0; libraries < 2; libraries++) {
            bool any = true;
            for (long k = 0; any; k += 1 + k / 25) {
                refuse_memory(&(refusal){.after = k, .own = !libraries, .everywhere = true});
                const int status = request_page(&c, w, r->path, r->enough);
                any = grant_memory();
                if (status != 0 && status != 200 && status != 500 && status != 503)
                    fail_msg("%s, request for memory %ld: %s", r->path, k, c.text);
                says_what_it_is(&c);
                refused += any;
                assert_int_equal(request_page(&c, w, "/healthz", "\r\nok"), 200);
            }
        }
        assert_int_equal(request_page(&c, w, r->path, r->enough), 200);
    }
    assert_true(refused > 30);
    bt_web_stop(w);
}

int main(void) {
    if (!refuse_memory_works()) return 77;
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(
        each_request_for_memory_refused_once, bt_tmp_make, bt_tmp_drop)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

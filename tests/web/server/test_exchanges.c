// ctest: timeout=60 labels=web
/* Responses of the server to valid and invalid requests: status, headers and body, compared with a file
 * (golden/exchanges.txt; BT_UPDATE=1 rewrites it). */
#include <strings.h>

#include "../../golden_json.h"
#include "../web_client.h"
#include "../web_test.h"
#include "web/server/server_impl.h"
#include "web/web.h"

/* contains no digits that could be confused with the port number */
static const char token[] = "abcdefabcdefabcdefabcdefabcdefab";
#define HOST "Host: 127.0.0.1:PORT\r\n"
#define BEARER "Authorization: Bearer abcdefabcdefabcdefabcdefabcdefab\r\n"
#define ORIGIN "Origin: http://127.0.0.1:PORT\r\n"

static const struct row {
    const char *head, *body; /* parts of the request; PORT is replaced by the server's */
    bool control;            /* a server that accepts control requests */
} rows[] = {
    {"GET /healthz HTTP/1.1\r\n" HOST, "", false},
    {"GET /api/v1/server HTTP/1.1\r\n" HOST BEARER, "", false},
    {"GET /api/v1/server HTTP/1.1\r\n" HOST
     "Cookie: a=b; bitrain_PORT=abcdefabcdefabcdefabcdefabcdefab\r\n",
     "", false},
    {"GET /api/v1/server HTTP/1.1\r\n" HOST
     "Authorization: Bearer 0123456789abcdef0123456789abcdee\r\n",
     "", false},
    {"GET /api/v1/server HTTP/1.1\r\n" HOST, "", false},
    {"HEAD /api/v1/server HTTP/1.1\r\n" HOST BEARER, "", false},
    {"GET /api/v1/server HTTP/1.1\r\n" HOST BEARER, "", true},
    {"GET /api/v1/nothing HTTP/1.1\r\n" HOST BEARER, "", false},
    {"GET /api/v1/runs/base/nothing HTTP/1.1\r\n" HOST BEARER, "", false},
    {"GET /api/v1/runs/nobody/head HTTP/1.1\r\n" HOST BEARER, "", false},
    {"GET /api/v1/runs/nobody/stream HTTP/1.1\r\n" HOST BEARER, "", false},
    {"GET /api/v1/runs/base/series HTTP/1.1\r\n" HOST BEARER, "", false},
    {"GET /api/v1/runs/base/series?metric=loss&x0=1&x1=2 HTTP/1.1\r\n" HOST BEARER, "", false},
    {"GET /api/v1/runs/base/series?metric=loss&width=4000 HTTP/1.1\r\n" HOST BEARER
     "Accept-Encoding: gzip\r\n",
     "", false},
    {"GET /api/v1/query?sql=SELECT+1 HTTP/1.1\r\n" HOST BEARER, "", false},
    {"GET /api/v1/control HTTP/1.1\r\n" HOST BEARER, "", false},
    {"GET /api/v1/login HTTP/1.1\r\n" HOST BEARER, "", false},
    {"GET /api/v1/login HTTP/1.1\r\n" HOST, "", false},
    {"POST /api/v1/control HTTP/1.1\r\n" HOST BEARER ORIGIN, "{}", false},
    {"POST /api/v1/control HTTP/1.1\r\n" HOST BEARER ORIGIN, "{}", true},
    {"POST /api/v1/control HTTP/1.1\r\n" HOST BEARER "X-Bitrain-Control: 1\r\n", "{}", true},
    {"POST /api/v1/control HTTP/1.1\r\n" HOST BEARER ORIGIN "X-Bitrain-Control: 1\r\n", "{}", true},
    {"POST /api/v1/control HTTP/1.1\r\n" HOST BEARER ORIGIN "X-Bitrain-Control: 1\r\n",
     "{\"run\":\"base\",\"verb\":\"fly\"}", true},
    {"POST /api/v1/control HTTP/1.1\r\n" HOST BEARER ORIGIN "X-Bitrain-Control: 1\r\n",
     "{\"run\":\"base\",\"verb\":\"tag\",\"value\":\"x y\"}", true},
    {"POST /api/v1/control HTTP/1.1\r\n" HOST BEARER ORIGIN "X-Bitrain-Control: 1\r\n",
     "{\"run\":\"base\",\"verb\":\"note\",\"value\":\"well\"}", true},
    {"POST /api/v1/control HTTP/1.1\r\n" HOST BEARER ORIGIN "X-Bitrain-Control: 1\r\n",
     "{\"run\":\"base\",\"verb\":\"stop\"}", true},
    {"POST /api/v1/start HTTP/1.1\r\n" HOST BEARER ORIGIN "X-Bitrain-Control: 1\r\n", "{}", true},
    {"POST /api/v1/runs HTTP/1.1\r\n" HOST BEARER ORIGIN, "{}", true},
    {"PUT /api/v1/server HTTP/1.1\r\n" HOST BEARER, "{}", true},
    {"GET /api/v1/server HTTP/1.1\r\nHost: evil.example\r\n" BEARER, "", false},
    {"GET /api/v1/server HTTP/1.1\r\n" HOST BEARER "Origin: http://evil.example\r\n", "", false},
    {"GET /api/v1/server HTTP/1.1\r\n" HOST BEARER "Sec-Fetch-Site: cross-site\r\n", "", false},
    {"GET "
     "/api/v1/"
     "server?a=1&a=1&a=1&a=1&a=1&a=1&a=1&a=1&a=1&a=1&a=1&a=1&a=1&a=1&a=1&a=1&a=1&a=1&a=1&a=1&a=1&a="
     "1&a=1&a=1"
     "&a=1 HTTP/1.1\r\n" HOST BEARER,
     "", false},
    /* Two parsers could interpret this as two requests. */
    {"GET /healthz HTTP/1.1\r\n" HOST HOST, "", false},
    {"GET /healthz HTTP/1.1\r\n" HOST "Host: evil.example\r\n", "", false},
    {"GET /api/v1/runs%00.js HTTP/1.1\r\n" HOST BEARER, "", false},
    {"GET /api/v1/runs?note=a%00b HTTP/1.1\r\n" HOST BEARER, "", false},
    {"GET /healthz HTTP/1.1\r\n" HOST "If-None-Match: *\r\n", "", false},
    {"GET / HTTP/1.1\r\n" HOST "If-None-Match: *\r\n", "", false},
    {"POST / HTTP/1.1\r\n" HOST, "{}", false},
};

/* Returns false for lines that differ between libraries, pages and times. */
static bool is_compared_line(const char *line) {
    static const char *const not_told[] = {"Date:", "Connection:", "Content-Length:", "ETag:"};
    for (size_t i = 0; i < sizeof not_told / sizeof *not_told; i++)
        if (strncasecmp(line, not_told[i], strlen(not_told[i])) == 0) return false;
    return true;
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Formats status, headers by name, and the body if it is text. */
static void put_compared_lines(bt_text *out, char *answer) {
    enum { MOST = 40 };
    char *lines[MOST], *body = strstr(answer, "\r\n\r\n");
    size_t n = 0;
    assert_non_null(body);
    *body = '\0';
    body += 4;
    for (char *line; (line = strsep(&answer, "\n")) && n < MOST;) {
        line[strcspn(line, "\r")] = '\0';
        if (is_compared_line(line)) lines[n++] = line;
    }
    bool packed = false;
    lines[0][strcspn(lines[0], " ") + 4] = '\0'; /* the number without its text */
    qsort(lines + 1, n - 1, sizeof *lines, by_text);
    for (size_t i = 0; i < n; i++) {
        bt_text_printf(out, "    %s\n", lines[i]);
        packed |= strcasecmp(lines[i], "Content-Encoding: gzip") == 0;
    }
    if (packed)
        bt_text_printf(out, "    (packed)\n");
    else if (body[0])
        bt_text_printf(out, "    %s\n", body);
}

/* Returns the value of a response header in c, or "". */
static const char *header_in_response(const client *c, const char *name) {
    static char value[200];
    char line[64];
    snprintf(line, sizeof line, "\r\n%s: ", name);
    const char *at = strcasestr(c->text, line);
    value[0] = '\0';
    if (at)
        snprintf(value, sizeof value, "%.*s", (int)strcspn(at + strlen(line), "\r"),
                 at + strlen(line));
    return value;
}

/* Returns the length of a text body, without zero bytes, or of a compressed body as received. */
static int whole_body(const client *c) {
    const char *body = strstr(c->text, "\r\n\r\n") + 4;
    const size_t n = c->n - (size_t)(body - c->text);
    if (strcmp(header_in_response(c, "Content-Encoding"), "gzip") != 0)
        assert_null(memchr(body, 0, n));
    return (int)n;
}

static void exchange_request(bt_text *out, const bt_web *w, const struct row *r) {
    static client c;
    char port[16];
    bt_text text;
    snprintf(port, sizeof port, "%d", bt_web_port(w));
    bt_text_init(&text);
    bt_text_put(&text, r->head);
    bt_golden_replace(&text, "PORT", port);
    if (r->body[0]) bt_text_printf(&text, "Content-Length: %zu\r\n", strlen(r->body));
    bt_text_printf(&text, "Connection: close\r\n\r\n%s", r->body);
    bt_text_printf(out, "%s%.*s %s\n", r->control ? "(control) " : "", (int)strcspn(r->head, "\r"),
                   r->head, r->body);
    dial(&c, bt_web_port(w));
    say(&c, bt_text_str(&text), text.len);
    for (ssize_t k; (k = recv(c.fd, c.text + c.n, sizeof c.text - c.n - 1, 0)) > 0;)
        c.n += (size_t)k;
    c.text[c.n] = '\0';
    close(c.fd);
    if (strncmp(r->head, "HEAD", 4) != 0 && header_in_response(&c, "Content-Length")[0])
        assert_int_equal(atoi(header_in_response(&c, "Content-Length")), whole_body(&c));
    put_compared_lines(out, c.text);
    bt_golden_replace(out, port, "PORT");
    bt_text_release(&text);
}

static void requests_and_answers(void **state) {
    const bt_tmp *t = *state;
    bt_web *w[2];
    bt_text out;
    bt_web_runs(t->db);
    run_sql(t->db, "UPDATE run SET state = 'done', ended_us = last_us WHERE name = 'live'");
    for (int k = 0; k < 2; k++)
        OK(bt_web_start(
            &w[k],
            &(bt_web_cfg){
                .store = t->db, .host = "127.0.0.1", .socket = "", .token = token, .control = k},
            err));
    assert_string_equal(bt_web_token(w[0]), token);
    bt_text_init(&out);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        exchange_request(&out, w[rows[i].control], &rows[i]);
    bt_golden_replace(&out, t->dir, "PLACE");
    bt_golden_text("web/server/golden/exchanges.txt", bt_text_str(&out));
    bt_text_release(&out);
    for (int k = 0; k < 2; k++) bt_web_stop(w[k]);
}

/* Returns the status of a response to HEAD, or to GET with the lines in `more`. */
static int ask_file(client *c, const bt_web *w, const char *method, const char *path,
                    const char *more) {
    char text[400];
    dial(c, bt_web_port(w));
    const int n = snprintf(text, sizeof text,
                           "%s %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: close\r\n%s\r\n",
                           method, path, bt_web_port(w), more);
    say(c, text, (size_t)n);
    for (ssize_t k; (k = recv(c->fd, c->text + c->n, sizeof c->text - c->n - 1, 0)) > 0;)
        c->n += (size_t)k;
    c->text[c->n] = '\0';
    close(c->fd);
    return atoi(c->text + strlen("HTTP/1.1 "));
}

/* Each file has both encodings, without a token: length, type and entity tag; a file with a known tag is not sent
 * again, and the tag of the other encoding does not match. */
static void files_of_the_page(void **state) {
    const bt_tmp *t = *state;
    static client c;
    bt_web *w = NULL;
    OK(bt_web_start(
        &w, &(bt_web_cfg){.store = t->db, .host = "127.0.0.1", .socket = "", .token = token}, err));
    assert_true(bt_assets_n > 5);
    for (size_t i = 0; i < bt_assets_n; i++)
        for (int gzip = 0; gzip < 2; gzip++) {
            const bt_asset *a = &bt_assets[i];
            const bt_asset_form *f = gzip ? &a->gzip : &a->plain,
                                *other = gzip ? &a->plain : &a->gzip;
            const char *takes = gzip ? "Accept-Encoding: gzip\r\n" : "";
            char more[200], bytes[24];
            snprintf(bytes, sizeof bytes, "%zu", (size_t)f->bytes);
            snprintf(more, sizeof more, "%sIf-None-Match: %s\r\n", takes, other->etag);
            assert_int_equal(ask_file(&c, w, "HEAD", a->path, i % 2 ? more : takes), 200);
            assert_string_equal(header_in_response(&c, "Content-Length"), bytes);
            assert_string_equal(header_in_response(&c, "Content-Type"), a->type);
            assert_string_equal(header_in_response(&c, "Content-Encoding"), gzip ? "gzip" : "");
            assert_string_equal(header_in_response(&c, "ETag"), f->etag);
            assert_string_equal(header_in_response(&c, "Cache-Control"), "no-cache");
            assert_string_equal(header_in_response(&c, "Vary"), "Accept-Encoding");
            snprintf(more, sizeof more, "%sIf-None-Match: %s\r\n", takes, f->etag);
            assert_int_equal(ask_file(&c, w, "GET", a->path, more), 304);
            assert_string_equal(header_in_response(&c, "Content-Type"), "");
            assert_string_equal(header_in_response(&c, "Content-Encoding"), "");
            assert_string_equal(header_in_response(&c, "ETag"), f->etag);
            assert_string_equal(strstr(c.text, "\r\n\r\n"), "\r\n\r\n");
            if (f->bytes > 8192) continue;
            assert_int_equal(ask_file(&c, w, "GET", a->path, takes), 200);
            assert_memory_equal(strstr(c.text, "\r\n\r\n") + 4, f->data, f->bytes);
        }
    bt_web_stop(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(requests_and_answers, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(files_of_the_page, bt_tmp_make, bt_tmp_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

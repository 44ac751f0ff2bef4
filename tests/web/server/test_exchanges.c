/* timeout: 60
 * labels: web
 * What the server says to requests, right and wrong: status, headers and body, held against a file that a person
 * can read (golden/exchanges.txt; BT_UPDATE=1 writes it anew). */
#include <strings.h>

#include "../../golden_json.h"
#include "../web_client.h"
#include "../web_test.h"
#include "web/web.h"

static const char token[] = "0123456789abcdef0123456789abcdef";
#define HOST "Host: 127.0.0.1:PORT\r\n"
#define BEARER "Authorization: Bearer 0123456789abcdef0123456789abcdef\r\n"
#define ORIGIN "Origin: http://127.0.0.1:PORT\r\n"

static const struct row {
    const char *head, *body; /* the request's; PORT is the server's */
    bool control;            /* of a server that takes control verbs */
} rows[] = {
    {"GET /healthz HTTP/1.1\r\n" HOST, "", false},
    {"GET /api/v1/server HTTP/1.1\r\n" HOST BEARER, "", false},
    {"GET /api/v1/server HTTP/1.1\r\n" HOST
     "Cookie: a=b; bitrain_PORT=0123456789abcdef0123456789abcdef\r\n",
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
};

/* what another library, another page or another time says differently */
static bool told(const char *line) {
    static const char *const not_told[] = {"Date:", "Connection:", "Content-Length:", "ETag:"};
    for (size_t i = 0; i < sizeof not_told / sizeof *not_told; i++)
        if (strncasecmp(line, not_told[i], strlen(not_told[i])) == 0) return false;
    return true;
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* status, headers by name, body where it is a text */
static void put_answer(bt_text *out, char *answer) {
    enum { MOST = 40 };
    char *lines[MOST], *body = strstr(answer, "\r\n\r\n");
    size_t n = 0;
    assert_non_null(body);
    *body = '\0';
    body += 4;
    for (char *line; (line = strsep(&answer, "\n")) && n < MOST;) {
        line[strcspn(line, "\r")] = '\0';
        if (told(line)) lines[n++] = line;
    }
    bool packed = false;
    lines[0][strcspn(lines[0], " ") + 4] = '\0'; /* the number, without its name */
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

static void exchange(bt_text *out, const bt_web *w, const struct row *r) {
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
    put_answer(out, c.text);
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
        exchange(&out, w[rows[i].control], &rows[i]);
    bt_golden_replace(&out, t->dir, "PLACE");
    bt_golden_text("web/server/golden/exchanges.txt", bt_text_str(&out));
    bt_text_release(&out);
    for (int k = 0; k < 2; k++) bt_web_stop(w[k]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(requests_and_answers, bt_tmp_make, bt_tmp_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

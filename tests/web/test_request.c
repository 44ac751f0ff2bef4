// ctest: labels=web
/* Parsing and authorization of requests: Host, Origin, token, arguments, run paths. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "web/api/api.h"
#include "web/http/http_server.h"

static void host_headers_are_checked(void **state) {
    (void)state;
    static const struct {
        const char *host;
        bool ok;
    } rows[] = {{"localhost", true},
                {"LOCALHOST:8158", true},
                {"127.0.0.1:8158", true},
                {"[::1]:8158", true},
                {"[::1]", true},
                {"box.example:8158", true},
                {"box2.example", true},
                {"evil.example", false},
                {"127.0.0.1:8159", false},
                {"127.0.0.1:", false},
                {"127.0.0.1:8158x", false},
                {"127.0.0.1:+8158", false},
                {"127.0.0.1: 8158", false},
                {"127.0.0.1:08158", false},
                {"127.0.0.1:000000000000008158", false},
                {"127.0.0.1:8158:8158", false},
                {"127.0.0.1:-8158", false},
                {"127.0.0.1:0", false},
                {"127.0.0.1:99999999999999999999", false},
                {"localhost.evil.example", false},
                {"evil.example:8158", false},
                {"", false},
                {"[::1", false},
                {"[::1]evil", false},
                {"::1", false},
                {"127.1", false},
                {"2130706433", false},
                {"0x7f.1", false},
                {"localhost\t", false},
                {" localhost", false},
                {"localhost,evil", false},
                {"box", false},
                {"box.example,box2.example", false},
                {",", false}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (bt_req_host_ok(rows[i].host, "127.0.0.1", "box.example,box2.example", 8158) !=
            rows[i].ok)
            fail_msg("Host '%s'", rows[i].host);
    assert_false(bt_req_host_ok(NULL, "127.0.0.1", "", 1));
    assert_true(bt_req_host_ok("10.0.0.5:1", "10.0.0.5", "", 1));
    /* An IPv6 address is bound without brackets, and written with them in a Host header. */
    static const struct {
        const char *host;
        bool ok;
    } v6[] = {{"[fd00::5]:1", true},   {"[FD00::5]", true},    {"[fd00::7]:1", true},
              {"[2001:db8::9]", true}, {"[fd00::5", false},    {"fd00::5", false},
              {"[fd00::6]:1", false},  {"[fd00::5]x", false},  {"[fd00::5]:2", false},
              {"[box]:1", false},      {"[localhost]", false}, {"[]:1", false},
              {"[[::1]]", false}};
    for (size_t i = 0; i < sizeof v6 / sizeof v6[0]; i++)
        if (bt_req_host_ok(v6[i].host, "fd00::5", "box,fd00::7,2001:db8::9", 1) != v6[i].ok)
            fail_msg("Host '%s'", v6[i].host);
    /* The machine's own names are accepted on any address. */
    static const char *const own[] = {"localhost", "127.0.0.1", "[::1]", "10.0.0.5"},
                             *const none[] = {"127.0.0.0", "127.0.0.2", "::1",
                                              "[::2]",     "localhos",  "10.0.0.50"};
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        if (!bt_req_host_ok(own[i], "10.0.0.5", "", 1)) fail_msg("Host '%s'", own[i]);
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
        if (bt_req_host_ok(none[i], "10.0.0.5", "", 1)) fail_msg("Host '%s'", none[i]);
    /* A server may listen on a wildcard address, but no Host header contains it. */
    assert_false(bt_req_host_ok("0.0.0.0:1", "0.0.0.0", "", 1));
    assert_false(bt_req_host_ok("[::]:1", "::", "", 1));
    /* A Unix socket behind a forwarded port. */
    assert_true(bt_req_host_ok("localhost:9999", "127.0.0.1", "", 0));
    assert_false(bt_req_host_ok("evil.example:9999", "127.0.0.1", "", 0));
    static const struct {
        const char *host;
        bool ok;
    } ports[] = {{"localhost:1", true},      {"localhost:65535", true}, {"localhost:65536", false},
                 {"localhost:99999", false}, {"localhost:0", false},    {"localhost:100000", false},
                 {"localhost:01", false},    {"[::1]:65535", true},     {"[::1]:65536", false}};
    for (size_t i = 0; i < sizeof ports / sizeof ports[0]; i++)
        if (bt_req_host_ok(ports[i].host, "127.0.0.1", "", 0) != ports[i].ok)
            fail_msg("Host '%s'", ports[i].host);
}

static void accepted_encodings_are_read(void **state) {
    (void)state;
    static const char *const takes[] = {"gzip",           "GZIP",
                                        "br, gzip",       "gzip;q=0.5",
                                        "gzip ; q=1",     "gzip,br",
                                        "\tgzip;Q=0.001", "deflate;q=0,gzip"},
                             *const not [] = {"",        "gzip;q=0",  "x-gzip",  "gzipped",
                                              "zip, br", "gzip;q=-1", "gzip;q=", "br;gzip"};
    assert_false(bt_http_takes_gzip(NULL));
    for (size_t i = 0; i < sizeof takes / sizeof takes[0]; i++)
        if (!bt_http_takes_gzip(takes[i])) fail_msg("Accept-Encoding '%s'", takes[i]);
    for (size_t i = 0; i < sizeof not / sizeof not [0]; i++)
        if (bt_http_takes_gzip(not [i])) fail_msg("Accept-Encoding '%s'", not [i]);
}

static void foreign_origins_are_refused(void **state) {
    (void)state;
    assert_true(bt_req_origin_ok(NULL, NULL, "127.0.0.1", "", 80));
    assert_true(bt_req_origin_ok(NULL, "same-origin", "127.0.0.1", "", 80));
    assert_true(bt_req_origin_ok("http://localhost:80", "same-origin", "127.0.0.1", "", 80));
    assert_false(bt_req_origin_ok("http://localhost:80", "cross-site", "127.0.0.1", "", 80));
    assert_true(bt_req_origin_ok("https://localhost:80", NULL, "127.0.0.1", "", 80));
    assert_false(bt_req_origin_ok("https://localhost.evil:80", NULL, "127.0.0.1", "", 80));
    static const char *const bad[] = {"null",
                                      "",
                                      "http://evil.example",
                                      "https://127.0.0.1:81",
                                      "ftp://127.0.0.1:80",
                                      "http://127.0.0.1:80/",
                                      "http://127.0.0.1:80@evil",
                                      "http://",
                                      "HTTP://localhost:80",
                                      "file://"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (bt_req_origin_ok(bad[i], NULL, "127.0.0.1", "", 80)) fail_msg("Origin '%s'", bad[i]);
}

static void tokens_are_compared_completely(void **state) {
    (void)state;
    static const char t[] = "0123456789abcdef0123456789abcdef";
    assert_true(bt_req_token_ok("Bearer 0123456789abcdef0123456789abcdef", NULL, t, 7));
    assert_true(bt_req_token_ok(NULL, "bitrain_7=0123456789abcdef0123456789abcdef", t, 7));
    assert_true(
        bt_req_token_ok(NULL, "a=b; bitrain_7=0123456789abcdef0123456789abcdef; c=d", t, 7));
    assert_true(
        bt_req_token_ok(/* an empty token is invalid */
                        NULL, "bitrain_7=; bitrain_7=0123456789abcdef0123456789abcdef", t, 7));
    assert_true(bt_req_token_ok("Basic xyz", "bitrain_7=0123456789abcdef0123456789abcdef", t, 7));
    static const char *const bad_auth[] = {
        "Bearer ",
        "Bearer 0123456789abcdef0123456789abcdee",
        "Bearer 0123456789abcdef0123456789abcdef0",
        "Bearer 0123456789abcdef",
        "bearer 0123456789abcdef0123456789abcdef",
        "0123456789abcdef0123456789abcdef",
        "Bearer  0123456789abcdef0123456789abcdef",
        "Bearer 0123456789ABCDEF0123456789ABCDEF",
        "Bearer 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"};
    for (size_t i = 0; i < sizeof bad_auth / sizeof bad_auth[0]; i++)
        if (bt_req_token_ok(bad_auth[i], NULL, t, 7)) fail_msg("Authorization '%s'", bad_auth[i]);
    static const char *const bad_cookie[] = {
        "",
        "bitrain_7=",
        "bitrain_8=0123456789abcdef0123456789abcdef",
        "xbitrain_7=0123456789abcdef0123456789abcdef",
        "bitrain_7=0123456789abcdef0123456789abcde",
        ";;;",
        "bitrain_7",
        "a=b; ",
        "\tbitrain_7=0123456789abcdef0123456789abcdef",
        "bitrain_7=wrong; bitrain_7=0123456789abcdef0123456789abcdef"};
    for (size_t i = 0; i < sizeof bad_cookie / sizeof bad_cookie[0]; i++)
        if (bt_req_token_ok(NULL, bad_cookie[i], t, 7)) fail_msg("Cookie '%s'", bad_cookie[i]);
    /* Every character counts. */
    for (size_t i = 0; i < strlen(t); i++) {
        char other[sizeof t];
        memcpy(other, t, sizeof t);
        other[i] = t[i] == '0' ? '1' : '0';
        if (bt_token_equal(other, strlen(t), t)) fail_msg("token '%s'", other);
    }
    assert_false(
        bt_req_token_ok("Bearer wrong", "bitrain_7=0123456789abcdef0123456789abcdef", t, 7));
    assert_false(bt_token_equal("", 0, t));
}

/* Returns the number of instructions that a child executes for one comparison, by single-stepping; -1: tracing is not
 * permitted here. */
static long steps_of(const char *given, size_t n, const char *token) {
    bool (*volatile equal)(const char *, size_t, const char *) = bt_token_equal;
    int status;
    long steps = 0;
    pid_t child = fork();
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) _exit(9);
        volatile bool kept = equal(given, n, token);
        raise(SIGSTOP);
        kept = equal(given, n, token);
        raise(SIGSTOP);
        _exit(kept);
    }
    if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) return -1;
    do {
        if (ptrace(PTRACE_SINGLESTEP, child, NULL, NULL) != 0 ||
            waitpid(child, &status, 0) != child)
            steps = -1;
    } while (steps >= 0 && ++steps < 1000000 && WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP);
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return steps;
}

/* The duration of a comparison does not depend on the number of right characters. */
static void the_time_of_a_comparison_reveals_nothing(void **state) {
    (void)state;
    static const char t[] = "0123456789abcdef0123456789abcdef";
    static const char *const guesses[] = {"0123456789abcdef0123456789abcdef",
                                          "x123456789abcdef0123456789abcdef",
                                          "0123456789abcdef0123456789abcdex",
                                          "01234567xxxxxxxxxxxxxxxxxxxxxxxx",
                                          "ffffffffffffffffffffffffffffffff"};
    const long right = steps_of(guesses[0], 32, t);
    if (right < 0) skip();
    /* The count shows that each character was compared. */
    assert_true(right > 32 * 3);
    for (size_t i = 1; i < sizeof guesses / sizeof guesses[0]; i++)
        assert_int_equal((int)steps_of(guesses[i], 32, t), (int)right);
}

static void run_paths_are_split(void **state) {
    (void)state;
    char run[BT_NAME_MAX], verb[32];
    assert_true(bt_req_run_path("/api/v1/runs/demo/head", run, verb, sizeof verb));
    assert_string_equal(run, "demo");
    assert_string_equal(verb, "head");
    assert_true(bt_req_run_path("/api/v1/runs/a.b_c-1", run, verb, sizeof verb) && !verb[0]);
    static const char *const bad[] = {"/api/v1/runs/",
                                      "/api/v1/runs/../x",
                                      "/api/v1/runs/..",
                                      "/api/v1/runs/.hidden",
                                      "/api/v1/runs/a b",
                                      "/api/v1/runs/a/head/",
                                      "/api/v1/runs/a/head/x",
                                      "/api/v1/runs/a/",
                                      "/api/v1/runs//head",
                                      "/api/v1/runsx/a",
                                      "/api/v1/runs/a%2fb",
                                      "/api/v1/runs/a\\b",
                                      "/api/v1/runs/\xc3\xa9",
                                      "/api/v1/runs/a/0123456789012345678901234567890123456789",
                                      "/api/v1/runs/"
                                      "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
                                      "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/head",
                                      "",
                                      "/"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (bt_req_run_path(bad[i], run, verb, sizeof verb)) fail_msg("path '%s'", bad[i]);
    char path[200], longest[BT_NAME_MAX + 1], words[33];
    memset(longest, 'a', sizeof longest);
    memset(words, 'w', sizeof words);
    for (size_t more = 0; more < 2; more++) {
        longest[BT_NAME_MAX - 1 + more] = '\0';
        snprintf(path, sizeof path, "/api/v1/runs/%s/x", longest);
        assert_int_equal(bt_req_run_path(path, run, verb, sizeof verb), !more);
        if (!more) assert_string_equal(run, longest);
        longest[BT_NAME_MAX - 1] = 'a';
        words[31 + more] = '\0';
        snprintf(path, sizeof path, "/api/v1/runs/a/%s", words);
        assert_int_equal(bt_req_run_path(path, run, verb, sizeof verb), !more);
        if (!more) assert_string_equal(verb, words);
        words[31] = 'w';
    }
}

static void arguments_are_decoded(void **state) {
    (void)state;
    bt_req *r = calloc(1, sizeof *r);
    int64_t v = 5;
    assert_true(bt_req_int(r, "limit", 1, 10, &v) &&
                v == 5); /* an absent argument leaves the value unchanged */
    static const char *const bad[] = {"",   "x",   "1x", "0", "11", "1e1", "9999999999999999999999",
                                      "-1", "0x5", "5 "};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        memset(r, 0, sizeof *r);
        bt_req_add_arg(r, "limit", bad[i]);
        if (bt_req_int(r, "limit", 1, 10, &v)) fail_msg("limit=%s", bad[i]);
    }
    static const struct {
        const char *text;
        int64_t is;
    } whole[] = {{"1", 1}, {"10", 10}, {"+7", 7}, {" 3", 3}, {"007", 7}};
    for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++) {
        memset(r, 0, sizeof *r);
        bt_req_add_arg(r, "limit", whole[i].text);
        if (!bt_req_int(r, "limit", 1, 10, &v) || v != whole[i].is)
            fail_msg("limit=%s", whole[i].text);
    }
    memset(r, 0, sizeof *r);
    bt_req_add_arg(r, "a", NULL);
    assert_string_equal(bt_req_arg(r, "a"), "");
    for (int i = 0; i < BT_REQ_ARGS; i++) bt_req_add_arg(r, "k", "v");
    assert_true(r->args_overflow && r->n_args == BT_REQ_ARGS);
    memset(r, 0, sizeof *r);
    char *longer = calloc(1, BT_REQ_VALUE + 2);
    memset(longer, 'x', BT_REQ_VALUE);
    bt_req_add_arg(r, "k", longer);
    assert_true(r->args_overflow && r->n_args == 0);
    memset(r, 0, sizeof *r);
    longer[BT_REQ_VALUE - 1] = '\0';
    bt_req_add_arg(r, "k", longer);
    assert_true(!r->args_overflow && r->n_args == 1);
    assert_string_equal(bt_req_arg(r, "k"), longer);
    assert_null(bt_req_arg(r, "K"));
    char key[sizeof r->arg[0].key + 1];
    memset(key, 'k', sizeof key);
    for (size_t more = 0; more < 2; more++) { /* the maximum length, and one more */
        key[sizeof key - 2 + more] = '\0';
        memset(r, 0, sizeof *r);
        bt_req_add_arg(r, key, "v");
        assert_true(r->args_overflow == (more == 1) && r->n_args == 1 - (int)more);
        key[sizeof key - 2] = 'k';
    }
    memset(r, 0, sizeof *r);
    bt_req_add_arg(r, "a_key_that_is_longer_than_any", "v");
    assert_true(r->args_overflow);
    free(longer);
    free(r);
}

static void event_ids_are_parsed(void **state) {
    (void)state;
    bt_cursor c;
    bt_cursor_parse(&c, "1.200.33");
    assert_true(c.attempt == 1 && c.step == 200 && c.seq == 33);
    static const char *const bad[] = {
        NULL,    "",       "1",      "1.2",    "1.2.3.4",
        "a.b.c", "-1.2.3", "1.-2.3", "1.2.3x", "99999999999999999999.1.1"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0] - 1; i++) {
        bt_cursor_parse(&c, bad[i]);
        if (c.attempt != -1) fail_msg("Last-Event-ID '%s'", bad[i] ? bad[i] : "(none)");
    }
}

static void entity_tags(void **state) {
    (void)state;
    static const struct {
        const char *header;
        bool matches;
    } rows[] = {
        {NULL, false}, {"", false},        {"\"a1\"", true},        {"*", true},
        {" * ", true}, {"W/\"a1\"", true}, {"\"b\", \"a1\"", true}, {"\"b\",W/\"a1\" ", true},
        {"a1", false}, {"\"a1", false},    {"\"a12\"", false},      {"\"b\", \"c\"", false},
        {"**", false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (bt_req_etag_matches(rows[i].header, "\"a1\"") != rows[i].matches)
            fail_msg("If-None-Match: %s", rows[i].header ? rows[i].header : "(absent)");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(host_headers_are_checked),
                                       cmocka_unit_test(accepted_encodings_are_read),
                                       cmocka_unit_test(entity_tags),
                                       cmocka_unit_test(foreign_origins_are_refused),
                                       cmocka_unit_test(tokens_are_compared_completely),
                                       cmocka_unit_test(the_time_of_a_comparison_reveals_nothing),
                                       cmocka_unit_test(run_paths_are_split),
                                       cmocka_unit_test(arguments_are_decoded),
                                       cmocka_unit_test(event_ids_are_parsed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

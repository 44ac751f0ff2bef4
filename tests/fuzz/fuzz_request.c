/* fuzz_request.c - arbitrary bytes as a client's request: one line each for path, Host, Origin, Sec-Fetch-Site,
 * Authorization, Cookie, Last-Event-ID, then key=value arguments. No socket is used: every accepted request must
 * satisfy the rules. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "web/api/api.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char token[] = "0123456789abcdef0123456789abcdef";

static void check_request_lines(char *line[7]) {
    char run[BT_NAME_MAX], verb[32];
    bt_req_host_ok(line[1], "127.0.0.1", "box.example", 8158);
    /* Only these names may have this prefix. */
    if (bt_req_host_ok(line[1], "127.0.0.1", "", 8158) && strcspn(line[1], "lL1[") != 0) abort();
    if (bt_req_origin_ok(line[2], line[3], "127.0.0.1", "", 8158) &&
        strcmp(line[3], "cross-site") == 0)
        abort();
    if (bt_req_token_ok(line[4], line[5], token, 8158) && !strstr(line[4], token) &&
        !strstr(line[5], token))
        abort();
    if (bt_req_run_path(line[0], run, verb, sizeof verb) && (!bt_name_ok(run) || strchr(verb, '/')))
        abort();
    bt_cursor c;
    bt_cursor_parse(&c, line[6]);
    if (c.attempt != -1 && (c.attempt < 0 || c.step < -1 || c.seq < 0)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    char *text = malloc(n + 1), *line[7], *next = text, empty[1] = "";
    static bt_req r;
    if (!text) return 0;
    memcpy(text, data, n);
    text[n] = '\0';
    for (int i = 0; i < 7; i++) {
        line[i] = next ? strsep(&next, "\n") : empty;
        if (!line[i]) line[i] = empty;
    }
    check_request_lines(line);
    r = (bt_req){.method = "GET", .path = line[0]};
    while (next && *next) {
        char *key = strsep(&next, "\n&"), *value = strchr(key, '=');
        if (value) *value++ = '\0';
        bt_req_add_arg(&r, key, value);
        int64_t v = 3;
        if (bt_req_int(&r, key, -5, 5, &v) && (v < -5 || v > 5)) abort();
    }
    char run[BT_NAME_MAX];
    bool known;
    const bt_route *found = bt_route_find(&r, run, &known);
    if (found && found->per_run && !bt_name_ok(run)) abort();
    free(text);
    return 0;
}

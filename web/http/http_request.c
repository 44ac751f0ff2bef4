/* http_request.c - parses and validates requests. */
#include "web/http/http_request.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/system/ascii.h"
#include "engine/base/text.h"

void bt_req_add_arg(bt_req *r, const char *key, const char *value) {
    if (!value) value = "";
    if (r->n_args == BT_REQ_ARGS || strlen(key) >= sizeof r->arg[0].key ||
        strlen(value) >= BT_REQ_VALUE) {
        r->args_overflow = true;
        return;
    }
    bt_arg *a = &r->arg[r->n_args++];
    snprintf(a->key, sizeof a->key, "%s", key);
    snprintf(a->value, sizeof a->value, "%s", value);
}

const char *bt_req_arg(const bt_req *r, const char *key) {
    for (int i = 0; i < r->n_args; i++) {
        if (strcmp(r->arg[i].key, key) == 0) return r->arg[i].value;
    }
    return NULL;
}

bool bt_req_int(const bt_req *r, const char *key, int64_t lo, int64_t hi, int64_t *out) {
    const char *s = bt_req_arg(r, key);
    if (!s) return true;
    char *end = NULL;
    errno = 0;
    long long v = strtoll(s, &end, 10);
    if (errno || end == s || *end || v < lo || v > hi) return false;
    *out = v;
    return true;
}

bool bt_req_etag_matches(const char *if_none_match, const char *etag) {
    for (const char *p = if_none_match; p && *p; p += strcspn(p, ","), p += *p == ',') {
        p += strspn(p, " \t");
        if (strncmp(p, "W/", 2) == 0) p += 2;
        size_t n = strcspn(p, ",");
        while (n && (p[n - 1] == ' ' || p[n - 1] == '\t')) n--;
        if ((n == 1 && *p == '*') || (n == strlen(etag) && memcmp(p, etag, n) == 0)) return true;
    }
    return false;
}

/* True if h (n bytes) is the host of `name` (k bytes). An IPv6 address has brackets in a request, but not in the
 * listening address. */
static bool is_same_host(const char *h, size_t n, const char *name, size_t k) {
    if (k > 0 && k == n && bt_ascii_equal_n(name, h, n)) return true;
    return memchr(name, ':', k) && name[0] != '[' && n == k + 2 && h[0] == '[' && h[n - 1] == ']' &&
           bt_ascii_equal_n(name, h + 1, k);
}

/* True if the host part of h ("name", "name:port", "[v6]:port") is in the list. */
static bool is_host_in_list(const char *h, size_t n, const char *bound, const char *extra) {
    static const char *const always[] = {"localhost", "127.0.0.1", "[::1]"};
    for (int i = 0; i < 3; i++) {
        if (is_same_host(h, n, always[i], strlen(always[i]))) return true;
    }
    bool any = strcmp(bound, "0.0.0.0") == 0 || strcmp(bound, "::") == 0;
    if (!any && is_same_host(h, n, bound, strlen(bound))) return true;
    while (*extra) {
        size_t k = strcspn(extra, ",");
        if (is_same_host(h, n, extra, k)) return true;
        extra += k + (extra[k] == ',');
    }
    return false;
}

bool bt_req_host_ok(const char *host, const char *bound, const char *extra, int port) {
    if (!host) return false;
    const char *colon = host[0] == '[' ? strchr(host, ']') : host;
    if (!colon) return false;
    colon = strchr(colon, ':');
    size_t n = colon ? (size_t)(colon - host) : strlen(host);
    if (colon) {
        const char *digits = colon + 1;
        size_t k = strspn(digits, "0123456789");
        long p = k >= 1 && k <= 5 && !digits[k] ? strtol(digits, NULL, 10) : 0;
        if (p < 1 || p > 65535 || digits[0] == '0' || (port && p != port)) return false;
    }
    return is_host_in_list(host, n, bound, extra);
}

bool bt_req_origin_ok(const char *origin, const char *fetch_site, const char *bound,
                      const char *extra, int port) {
    if (fetch_site && strcmp(fetch_site, "cross-site") == 0) return false;
    if (!origin) return true;
    if (strncmp(origin, "http://", 7) == 0)
        origin += 7;
    else if (strncmp(origin, "https://", 8) == 0)
        origin += 8;
    else
        return false; /* also for "null" */
    return bt_req_host_ok(origin, bound, extra, port);
}

bool bt_token_equal(const char *given, size_t n, const char *token) {
    size_t want = strlen(token);
    unsigned char diff = (unsigned char)(n != want);
    for (size_t i = 0; i < want; i++) diff |= (unsigned char)(token[i] ^ (n ? given[i % n] : 0));
    return diff == 0;
}

bool bt_req_token_ok(const char *authorization, const char *cookie, const char *token, int port) {
    if (authorization && strncmp(authorization, "Bearer ", 7) == 0) {
        return bt_token_equal(authorization + 7, strlen(authorization + 7), token);
    }
    char name[32];
    int n = snprintf(name, sizeof name, "bitrain_%d=", port);
    for (const char *c = cookie; c && *c;) {
        while (*c == ' ') c++;
        size_t len = strcspn(c, ";");
        if (len > (size_t)n && strncmp(c, name, (size_t)n) == 0)
            return bt_token_equal(c + n, len - (size_t)n, token);
        c += len + (c[len] == ';');
    }
    return false;
}

bool bt_req_run_path(const char *path, char run[BT_NAME_MAX], char *verb, size_t verb_size) {
    static const char prefix[] = "/api/v1/runs/";
    if (strncmp(path, prefix, sizeof prefix - 1) != 0) return false;
    path += sizeof prefix - 1;
    size_t n = strcspn(path, "/");
    if (n == 0 || n >= BT_NAME_MAX) return false;
    memcpy(run, path, n);
    run[n] = '\0';
    if (!bt_name_ok(run)) return false;
    const char *rest = path[n] == '/' ? path + n + 1 : "";
    if (path[n] == '/' && !*rest) return false;
    if (strlen(rest) >= verb_size || strchr(rest, '/')) return false;
    snprintf(verb, verb_size, "%s", rest);
    return true;
}

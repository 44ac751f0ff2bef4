/* web_client.h - a client of a server on this machine: a socket, and the received data. */
#ifndef BT_TESTS_WEB_CLIENT_H
#define BT_TESTS_WEB_CLIENT_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cmocka.h>

#include "checked_suspends.h"

typedef struct client {
    int fd;
    char text[1 << 16];
    size_t n;
} client;

static inline void dial(client *c, int port) {
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval limit = {.tv_sec = 20};
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    c->n = 0;
    c->text[0] = '\0';
    setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    assert_int_equal(connect(c->fd, (struct sockaddr *)&at, sizeof at), 0);
}

/* Checks that a response, if one arrived, has all protective headers and a content type. */
static inline void says_what_it_is(const client *c) {
    if (c->n == 0) return;
    const char *body = strstr(c->text, "\r\n\r\n");
    assert_non_null(body);
    assert_non_null(strstr(c->text, "\r\nContent-Security-Policy: "));
    assert_non_null(strstr(c->text, "\r\nX-Frame-Options: DENY\r\n"));
    assert_non_null(strstr(c->text, "\r\nContent-Type: "));
    if (strncmp(body + 4, "\x1f\x8b", 2) == 0)
        assert_non_null(strstr(c->text, "\r\nContent-Encoding: gzip\r\n"));
}

static inline void say(const client *c, const char *text, size_t n) {
    assert_int_equal(send(c->fd, text, n, MSG_NOSIGNAL), (ssize_t)n);
}

/* Posts a body of MUCH bytes; returns the increase of this process's peak memory. */
enum { MUCH = 96 << 20 };
static inline int64_t post_much(client *c, int port, const char *path) {
    static char text[1 << 20];
    struct rusage before, after;
    const int n = snprintf(text, sizeof text,
                           "POST %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: close\r\n"
                           "Content-Length: %d\r\n\r\n",
                           path, port, MUCH);
    dial(c, port);
    say(c, text, (size_t)n);
    memset(text, ' ', sizeof text);
    getrusage(RUSAGE_SELF, &before);
    for (size_t sent = 0; sent < MUCH;) {
        const size_t at = sent % sizeof text;
        const ssize_t k = send(c->fd, text + at, sizeof text - at, MSG_NOSIGNAL);
        assert_true(k > 0);
        sent += (size_t)k;
    }
    getrusage(RUSAGE_SELF, &after);
    return (int64_t)(after.ru_maxrss - before.ru_maxrss) << 10;
}

#endif

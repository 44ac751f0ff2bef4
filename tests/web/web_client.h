/* web_client.h - a client of a server on this machine: a socket, and what has arrived. */
#ifndef BT_TESTS_WEB_CLIENT_H
#define BT_TESTS_WEB_CLIENT_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
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

static inline void say(const client *c, const char *text, size_t n) {
    assert_int_equal(send(c->fd, text, n, MSG_NOSIGNAL), (ssize_t)n);
}

#endif

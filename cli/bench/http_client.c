/* http_client.c - a blocking HTTP client: sends a request and reads the response to its full length. */
#include "cli/bench/http_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/system/ascii.h"

int bt_http_connect(int port) {
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval limit = {.tv_sec = 20};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(fd, (struct sockaddr *)&at, sizeof at) == 0) return fd;
    close(fd);
    return -1;
}

void bt_http_close(bt_http *h) {
    if (h->fd >= 0) close(h->fd);
    h->fd = -1;
    free(h->body);
    h->body = NULL;
    h->n = h->cap = 0;
}

static int fail_request(bt_http *h) {
    if (h->fd >= 0) close(h->fd);
    h->fd = -1;
    return -1;
}

int bt_http_get(bt_http *h, const char *path) {
    char text[2048];
    if (h->fd < 0 && (h->fd = bt_http_connect(h->port)) < 0) return -1;
    int n = snprintf(text, sizeof text,
                     "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAuthorization: Bearer "
                     "%s\r\nAccept-Encoding: gzip\r\n\r\n",
                     path, h->port, h->token);
    int64_t t0 = bt_now_ns();
    if (send(h->fd, text, (size_t)n, MSG_NOSIGNAL) != n) return fail_request(h);
    h->n = 0;
    h->first_byte_ns = 0;
    size_t head = 0, want = SIZE_MAX;
    while (h->n < want) {
        if (h->n + 65536 > h->cap) {
            char *more = realloc(h->body, h->cap = 2 * h->cap + 131072);
            if (!more) return fail_request(h);
            h->body = more;
        }
        ssize_t k = recv(h->fd, h->body + h->n, h->cap - h->n - 1, 0);
        if (k <= 0) return fail_request(h);
        if (!h->first_byte_ns) h->first_byte_ns = bt_now_ns() - t0;
        h->n += (size_t)k;
        h->body[h->n] = '\0';
        char *end = head ? NULL : strstr(h->body, "\r\n\r\n");
        if (!end) continue;
        head = (size_t)(end - h->body) + 4;
        char *length = bt_ascii_find(h->body, "content-length:");
        if (!length || length > end || sscanf(h->body, "HTTP/1.1 %d", &h->status) != 1)
            return fail_request(h);
        want = head + strtoul(length + 15, NULL, 10);
    }
    h->done_ns = bt_now_ns() - t0;
    memmove(h->body, h->body + head, h->n - head + 1);
    h->n -= head;
    return 0;
}

/* http_client.h - a minimal blocking HTTP client with one connection, which measures our own server on the loopback
 * interface. */
#ifndef BT_CLI_BENCH_HTTP_CLIENT_H
#define BT_CLI_BENCH_HTTP_CLIENT_H

#include <stddef.h>
#include <stdint.h>

typedef struct bt_http {
    int fd, port; /* fd -1: closed; the next request opens a connection */
    const char *token;
    char *body; /* body of the last response, NUL-terminated; owned */
    size_t n, cap;
    int status;
    int64_t first_byte_ns, done_ns; /* since the request was sent */
} bt_http;

int bt_http_connect(int port); /* returns a socket, or -1; reads time out after 20 s */
/* GET path; returns 0 if a response arrived (with any status), -1 if the connection failed. */
int bt_http_get(bt_http *h, const char *path);
void bt_http_close(bt_http *h);

#endif

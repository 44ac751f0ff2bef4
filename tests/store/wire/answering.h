/* answering.h - simulates a supervisor's control socket: it receives one request and sends one reply. */
#ifndef BT_TESTS_STORE_WIRE_ANSWERING_H
#define BT_TESTS_STORE_WIRE_ANSWERING_H

#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "store/wire/control_client.h"
#include "tests/store/store_test.h"

/* Replies to one client with the given text, in two pieces if it contains '^'. */
typedef struct answering {
    int listen_fd;
    const char *script;
    char asked[BT_CONTROL_LINE + 8];
    pthread_t thread;
} answering;

static inline void *answer_once(void *arg) {
    answering *a = arg;
    const int fd = accept(a->listen_fd, NULL, NULL);
    size_t n = 0;
    while (n + 1 < sizeof a->asked) {
        const ssize_t k = recv(fd, a->asked + n, sizeof a->asked - 1 - n, 0);
        if (k <= 0) break;
        n += (size_t)k;
        if (a->asked[n - 1] == '\n') break;
    }
    const char *cut = strchr(a->script, '^');
    size_t first = cut ? (size_t)(cut - a->script) : strlen(a->script);
    if (first) send(fd, a->script, first, MSG_NOSIGNAL);
    if (cut) {
        bt_sleep_ns(20000000);
        send(fd, cut + 1, strlen(cut + 1), MSG_NOSIGNAL);
    }
    close(fd);
    return NULL;
}

static inline int answering_listen(const char *path) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    strcpy(a.sun_path, path);
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(fd, 4), 0);
    return fd;
}

static inline void answering_begin(answering *a, const char *path, const char *script) {
    *a = (answering){.listen_fd = answering_listen(path), .script = script};
    assert_int_equal(pthread_create(&a->thread, NULL, answer_once, a), 0);
}

static inline void answering_end(answering *a, const char *path) {
    pthread_join(a->thread, NULL);
    close(a->listen_fd);
    unlink(path);
}

#endif

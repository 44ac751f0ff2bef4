/* fuzz_supervisor.c - inputs of the supervisor other than records: arbitrary bytes on the control socket (first byte
 * even), or in the shared pages with the ranks' positions (odd), which a dying rank may leave half written. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "monitor/job/control_server.h"
#include "monitor/job/health/rank_progress.h"
#include "tests/fuzz/fuzz_dir.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static bt_code on_request(void *ctx, const char *verb, const char *arg, const char *who,
                          bt_text *answer, bt_err *err) {
    *(size_t *)ctx += strlen(verb) + strlen(arg) + strlen(who);
    if (strpbrk(verb, " \t\r\n") || strchr(arg, '\n')) abort();
    if (verb[0] == 'x') return bt_fail(err, BT_ARG, "no verb '%.40s'", verb);
    bt_text_printf(answer, "%s %s", verb, arg);
    return BT_OK;
}

static void serve_as_requests(const uint8_t *data, size_t n) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    bt_control_server *server;
    bt_err err = BT_ERR_INIT;
    size_t sum = 0;
    char answer[256];
    snprintf(a.sun_path, sizeof a.sun_path, "%s/control", dir);
    if (bt_control_listen(&server, a.sun_path, &err) != BT_OK) abort();
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&a, sizeof a) != 0) abort();
    const size_t half = n / 2; /* a line may arrive in parts */
    if (half) (void)!send(fd, data, half, MSG_DONTWAIT | MSG_NOSIGNAL);
    bt_control_serve(server, on_request, &sum);
    if (n - half) (void)!send(fd, data + half, n - half, MSG_DONTWAIT | MSG_NOSIGNAL);
    bt_control_serve(server, on_request, &sum);
    shutdown(fd, SHUT_WR);
    bt_control_serve(server, on_request, &sum);
    (void)!recv(fd, answer, sizeof answer, MSG_DONTWAIT);
    close(fd);
    bt_control_close(server);
}

static void read_as_positions(const uint8_t *data, size_t n) {
    enum { RANKS = 3 };
    bt_rank_progress p = {0};
    bt_err err = BT_ERR_INIT;
    char path[96], what[240];
    int rank = -1;
    snprintf(path, sizeof path, "%s/places", dir);
    unlink(path);
    if (bt_rank_progress_open(&p, path, RANKS, &err) != BT_OK) abort();
    memcpy((void *)p.slot, data, n < RANKS * sizeof *p.slot ? n : RANKS * sizeof *p.slot);
    const int64_t now = bt_now_ns();
    (void)bt_rank_progress_describe_all(&p, now, what, sizeof what, &rank);
    if (rank < -1 || rank >= RANKS) abort();
    for (int i = 0; i < 2; i++) {
        (void)bt_rank_progress_slow(&p, now, 0.5, what, sizeof what, &rank);
        (void)bt_rank_progress_missing(&p, now, 0.5, what, sizeof what, &rank);
    }
    bt_rank_progress_close(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    (void)make_dir();
    if (n == 0) return 0;
    if (data[0] & 1)
        read_as_positions(data + 1, n - 1);
    else
        serve_as_requests(data + 1, n - 1);
    return 0;
}

/* fuzz_wire.c - arbitrary bytes as records of a run: as frames on the supervisor's socket (first byte 0), as the ring
 * file of a killed rank (1), as one record with a valid head (2). */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "store/record/ring.h"
#include "store/record/wire_frame.h"
#include "store/wire/wire.h"
#include "tests/fuzz/fuzz_dir.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Delivered records are valid: texts are terminated, and the numbers of rows are those that were sent. */
static size_t said;
static void on_step(void *ctx, const bt_step_record *r) {
    (void)ctx;
    for (int i = 0; i < r->n_ranks * BT_MR_COUNT; i++) said += r->rank_values[i] > 0;
}
static void on_event(void *ctx, const bt_event *e) {
    (void)ctx;
    said += strlen(e->title) + (e->body ? strlen(e->body) : 0);
    if ((unsigned)e->kind >= BT_EVENT_COUNT) abort();
}
static void on_fact(void *ctx, const char *key, const char *value) {
    (void)ctx;
    said += strlen(key) + strlen(value);
}
static void on_result(void *ctx, const char *json) {
    (void)ctx;
    said += strlen(json);
}
static void on_checkpoint(void *ctx, const bt_ckpt_record *c) {
    (void)ctx;
    /* A record may lack texts. */
    said += (c->path ? strlen(c->path) : 0) + (c->hash ? strlen(c->hash) : 0);
}
static const bt_sink look = {.step = on_step,
                             .event = on_event,
                             .fact = on_fact,
                             .result = on_result,
                             .checkpoint = on_checkpoint};

static void serve_as_frames(const uint8_t *data, size_t n) {
    struct sockaddr_un a;
    bt_wire_server *server;
    bt_err err = BT_ERR_INIT;
    char path[96];
    snprintf(path, sizeof path, "%s/wire", dir);
    if (bt_wire_listen(&server, path, &err) != BT_OK || bt_wire_address(&a, path, &err) != BT_OK)
        abort();
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&a, sizeof a) != 0) abort();
    /* Every second input follows a valid greeting. */
    const bt_hello_frame hello = {bt_frame_of(BT_FRAME_HELLO, 1, sizeof hello - sizeof hello.frame),
                                  bt_record_mark()};
    if (n > 0 && data[0] & 1) (void)!write(fd, &hello, sizeof hello);
    if (n > 1) (void)!send(fd, data + 1, n - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    shutdown(fd, SHUT_WR);
    const bt_wire_into into = {.look = look};
    for (int i = 0; i < 8; i++) (void)(bt_wire_serve(server, 1, &into, &err) == BT_OK);
    close(fd);
    bt_wire_server_close(server);
}

static void read_as_ring(const uint8_t *data, size_t n) {
    char path[96];
    bt_err err = BT_ERR_INIT;
    bt_record *list = NULL;
    int attempt;
    snprintf(path, sizeof path, "%s/ring", dir);
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || write(fd, data, n) != (ssize_t)n) abort();
    close(fd);
    (void)bt_ring_left(path);
    if (bt_ring_read(path, &attempt, &list, &err) != BT_OK) return;
    for (const bt_record *r = list; r; r = r->next)
        (void)bt_record_deliver(&r->head, r->data, &look);
    bt_records_free(list);
}

static void deliver_as_record(const uint8_t *data, size_t n) {
    bt_record_head head;
    if (n < sizeof head) return;
    memcpy(&head, data, sizeof head);
    head.kind = head.kind % BT_REC_COUNT;
    head.bytes = (uint32_t)(n - sizeof head);
    bt_record *r = bt_record_empty(&head);
    if (!r) return;
    memcpy(r->data, data + sizeof head, head.bytes);
    if (bt_record_deliver(&r->head, r->data, &look)) (void)bt_record_drop_ranks(r);
    bt_records_free(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    (void)make_dir();
    if (n == 0) return 0;
    switch (data[0] % 3) {
    case 0: serve_as_frames(data + 1, n - 1); break;
    case 1: read_as_ring(data + 1, n - 1); break;
    default: deliver_as_record(data + 1, n - 1); break;
    }
    return 0;
}

/* fuzz_launch.c - other inputs of a supervisor as arbitrary bytes, by the first byte modulo 5: 0: output of mpirun and
 * the ranks, in two pieces; 1: a host file; 2: rules of alert.rules; 3: the message to a waiting rank; 4: stored rates
 * of a machine, as JSON. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "engine/plan/rates.h"
#include "monitor/job/health/alert_rules.h"
#include "monitor/job/launch/host_file.h"
#include "monitor/job/launch/output.h"
#include "monitor/job/spare_socket.h"
#include "tests/fuzz/fuzz_dir.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void count_note(void *ctx, const char *text) { *(size_t *)ctx += strlen(text); }

static void parse_as_output(const uint8_t *data, size_t n) {
    static bt_output o;
    size_t noted = 0;
    o.log = -1;
    bt_output_reset(&o, 1);
    o.note = count_note;
    o.note_ctx = &noted;
    bt_output_feed(&o, (const char *)data, n / 2);
    bt_output_feed(&o, (const char *)data + n / 2, n - n / 2);
    if (o.n > sizeof o.line || o.notes > BT_OUTPUT_NOTES) abort();
    if (!memchr(o.message, 0, sizeof o.message) || !memchr(o.said, 0, sizeof o.said) ||
        !memchr(o.last_line, 0, sizeof o.last_line))
        abort();
    /* Displayed text contains no control characters. */
    for (const char *p = o.message; *p; p++)
        if ((unsigned char)*p < ' ') abort();
}

/* bt_hosts_open would resolve names over the network. */
static void parse_as_hosts(const uint8_t *data, size_t n) {
    char path[96];
    int slots[8];
    bt_err err = BT_ERR_INIT;
    snprintf(path, sizeof path, "%s/hosts", dir);
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || write(fd, data, n) != (ssize_t)n) abort();
    close(fd);
    if (bt_host_file_check(path, 2, "", &err) != BT_OK && !err.msg[0]) abort();
    if (bt_host_file_slots(path) < 0) abort();
    const int each = bt_host_file_each(path, slots, 8);
    if (each < 0 || each > 8) abort();
}

static void parse_as_rules(const uint8_t *data, size_t n) {
    static bt_alert_rules r;
    char *text = malloc(n + 1);
    bt_err err = BT_ERR_INIT;
    size_t told = 0;
    if (!text) return;
    memcpy(text, data, n);
    text[n] = '\0';
    memset(&r, 0, sizeof r);
    if (bt_alert_parse(&r, text, &err) == BT_OK) {
        double values[BT_MS_COUNT];
        r.tell = count_note;
        r.ctx = &told;
        if (r.n < 0 || r.n > BT_ALERT_RULES) abort();
        for (int64_t step = 0; step < 3; step++) {
            for (int i = 0; i < BT_MS_COUNT; i++) values[i] = (double)(step * i);
            bt_alert_step(&r, values, step);
            bt_alert_disk(&r, 1e9, 1e10);
            bt_alert_happened(&r, BT_ALERT_RANK_LOST, "rank 1");
        }
    } else if (!err.msg[0])
        abort();
    free(text);
}

/* one packet, as from a supervisor */
static const uint8_t *packet;
static size_t packet_n;
static void *serve_fuzz_bytes(void *ctx) {
    const int fd = accept4(*(int *)ctx, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) return NULL;
    (void)!send(fd, packet, packet_n, MSG_NOSIGNAL);
    close(fd);
    return NULL;
}

static void parse_as_spare_message(const uint8_t *data, size_t n) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    bt_spare_go go;
    bt_err err = BT_ERR_INIT;
    pthread_t thread;
    snprintf(a.sun_path, sizeof a.sun_path, "%s/spare", dir);
    unlink(a.sun_path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&a, sizeof a) != 0 || listen(fd, 1) != 0)
        abort();
    packet = data;
    packet_n = n;
    if (pthread_create(&thread, NULL, serve_fuzz_bytes, &fd) != 0) abort();
    if (bt_spare_wait(a.sun_path, &go, &err) == BT_OK) {
        if (!memchr(go.resume_from, 0, sizeof go.resume_from)) abort();
    } else if (!err.msg[0])
        abort();
    pthread_join(thread, NULL);
    close(fd);
}

static void parse_as_rates(const uint8_t *data, size_t n) {
    static bt_rates r;
    bt_err err = BT_ERR_INIT;
    if (bt_rates_take_json(&r, (const char *)data, n, &err) != BT_OK && !err.msg[0]) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    (void)make_dir();
    if (n == 0) return 0;
    switch (data[0] % 5) {
    case 0: parse_as_output(data + 1, n - 1); break;
    case 1: parse_as_hosts(data + 1, n - 1); break;
    case 2: parse_as_rules(data + 1, n - 1); break;
    case 3: parse_as_spare_message(data + 1, n - 1); break;
    default: parse_as_rates(data + 1, n - 1); break;
    }
    return 0;
}

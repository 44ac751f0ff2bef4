/* test_hosts.c - hosts that answer, that say nothing, that come back; by sockets of this machine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/base/clock.h"
#include "monitor/job/launch/hosts.h"

static const char *const path = "hosts.tmp";
static bt_hosts h;
static bt_err err;

static void put(const char *text) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* a port of this machine that somebody listens on, or that nobody does */
static int port_of(bool listens, int *fd) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    *fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(*fd, (struct sockaddr *)&a, sizeof a), 0);
    if (listens) assert_int_equal(listen(*fd, 1), 0);
    assert_int_equal(getsockname(*fd, (struct sockaddr *)&a, &n), 0);
    return ntohs(a.sin_port);
}

/* 127.x counts as this machine, which nobody asks; a test of asking takes it for another one */
static void open_far(const char *text, int port) {
    put(text);
    assert_int_equal(bt_hosts_open(&h, path, port, &err), BT_OK);
    for (int i = 0; i < h.n; i++) {
        struct sockaddr_in a = {.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        memcpy(&h.host[i].address, &a, sizeof a);
        h.host[i].address_len = sizeof a;
        h.host[i].here = false;
    }
}

static void test_the_file(void **state) {
    (void)state;
    put("# hosts\n127.0.0.1 slots=2\n\n  192.0.2.7 slots=3 max-slots=4 # "
        "far\n^192.0.2.8\nlocalhost\n");
    assert_int_equal(bt_hosts_open(&h, path, BT_SSH_PORT, &err), BT_OK);
    assert_int_equal(h.n, 3);
    assert_string_equal(h.host[0].name, "127.0.0.1");
    assert_true(h.host[0].here && h.host[0].slots == 2);
    assert_true(!h.host[1].here && h.host[1].slots == 3 && h.host[1].address_len > 0);
    assert_true(h.host[2].here && h.host[2].slots == 0);
    bt_hosts_set_aside(&h.host[0], "why", 0);
    assert_int_equal(bt_hosts_aside(&h), 1);
    assert_int_equal(bt_hosts_write(&h, "hosts.out.tmp", &err), BT_OK);
    char text[256] = "";
    FILE *f = fopen("hosts.out.tmp", "r");
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    assert_null(strstr(text, "127.0.0.1"));
    assert_non_null(strstr(text, "192.0.2.7 slots=3 max-slots=4"));
    bt_hosts_close(&h);
    assert_int_equal(bt_hosts_open(&h, "", 22, &err), BT_OK);
    assert_int_equal(h.n, 0);
    assert_int_equal(bt_hosts_open(&h, "/nonexistent/hosts", 22, &err), BT_NOTFOUND);
}

static void test_accepted_and_refused_are_answers(void **state) {
    (void)state;
    for (int listens = 0; listens < 2; listens++) {
        int fd;
        const int port = port_of(listens, &fd);
        if (!listens) close(fd);
        open_far("192.0.2.7 slots=1\n", port);
        bt_hosts_ask(&h, 5);
        assert_true(h.host[0].answered);
        assert_true(bt_host_silence_s(&h.host[0], bt_now_ns()) == 0);
        bt_hosts_close(&h);
        if (listens) close(fd);
    }
}

/* A port that swallows everything: a listener whose queue is full answers nobody. No address outside
 * this machine will do: what a network says to one that is nobody's is the network's affair. */
enum { QUEUED = 4 };
static int silent_port(int *listener, int queued[QUEUED]) {
    const int port = port_of(true, listener);
    const struct sockaddr_in a = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (int i = 0; i < QUEUED; i++) {
        queued[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        (void)!connect(queued[i], (const struct sockaddr *)&a, sizeof a);
    }
    return port;
}

static void test_silence_is_judged_after_an_answer_only(void **state) {
    (void)state;
    int listener, queued[QUEUED];
    open_far("192.0.2.7 slots=1\n", silent_port(&listener, queued));
    const int64_t now = bt_now_ns();
    bt_hosts_look(&h, false, now);
    assert_false(h.host[0].answered);
    assert_true(bt_host_silence_s(&h.host[0], now + 5000000000) == 0); /* it may never answer */
    h.host[0].answered = true;
    const double s = bt_host_silence_s(&h.host[0], now + 5000000000);
    assert_true(s > 4.9 && s < 5.1);
    /* further questions do not begin the silence anew */
    bt_hosts_look(&h, false, now + 1000000000);
    assert_true(bt_host_silence_s(&h.host[0], now + 5000000000) > 4.9);
    bt_hosts_close(&h);
    for (int i = 0; i < QUEUED; i++) close(queued[i]);
    close(listener);
}

static void test_one_set_aside_comes_back(void **state) {
    (void)state;
    int fd;
    const int port = port_of(true, &fd);
    const int64_t s = 1000000000;
    open_far("192.0.2.7 slots=1\n", port);
    int64_t now = bt_now_ns();
    bt_hosts_set_aside(&h.host[0], "it does not answer", now);
    bt_hosts_look(&h, true, now + s / 2);
    assert_false(h.host[0].back); /* too early to be asked */
    for (int i = 0; i < 100 && !h.host[0].back; i++) {
        bt_hosts_look(&h, true, now + s + i * 1000000);
        usleep(1000);
    }
    assert_true(h.host[0].back && h.host[0].aside); /* until somebody takes it back */
    assert_int_equal(bt_hosts_take_back(&h), 1);
    assert_int_equal(bt_hosts_take_back(&h), 0);
    assert_int_equal(bt_hosts_aside(&h), 0);
    bt_hosts_close(&h);
    close(fd);
}

/* looks at one that stays away: after 1, 2, 4 ... 60 s */
static void test_waits_grow(void **state) {
    (void)state;
    open_far("192.0.2.7 slots=1\n", 22);
    /* fails at once whatever the network of this machine says to addresses that nobody has */
    const struct sockaddr_un nowhere = {.sun_family = AF_UNIX, .sun_path = "nobody.socket"};
    memcpy(&h.host[0].address, &nowhere, sizeof nowhere);
    h.host[0].address_len = sizeof nowhere;
    const int64_t s = 1000000000, tenth = s / 10;
    int looks = 0;
    bt_hosts_set_aside(&h.host[0], "it does not answer", 0);
    int64_t last = h.host[0].look_ns;
    static const int want[] = {10, 20, 40, 80, 160, 320};
    for (int64_t t = 0; t < 200 && looks < 5; t++) {
        bt_hosts_look(&h, true, t * tenth);
        if (h.host[0].look_ns == last) continue;
        if (looks > 0)
            assert_in_range((h.host[0].look_ns - last) / tenth, want[looks - 1] - 1,
                            want[looks - 1] + 6);
        last = h.host[0].look_ns;
        looks++;
    }
    assert_true(looks >= 4);
    bt_hosts_close(&h);
}

static void test_a_message_names_a_host(void **state) {
    (void)state;
    put("node1 slots=1\nnode10 slots=1\n10.0.0.2 slots=1\nnode2.lab.test slots=1\n");
    assert_int_equal(bt_hosts_open(&h, path, 22, &err), BT_OK);
    assert_ptr_equal(bt_hosts_named(&h, "ssh: connect to host node10 port 22: No route to host"),
                     &h.host[1]);
    assert_ptr_equal(bt_hosts_named(&h, "ssh: Could not resolve hostname node1: Name"), &h.host[0]);
    assert_ptr_equal(bt_hosts_named(&h, "connect to host 10.0.0.2."), &h.host[2]);
    assert_null(bt_hosts_named(&h, "connect to host 10.0.0.21 port 22"));
    assert_null(bt_hosts_named(&h, "connect to host 110.0.0.2 port 22"));
    assert_null(bt_hosts_named(&h, "node2.lab.testing"));
    assert_ptr_equal(bt_hosts_named(&h, "node2.lab.test: refused"), &h.host[3]);
    assert_null(bt_hosts_named(&h, ""));
    bt_hosts_close(&h);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_file),
        cmocka_unit_test(test_accepted_and_refused_are_answers),
        cmocka_unit_test(test_silence_is_judged_after_an_answer_only),
        cmocka_unit_test(test_one_set_aside_comes_back),
        cmocka_unit_test(test_waits_grow),
        cmocka_unit_test(test_a_message_names_a_host),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    unlink("hosts.out.tmp");
    return failed;
}

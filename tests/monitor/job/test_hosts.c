/* test_hosts.c - hosts that respond, do not respond, or respond again, simulated by sockets of this machine. */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/base/clock.h"
#include "monitor/job/launch/hosts.h"
#include "tests/message.h"

static char folder[] = "/tmp/bt_hosts_XXXXXX", path[64], out_path[64];
static bt_hosts h;
static bt_err err;

/* result of a pending connection; the test replaces poll and getsockopt */
static bool ended;
static int ends, asking_fails;

int poll(struct pollfd *p, nfds_t n, int ms) {
    if (ended) return 1;
    return (int)syscall(SYS_poll, p, n, ms);
}

int getsockopt(int fd, int level, int name, void *restrict value, socklen_t *restrict size) {
    if (!ended) return (int)syscall(SYS_getsockopt, fd, level, name, value, size);
    memcpy(value, &ends, sizeof ends);
    return asking_fails ? (errno = asking_fails, -1) : 0;
}

static void put_host_line(const char *text) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* Returns a port of this machine with or without a listener. */
static int port_of(bool listens, int *fd) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    *fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(*fd, (struct sockaddr *)&a, sizeof a), 0);
    if (listens) assert_int_equal(listen(*fd, 1), 0);
    assert_int_equal(getsockname(*fd, (struct sockaddr *)&a, &n), 0);
    return ntohs(a.sin_port);
}

/* Addresses 127.x are this machine, which is never probed; this function marks the host as a remote one. */
static void open_remote_host(const char *text, int port) {
    put_host_line(text);
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

static void is_written(const char *want) {
    char text[256] = "";
    FILE *f = fopen(out_path, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    assert_string_equal(text, want);
}

static void test_the_file(void **state) {
    (void)state;
    put_host_line("# hosts\n127.0.0.1 slots=2\n\n  192.0.2.7 slots=3 max-slots=4 # "
                  "far\n^192.0.2.8\nlocalhost\n");
    assert_int_equal(bt_hosts_open(&h, path, BT_SSH_PORT, &err), BT_OK);
    assert_int_equal(h.n, 3);
    assert_string_equal(h.host[0].name, "127.0.0.1");
    assert_true(h.host[0].here && h.host[0].slots == 2);
    assert_true(!h.host[1].here && h.host[1].slots == 3 && h.host[1].address_len > 0);
    assert_true(h.host[2].here && h.host[2].slots == 0);
    bt_hosts_set_aside(&h.host[0], "why", 0);
    assert_int_equal(bt_hosts_aside(&h), 1);
    assert_int_equal(bt_hosts_write(&h, out_path, &err), BT_OK);
    is_written("  192.0.2.7 slots=3 max-slots=4 \nlocalhost\n");
    bt_hosts_close(&h);
    assert_int_equal(bt_hosts_open(&h, "", 22, &err), BT_OK);
    assert_int_equal(h.n, 0);
    assert_int_equal(bt_hosts_open(&h, "/nonexistent/hosts", 22, &err), BT_NOTFOUND);
    message_has(err.msg, "cannot read host file '/nonexistent/hosts'");
}

/* Each word of a line may be a host; entries that are not hosts are ignored. */
static void test_lines(void **state) {
    (void)state;
    char here[BT_HOST_NAME] = "", text[900], longest[BT_HOST_NAME + 1];
    gethostname(here, sizeof here - 1);
    memset(longest, 'n', sizeof longest);
    longest[BT_HOST_NAME - 1] = '\0';
    const struct {
        const char *line, *name; /* NULL: no host */
        int slots;
        bool here;
    } rows[] = {{"", NULL, 0, false},
                {"   \t", NULL, 0, false},
                {"# 127.0.0.1", NULL, 0, false},
                {"^127.0.0.1", NULL, 0, false},
                {here, here, 0, true},
                {"localhost", "localhost", 0, true},
                {"127.3.4.5", "127.3.4.5", 0, true},
                {"128.0.0.1", "128.0.0.1", 0, false},
                {"\t127.0.0.1\tslots=7\r", "127.0.0.1", 7, true},
                {"127.0.0.1 count=8", "127.0.0.1", 8, true},
                {"127.0.0.1 cpu=9 max_slots=3", "127.0.0.1", 9, true},
                {"127.0.0.1 slots=1 slots=2", "127.0.0.1", 2, true},
                {"127.0.0.1 max-slots=4 xslots=5", "127.0.0.1", 0, true},
                {"127.0.0.1 slots=4#slots=5", "127.0.0.1", 4, true},
                {"127.0.0.1:6 slots=3", "127.0.0.1", 3, true},
                {"me@127.0.0.1:22 slots=3", "127.0.0.1", 3, true},
                {"me@128.0.0.1", "128.0.0.1", 0, false},
                {longest, longest, 0, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(text, sizeof text, "%s\n127.0.0.1 slots=77\n", rows[i].line);
        put_host_line(text);
        assert_int_equal(bt_hosts_open(&h, path, BT_SSH_PORT, &err), BT_OK);
        assert_int_equal(h.n, rows[i].name ? 2 : 1);
        assert_int_equal(h.host[h.n - 1].slots, 77);
        if (rows[i].name) {
            const bt_host *x = &h.host[0];
            assert_string_equal(x->name, rows[i].name);
            snprintf(text, sizeof text, "%.*s", (int)strcspn(rows[i].line, "#\r"), rows[i].line);
            assert_string_equal(x->line, text);
            if (x->slots != rows[i].slots || x->here != rows[i].here || x->aside || x->back ||
                x->answered || x->asked_ns != 0 || x->fd != -1)
                fail_msg("'%s'", rows[i].line);
            if (strcmp(x->name, longest) != 0) assert_int_equal(x->address_len > 0, !x->here);
        }
        bt_hosts_close(&h);
        assert_true(h.n == 0 && !h.host);
    }
    longest[BT_HOST_NAME - 1] = 'n'; /* one letter too many */
    longest[BT_HOST_NAME] = '\0';
    put_host_line(longest);
    assert_int_equal(bt_hosts_open(&h, path, BT_SSH_PORT, &err), BT_OK);
    assert_int_equal(h.n, 0);
    bt_hosts_close(&h);
    FILE *f = fopen(path, "w"); /* the maximum number of hosts */
    for (int i = 0; i < BT_HOSTS_MAX + 3; i++) fprintf(f, "127.0.0.1 slots=%d\n", i);
    fclose(f);
    assert_int_equal(bt_hosts_open(&h, path, BT_SSH_PORT, &err), BT_OK);
    assert_int_equal(h.n, BT_HOSTS_MAX);
    assert_int_equal(h.host[BT_HOSTS_MAX - 1].slots, BT_HOSTS_MAX - 1);
    bt_hosts_connect(&h, 0); /* All hosts are included, and none beyond the last. */
    bt_hosts_test(&h, true, 1);
    assert_int_equal(bt_hosts_take_back(&h) + bt_hosts_aside(&h), 0);
    assert_null(bt_hosts_named(&h, "127.0.0.1"));
    assert_int_equal(bt_hosts_write(&h, "/nonexistent/hosts", &err), BT_IO);
    message_has(err.msg, "cannot write host file '/nonexistent/hosts'");
    assert_int_equal(bt_hosts_write(&h, "/dev/full", &err), BT_IO);
    assert_string_equal(err.msg, "cannot write host file '/dev/full'");
    bt_hosts_close(&h);
}

static void test_accepted_and_refused_are_responses(void **state) {
    (void)state;
    for (int listens = 0; listens < 2; listens++) {
        int fd;
        const int port = port_of(listens, &fd);
        if (!listens) close(fd);
        open_remote_host("192.0.2.7 slots=1\n", port);
        bt_hosts_connect(&h, 5);
        assert_true(h.host[0].answered);
        assert_true(bt_host_silence_s(&h.host[0], bt_now_ns()) == 0);
        bt_hosts_close(&h);
        if (listens) close(fd);
    }
}

/* A host that does not respond is a listener with a full queue. Addresses outside this machine are unsuitable, because
 * the result would depend on the network. */
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

static void test_silence_counts_after_a_response_only(void **state) {
    (void)state;
    int listener, queued[QUEUED];
    open_remote_host("192.0.2.7 slots=1\n", silent_port(&listener, queued));
    const int64_t now = bt_now_ns();
    bt_hosts_test(&h, false, now);
    assert_false(h.host[0].answered);
    assert_true(bt_host_silence_s(&h.host[0], now + 5000000000) == 0); /* It may never respond. */
    h.host[0].answered = true;
    const double s = bt_host_silence_s(&h.host[0], now + 5000000000);
    assert_true(s > 4.9 && s < 5.1);
    /* Further probes do not restart the time without a response. */
    bt_hosts_test(&h, false, now + 1000000000);
    assert_true(bt_host_silence_s(&h.host[0], now + 5000000000) > 4.9);
    bt_hosts_close(&h);
    for (int i = 0; i < QUEUED; i++) close(queued[i]);
    close(listener);
}

static void test_a_host_set_aside_returns(void **state) {
    (void)state;
    int fd;
    const int port = port_of(true, &fd);
    const int64_t s = 1000000000;
    open_remote_host("192.0.2.7 slots=1\n", port);
    int64_t now = bt_now_ns();
    bt_hosts_set_aside(&h.host[0], "it does not answer", now);
    bt_hosts_test(&h, true, now + s / 2);
    assert_false(h.host[0].back); /* It is too early for a probe. */
    for (int i = 0; i < 100 && !h.host[0].back; i++) {
        bt_hosts_test(&h, true, now + s + i * 1000000);
        usleep(1000);
    }
    assert_true(h.host[0].back &&
                h.host[0].aside); /* It remains marked until the run uses it again. */
    assert_int_equal(bt_hosts_take_back(&h), 1);
    assert_int_equal(bt_hosts_take_back(&h), 0);
    assert_int_equal(bt_hosts_aside(&h), 0);
    bt_hosts_close(&h);
    close(fd);
}

/* A host whose connection fails at once on any network. */
static void open_nowhere(const char *text) {
    const struct sockaddr_un nowhere = {.sun_family = AF_UNIX, .sun_path = "/nowhere/socket"};
    open_remote_host(text, 22);
    for (int i = 0; i < h.n; i++) {
        memcpy(&h.host[i].address, &nowhere, sizeof nowhere);
        h.host[i].address_len = sizeof nowhere;
    }
}

/* A host that does not respond is probed after 1, 2, 4 ... 60 s; the intervals continue when it is set aside again. */
static void test_waits_grow(void **state) {
    (void)state;
    static const int waits[] = {1, 2, 4, 8, 16, 32, 60, 60};
    const int64_t s = 1000000000;
    open_nowhere("192.0.2.7 slots=1\n192.0.2.8 slots=1\n");
    bt_host *x = &h.host[0];
    x->back = true;
    x->asked_ns = 5;
    bt_hosts_set_aside(x, "it does not answer", 10 * s);
    assert_true(x->aside && !x->back && x->asked_ns == 0 && x->fd == -1);
    assert_string_equal(x->why, "it does not answer");
    assert_true(x->next_look_ns == 11 * s);
    for (size_t i = 0; i < sizeof waits / sizeof *waits; i++) {
        const int64_t at = x->next_look_ns, before = x->look_ns;
        bt_hosts_test(&h, true, at - 1);
        assert_true(x->look_ns == before);
        bt_hosts_test(&h, true, at);
        assert_true(x->look_ns == at && x->next_look_ns == at + waits[i] * s);
        assert_true(x->fd == -1 && !x->back && !x->answered);
    }
    assert_true(h.host[1].look_ns == 0); /* this host is in use */
    bt_hosts_set_aside(x, "again", 1000 * s);
    assert_true(x->next_look_ns == 1120 * s);
    assert_int_equal(bt_hosts_take_back(&h), 0);
    x->back = true;
    bt_hosts_test(&h, true, 2000 * s); /* It has responded, so there is no probe. */
    assert_true(x->look_ns < 2000 * s);
    assert_int_equal(bt_hosts_aside(&h), 1);
    assert_int_equal(bt_hosts_take_back(&h), 1);
    assert_true(!x->aside && !x->back && x->asked_ns == 0);
    bt_hosts_close(&h);
}

/* Hosts in use are probed every quarter of a second; the time without a response counts from the first probe. */
static void test_probes_are_repeated(void **state) {
    (void)state;
    const int64_t ms = 1000000, begin = 5000 * ms;
    open_nowhere("192.0.2.7 slots=1\n192.0.2.8 slots=1\n192.0.2.9 slots=1\n192.0.2.10 slots=1\n");
    h.host[1].here = true;
    h.host[2].aside = true;
    h.host[3].address_len = 0; /* The name cannot be resolved. */
    const struct {
        int64_t at, looked;
    } rows[] = {{0, 0}, {249, 0}, {250, 250}, {499, 250}, {500, 500}, {900, 900}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bt_hosts_test(&h, false, begin + rows[i].at * ms);
        if (h.host[0].look_ns != begin + rows[i].looked * ms) fail_msg("row %zu", i);
        assert_true(h.host[0].asked_ns == begin);
    }
    for (int i = 1; i < 4; i++) assert_true(h.host[i].look_ns == 0 && h.host[i].asked_ns == 0);
    h.host[0].answered = true;
    assert_true(bt_host_silence_s(&h.host[0], begin + 1500 * ms) == 1.5);
    h.host[0].asked_ns = 0;
    assert_true(bt_host_silence_s(&h.host[0], begin + 1500 * ms) == 0);
    bt_hosts_close(&h);
}

/* If a host responds at once, no probe is pending and no descriptor remains open. */
static void test_a_response_at_once(void **state) {
    (void)state;
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s/socket", folder);
    const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(listener, 4), 0);
    open_nowhere("192.0.2.7 slots=1\n192.0.2.8 slots=1\n");
    for (int i = 0; i < 2; i++) memcpy(&h.host[i].address, &a, sizeof a);
    bt_hosts_test(&h, false, 1000000000);
    for (int i = 0; i < 2; i++)
        assert_true(h.host[i].answered && h.host[i].asked_ns == 0 && h.host[i].fd == -1);
    bt_hosts_set_aside(&h.host[1], "x", 0);
    bt_hosts_test(&h, true, 1000000000);
    assert_true(h.host[1].back && h.host[1].asked_ns == 0 && h.host[1].fd == -1);
    close(listener);
    bt_hosts_test(&h, false, 2000000000);
    assert_true(h.host[0].asked_ns == 0 &&
                h.host[0].look_ns == 2000000000); /* A refused connection is a response. */
    unlink(a.sun_path);
    /* If no descriptor is available, the state of the host remains unknown. */
    struct rlimit before, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    bt_hosts_test(&h, false, 3000000000);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_true(h.host[0].asked_ns == 0 && h.host[0].look_ns == 3000000000 && h.host[0].fd == -1);
    bt_hosts_close(&h);
}

static void test_results_of_a_probe(void **state) {
    static const struct {
        int ends, fails; /* fails: the query of the result fails */
        bool answered;
    } rows[] = {{0, 0, true},
                {ECONNREFUSED, 0, true},
                {EHOSTUNREACH, 0, false},
                {ENETUNREACH, 0, false},
                {ETIMEDOUT, 0, false},
                {EHOSTDOWN, 0, false},
                {0, EBADF, false},
                {0, ECONNREFUSED, true}};
    int listener, queued[QUEUED];
    const int port = silent_port(&listener, queued);
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        open_remote_host("192.0.2.7 slots=1\n", port);
        bt_host *x = &h.host[0];
        bt_hosts_test(&h, false, 1000000000);
        assert_true(x->fd >= 0 && x->asked_ns == 1000000000);
        bt_hosts_test(&h, false, 1000000001); /* There is no result yet. */
        assert_true(x->fd >= 0);
        ended = true, ends = rows[i].ends, asking_fails = rows[i].fails;
        bt_hosts_test(&h, false, 1000000002);
        ended = false;
        if (x->fd != -1 || x->answered != rows[i].answered ||
            (x->asked_ns == 0) != rows[i].answered)
            fail_msg("row %zu", i);
        bt_hosts_close(&h);
    }
    for (int i = 0; i < QUEUED; i++) close(queued[i]);
    close(listener);
}

/* A probe of a host that is set aside is abandoned after a second. */
static void test_a_probe_is_abandoned(void **state) {
    (void)state;
    int listener, queued[QUEUED];
    const int64_t ms = 1000000;
    open_remote_host("192.0.2.7 slots=1\n", silent_port(&listener, queued));
    bt_host *x = &h.host[0];
    bt_hosts_set_aside(x, "x", 0);
    bt_hosts_test(&h, true, 1000 * ms);
    assert_true(x->fd >= 0 && x->asked_ns == 1000 * ms);
    x->next_look_ns = 90000 * ms;
    bt_hosts_test(&h, true, 2000 * ms);
    assert_true(x->fd >= 0);
    bt_hosts_test(&h, true, 2001 * ms);
    assert_true(x->fd == -1 && !x->back);
    bt_hosts_close(&h);
    for (int i = 0; i < QUEUED; i++) close(queued[i]);
    close(listener);
}

static void test_a_message_names_a_host(void **state) {
    (void)state;
    put_host_line("node1 slots=1\nnode10 slots=1\n10.0.0.2 slots=1\nnode2.lab.test slots=1\n");
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
    static const char *const others[] = {"anode1", "9node1",  ".node1", "-node1",
                                         "node1a", "node10x", "node1-", "node1.x"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (bt_hosts_named(&h, others[i])) fail_msg("%s", others[i]);
    static const char *const alone[] = {"node1",   "(node1)",       "node1.", "node1. x",
                                        "node1:",  "node10x node1", "Xnode1", "_node1_",
                                        "{node1}", "/node1/",       ":node1", "`node1`"};
    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++)
        if (bt_hosts_named(&h, alone[i]) != &h.host[0]) fail_msg("%s", alone[i]);
    h.host[0].aside = true;
    assert_null(bt_hosts_named(&h, "node1"));
    h.host[0].aside = false;
    h.host[0].here = true;
    assert_null(bt_hosts_named(&h, "node1"));
    bt_hosts_close(&h);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_file),
        cmocka_unit_test(test_accepted_and_refused_are_responses),
        cmocka_unit_test(test_silence_counts_after_a_response_only),
        cmocka_unit_test(test_a_host_set_aside_returns),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_waits_grow),
        cmocka_unit_test(test_probes_are_repeated),
        cmocka_unit_test(test_a_probe_is_abandoned),
        cmocka_unit_test(test_a_response_at_once),
        cmocka_unit_test(test_results_of_a_probe),
        cmocka_unit_test(test_a_message_names_a_host),
    };
    if (!mkdtemp(folder)) return 1;
    snprintf(path, sizeof path, "%s/hosts", folder);
    snprintf(out_path, sizeof out_path, "%s/written", folder);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    unlink(out_path);
    rmdir(folder);
    return failed;
}

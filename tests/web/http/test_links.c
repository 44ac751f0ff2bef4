/* test_links.c - accepted connections: one with a request beyond its deadline is closed, an idle one after twice the
 * time, one whose response may take long is never closed; if there are too many, the oldest is closed. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/base/clock.h"
#include "web/http/links.h"

enum { MOST = 6 };
static const int64_t S = 1000000000;

typedef struct crowd {
    bt_links links;
    bt_link *link[MOST]; /* in the order of acceptance */
    int fd[MOST][2], n;
} crowd;

static void open_crowd(crowd *c, int n) {
    bt_links_init(&c->links);
    c->n = n;
    for (int i = 0; i < n; i++) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, c->fd[i]), 0);
        c->link[i] = bt_links_add(&c->links, c->fd[i][0]);
        assert_non_null(c->link[i]);
    }
    assert_int_equal(c->links.n, n);
}

static void close_crowd(crowd *c) {
    for (int i = 0; i < c->n; i++) {
        close(c->fd[i][0]);
        close(c->fd[i][1]);
        bt_links_remove(&c->links, c->link[i]);
    }
    assert_int_equal(c->links.n, 0);
    assert_null(c->links.first);
    bt_links_release(&c->links);
}

/* Returns whether the client reads the end of the stream. */
static bool is_cut(const crowd *c, int i) {
    char byte;
    const ssize_t n = recv(c->fd[i][1], &byte, 1, 0);
    assert_true(n == 0 || (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)));
    return n == 0;
}

static void late_connections_are_closed(void **state) {
    (void)state;
    static const struct {
        int age_s; /* the deadline is 100 s */
        bool idle, exempt, cut;
    } rows[] = {{0, false, false, false},  {90, false, false, false}, {110, false, false, true},
                {110, true, false, false}, {190, true, false, false}, {210, true, false, true},
                {500, false, true, false}, {500, true, true, false}};
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        crowd c;
        open_crowd(&c, 1);
        bt_link *l = c.link[0];
        if (rows[k].idle) bt_links_end(&c.links, l);
        if (rows[k].exempt) bt_links_exempt(&c.links, l);
        l->since_ns = bt_now_ns() - rows[k].age_s * S;
        bt_links_cut(&c.links, 100 * S, MOST);
        if (is_cut(&c, 0) != rows[k].cut) fail_msg("row %zu", k);
        /* A closed connection is not closed again before it is removed. */
        if (rows[k].cut) assert_true(bt_now_ns() - l->since_ns < 50 * S);
        close_crowd(&c);
    }
}

static void a_crowd_loses_its_oldest(void **state) {
    (void)state;
    for (int most = 0; most <= MOST; most++) {
        crowd c;
        open_crowd(&c, MOST);
        bt_links_cut(&c.links, 100 * S, most);
        for (int i = 0; i < MOST; i++) assert_int_equal(is_cut(&c, i), i < MOST - most);
        close_crowd(&c);
    }
    /* Late connections, and those with a long response, are not counted. */
    crowd c;
    open_crowd(&c, 5);
    c.link[4]->since_ns -= 200 * S;
    bt_links_exempt(&c.links, c.link[2]);
    bt_links_cut(&c.links, 100 * S, 2);
    static const bool cut[] = {true, false, false, false, true};
    for (int i = 0; i < 5; i++) assert_int_equal(is_cut(&c, i), cut[i]);
    close_crowd(&c);
}

/* The time of a request begins at its first line, or at the acceptance of the connection if it is the first request. */
static void requests_have_their_clock(void **state) {
    (void)state;
    crowd c;
    open_crowd(&c, 1);
    bt_link *l = c.link[0];
    assert_true(bt_now_ns() - l->since_ns < 50 * S && !l->idle && !l->exempt);
    l->since_ns = 1;
    /* The first line of the first request has the time from acceptance. */
    bt_links_begin(&c.links, l);
    assert_int_equal(l->since_ns, 1);
    bt_links_exempt(&c.links, l);
    assert_true(l->exempt);
    bt_links_end(&c.links, l);
    assert_true(l->idle && !l->exempt && l->since_ns > 1);
    l->since_ns = 1;
    bt_links_begin(&c.links, l); /* the next request */
    assert_true(!l->idle && l->since_ns > 1);
    bt_links_begin(&c.links, NULL);
    bt_links_end(&c.links, NULL);
    bt_links_exempt(&c.links, NULL);
    bt_links_remove(&c.links, NULL);
    close_crowd(&c);
}

/* Links are removed at the beginning, middle and end; the remaining links keep their order. */
static void links_are_removed_in_any_order(void **state) {
    (void)state;
    for (int first = 0; first < 3; first++)
        for (int second = 0; second < 3; second++) {
            if (first == second) continue;
            crowd c;
            open_crowd(&c, 3);
            const int left = 3 - first - second;
            bt_links_remove(&c.links, c.link[first]);
            assert_int_equal(c.links.n, 2);
            int seen = 0;
            for (const bt_link *l = c.links.first; l; l = l->next, seen++)
                assert_ptr_equal(l->prev ? l->prev->next : c.links.first, l);
            assert_int_equal(seen, 2);
            bt_links_remove(&c.links, c.link[second]);
            assert_ptr_equal(c.links.first, c.link[left]);
            assert_true(!c.link[left]->next && !c.link[left]->prev);
            c.link[first] = c.link[second] = NULL;
            close_crowd(&c);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(late_connections_are_closed),
                                       cmocka_unit_test(a_crowd_loses_its_oldest),
                                       cmocka_unit_test(requests_have_their_clock),
                                       cmocka_unit_test(links_are_removed_in_any_order)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

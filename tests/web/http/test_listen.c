// ctest: labels=web
/* Listening addresses of servers: a free or given port, a socket that no other server uses, and errors that contain the
 * cause. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
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
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/message.h"
#include "web/http/listen.h"

static char folder[] = "/tmp/bt_listen_XXXXXX";

static void is_ready(int fd) {
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
    int listens = 0;
    socklen_t n = sizeof listens;
    assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &n), 0);
    assert_int_equal(listens, 1);
}

static void ports_are_found_and_taken(void **state) {
    int fd = -1, port = -1, other = -7, none = -7, on = 0;
    socklen_t n = sizeof on;
    char want[300], me[64] = "", holder[128], us[128];
    bt_err err = BT_ERR_INIT;
    (void)state;
    assert_int_equal(bt_listen_tcp("127.0.0.1", 0, &fd, &port, &err), BT_OK);
    is_ready(fd);
    assert_true(port > 0 && port < 65536);
    assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, &n), 0);
    assert_int_equal(on, 1);
    const struct sockaddr_in at = {.sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int client = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(client, (const struct sockaddr *)&at, sizeof at), 0);
    close(client);
    FILE *f = fopen("/proc/self/comm", "r");
    assert_non_null(f);
    assert_non_null(fgets(me, sizeof me, f));
    fclose(f);
    me[strcspn(me, "\n")] = '\0';
    snprintf(want, sizeof want, "%.20s (pid %d)", me, (int)getpid());
    bt_listen_holder(port, holder, sizeof holder);
    assert_string_equal(holder, want);
    snprintf(us, sizeof us, "%s", holder);
    assert_int_equal(bt_listen_tcp("127.0.0.1", port, &other, &none, &err), BT_BUSY);
    snprintf(want, sizeof want,
             "port %d of 127.0.0.1 is in use by %s (choose one with --port N, or --port 0 for any "
             "free one)",
             port, holder);
    assert_string_equal(err.msg, want);
    assert_true(other == -7 && none == -7);
    close(fd);
    bt_listen_holder(port, holder, sizeof holder);
    assert_string_equal(holder, "");
    /* The requested port is free again. */
    assert_int_equal(bt_listen_tcp("127.0.0.1", port, &fd, &none, &err), BT_OK);
    assert_int_equal(none, port);
    close(fd);
    assert_int_equal(bt_listen_tcp("192.0.2.1", port, &other, &none, &err), BT_IO);
    snprintf(want, sizeof want,
             "cannot listen on 192.0.2.1 port %d: Cannot assign requested address", port);
    assert_string_equal(err.msg, want);
    /* A link-local address without its interface is refused. */
    const bt_code code = bt_listen_tcp("fe80::1", port, &other, &none, &err);
    if (strstr(err.msg, "cannot make a socket") || strstr(err.msg, "cannot listen on 'fe80::1'"))
        return; /* this system lacks IPv6 */
    assert_int_equal(code, BT_IO);
    snprintf(want, sizeof want, "cannot listen on fe80::1 port %d: Invalid argument", port);
    assert_string_equal(err.msg, want);
    assert_int_equal(bt_listen_tcp("::1", 0, &fd, &port, &err), BT_OK);
    bt_listen_holder(port, want, sizeof want);
    assert_string_equal(want, us);
    close(fd);
}

/* Many clients connect at once, before the first is accepted. */
static void many_may_wait(void **state) {
    enum { MANY = 12 };
    int fd = -1, port = -1, client[MANY];
    bt_err err = BT_ERR_INIT;
    (void)state;
    assert_int_equal(bt_listen_tcp("127.0.0.1", 0, &fd, &port, &err), BT_OK);
    const struct sockaddr_in at = {.sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (int i = 0; i < MANY; i++) {
        client[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        (void)!connect(client[i], (const struct sockaddr *)&at, sizeof at);
    }
    for (int i = 0; i < MANY; i++) {
        struct pollfd p = {client[i], POLLOUT, 0};
        assert_int_equal(poll(&p, 1, 900), 1);
        close(client[i]);
    }
    close(fd);
    struct rlimit before, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    bt_err why = BT_ERR_INIT;
    const bt_code code = bt_listen_tcp("127.0.0.1", 0, &fd, &port, &err),
                  of_unix = bt_listen_unix("/tmp/bt_listen_none", &fd, &why);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_true(code == BT_IO && of_unix == BT_IO);
    message_has(err.msg, "cannot make a socket");
    assert_string_equal(why.msg, err.msg);
}

static void sockets_have_one_owner(void **state) {
    int fd = -1, other = -7;
    char path[100], want[300], longest[120];
    bt_err err = BT_ERR_INIT;
    struct stat st;
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    (void)state;
    snprintf(path, sizeof path, "%s/socket", folder);
    strcpy(at.sun_path, path);
    const mode_t before = umask(0);
    assert_int_equal(bt_listen_unix(path, &fd, &err), BT_OK);
    assert_int_equal(umask(before), 0); /* The process's umask is restored. */
    is_ready(fd);
    assert_int_equal(lstat(path, &st), 0);
    assert_true(S_ISSOCK(st.st_mode) && (st.st_mode & 0777) == 0600);
    assert_int_equal(bt_listen_unix(path, &other, &err), BT_BUSY);
    snprintf(want, sizeof want, "'%s' is in use by another program", path);
    assert_string_equal(err.msg, want);
    assert_int_equal(other, -7);
    close(fd);
    /* The call replaces a socket without a listener. */
    assert_int_equal(bt_listen_unix(path, &fd, &err), BT_OK);
    const int client = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(connect(client, (const struct sockaddr *)&at, sizeof at), 0);
    close(client);
    close(fd);
    unlink(path);
    close(open(path, O_CREAT | O_WRONLY, 0600));
    assert_int_equal(bt_listen_unix(path, &other, &err), BT_BUSY);
    snprintf(want, sizeof want, "'%s' exists and is no socket", path);
    assert_string_equal(err.msg, want);
    unlink(path);
    /* A symbolic link cannot create a file elsewhere. */
    assert_int_equal(symlink("/nowhere", path), 0);
    assert_int_equal(bt_listen_unix(path, &other, &err), BT_BUSY);
    assert_string_equal(err.msg, want);
    unlink(path);
    /* A datagram socket may or may not have a reader. */
    const int packets = socket(AF_UNIX, SOCK_DGRAM, 0);
    assert_int_equal(bind(packets, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(bt_listen_unix(path, &other, &err), BT_BUSY);
    snprintf(want, sizeof want, "cannot replace the socket '%s': Protocol wrong type for socket",
             path);
    assert_string_equal(err.msg, want);
    assert_int_equal(lstat(path, &st), 0);
    close(packets);
    unlink(path);
    assert_int_equal(bt_listen_unix("/nowhere/socket", &other, &err), BT_IO);
    message_has(err.msg, "cannot listen on '/nowhere/socket'");
    memset(longest, 'x', sizeof longest);
    memcpy(longest, folder, strlen(folder));
    longest[strlen(folder)] = '/';
    longest[108] = '\0';
    assert_int_equal(bt_listen_unix(longest, &other, &err), BT_ARG);
    snprintf(want, sizeof want, "socket path '%s' is longer than 107 letters", longest);
    assert_string_equal(err.msg, want);
    longest[107] = '\0';
    assert_int_equal(bt_listen_unix(longest, &fd, &err), BT_OK);
    close(fd);
    unlink(longest);
    assert_int_equal(other, -7);
}

int main(void) {
    if (!mkdtemp(folder)) return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(ports_are_found_and_taken),
                                       cmocka_unit_test(many_may_wait),
                                       cmocka_unit_test(sockets_have_one_owner)};
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return rmdir(folder) != 0 || failed;
}

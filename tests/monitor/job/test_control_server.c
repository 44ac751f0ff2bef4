/* test_control_server.c - the control socket: replies, refusals, and clients that violate the protocol. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/base/clock.h"
#include "engine/base/tables/verb.h"
#include "monitor/job/control_server.h"
#include "store/wire/control_client.h"
#include "tests/message.h"

static char path[96];
static bt_control_server *server;
static _Atomic bool over;
static char heard[256];

static bt_code on_request(void *ctx, const char *verb, const char *arg, const char *who,
                          bt_text *answer, bt_err *err) {
    (void)ctx;
    snprintf(heard, sizeof heard, "%s|%s|%s", verb, arg, who);
    if (strcmp(verb, "pause") == 0) return bt_fail(err, BT_BUSY, "the run is paused already");
    bt_text_put(answer, "done");
    return BT_OK;
}

static void *serve_once(void *arg) {
    (void)arg;
    while (!atomic_load(&over)) {
        bt_control_serve(server, on_request, NULL);
        bt_sleep_ns(1000000);
    }
    return NULL;
}

static int connect_client(void) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    memcpy(a.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

static void test_replies(void **state) {
    (void)state;
    char reply[256];
    bt_err err = BT_ERR_INIT;
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(bt_control_call(path, "set lr=1e-4 #web", reply, sizeof reply, &err), BT_OK);
    assert_string_equal(reply, "done");
    assert_string_equal(heard, "set|lr=1e-4|web");
    assert_int_equal(bt_control_call(path, "checkpoint", reply, sizeof reply, &err), BT_OK);
    assert_string_equal(heard, "checkpoint||ctl");
    assert_int_equal(bt_control_call(path, "pause", reply, sizeof reply, &err), BT_BUSY);
    assert_string_equal(err.msg, "the run is paused already");
    assert_int_equal(bt_control_call(path, "", reply, sizeof reply, &err), BT_ARG);
    assert_int_equal(bt_control_call(path, "two\nlines", reply, sizeof reply, &err), BT_ARG);
    assert_int_equal(bt_control_call("/nonexistent/socket", "stop", reply, sizeof reply, &err),
                     BT_BUSY);
}

/* Any text is encoded as one word of a request, and decoded to the same text. */
static void test_prompts(void **state) {
    (void)state;
    static const char *const texts[] = {"Once upon a time",
                                        "100 % #1",
                                        "%41",
                                        "a\nb\t\"c\"\x7f",
                                        "\xd7\xa9\xd7\x9c\xd7\x95\xd7\x9d",
                                        "%",
                                        "+",
                                        "\xff\xfe"};
    char line[BT_CONTROL_LINE], word[128], back[128], tiny[8];
    bt_err err = BT_ERR_INIT;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        assert_int_equal(bt_control_word(word, sizeof word, texts[i], &err), BT_OK);
        assert_null(strpbrk(word, " #\n\t\r"));
        bt_control_unword(back, sizeof back, word);
        assert_string_equal(back, texts[i]);
    }
    assert_int_equal(bt_control_word(word, sizeof word, "", &err), BT_OK);
    bt_control_unword(back, sizeof back, word);
    assert_string_equal(back, "");
    bt_control_unword(back, sizeof back, "a%00b%4"); /* malformed words */
    assert_string_equal(back, "a b%4");
    bt_control_unword(tiny, sizeof tiny, "0123456789");
    assert_string_equal(tiny, "0123456");
    assert_int_equal(bt_control_word(tiny, sizeof tiny, "0123456789", &err), BT_ARG);
    assert_int_equal(bt_control_line(line, sizeof line, "sample", " \n", "ctl", &err), BT_ARG);
    assert_string_equal(err.msg, "the prompt is empty");
    char longest[BT_PROMPT_MAX + 2];
    memset(longest, '#', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    assert_int_equal(bt_control_line(line, sizeof line, "sample", longest, "ctl", &err), BT_ARG);
    longest[sizeof longest - 2] = '\0'; /* each byte takes three characters */
    assert_int_equal(bt_control_line(line, sizeof line, "sample", longest, "ctl", &err), BT_OK);
    assert_int_equal(bt_control_line(line, sizeof line, "sample", "a b #c", "web", &err), BT_OK);
    assert_string_equal(line, "sample a%20b%20%23c #web");
    assert_int_equal(bt_control_line(line, sizeof line, "set", "lr=1", "web", &err), BT_OK);
    assert_string_equal(line, "set lr=1 #web");
}

static void test_misbehaving_clients(void **state) {
    (void)state;
    char reply[256];
    bt_err err = BT_ERR_INIT;
    int fds[40];
    /* more silent clients than places */
    for (int i = 0; i < 40; i++) fds[i] = connect_client();
    assert_int_equal(bt_control_call(path, "eval", reply, sizeof reply, &err), BT_OK);
    for (int i = 0; i < 40; i++) close(fds[i]);
    int fd = connect_client(); /* a line without an end */
    char junk[8192];
    memset(junk, 'j', sizeof junk);
    assert_true(send(fd, junk, sizeof junk, MSG_NOSIGNAL) > 0);
    char c;
    assert_true(recv(fd, &c, 1, 0) <= 0); /* The connection was closed. */
    close(fd);
    /* A client sends a request and closes. */
    fd = connect_client();
    assert_int_equal(send(fd, "stop\n", 5, MSG_NOSIGNAL), 5);
    close(fd);
    fd = connect_client();
    assert_int_equal(send(fd, "\0\0\0\n", 4, MSG_NOSIGNAL), 4);
    assert_true(recv(fd, reply, sizeof reply, 0) > 0);
    assert_int_equal(strncmp(reply, "no ", 3), 0);
    close(fd);
    assert_int_equal(bt_control_call(path, "eval", reply, sizeof reply, &err), BT_OK);
}

/* A server driven by the test. */

typedef struct counter {
    char heard[200];
    int n;
} counter;

static bt_code count_request(void *ctx, const char *verb, const char *arg, const char *who,
                             bt_text *answer, bt_err *err) {
    counter *c = ctx;
    snprintf(c->heard, sizeof c->heard, "%.90s|%.40s|%.40s", verb, arg, who);
    c->n++;
    if (strcmp(verb, "pause") == 0) return bt_fail(err, BT_BUSY, "it is paused");
    bt_text_printf(answer, "%.20s", verb);
    return BT_OK;
}

static int dial_at(const char *at) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    strcpy(a.sun_path, at);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

/* Returns the reply to a client; "-": none yet, "": closed without a reply. */
static const char *received_by(int fd) {
    static char got[400];
    const ssize_t n = recv(fd, got, sizeof got - 1, MSG_DONTWAIT);
    got[n > 0 ? n : 0] = '\0';
    return n < 0 && errno == EAGAIN ? "-" : got;
}

static void own_server(bt_control_server **s, char at[120]) {
    bt_err err = BT_ERR_INIT;
    snprintf(at, 120, "%s.own", path);
    assert_int_equal(bt_control_listen(s, at, &err), BT_OK);
}

static void test_every_request(void **state) {
    static const struct {
        const char *line, *heard, *said;
    } rows[] = {{"checkpoint\n", "checkpoint||ctl", "ok checkpoint\n"},
                {"set lr=1 #web\n", "set|lr=1|web", "ok set\n"},
                {"\t set\tlr=1\r\n", "set|lr=1|ctl", "ok set\n"},
                {"set a b\n", "set|b|ctl", "ok set\n"},
                {"set #me a\n", "set|a|me", "ok set\n"},
                {"set !a\n", "set|!a|ctl", "ok set\n"},
                {"set \"a\"\n", "set|\"a\"|ctl", "ok set\n"},
                {"eval #\n", "eval||", "ok eval\n"},
                {"eval\nstop\n", "eval||ctl", "ok eval\n"},
                {"pause\n", "pause||ctl", "no 10 it is paused\n"},
                {"\n", "", "no 1 an empty request\n"},
                {" \t\r\n", "", "no 1 an empty request\n"}};
    bt_control_server *s;
    char at[120];
    (void)state;
    own_server(&s, at);
    struct pollfd ready = {bt_control_fd(s), POLLIN, 0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        counter c = {"", 0};
        const size_t half = strlen(rows[i].line) / 2;
        assert_int_equal(poll(&ready, 1, 0), 0); /* There is no request. */
        const int fd = dial_at(at);
        assert_int_equal(poll(&ready, 1, 0), 1);
        assert_int_equal(send(fd, rows[i].line, half, 0), half);
        bt_control_serve(s, count_request, &c);
        const bool whole = memchr(rows[i].line, '\n', half) != NULL;
        if (!whole) assert_string_equal(received_by(fd), "-");
        if (!whole) assert_int_equal(poll(&ready, 1, 0), 0);
        (void)!send(fd, rows[i].line + half, strlen(rows[i].line + half), MSG_NOSIGNAL);
        bt_control_serve(s, count_request, &c);
        assert_string_equal(received_by(fd), rows[i].said);
        assert_string_equal(received_by(fd), ""); /* The connection was closed. */
        assert_string_equal(c.heard, rows[i].heard);
        assert_int_equal(c.n, rows[i].heard[0] != '\0');
        close(fd);
    }
    /* the longest line allowed, then one byte more */
    for (int more = 0; more < 2; more++) {
        counter c = {"", 0};
        char line[BT_CONTROL_LINE + 1];
        memset(line, 'x', sizeof line);
        line[BT_CONTROL_LINE - 2 + more] = '\n';
        const int fd = dial_at(at);
        assert_int_equal(send(fd, line, (size_t)(BT_CONTROL_LINE - 1 + more), 0),
                         BT_CONTROL_LINE - 1 + more);
        bt_control_serve(s, count_request, &c);
        assert_int_equal(c.n, !more);
        assert_string_equal(received_by(fd), more ? "" : "ok xxxxxxxxxxxxxxxxxxxx\n");
        close(fd);
    }
    bt_control_close(s);
    assert_int_not_equal(access(at, F_OK), 0);
    bt_control_close(NULL);
}

/* Sixteen clients are served; one more replaces the oldest. */
static void test_the_oldest_client_is_dropped(void **state) {
    enum { MOST = 16, ALL = MOST + 3 };
    bt_control_server *s;
    counter c = {"", 0};
    char at[120];
    int fd[ALL];
    (void)state;
    own_server(&s, at);
    for (int i = 0; i < ALL; i++) {
        fd[i] = dial_at(at);
        bt_control_serve(s, count_request, &c);
        for (int k = 0; k <= i; k++) {
            const char *said = received_by(fd[k]);
            if (strcmp(said, k < i - MOST + 1 ? "" : "-") != 0)
                fail_msg("asker %d of %d: '%s'", k, i, said);
        }
    }
    assert_int_equal(send(fd[5], "eval\n", 5, 0), 5); /* the reply frees a place */
    bt_control_serve(s, count_request, &c);
    assert_string_equal(received_by(fd[5]), "ok eval\n");
    const int another = dial_at(at);
    bt_control_serve(s, count_request, &c);
    for (int i = 3; i < ALL; i++) assert_string_equal(received_by(fd[i]), i == 5 ? "" : "-");
    assert_int_equal(send(another, "stop\n", 5, 0), 5);
    bt_control_serve(s, count_request, &c);
    assert_string_equal(received_by(another), "ok stop\n");
    assert_int_equal(c.n, 2);
    bt_control_close(s);
    for (int i = 3; i < ALL; i++) assert_string_equal(received_by(fd[i]), "");
    for (int i = 0; i < ALL; i++) close(fd[i]);
    close(another);
}

static void test_places_of_sockets(void **state) {
    bt_control_server *s = server;
    bt_err err = BT_ERR_INIT;
    char longest[120], want[300], file[120], text[200] = "";
    struct stat st;
    (void)state;
    memset(longest, 'x', sizeof longest);
    longest[108] = '\0';
    assert_int_equal(bt_control_listen(&s, longest, &err), BT_ARG);
    assert_null(s);
    snprintf(want, sizeof want, "socket path '%s' is too long", longest);
    assert_string_equal(err.msg, want);
    assert_int_equal(bt_control_listen(&s, "/nowhere/socket", &err), BT_IO);
    message_has(err.msg, "cannot listen at '/nowhere/socket'");
    assert_int_equal(bt_control_listen(&s, path, &err), BT_IO);
    snprintf(want, sizeof want, "cannot listen at '%s': Address already in use", path);
    assert_string_equal(err.msg, want);
    assert_int_equal(stat(path, &st), 0); /* The other server's socket remains. */
    /* The file with the socket's path replaces any existing file. */
    char folder[104];
    snprintf(folder, sizeof folder, "%s.run", path);
    assert_int_equal(mkdir(folder, 0700), 0);
    /* A name of one letter is valid. */
    char here[300];
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(folder), 0);
    assert_int_equal(bt_control_listen(&s, "s", &err), BT_OK);
    assert_int_equal(access("s", F_OK), 0);
    bt_control_close(s);
    assert_int_not_equal(access("s", F_OK), 0);
    assert_int_equal(chdir(here), 0);
    snprintf(file, sizeof file, "%s/control", folder);
    assert_int_equal(symlink("/nowhere/file", file), 0);
    for (int i = 0; i < 2; i++) {
        bt_control_announce(folder, i ? "/b" : "/the/longer/one");
        FILE *f = fopen(file, "r");
        assert_non_null(f);
        text[fread(text, 1, sizeof text - 1, f)] = '\0';
        fclose(f);
        assert_string_equal(text, i ? "/b\n" : "/the/longer/one\n");
        assert_int_equal(lstat(file, &st), 0);
        assert_true(S_ISREG(st.st_mode) && (st.st_mode & 0133) == 0);
    }
    bt_control_withdraw(folder);
    assert_int_not_equal(lstat(file, &st), 0);
    bt_control_withdraw(folder);
    bt_control_announce("/nowhere", "/b");
    assert_int_equal(rmdir(folder), 0);
}

int main(void) {
    char folder[] = "/tmp/bt-control-XXXXXX";
    bt_err err = BT_ERR_INIT;
    pthread_t thread;
    if (!mkdtemp(folder)) return 1;
    snprintf(path, sizeof path, "%s/control", folder);
    if (bt_control_listen(&server, path, &err) != BT_OK ||
        pthread_create(&thread, NULL, serve_once, NULL) != 0)
        return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_replies),
                                       cmocka_unit_test(test_prompts),
                                       cmocka_unit_test(test_misbehaving_clients),
                                       cmocka_unit_test(test_every_request),
                                       cmocka_unit_test(test_the_oldest_client_is_dropped),
                                       cmocka_unit_test(test_places_of_sockets)};
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    atomic_store(&over, true);
    pthread_join(thread, NULL);
    bt_control_close(server);
    return rmdir(folder) != 0 || rc; /* The socket was removed. */
}

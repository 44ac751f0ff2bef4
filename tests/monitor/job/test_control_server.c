/* test_control_server.c - the control socket: answers, refusals, and askers who misbehave. */
#include <errno.h>
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

static void *serve(void *arg) {
    (void)arg;
    while (!atomic_load(&over)) {
        bt_control_serve(server, on_request, NULL);
        bt_sleep_ns(1000000);
    }
    return NULL;
}

static int dial(void) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    memcpy(a.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

static void test_answers(void **state) {
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

/* any text is one word of a request, and the same text behind it */
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
    bt_control_unword(back, sizeof back, "a%00b%4"); /* what nobody of ours writes */
    assert_string_equal(back, "a b%4");
    bt_control_unword(tiny, sizeof tiny, "0123456789");
    assert_string_equal(tiny, "0123456");
    assert_int_equal(bt_control_word(tiny, sizeof tiny, "0123456789", &err), BT_ARG);
    assert_int_equal(bt_control_line(line, sizeof line, "sample", " \n", "ctl", &err), BT_ARG);
    assert_string_equal(err.msg, "the prompt is empty");
    char longest[BT_PROMPT_MAX + 2];
    memset(longest, ' ', sizeof longest - 1);
    longest[0] = 'x', longest[sizeof longest - 1] = '\0';
    assert_int_equal(bt_control_line(line, sizeof line, "sample", longest, "ctl", &err), BT_ARG);
    longest[sizeof longest - 2] = '\0'; /* every byte of it three times */
    assert_int_equal(bt_control_line(line, sizeof line, "sample", longest, "ctl", &err), BT_OK);
    assert_int_equal(bt_control_line(line, sizeof line, "sample", "a b #c", "web", &err), BT_OK);
    assert_string_equal(line, "sample a%20b%20%23c #web");
    assert_int_equal(bt_control_line(line, sizeof line, "set", "lr=1", "web", &err), BT_OK);
    assert_string_equal(line, "set lr=1 #web");
}

static void test_rude_askers(void **state) {
    (void)state;
    char reply[256];
    bt_err err = BT_ERR_INIT;
    int fds[40];
    /* more than it keeps, all silent */
    for (int i = 0; i < 40; i++) fds[i] = dial();
    assert_int_equal(bt_control_call(path, "eval", reply, sizeof reply, &err), BT_OK);
    for (int i = 0; i < 40; i++) close(fds[i]);
    int fd = dial(); /* a line without end */
    char junk[8192];
    memset(junk, 'j', sizeof junk);
    assert_true(send(fd, junk, sizeof junk, MSG_NOSIGNAL) > 0);
    char c;
    assert_true(recv(fd, &c, 1, 0) <= 0); /* cut off */
    close(fd);
    /* asks and does not wait */
    fd = dial();
    assert_int_equal(send(fd, "stop\n", 5, MSG_NOSIGNAL), 5);
    close(fd);
    fd = dial();
    assert_int_equal(send(fd, "\0\0\0\n", 4, MSG_NOSIGNAL), 4);
    assert_true(recv(fd, reply, sizeof reply, 0) > 0);
    assert_int_equal(strncmp(reply, "no ", 3), 0);
    close(fd);
    assert_int_equal(bt_control_call(path, "eval", reply, sizeof reply, &err), BT_OK);
}

int main(void) {
    char folder[] = "/tmp/bt-control-XXXXXX";
    bt_err err = BT_ERR_INIT;
    pthread_t thread;
    if (!mkdtemp(folder)) return 1;
    snprintf(path, sizeof path, "%s/control", folder);
    if (bt_control_listen(&server, path, &err) != BT_OK ||
        pthread_create(&thread, NULL, serve, NULL) != 0)
        return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_answers),
                                       cmocka_unit_test(test_prompts),
                                       cmocka_unit_test(test_rude_askers)};
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    atomic_store(&over, true);
    pthread_join(thread, NULL);
    bt_control_close(server);
    return rmdir(folder) != 0 || rc; /* the socket is gone */
}

/* test_output.c - output of ranks: control characters are removed, its size is limited, and the error is extracted. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "monitor/job/launch/output.h"

static void feed_output(bt_output *o, const char *s) { bt_output_feed(o, s, strlen(s)); }

static void test_error_line(void **state) {
    (void)state;
    bt_output o;
    char line[640];
    bt_output_open(&o, "/nonexistent/log", 0);
    bt_output_error_line(line, sizeof line, 2, BT_FORMAT, "shard 'x' is damaged at byte 12");
    feed_output(&o, "noise\n");
    for (size_t i = 0; line[i]; i++) bt_output_feed(&o, line + i, 1); /* in pieces of any size */
    assert_true(o.reported);
    assert_int_equal(o.rank, 2);
    assert_int_equal(o.code, BT_FORMAT);
    assert_string_equal(o.message, "shard 'x' is damaged at byte 12");
    feed_output(&o, "bitrain rank 0: error 3: a later one\n"); /* The first error counts. */
    assert_int_equal(o.rank, 2);
    bt_output_reset(&o, 1);
    assert_false(o.reported);
    assert_int_equal(o.rank, -1);
    feed_output(
        &o, "bitrain rank 0: error 0: impossible\nbitrain rank 0: error 99: impossible\nbitrain "
            "rank x\n");
    assert_false(o.reported);
    bt_output_close(&o);
}

static void test_mpirun_notice(void **state) {
    (void)state;
    bt_output o;
    bt_output_open(&o, "/nonexistent/log", 0);
    feed_output(&o,
                "----------\nmpirun noticed that process rank 1 with PID 4711 on node vm exited on "
                "signal 9 (Killed).\n----------\n");
    assert_false(o.reported);
    assert_int_equal(o.rank, 1);
    assert_int_equal(o.signal, 9);
    bt_output_close(&o);
}

/* Open MPI 5 folds its notice, and both versions print the host of a lost daemon. */
static void test_folded_notices(void **state) {
    (void)state;
    bt_output o;
    bt_output_open(&o, "/nonexistent/log", 0);
    feed_output(&o, "---\nprterun noticed that process rank 1 with PID 21 on node vm exited on\n"
                    "signal 9 (Killed).\n---\n");
    assert_int_equal(o.rank, 1);
    assert_int_equal(o.signal, 9);
    bt_output_reset(&o, 1);
    feed_output(
        &o, "signal 9 is what a rank prints\nprterun noticed that process rank 1 with PID 21 on "
            "node vm exited on\nanother line\nsignal 9 (Killed).\n");
    assert_int_equal(o.signal, 0);
    assert_false(o.node_lost);
    feed_output(&o, "PRTE has lost communication with a remote daemon.\n\n"
                    "  HNP daemon   : [prterun-a-1@0,0] on node node1\n"
                    "  Remote daemon: [prterun-a-1@0,1] on node node2\n");
    assert_true(o.node_lost);
    assert_string_equal(o.lost_node, "node2");
    bt_output_reset(&o, 2);
    feed_output(&o, "-----\nPRTE has lost communication with a remote daemon.\n\n"
                    "  Remote daemon: [prterun-a-1@0,1] on node node2\n");
    assert_string_equal(o.said, "mpirun lost the connection to its daemon on 'node2'");
    bt_output_reset(&o, 2);
    assert_false(o.node_lost);
    bt_output_close(&o);
}

static void test_first_paragraph(void **state) {
    (void)state;
    bt_output o;
    bt_output_open(&o, "/nonexistent/log", 0);
    feed_output(&o, "-----\nThere are not enough slots:\n    4\nAsk for fewer.\n\nlong "
                    "advice\n-----\nmore\n-----\nlast\n");
    assert_string_equal(o.said, "There are not enough slots: 4 Ask for fewer.");
    assert_string_equal(o.last_line, "last");
    bt_output_close(&o);
}

/* The line of ssh gives the reason; mpirun's text after it is a list of possible causes. */
static void test_the_line_of_ssh_has_priority(void **state) {
    (void)state;
    static const char *const lines[] = {
        "ssh: Could not resolve hostname far: Name or service not known",
        "ssh: connect to host far port 22: Connection refused", "Host key verification failed.",
        "me@far: Permission denied (publickey,password).",
        "bash: line 1: orted: command not found"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        bt_output o;
        char want[256];
        bt_output_open(&o, "/nonexistent/log", 0);
        feed_output(&o, lines[i]);
        feed_output(&o, "\n-----\nORTE was unable to reliably start one or more daemons.\n-----\n");
        snprintf(want, sizeof want, "%s ('bitrain doctor --hosts FILE' tries every host)",
                 lines[i]);
        assert_string_equal(o.said, want);
        bt_output_close(&o);
    }
}

/* The reason of a failure is the first report of a rank's death, the first paragraph of mpirun, or the last line. */
static void test_messages_of_mpirun(void **state) {
    static const struct {
        const char *text;
        int rank, signal;
        const char *said, *last;
    } rows[] = {
        {"one\n\n", -1, 0, "", "one"},
        {"----\n\nfirst\n\nrest\n", -1, 0, "first", "rest"},
        {"----\n----\nfirst\n----\nsecond\n", -1, 0, "first", "second"},
        {"---\nno ruler\n", -1, 0, "", "no ruler"},
        {"----\n \t two words\n\t\nmore\n", -1, 0, "two words", "more"},
        {"----\na\n----\nssh: later\n", -1, 0, "a", "ssh: later"},
        {"ssh:x\n", -1, 0, "", "ssh:x"},
        {"an ssh: in the middle\n", -1, 0, "", "an ssh: in the middle"},
        {"sh: orted: not found\nssh: second\n", -1, 0,
         "sh: orted: not found ('bitrain doctor --hosts FILE' tries every host)", "ssh: second"},
        {"sh: orted: No such file or directory\n", -1, 0,
         "sh: orted: No such file or directory ('bitrain doctor --hosts FILE' tries every host)",
         "sh: orted: No such file or directory"},
        {"[vm:1] [[2,0],0] ORTE_ERROR_LOG: Out of resource in file a.c at line 1\n----\nNo network "
         "interfaces\n",
         -1, 0, "Out of resource (too few file descriptors: raise the limit, 'ulimit -n 1024')",
         "No network interfaces"},
        {"----\nYour job failed to map. Either no mapper was available, or none of\nthe others\n",
         -1, 0,
         "Your job failed to map (two names in the file of --hosts lead to one machine, or it has "
         "too few slots)",
         "the others"},
        {"It appears as if there is not enough space for /dev/shm/x (the shared-memory backing\n",
         -1, 0,
         "It appears as if there is not enough space for /dev/shm/x (the shared-memory backing "
         "(shared memory or the temporary folder is full: free /dev/shm and TMPDIR)",
         "It appears as if there is not enough space for /dev/shm/x (the shared-memory backing"},
        {"----\nA system call failed\n\n  Error:       File too large (errno 27)\n----\nssh: "
         "later\n",
         -1, 0,
         "File too large (errno 27) ('ulimit -f' is less than the shared memory of a rank: raise "
         "it)",
         "ssh: later"},
        {"process rank 3 with PID 5 on node a exited on signal 6\nprocess rank 4 with PID 5 on "
         "node b exited on "
         "signal 9\n",
         3, 6, "", "process rank 4 with PID 5 on node b exited on signal 9"},
        {"process rank 3 with PID 5 on node a exited normally\n", -1, 0, "",
         "process rank 3 with PID 5 on node a exited normally"},
        {"bitrain rank 2: error 3: x\nprocess rank 4 with PID 5 on node b exited on signal 9\n", 2,
         0, "", "process rank 4 with PID 5 on node b exited on signal 9"},
        {"bitrain: warning: x\n", -1, 0, "", ""},
        {"----\n9 %s of %n\n----\n5 %d\n", -1, 0, "9 %s of %n", "5 %d"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bt_output o;
        bt_output_open(&o, "/nonexistent/log", 0);
        assert_true(o.log == -1 && o.logged_bytes == 0 && o.rank == -1 && o.code == BT_OK);
        feed_output(&o, rows[i].text);
        assert_string_equal(o.said, rows[i].said);
        assert_string_equal(o.last_line, rows[i].last);
        if (o.rank != rows[i].rank || o.signal != rows[i].signal) fail_msg("row %zu", i);
        bt_output_reset(&o, 1);
        assert_true(!o.reported && o.code == BT_OK && o.rank == -1 && o.signal == 0 &&
                    !o.message[0] && !o.last_line[0] && !o.said[0] && o.said_state == 0 &&
                    o.notes == 0 && !o.last_note[0] && o.n == 0);
        bt_output_close(&o);
    }
}

/* Known codes in lines with any prefix; truncated texts. */
static void test_codes_of_errors(void **state) {
    (void)state;
    bt_output o;
    char line[2200], many[1000];
    bt_output_open(&o, "/nonexistent/log", 0);
    for (int code = -1; code <= BT_CODE_COUNT; code++) {
        bt_output_reset(&o, 0);
        snprintf(line, sizeof line, "[node1] bitrain rank 7: error %d: reason %d\n", code, code);
        feed_output(&o, line);
        const bool is = code > BT_OK && code < BT_CODE_COUNT;
        assert_true(o.reported == is && o.rank == (is ? 7 : -1) && (int)o.code == (is ? code : 0));
        snprintf(line, sizeof line, "reason %d", code);
        assert_string_equal(o.message, is ? line : "");
    }
    bt_output_reset(&o, 0);
    memset(many, 'm', sizeof many - 1);
    many[sizeof many - 1] = '\0';
    snprintf(line, sizeof line, "bitrain rank 0: error 3: %s\n", many);
    feed_output(&o, line);
    assert_int_equal(strlen(o.message), sizeof o.message - 1);
    bt_output_reset(&o, 0);
    snprintf(line, sizeof line, "----\n%s\n%s\n", many, many);
    feed_output(&o, line);
    assert_int_equal(strlen(o.said), sizeof o.said - 1);
    assert_int_equal(strlen(o.last_line), sizeof o.last_line - 1);
    bt_output_reset(&o, 0);
    feed_output(&o, "half a line");
    bt_output_reset(&o, 1); /* left by the previous attempt */
    feed_output(&o, "whole\n");
    assert_string_equal(o.last_line, "whole");
    assert_int_equal(bt_output_error_line(line, sizeof line, 12, BT_MPI, "no route"), 35);
    assert_string_equal(line, "bitrain rank 12: error 5: no route\n");
    bt_output_close(&o);
}

static int notes;
static char newest[256];
static void on_note(void *ctx, const char *text) {
    (void)ctx;
    notes++;
    snprintf(newest, sizeof newest, "%s", text);
}

static void test_notes(void **state) {
    (void)state;
    bt_output o;
    char line[64];
    bt_output_open(&o, "/nonexistent/log", 0);
    o.note = on_note;
    feed_output(
        &o,
        "bitrain: warning: disk is slow\nbitrain: warning: disk is slow\nbitrain: info: nothing\n");
    assert_int_equal(notes, 1);
    assert_string_equal(newest, "disk is slow");
    for (int i = 0; i < 1000; i++) {
        snprintf(line, sizeof line, "bitrain: error: number %d\n", i);
        feed_output(&o, line);
    }
    assert_int_equal(notes, BT_OUTPUT_NOTES);
    bt_output_reset(&o, 1);
    feed_output(&o, "bitrain: error: in the next attempt\n");
    assert_int_equal(notes, BT_OUTPUT_NOTES + 1);
    bt_output_close(&o);
}

static void test_log(void **state) {
    (void)state;
    char path[] = "/tmp/bt-output-XXXXXX", text[4096] = "";
    close(mkstemp(path));
    bt_output o;
    bt_output_open(&o, path, 3);
    feed_output(&o, "plain\r\n\033[31mred\033[0m\nnul: ");
    bt_output_feed(&o, "\0x\n", 3);
    char *longer = malloc(100001);
    memset(longer, 'l', 100000);
    longer[100000] = '\n';
    bt_output_feed(&o, longer, 100001);
    free(longer);
    feed_output(&o, "end\n");
    bt_output_close(&o);
    FILE *f = fopen(path, "r");
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    unlink(path);
    text[n] = '\0';
    assert_non_null(strstr(text, "--- attempt 3\nplain\n"));
    assert_null(strchr(text, 033));
    assert_non_null(strstr(text, "red"));
    assert_true(n < 2000);
    assert_non_null(strstr(text, "\nend\n"));
}

/* A full log is marked once, and the run's lines are still parsed. */
static void test_full_log(void **state) {
    (void)state;
    char path[] = "/tmp/bt-output-XXXXXX", text[4096] = "";
    close(mkstemp(path));
    bt_output o;
    bt_output_open(&o, path, 0);
    const int64_t before = o.logged_bytes;
    assert_int_equal(before, strlen("--- attempt 0\n"));
    feed_output(&o, "four\n");
    assert_int_equal(o.logged_bytes, before + 5);
    o.logged_bytes = (64 << 20) - 6;
    feed_output(&o, "fits.\n"); /* exactly */
    feed_output(&o, "too much\n");
    feed_output(&o, "more\n");
    feed_output(&o, "bitrain rank 2: error 3: said all the same\n");
    assert_int_equal(o.rank, 2);
    bt_output_close(&o);
    assert_int_equal(o.log, -1); /* The file is closed once. */
    FILE *f = fopen(path, "r");
    const size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    unlink(path);
    assert_int_equal(n, strlen(text)); /* the text including its last byte */
    assert_string_equal(text,
                        "--- attempt 0\nfour\nfits.\n(the log is full: nothing more is written)\n");
}

/* A pipe is read until it is empty; its last line needs no newline. */
static void test_drain(void **state) {
    (void)state;
    bt_output o;
    int ends[2];
    bt_output_open(&o, "/nonexistent/log", 0);
    assert_int_equal(pipe2(ends, O_NONBLOCK | O_CLOEXEC), 0);
    assert_true(bt_output_drain(&o, ends[0]));
    assert_int_equal(write(ends[1], "first\nsec", 9), 9);
    assert_true(bt_output_drain(&o, ends[0]));
    assert_string_equal(o.last_line, "first");
    assert_int_equal(write(ends[1], "ond\nlast", 8), 8);
    assert_true(bt_output_drain(&o, ends[0]));
    assert_string_equal(o.last_line, "second");
    char many[40000]; /* everything that is available */
    memset(many, 'm', sizeof many);
    for (size_t i = 99; i < sizeof many; i += 100) many[i] = '\n';
    memcpy(many + sizeof many - 6, "\nnext", 5);
    assert_int_equal(write(ends[1], many, sizeof many), sizeof many);
    assert_true(bt_output_drain(&o, ends[0]));
    assert_string_equal(o.last_line, "next");
    assert_int_equal(write(ends[1], "last", 4), 4);
    close(ends[1]);
    assert_false(bt_output_drain(&o, ends[0]));
    assert_string_equal(o.last_line, "last");
    assert_false(bt_output_drain(&o, ends[0])); /* The pipe is empty. */
    assert_int_equal(o.n, 0);
    close(ends[0]);
    bt_output_close(&o);
}

static int n_lines;
static char first_line[1024], newest_line[1024];
static void keep_line(void *ctx, const char *text) {
    (void)ctx;
    if (n_lines++ == 0) snprintf(first_line, sizeof first_line, "%s", text);
    snprintf(newest_line, sizeof newest_line, "%s", text);
}

/* Every non-empty line is forwarded without control characters, up to the limit of an attempt. */
static void test_lines(void **state) {
    (void)state;
    bt_output o;
    bt_output_open(&o, "/nonexistent/log", 0);
    o.on_line = keep_line;
    n_lines = 0;
    feed_output(&o, "rank 2: \x1b[1mbold\n\n   \nlast of three\n");
    assert_int_equal(n_lines, 2);
    assert_null(strchr(first_line, '\x1b'));
    assert_non_null(strstr(first_line, "rank 2: "));
    assert_string_equal(newest_line, "last of three");
    for (int i = 0; i < BT_OUTPUT_LINES + 5; i++) feed_output(&o, "again\n");
    assert_int_equal(n_lines, BT_OUTPUT_LINES + 1);
    assert_non_null(strstr(newest_line, "log.txt only"));
    bt_output_reset(&o, 1);
    feed_output(&o, "the next attempt\n");
    assert_string_equal(newest_line, "the next attempt");
    /* A folded notice is one line. */
    feed_output(&o, "prterun noticed that process rank 1 with PID 21 on node vm exited on\n"
                    "signal 9 (Killed).\n");
    assert_string_equal(newest_line, "prterun noticed that process rank 1 with PID 21 on node vm "
                                     "exited on signal 9 (Killed).");
    bt_output_close(&o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),           cmocka_unit_test(test_messages_of_mpirun),
        cmocka_unit_test(test_codes_of_errors), cmocka_unit_test(test_error_line),
        cmocka_unit_test(test_mpirun_notice),   cmocka_unit_test(test_folded_notices),
        cmocka_unit_test(test_first_paragraph), cmocka_unit_test(test_the_line_of_ssh_has_priority),
        cmocka_unit_test(test_notes),           cmocka_unit_test(test_log),
        cmocka_unit_test(test_full_log),        cmocka_unit_test(test_drain)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

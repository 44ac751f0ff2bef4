/* This program started once on several ranks, with a script in place of mpirun: its output is divided into result,
 * progress and errors; each end is reported; a signal ends it; its folders are removed. */
#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "monitor/job/launch/run_once.h"

static char folder[64], heard[1024];
static int ticks;

static void make_mpirun_script(const char *body) {
    char path[96];
    snprintf(path, sizeof path, "%s/mpirun", folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "#!/bin/sh\n%s\n", body);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(path, 0700), 0);
    setenv("BITRAIN_MPIRUN", path, 1);
}

static void collect_line(void *ctx, const char *line) {
    assert_ptr_equal(ctx, heard);
    if (line)
        snprintf(heard + strlen(heard), sizeof heard - strlen(heard), "%s;", line);
    else
        ticks++;
}

static bt_code run_script_once(bool listens, char *result, size_t size, bt_err *err) {
    static const char *const words[] = {"rank", "--bench", "two words"};
    const bt_run_once o = {.ranks = 3,
                           .hosts = "",
                           .mpirun_args = "-x FOO",
                           .words = words,
                           .n_words = 3,
                           .heard = listens ? collect_line : NULL,
                           .heard_ctx = heard};
    bt_text text;
    bt_text_init(&text);
    *err = (bt_err)BT_ERR_INIT;
    heard[0] = '\0';
    const bt_code code = bt_run_once_run(&o, &text, err);
    snprintf(result, size, "%s", bt_text_str(&text));
    bt_text_release(&text);
    return code;
}

#define RESULT "echo '" BT_RUN_ONCE_RESULT
#define PROGRESS "echo '" BT_RUN_ONCE_PROGRESS

static void ends_are_reported(void **state) {
    (void)state;
    static const struct {
        const char *body;
        bt_code code;
        const char *result, *heard, *says;
        int rank;
    } rows[] = {
        {RESULT "{\"a\":1}'", BT_OK, "{\"a\":1}", "", "", -1},
        {RESULT "first'; echo other; " RESULT "last'", BT_OK, "last", "", "", -1},
        {"printf '" BT_RUN_ONCE_RESULT "of a terminal\\r\\n'", BT_OK, "of a terminal", "", "", -1},
        {"printf '" BT_RUN_ONCE_RESULT "without an end'", BT_OK, "without an end", "", "", -1},
        {PROGRESS "1 of 2'; " PROGRESS "2 of 2'; " RESULT "done'", BT_OK, "done", "1 of 2;2 of 2;",
         "", -1},
        {"echo ' " BT_RUN_ONCE_RESULT "indented'", BT_IO, "", "",
         "the ranks ended without a result", -1},
        {":", BT_IO, "", "", "the ranks ended without a result", -1},
        {"echo 'bitrain rank 2: error 8: it has been stopped'; exit 3", (bt_code)8, "", "",
         "it has been stopped", 2},
        {"echo 'bitrain rank 1: error 3: no file'; " RESULT "all the same'; exit 1", BT_IO,
         "all the same", "", "no file", 1},
        {"printf b; sleep 0.1; printf 'itrain result: of pieces\n'", BT_OK, "of pieces", "", "",
         -1},
        {"echo 'mpirun noticed that process rank 1 with PID 7 on node n exited on signal 9 "
         "(Killed).'; exit 1",
         BT_IO, "", "", "rank 1 was ended by signal 9 (Killed) before the first step", -1},
        {RESULT "x'; exit 1", BT_IO, "x", "",
         "mpirun ended with exit code 1 before the first step: bitrain result: x", -1},
        {"echo why it is; exit 5", BT_IO, "", "",
         "mpirun ended with exit code 5 before the first step: why it is", -1},
        {"echo before; kill -9 $$", BT_IO, "", "",
         "a rank was ended by signal 9 (Killed) before the first step", -1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char result[256];
        bt_err err;
        make_mpirun_script(rows[i].body);
        const bt_code code = run_script_once(true, result, sizeof result, &err);
        if (code != rows[i].code) fail_msg("%s: %d, %s", rows[i].body, (int)code, err.msg);
        assert_string_equal(result, rows[i].result);
        assert_string_equal(heard, rows[i].heard);
        assert_string_equal(err.msg, rows[i].says);
        assert_int_equal(err.rank, rows[i].rank);
    }
    char result[64];
    bt_err err;
    make_mpirun_script(PROGRESS "to nobody'; " RESULT "r'");
    assert_int_equal(run_script_once(false, result, sizeof result, &err), BT_OK);
    assert_string_equal(result, "r");
}

/* A line longer than several reads arrives in one piece; during pauses the caller's progress function is called. */
static void long_lines_and_pauses(void **state) {
    (void)state;
    static char result[40000], want[30001];
    bt_err err;
    make_mpirun_script("printf '" BT_RUN_ONCE_RESULT
                       "'; head -c 30000 /dev/zero | tr '\\0' 'z'; echo; sleep 0.5");
    ticks = 0;
    assert_int_equal(run_script_once(true, result, sizeof result, &err), BT_OK);
    memset(want, 'z', sizeof want - 1);
    assert_string_equal(result, want);
    assert_true(ticks >= 2);
}

/* Arguments and environment of the ranks, and the files left after their end. */
static void arguments_and_folders(void **state) {
    (void)state;
    char result[4096], self[512], want[1024];
    bt_err err;
    struct stat st;
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(n > 0);
    self[n] = '\0';
    make_mpirun_script(
        "t=; for w; do [ \"${t#*te_}\" = tmpdir_base ] || [ \"$t\" = prte_local_tmpdir_base ] "
        "&& d=$w; t=$w; done; [ -d \"$d\" ] && "
        "printf '" BT_RUN_ONCE_RESULT "%s|' \"$d\" \"$@\"; echo");
    assert_int_equal(run_script_once(true, result, sizeof result, &err), BT_OK);
    snprintf(want, sizeof want, "|" BT_RUN_ONCE_RESULT "-np|" BT_RUN_ONCE_RESULT "3|");
    assert_non_null(strstr(result, want));
    snprintf(want, sizeof want,
             "|" BT_RUN_ONCE_RESULT "-x|" BT_RUN_ONCE_RESULT "FOO|" BT_RUN_ONCE_RESULT
             "%s|" BT_RUN_ONCE_RESULT "rank|" BT_RUN_ONCE_RESULT "--bench|" BT_RUN_ONCE_RESULT
             "two words|",
             self);
    assert_non_null(strstr(result, want));
    result[strcspn(result, "|")] = '\0';
    assert_int_equal(stat(result, &st), -1);
    *strrchr(result, '/') = '\0'; /* TMP/bitrain-UID-XXXXXX, the parent of folder 1 */
    assert_int_equal(stat(result, &st), -1);
    DIR *d = opendir(folder);
    const struct dirent *e;
    while ((e = readdir(d)))
        if (strncmp(e->d_name, "bitrain-", 8) == 0) fail_msg("%s is left", e->d_name);
    closedir(d);
    setenv("BITRAIN_MPIRUN", "/nonexistent/mpirun", 1);
    assert_int_equal(run_script_once(true, result, sizeof result, &err), BT_UNSUPPORTED);
    setenv("TMPDIR", "/proc/nothing", 1);
    assert_int_equal(run_script_once(true, result, sizeof result, &err), BT_IO);
    assert_non_null(strstr(err.msg, "cannot create '/proc/nothing/"));
    setenv("TMPDIR", folder, 1);
}

static void own_folders(int sig) { (void)sig; }

/* The signal ends the ranks, and the previous signal handler is restored. */
static void a_signal_ends_it(void **state) {
    (void)state;
    static const int sent[] = {SIGTERM, SIGINT};
    for (int i = 1; i >= 0; i--) {
        char body[160], result[64], want[64], path[96];
        struct sigaction now;
        long pid = 0;
        bt_err err;
        signal(SIGINT, own_folders);
        signal(SIGTERM, own_folders);
        snprintf(path, sizeof path, "%s/pid", folder);
        snprintf(body, sizeof body, "echo $$ > %s; kill -%d %d; exec sleep 60", path, sent[i],
                 (int)getpid());
        make_mpirun_script(body);
        assert_int_equal(run_script_once(true, result, sizeof result, &err), BT_STOPPED);
        snprintf(want, sizeof want, "stopped by signal %d", sent[i]);
        assert_string_equal(err.msg, want);
        FILE *f = fopen(path, "r");
        assert_true(f && fscanf(f, "%ld", &pid) == 1);
        fclose(f);
        assert_int_equal(kill((pid_t)pid, 0), -1);
        sigaction(SIGINT, NULL, &now);
        assert_ptr_equal(now.sa_handler, own_folders);
        sigaction(SIGTERM, NULL, &now);
        assert_ptr_equal(now.sa_handler, own_folders);
    }
}

int main(void) {
    char cmd[96];
    strcpy(folder, "/tmp/bt_once_XXXXXX");
    if (!mkdtemp(folder)) return 1;
    setenv("TMPDIR", folder, 1);
    setenv("HWLOC_COMPONENTS", "-pci", 0); /* the library does not free its list of devices */
    alarm(30);                             /* a test that hangs is ended */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_are_reported), cmocka_unit_test(long_lines_and_pauses),
        cmocka_unit_test(arguments_and_folders),
        cmocka_unit_test(
            a_signal_ends_it), /* the last test, because this process stores the signal's flag */
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", folder);
    return failed + system(cmd);
}

/* Errors in a host file are reported with their line before anything starts; slots are counted if every host states
 * them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "monitor/job/launch/host_file.h"

static const struct {
    const char *text;
    int ranks;
    const char *more;
    bt_code code;
    const char *message;
    int slots; /* 0 if a host does not state them */
} rows[] = {
    {"a slots=2\nb slots=2\n", 4, "", BT_OK, "", 4},
    {"a slots=2\nb slots=2\n", 5, "", BT_ARG,
     " has 4 slots on 2 hosts for 5 ranks (use --ranks 4, or slots=3 for every host)", 4},
    {"a slots=1", 2, "", BT_ARG,
     " has 1 slot on 1 host for 2 ranks (use --ranks 1, or slots=2 for every host)", 1},
    {"a slots=1\na slots=1\n", 2, "", BT_OK, "", 2},
    {"a slots=1\n", 2, "--oversubscribe", BT_OK, "", 1},
    {"a slots=1\n", 2, "--map-by slot:OVERSUBSCRIBE", BT_OK, "", 1},
    {"a\nb slots=1\n", 64, "", BT_OK, "", 0}, /* a has as many slots as cores */
    {"# two nodes\n\n  user@a max_slots=9 slots=1 # the first\n^c\nb\tslots=1\r\n", 2, "", BT_OK,
     "", 2},
    {"a slots=2\nb slots=two\n", 2, "", BT_ARG,
     ", line 2: slots=two must be a whole number from 1 to 65536, as in 'b slots=4'", 0},
    {"a slots=two\nb slots=2\n", 2, "", BT_ARG, ", line 1: slots=two must be", 0},
    {"a slots=\n", 2, "", BT_ARG, ", line 1: slots= must be a whole number", 0},
    {"a slots=-1\n", 2, "", BT_ARG, ", line 1: slots=-1 must be", 0},
    {"a slots=99999999999999999999\n", 2, "", BT_ARG, "must be a whole number from 1", 0},
    {"a slots=1\nlocalhost:2\n", 1, "", BT_ARG,
     ", line 2: 'localhost:2' is no host name: write 'localhost slots=2'", 0},
    {"user@a:22022\n", 1, "", BT_ARG,
     "write 'user@a slots=N' (a port of ssh belongs into ~/.ssh/config)", 0},
    {"::1\n", 1, "", BT_ARG, ", line 1: '::1' is an IPv6 address", 0},
    {"[fe80::1%eth0]:22 slots=2\n", 1, "", BT_ARG,
     ", line 1: '[fe80::1%eth0]:22' is an IPv6 address", 0},
    {"localhost,localhost\n", 1, "", BT_ARG, ", line 1: 'localhost,localhost': one host per line",
     0},
    {"-oProxyCommand=x\n", 1, "", BT_ARG, ", line 1: ", 0},
    {"a;reboot\n", 1, "", BT_ARG, ", line 1: 'a;reboot' is no host name", 0},
    {"a 4\n", 1, "", BT_ARG, ", line 1: '4' is no setting of a host, as in 'a slots=4'", 0},
    {"a slots = 4\n", 1, "", BT_ARG, "is no setting of a host", 0},
    {"\xEF\xBB\xBF"
     "a slots=2\r\nb slots=2\r\n",
     4, "", BT_OK, "", 4},
    {"\xFF\xFE"
     "a\n",
     1, "", BT_ARG, "is no host name", 0},
    {"slots=4\n", 2, "", BT_ARG, ", line 1: 'slots=4' is no host", 0},
    {"# nothing\n\n", 2, "", BT_ARG, " names no host (one 'host slots=N' per line)", 0},
    {"a slots=65536\nb slots=65536\n", 65536, "", BT_OK, "", 65536},
};

static void files_are_accepted_or_refused_with_a_reason(void **state) {
    (void)state;
    char dir[] = "/tmp/bt-hosts-XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/hosts", dir);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bt_err err = BT_ERR_INIT;
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fputs(rows[i].text, f);
        fclose(f);
        bt_code code = bt_host_file_check(path, rows[i].ranks, rows[i].more, &err);
        if (code != rows[i].code || (code != BT_OK && !strstr(err.msg, rows[i].message)))
            fail_msg("file %zu: %d, '%s'", i, code, code == BT_OK ? "" : err.msg);
        assert_int_equal(bt_host_file_slots(path), rows[i].slots);
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("# three\na slots=3\n\nb slots=1 # the small one\nc slots=2\n", f);
    fclose(f);
    int slots[3] = {0};
    assert_int_equal(bt_host_file_each(path, slots, 3), 3);
    assert_true(slots[0] == 3 && slots[1] == 1 && slots[2] == 2);
    assert_int_equal(bt_host_file_each(path, slots, 2), 0);
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_host_file_check(dir, 1, "", &err), BT_IO);
    unlink(path);
    assert_int_equal(bt_host_file_check(path, 1, "", &err), BT_NOTFOUND);
    assert_int_equal(bt_host_file_slots(path), 0);
    rmdir(dir);
}

/* Number of ranks on each host: mpirun fills slots in the order of the file. */
static void ranks_of_each_host(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int ranks, hosts, on[3];
    } placed[] = {
        {"a slots=3\nb slots=1\nc slots=2\n", 6, 3, {3, 1, 2}},
        {"a slots=3\nb slots=1\nc slots=2\n", 5, 3, {3, 1, 1}},
        {"a slots=3\nb slots=1\nc slots=2\n", 3, 1, {3}},
        {"a slots=2\nb slots=2\n", 3, 2, {2, 1}},
        {"a\nb\n", 4, 2, {2, 2}},                 /* no slots: evenly */
        {"a slots=1\nb slots=1\n", 4, 2, {2, 2}}, /* too few slots: mpirun oversubscribes */
        {"a\nb slots=9\nc\n", 2, 2, {1, 1}},
        {"# none\n", 2, 0, {0}}};
    char path[] = "/tmp/bt-hosts-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    for (size_t i = 0; i < sizeof placed / sizeof *placed; i++) {
        int on[6] = {0};
        assert_int_equal(ftruncate(fd, 0), 0);
        assert_int_equal(pwrite(fd, placed[i].text, strlen(placed[i].text), 0),
                         strlen(placed[i].text));
        assert_int_equal(bt_host_file_ranks(path, on, placed[i].ranks), placed[i].hosts);
        for (int h = 0; h < placed[i].hosts; h++) assert_int_equal(on[h], placed[i].on[h]);
    }
    close(fd);
    unlink(path);
    int on[1];
    assert_int_equal(bt_host_file_ranks(path, on, 1), 0);
}

/* Open MPI refuses carriage returns and byte order marks, so it gets a copy without them. */
static void windows_files_are_copied(void **state) {
    (void)state;
    char dir[] = "/tmp/bt-hosts-XXXXXX", path[64], out[100], text[64] = "";
    bt_err err = BT_ERR_INIT;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/hosts", dir);
    static const char *const texts[] = {"a slots=2\r\nb slots=2\r\n", "\xEF\xBB\xBF"
                                                                      "a slots=2\nb slots=2\n"};
    for (size_t i = 0; i < 2; i++) {
        FILE *f = fopen(path, "w");
        fputs(texts[i], f);
        fclose(f);
        assert_int_equal(bt_host_file_for_mpirun(path, dir, out, sizeof out, &err), BT_OK);
        assert_string_not_equal(out, path);
        f = fopen(out, "r");
        assert_non_null(f);
        text[fread(text, 1, sizeof text - 1, f)] = 0;
        fclose(f);
        assert_string_equal(text, "a slots=2\nb slots=2\n");
        unlink(out);
    }
    FILE *f = fopen(path, "w");
    fputs("a slots=2\n", f);
    fclose(f);
    assert_int_equal(bt_host_file_for_mpirun(path, dir, out, sizeof out, &err), BT_OK);
    assert_string_equal(out, path);
    unlink(path);
    assert_int_equal(bt_host_file_for_mpirun(path, dir, out, sizeof out, &err), BT_NOTFOUND);
    assert_non_null(strstr(err.msg, "takes a file with one 'host slots=N' per line"));
    rmdir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_are_accepted_or_refused_with_a_reason),
        cmocka_unit_test(ranks_of_each_host), cmocka_unit_test(windows_files_are_copied)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

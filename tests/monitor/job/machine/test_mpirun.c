/* test_mpirun.c - the MPI library that an mpirun belongs to, and the mpirun that is used if there are several. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "monitor/job/machine/mpirun.h"

static void libraries_of_mpirun_programs(void **state) {
    (void)state;
    static const struct {
        const char *version, *owner;
    } rows[] = {
        {"mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/\n",
         "Open MPI 4.1.4"},
        {"mpirun (Open MPI) 5.0.3\n", "Open MPI 5.0.3"},
        {"HYDRA build details:\n    Version:                                 4.2.0\n",
         "MPICH 4.2.0"},
        {"Intel(R) MPI Library for Linux* OS, Version 2021.10 Build 20230619 (id: c2e19c2f3e)\n",
         "Intel MPI 2021.10"},
        {"mpirun (IBM Spectrum MPI) 10.3.0.1\n", "IBM Spectrum MPI 10.3.0.1"},
        {"my wrapper\x1b[2J\nmore", "my wrapper[2J"},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char owner[80];
        bt_mpirun_owner(rows[i].version, owner, sizeof owner);
        assert_string_equal(owner, rows[i].owner);
    }
}

static char dir[] = "/tmp/bt-mpirun-XXXXXX";

static void make_mpirun(const char *name, const char *prints) {
    char path[100];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "#!/bin/sh\nprintf '%s\\n'\n", prints);
    fclose(f);
    assert_int_equal(chmod(path, 0755), 0);
}

/* This test program is linked with Open MPI or with none; in both cases MPICH's mpirun is reported. */
static void another_mpi_is_named(void **state) {
    (void)state;
    char path[200], was[4096];
    bt_mpirun m;
    bt_err err = BT_ERR_INIT;
    assert_non_null(mkdtemp(dir));
    snprintf(was, sizeof was, "%s", getenv("PATH"));
    make_mpirun("mpirun", "HYDRA build details:\\n    Version: 4.2.0");
    setenv("PATH", dir, 1);
    unsetenv("BITRAIN_MPIRUN");
    snprintf(path, sizeof path, "%s/mpirun", dir);
    const bt_code code = bt_mpirun_find(&m, false, &err);
    const char *words = code == BT_OK ? m.passed_over : err.msg;
    assert_non_null(strstr(words, path));
    assert_non_null(strstr(words, "MPICH 4.2.0"));
    assert_non_null(strstr(words, "Open MPI"));
    if (code == BT_OK) assert_string_not_equal(m.path, path);
    /* The user's choice is used, and the error contains it. */
    setenv("BITRAIN_MPIRUN", path, 1);
    assert_int_equal(bt_mpirun_find(&m, false, &err), BT_OK);
    assert_string_equal(m.command, path);
    assert_int_equal(bt_mpirun_find(&m, true, &err), BT_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "MPICH 4.2.0"));
    /* An unknown mpirun may be a script that calls the right one. */
    make_mpirun("mpirun", "hello");
    assert_int_equal(bt_mpirun_find(&m, true, &err), BT_OK);
    setenv("BITRAIN_MPIRUN", "nosuch", 1);
    assert_int_equal(bt_mpirun_find(&m, false, &err), BT_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "'nosuch': not found"));
    unsetenv("BITRAIN_MPIRUN");
    setenv("PATH", was, 1);
    unlink(path);
    rmdir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(libraries_of_mpirun_programs),
                                       cmocka_unit_test(another_mpi_is_named)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

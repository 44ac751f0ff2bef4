/* rank_failure.c - part of every unit test of several ranks: if a test fails on one rank, the job ends after cmocka's
 * next line, which contains the test and the reason. Otherwise the other ranks would wait in an exchange until the
 * test's timeout. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <mpi.h>
#include <cmocka.h>

enum { MOST = 64 };

static const struct CMUnitTest *given;
static CMFixtureFunction given_end;
static size_t begun; /* number of tests that have begun */
/* The newest test has failed; unknown while it runs, because a failing test does not return. */
static bool failed;

int __real__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t n,
                                   CMFixtureFunction begin, CMFixtureFunction end);
int __wrap__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t n,
                                   CMFixtureFunction begin, CMFixtureFunction end);

static void end_job_if_failed(void) {
    int started = 0, ended = 0;
    if (!failed) return;
    fflush(NULL);
    MPI_Initialized(&started);
    MPI_Finalized(&ended);
    if (started && !ended) MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

static void run(void **state) {
    failed = true;
    given[begun - 1].test_func(state);
    failed = false;
}

static int before(void **state) {
    end_job_if_failed();
    const CMFixtureFunction setup = given[begun++].setup_func;
    failed = setup && setup(state) != 0;
    return failed;
}

static int check_after_group(void **state) {
    end_job_if_failed();
    return given_end ? given_end(state) : 0;
}

int __wrap__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t n,
                                   CMFixtureFunction begin, CMFixtureFunction end) {
    struct CMUnitTest watched[MOST];
    if (n > MOST) return -1;
    given = tests;
    given_end = end;
    begun = 0;
    for (size_t i = 0; i < n; i++) {
        watched[i] = tests[i];
        watched[i].test_func = run;
        watched[i].setup_func = before;
    }
    return __real__cmocka_run_group_tests(name, watched, n, begin, check_after_group);
}

/* A process that no MPI launcher started detects that and has a world of one rank. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/parallel/mpi/comm.h"

static const char *const names[] = {
    "OMPI_COMM_WORLD_RANK", "PMIX_RANK",     "PMI_RANK",  "PMI_FD",
    "SLURM_PROCID",         "SLURM_STEP_ID", "PMI_JOBID", "PMIX_NAMESPACE"};
enum { N = sizeof names / sizeof *names };

static void clear_variables(void) {
    for (size_t i = 0; i < N; i++) unsetenv(names[i]);
}

/* One letter per variable: '0' set to 0, 'e' set and empty, '-' not set. */
static void a_launcher_is_detected_by_its_variables(void **state) {
    (void)state;
    static const struct {
        const char *set;
        bool rank;
    } rows[] = {{"--------", false}, {"0-------", true},  {"e-------", false}, {"-0------", true},
                {"-e------", false}, {"--0-----", true},  {"---0----", true},  {"----0---", false},
                {"----00--", false}, {"----000-", true},  {"----00-0", true},  {"----0-0-", false},
                {"-----00-", false}, {"----00e-", false}, {"----e00-", false}, {"------00", false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        clear_variables();
        for (size_t k = 0; k < N; k++)
            if (rows[i].set[k] != '-') setenv(names[k], rows[i].set[k] == 'e' ? "" : "0", 1);
        if (bt_comm_am_rank() != rows[i].rank) fail_msg("'%s' is taken for another", rows[i].set);
    }
    clear_variables();
}

static void the_world_has_one_rank(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    clear_variables();
    for (int i = 0; i < 2; i++) {
        assert_int_equal(bt_comm_init(&err), BT_OK);
        bt_comm *w = bt_comm_world();
        assert_true(bt_comm_rank(w) == 0 && bt_comm_size(w) == 1);
        assert_true(bt_comm_local_rank() == 0 && bt_comm_local_size() == 1);
        assert_true(bt_comm_host(0) == 0 && bt_comm_host(3) == 0);
        bt_comm_finalize();
    }
    char text[128] = "";
    bt_comm_library(text, sizeof text); /* also before bt_comm_init */
    assert_true(text[0] != '\0');
}

/* The error is returned unchanged and does not contain a rank. */
static void one_process_agrees_with_itself(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_agree(bt_comm_world(), BT_OK, &err), BT_OK);
    assert_int_equal(bt_agree(bt_comm_world(), bt_fail(&err, BT_IO, "no file"), &err), BT_IO);
    assert_int_equal(err.rank, -1);
    assert_int_equal(err.code, BT_IO);
    assert_string_equal(err.msg, "no file");
    assert_int_equal(bt_agree(bt_comm_world(), BT_NOMEM, NULL), BT_NOMEM);
}

static void an_abort_ends_the_process(void **state) {
    (void)state;
    int status = 0;
    const pid_t pid = fork();
    if (pid == 0) bt_comm_abort(7);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_launcher_is_detected_by_its_variables),
        cmocka_unit_test(the_world_has_one_rank),
        cmocka_unit_test(one_process_agrees_with_itself),
        cmocka_unit_test(an_abort_ends_the_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* one_rank_fails.c - rank 1 fails the second test while rank 0 waits for it in a barrier. With an argument no rank
 * fails. run_rank_failure.sh starts this program. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "engine/parallel/mpi/comm.h"

static bool fails;

static void both_meet(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_barrier(bt_comm_world(), &err), BT_OK);
}

static void one_does_not_come(void **state) {
    if (fails) assert_int_equal(bt_comm_rank(bt_comm_world()), 0);
    both_meet(state);
}

int main(int argc, char **argv) {
    bt_err err = BT_ERR_INIT;
    (void)argv;
    fails = argc < 2;
    if (bt_comm_init(&err) != BT_OK) return 3;
    const struct CMUnitTest tests[] = {cmocka_unit_test(both_meet),
                                       cmocka_unit_test(one_does_not_come),
                                       cmocka_unit_test(both_meet)};
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_comm_finalize();
    return failed;
}

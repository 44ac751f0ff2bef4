// ctest: ranks=2
/* The planner's probe measures the gradient exchange of training through shared memory of a host, for replicas and for
 * shards. It returns no result if the system refuses shared memory or if the ranks are on several hosts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "engine/base/testing/testing.h"
#include "engine/base/threads.h"
#include "engine/kernels/table/kernels.h"
#include "engine/parallel/mpi/comm.h"
#include "engine/plan/probe/rates_probe.h"

static bt_rates r;

static const bt_link_rate *probe_links(void) {
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_rates_probe_links(&r, &err), BT_OK);
    assert_int_equal(r.n_links, 1);
    assert_int_equal(r.links[0].n, 2);
    return &r.links[0];
}

static void gradients_go_through_memory(void **state) {
    (void)state;
    const bt_link_rate *l = probe_links();
    assert_true(l->grads_sum_s > 0);
    assert_true(l->grads_back_s >= 0);
}

static void memory_that_is_refused_is_no_link(void **state) {
    (void)state;
    bt_testing_exchange_messages = true;
    const bt_link_rate *l = probe_links();
    bt_testing_exchange_messages = false;
    assert_true(l->grads_sum_s == 0 && l->grads_back_s == 0);
}

static void hosts_share_no_memory(void **state) {
    (void)state;
    setenv("BITRAIN_TEST_HOSTS", "1", 1);
    const bt_link_rate *l = probe_links();
    unsetenv("BITRAIN_TEST_HOSTS");
    assert_true(l->grads_sum_s == 0 && l->grads_back_s == 0);
}

int main(void) {
    bt_err err = BT_ERR_INIT;
    if (bt_comm_init(&err) != BT_OK || bt_kernels_select("auto", &err) != BT_OK ||
        bt_threads_init(1, &err) != BT_OK)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_go_through_memory),
        cmocka_unit_test(memory_that_is_refused_is_no_link),
        cmocka_unit_test(hosts_share_no_memory),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (failed) bt_comm_abort(1);
    bt_threads_release();
    bt_comm_finalize();
    return failed;
}

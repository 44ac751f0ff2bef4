// ctest: ranks=3
/* test_refused_ranks.c - one rank's memory requests are refused, one after the other, while all ranks create a mesh and
 * a gradient exchange through shared memory and by messages. All ranks return that rank's error, none waits for another
 * rank, none leaks, and the same call succeeds when memory is granted. */
#include "tests/memory/refuse_memory.h"

#include <stdlib.h>

#include "engine/kernels/table/kernels.h"
#include "engine/parallel/grad/reducer.h"

enum { N = 4096 };
static bt_comm *w;
static int rank, size;
static float grads[N];
static bt_mesh mesh;

static bt_code make_mesh(void *ctx, bt_err *err) {
    bt_mesh m;
    const bt_mesh_shape s = {1, size, 1, 1};
    (void)ctx;
    const bt_code code = bt_mesh_create(&m, &s, w, err);
    bt_mesh_release(&m);
    return code;
}

static bt_code make_reducer(void *ctx, bt_err *err) {
    bt_reducer_cfg cfg = *(const bt_reducer_cfg *)ctx;
    bt_reducer *r = NULL;
    const bt_code code = bt_reducer_create(&r, &cfg, err);
    bt_reducer_destroy(r);
    return code;
}

/* Runs once with the k-th request of rank `poor` refused; returns whether it was refused. */
static bool fail_together(const char *what, needs_memory fn, void *ctx, int poor, long k,
                          long *left) {
    bt_err err = BT_ERR_INIT, told = BT_ERR_INIT;
    const long before = memory_blocks(true); /* MPI may keep memory */
    if (rank == poor) refuse_memory(&(refusal){.after = k, .own = true});
    const bt_code code = fn(ctx, &err);
    int64_t any = rank == poor && grant_memory();
    *left = memory_blocks(true) - before;
    assert_int_equal(bt_broadcast(w, &any, sizeof any, poor, &told), BT_OK);
    if (code != (any ? BT_NOMEM : BT_OK) || (any && (err.rank != poor || !err.msg[0]))) {
        tell_refused();
        fail_msg("%s, request %ld of rank %d: rank %d returns %s, '%s' of rank %d", what, k, poor,
                 rank, bt_code_name(code), err.msg, err.rank);
    }
    return any != 0;
}

static void all_fail_together(const char *what, needs_memory fn, void *ctx) {
    bt_err err = BT_ERR_INIT;
    for (int i = 0; i < 2; i++)
        if (fn(ctx, &err) != BT_OK) fail_msg("%s, with all memory: %s", what, err.msg);
    for (int poor = 0; poor < size; poor++) {
        for (long k = 0;; k++) {
            long left;
            const bool any = fail_together(what, fn, ctx, poor, k, &left);
            if (left != 0)
                fail_msg("%s, request %ld of rank %d: rank %d keeps %ld blocks", what, k, poor,
                         rank, left);
            if (!any) break;
        }
    }
    assert_int_equal(fn(ctx, &err), BT_OK);
}

static void creating_a_mesh_fails_on_all_ranks(void **state) {
    (void)state;
    all_fail_together("a mesh", make_mesh, NULL);
}

static void creating_a_reducer_fails_on_all_ranks(void **state) {
    (void)state;
    const bt_range lanes[] = {{0, N / 2}, {N / 2, N}};
    bt_reducer_cfg plain = {.mesh = &mesh, .grads = grads, .n = N, .bucket_bytes = 4096},
                   encoded = plain, units = plain;
    encoded.form.codec = bt_codec_at(BT_CODEC_INT8);
    units.units = 8;
    units.lanes = lanes;
    units.n_lanes = 2;
    all_fail_together("a gradient exchange", make_reducer, &plain);
    all_fail_together("an exchange of int8", make_reducer, &encoded);
    all_fail_together("an exchange of units", make_reducer, &units);
    assert_int_equal(setenv("BITRAIN_TEST_HOSTS", "2,1", 1), 0);
    all_fail_together("an exchange of two hosts", make_reducer, &plain);
    assert_int_equal(unsetenv("BITRAIN_TEST_HOSTS"), 0);
}

int main(void) {
    bt_err err = BT_ERR_INIT;
    if (!refuse_memory_works()) return 77;
    if (bt_kernels_select("auto", NULL) != BT_OK || bt_comm_init(&err) != BT_OK) return 1;
    w = bt_comm_world();
    rank = bt_comm_rank(w);
    size = bt_comm_size(w);
    const bt_mesh_shape replicas = {1, size, 1, 1};
    if (bt_mesh_create(&mesh, &replicas, w, &err) != BT_OK) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(creating_a_mesh_fails_on_all_ranks),
        cmocka_unit_test(creating_a_reducer_fails_on_all_ranks),
    };
    int failed = size > 1 ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
    bt_mesh_release(&mesh);
    bt_comm_finalize();
    return failed;
}

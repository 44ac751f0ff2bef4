// ctest: ranks=3
/* Collectives compared with their definition, in one call and in many chunks; agreement (bt_agree) with failing ranks;
 * byte counters. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "engine/parallel/mpi/comm_internal.h"
#include "engine/parallel/mpi/mesh.h"

enum { MOST = 1031 };

static bt_comm *w;
static int rank, size;

static void check_collectives(int N) {
    bt_err err = BT_ERR_INIT;
    static float f[MOST];
    static double d[MOST];
    static int64_t n64[MOST];
    for (int i = 0; i < N; i++) {
        f[i] = (float)(i + rank);
        d[i] = i * (rank + 1);
        n64[i] = i * (rank == 1 ? -1 : 1);
    }
    assert_int_equal(bt_all_reduce_f32(w, f, (size_t)N, BT_SUM, &err), BT_OK);
    assert_int_equal(bt_all_reduce_f64(w, d, (size_t)N, BT_MAX, &err), BT_OK);
    assert_int_equal(bt_all_reduce_i64(w, n64, (size_t)N, BT_MIN, &err), BT_OK);
    for (int i = 0; i < N; i++) {
        assert_true(f[i] == (float)(i * size + size * (size - 1) / 2));
        assert_true(d[i] == (double)i * size);
        assert_int_equal(n64[i], -i);
    }

    char text[64] = "";
    if (rank == size - 1) strcpy(text, "from the last rank to everybody");
    assert_int_equal(bt_broadcast(w, text, sizeof text, size - 1, &err), BT_OK);
    assert_string_equal(text, "from the last rank to everybody");

    int32_t mine[5], *all = calloc((size_t)size * 5, sizeof *all);
    for (int i = 0; i < 5; i++) mine[i] = 10 * rank + i;
    assert_int_equal(bt_all_gather(w, mine, sizeof mine, all, &err), BT_OK);
    for (int r = 0; r < size; r++)
        for (int i = 0; i < 5; i++) assert_int_equal(all[5 * r + i], 10 * r + i);
    memset(all, 0, (size_t)size * sizeof mine);
    assert_int_equal(bt_gather(w, mine, sizeof mine, rank == 1 ? all : NULL, 1, &err), BT_OK);
    if (rank == 1)
        for (int r = 0; r < size; r++)
            for (int i = 0; i < 5; i++) assert_int_equal(all[5 * r + i], 10 * r + i);
    free(all);
    assert_int_equal(bt_barrier(w, &err), BT_OK);
}

static void collectives_follow_their_definition(void **state) {
    (void)state;
    check_collectives(MOST);
}

static void counts_above_the_limit_go_in_chunks(void **state) {
    (void)state;
    static const struct {
        size_t limit;
        int values;
    } rows[] = {{1, 9}, {7, 70}, {64, MOST}, {1000, MOST}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bt_comm_chunk_elems = rows[i].limit;
        check_collectives(rows[i].values);
    }
    bt_comm_chunk_elems = INT_MAX;
}

static void requests_complete_and_keep_their_order(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    static int64_t a[4096], b[33];
    int64_t latest = 100 + rank;
    bt_request ra, rb, rc;
    for (int i = 0; i < 4096; i++) a[i] = rank;
    for (int i = 0; i < 33; i++) b[i] = 1;
    assert_int_equal(bt_all_reduce_i64_start(w, a, 4096, BT_SUM, &ra, &err), BT_OK);
    assert_int_equal(bt_all_reduce_i64_start(w, b, 33, BT_SUM, &rb, &err), BT_OK);
    assert_int_equal(bt_all_reduce_i64_start(w, &latest, 1, BT_MAX, &rc, &err), BT_OK);
    bool done = false;
    while (!done) assert_int_equal(bt_request_test(&rb, &done, &err), BT_OK);
    assert_false(rb.active);
    assert_int_equal(bt_request_wait(&ra, &err), BT_OK);
    assert_int_equal(bt_request_wait(&rc, &err), BT_OK);
    /* Waiting again for a finished request has no effect. */
    assert_int_equal(bt_request_wait(&rc, &err), BT_OK);
    assert_true(a[4095] == size * (size - 1) / 2 && b[32] == size);
    assert_int_equal(latest, 100 + size - 1);

    double mine[2] = {rank, 2 * rank}, all[64];
    assert_int_equal(bt_gather_start(w, mine, sizeof mine, all, 0, &ra, &err), BT_OK);
    assert_int_equal(bt_request_wait(&ra, &err), BT_OK);
    if (rank == 0)
        for (int r = 0; r < size; r++) assert_true(all[2 * r] == r && all[2 * r + 1] == 2 * r);
}

static void agree_returns_the_error_of_the_lowest_failing_rank(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_agree(w, BT_OK, &err), BT_OK);
    /* Each rank from `bad` on fails with its own error. */
    for (int bad = 0; bad < size; bad++) {
        bt_err mine = BT_ERR_INIT;
        bt_code code = BT_OK;
        if (rank >= bad)
            code = bt_fail(&mine, rank == bad ? BT_IO : BT_NOMEM, "rank %d cannot open 'x'", rank);
        assert_int_equal(bt_agree(w, code, &mine), BT_IO);
        char expect[64];
        snprintf(expect, sizeof expect, "rank %d cannot open 'x'", bad);
        assert_string_equal(mine.msg, expect);
        assert_int_equal(mine.rank, bad);
        assert_int_equal(mine.code, BT_IO);
    }
    assert_int_equal(bt_agree(w, BT_OK, &err), BT_OK); /* The communicator is still usable. */
}

static void bytes_follow_the_ring_formula(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    static float x[3 * 5 * 7 * 64];
    uint64_t before = bt_comm_bytes_logical();
    assert_int_equal(bt_all_reduce_f32(w, x, 3 * 5 * 7 * 64, BT_SUM, &err), BT_OK);
    assert_int_equal(bt_comm_bytes_logical() - before,
                     2 * sizeof x * (size_t)(size - 1) / (size_t)size);
    assert_int_equal(bt_comm_bytes_logical(), bt_comm_bytes_wire());
}

static void axes_of_a_mesh_connect_the_right_ranks(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    bt_mesh m;
    bt_mesh_shape s = {1, 1, size, 1};
    assert_int_equal(bt_mesh_create(&m, &s, w, &err), BT_OK);
    assert_int_equal(bt_comm_size(m.shard), size);
    assert_int_equal(bt_comm_size(m.dp), size);
    assert_int_equal(bt_comm_size(m.replicate), 1);
    assert_int_equal(bt_comm_size(m.tp), 1);
    float one = 1;
    assert_int_equal(bt_all_reduce_f32(m.shard, &one, 1, BT_SUM, &err), BT_OK);
    assert_true(one == (float)size);
    bt_mesh_release(&m);
    s = (bt_mesh_shape){1, 1, 1, size};
    assert_int_equal(bt_mesh_create(&m, &s, w, &err), BT_OK);
    assert_int_equal(bt_comm_size(m.tp), size);
    assert_int_equal(bt_comm_rank(m.tp), rank);
    assert_int_equal(bt_comm_size(m.dp), 1);
    bt_mesh_release(&m);
}

/* TCP sends a bucket of gradients (train.bucket_bytes) eagerly: see bt_comm_init. */
static void a_bucket_is_below_the_limit_of_tcp(void **state) {
    (void)state;
    int provided, index, count;
    size_t limit = 0;
    MPI_T_cvar_handle handle;
    /* The program sets this limit even if Open MPI has no TCP transport here. */
    const char *told = getenv("OMPI_MCA_btl_tcp_eager_limit");
    assert_non_null(told);
    assert_in_range(atol(told), (4 << 20) + 1, (5 << 20) - 1);
    assert_non_null(getenv("HWLOC_COMPONENTS"));
    assert_int_equal(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided), MPI_SUCCESS);
    if (MPI_T_cvar_get_index("btl_tcp_eager_limit", &index) ==
        MPI_SUCCESS) { /* An error means that there is no TCP transport. */
        assert_int_equal(MPI_T_cvar_handle_alloc(index, NULL, &handle, &count), MPI_SUCCESS);
        assert_int_equal(MPI_T_cvar_read(handle, &limit), MPI_SUCCESS);
        assert_true(limit > 4 << 20 && limit < 5 << 20);
        MPI_T_cvar_handle_free(&handle);
    }
    MPI_T_finalize();
}

int main(void) {
    bt_err err = BT_ERR_INIT;
    if (bt_comm_init(&err) != BT_OK) return 1;
    w = bt_comm_world();
    rank = bt_comm_rank(w);
    size = bt_comm_size(w);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_follow_their_definition),
        cmocka_unit_test(counts_above_the_limit_go_in_chunks),
        cmocka_unit_test(requests_complete_and_keep_their_order),
        cmocka_unit_test(agree_returns_the_error_of_the_lowest_failing_rank),
        cmocka_unit_test(bytes_follow_the_ring_formula),
        cmocka_unit_test(axes_of_a_mesh_connect_the_right_ranks),
        cmocka_unit_test(a_bucket_is_below_the_limit_of_tcp),
    };
    /* The tests require at least two ranks. */
    int failed = size > 1 ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
    bt_comm_finalize();
    return failed;
}

/* test_comm_calls.c - what communicators ask of MPI: how a rank begins and ends, which calls an exchange makes of which
 * pieces of its arrays, what it counts, and what is said of each call that fails. */
#include "tests/engine/parallel/fake_job.h"

#include <limits.h>
#include <sys/wait.h>

#include "engine/parallel/mpi/comm_internal.h"
#include "engine/parallel/mpi/mesh.h"

static bt_err err;

/* ---- a rank ---------------------------------------------------------------------------------- */

static const int hosts_of_five[] = {0, 0, 2, 2, 2};

static void forget(void) {
    forget_calls();
    bt_traffic_reset();
    err = (bt_err)BT_ERR_INIT;
}

static bt_code join(const char *fails) {
    job.rank = 2, job.size = 5, job.host_rank = 0, job.host_size = 3;
    job.split_size = 2;
    job.provided = MPI_THREAD_FUNNELED;
    job.lowest = hosts_of_five;
    job.under_way = false;
    forget();
    unsetenv("OMPI_MCA_btl_tcp_eager_limit");
    unsetenv("HWLOC_COMPONENTS");
    setenv("OMPI_COMM_WORLD_RANK", "2", 1);
    call_fails = fails;
    return bt_comm_init(&err);
}

static void leave(void) {
    call_fails = NULL;
    bt_comm_finalize();
    unsetenv("OMPI_COMM_WORLD_RANK");
    forget();
}

static const bt_traffic *row(bt_coll kind) { return bt_traffic_get(kind, BT_AXIS_WORLD); }

/* ---- begin and end --------------------------------------------------------------------------- */

static void who_is_a_rank_is_told_by_its_environment(void **state) {
    (void)state;
    static const struct {
        const char *set[3];
        bool rank;
    } rows[] = {{{NULL}, false},
                {{"OMPI_COMM_WORLD_RANK"}, true},
                {{"PMIX_RANK"}, true},
                {{"PMI_RANK"}, true},
                {{"PMI_FD"}, true},
                {{"SLURM_PROCID", "SLURM_STEP_ID", "PMI_JOBID"}, true},
                {{"SLURM_PROCID", "SLURM_STEP_ID", "PMIX_NAMESPACE"}, true},
                {{"SLURM_PROCID", "SLURM_STEP_ID"}, false}, /* a batch script */
                {{"SLURM_PROCID", "PMI_JOBID"}, false},
                {{"SLURM_STEP_ID", "PMI_JOBID"}, false},
                {{"SLURM_PROCID"}, false}};
    static const char *const all[] = {
        "OMPI_COMM_WORLD_RANK", "PMIX_RANK",     "PMI_RANK",  "PMI_FD",
        "SLURM_PROCID",         "SLURM_STEP_ID", "PMI_JOBID", "PMIX_NAMESPACE"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int empty = 0; empty < 2; empty++) {
            for (size_t k = 0; k < sizeof all / sizeof *all; k++) unsetenv(all[k]);
            for (int k = 0; k < 3 && rows[i].set[k]; k++)
                setenv(rows[i].set[k], empty ? "" : "0", 1);
            assert_int_equal(bt_comm_am_rank(), rows[i].rank && !empty);
        }
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) unsetenv(all[k]);
    char name[20], cut[6];
    bt_comm_library(name, sizeof name);
    assert_string_equal(name, "Some MPI v1.2");
    bt_comm_library(cut, sizeof cut);
    assert_string_equal(cut, "Some ");
    forget(); /* nobody has started this process: a world of one, which asks nothing of MPI */
    assert_int_equal(bt_comm_init(&err), BT_OK);
    assert_true(bt_comm_rank(bt_comm_world()) == 0 && bt_comm_size(bt_comm_world()) == 1);
    assert_true(bt_comm_local_rank() == 0 && bt_comm_local_size() == 1);
    bt_comm_finalize();
    heard_is("");
}

static void a_rank_learns_its_place(void **state) {
    (void)state;
    assert_int_equal(join(NULL), BT_OK);
    heard_is("init: eager 4202496, display -gl,-opencl\nerrors of 99 return\ncopy 99\n"
             "errors of 1 return\nhosts of 1, as 2\nlowest here\nhosts of all in 1\nfree 2\n");
    assert_true(bt_comm_rank(bt_comm_world()) == 2 && bt_comm_size(bt_comm_world()) == 5);
    assert_true(bt_comm_local_rank() == 0 && bt_comm_local_size() == 3);
    for (int i = 0; i < 5; i++) assert_int_equal(bt_comm_host(i), hosts_of_five[i]);
    assert_int_equal(bt_comm_host(5), 0);        /* of a rank that is not there */
    assert_int_equal(bt_comm_init(&err), BT_OK); /* it has begun already */
    heard_is("");
    bt_comm_finalize();
    heard_is("free 1\nend\n");
    assert_true(bt_comm_rank(bt_comm_world()) == 0 && bt_comm_size(bt_comm_world()) == 1);
    assert_true(bt_comm_local_rank() == 0 && bt_comm_local_size() == 1);
    assert_int_equal(bt_comm_host(3), 0);
    bt_comm_finalize();
    heard_is("");
    leave();
    /* what is set stays */
    setenv("OMPI_COMM_WORLD_RANK", "2", 1);
    setenv("OMPI_MCA_btl_tcp_eager_limit", "7", 1);
    setenv("HWLOC_COMPONENTS", "x", 1);
    assert_int_equal(bt_comm_init(&err), BT_OK);
    assert_memory_equal(bt_text_str(&heard), "init: eager 7, display x\n", 25);
    leave();
    /* the same hosts, of a plan without MPI; a test's own hosts come before both */
    static const int slots[] = {2, 3, 1};
    static const int planned[] = {0, 0, 2, 2, 2, 5, 5, 5};
    bt_comm_expect_hosts(slots, 3);
    for (int i = 0; i < 8; i++) assert_int_equal(bt_comm_host(i), planned[i]);
    bt_comm_expect_hosts(slots, 0);
    for (int i = 0; i < 8; i++) assert_int_equal(bt_comm_host(i), 0);
    setenv("BITRAIN_TEST_HOSTS", "1", 1);
    assert_true(bt_comm_host(0) == 0 && bt_comm_host(1) != 0);
    bt_comm_expect_hosts(slots, 3);
    setenv("BITRAIN_TEST_HOSTS", "3", 1);
    assert_int_equal(bt_comm_host(2), 0);
    bt_comm_expect_hosts(slots, 0);
    unsetenv("BITRAIN_TEST_HOSTS");
}

static void what_fails_at_the_beginning(void **state) {
    (void)state;
    static const struct {
        const char *fails, *says;
    } rows[] = {{"init", "MPI_Init_thread failed: the link is gone"},
                {"copy", "MPI_Comm_dup failed: the link is gone"},
                {"rank", "MPI_Comm_rank failed: the link is gone"},
                {"size", "MPI_Comm_size failed: the link is gone"},
                {"errors", "MPI_Comm_set_errhandler failed: the link is gone"},
                {"hosts", "MPI_Comm_split_type failed: the link is gone"},
                {"rank here", "MPI_Comm_rank failed: the link is gone"},
                {"size here", "MPI_Comm_size failed: the link is gone"},
                {"broadcast", "MPI_Bcast failed: the link is gone"},
                {"all-gather", "MPI_Allgather failed: the link is gone"},
                {"free", "MPI_Comm_free failed: the link is gone"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(join(rows[i].fails), BT_MPI);
        assert_string_equal(err.msg, rows[i].says);
        leave();
    }
    assert_int_equal(join(NULL), BT_OK);
    assert_int_equal(bt_mpi_check(MPI_ERR_OTHER, "a call", NULL), BT_MPI);
    assert_int_equal(bt_mpi_check(MPI_ERR_OTHER, "a call", &err), BT_MPI);
    assert_int_equal(err.rank, 2);
    assert_int_equal(bt_mpi_check(MPI_SUCCESS, "a call", NULL), BT_OK);
    leave();
    job.provided = MPI_THREAD_SINGLE;
    forget();
    setenv("OMPI_COMM_WORLD_RANK", "2", 1);
    assert_int_equal(bt_comm_init(&err), BT_MPI);
    assert_string_equal(err.msg, "this MPI cannot serve a program with threads "
                                 "(MPI_THREAD_FUNNELED)");
    leave();
}

static void an_abort_ends_the_job(void **state) {
    (void)state;
    for (int started = 0; started < 2; started++) {
        int status = 0;
        if (started) assert_int_equal(join(NULL), BT_OK);
        const pid_t pid = fork();
        if (pid == 0) bt_comm_abort(3);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), started ? 103 : 3);
    }
    leave();
}

static void communicators_are_split_and_freed(void **state) {
    (void)state;
    bt_comm *c = (bt_comm *)(void *)&err;
    assert_int_equal(bt_comm_split(&c, bt_comm_world(), 1, 2, &err), BT_OK); /* of one rank */
    assert_true(c->size == 1 && c->rank == 0 && c->mpi == MPI_COMM_NULL);
    bt_comm_set_axis(c, BT_AXIS_TP);
    assert_int_equal(c->axis, BT_AXIS_TP);
    bt_comm_free(c);
    bt_comm_free(NULL);
    heard_is("");
    for (int size = 1; size < 3; size++) {
        assert_int_equal(join(NULL), BT_OK);
        job.split_size = size;
        job.rank = 1;
        bt_text_clear(&heard);
        assert_int_equal(bt_comm_split(&c, bt_comm_world(), 7, 8, &err), BT_OK);
        heard_is(size == 1 ? "all-reduce 1 longs of a: least\nsplit 1 by 7 as 8\n"
                             "errors of 3 return\nfree 3\n"
                           : "all-reduce 1 longs of a: least\nsplit 1 by 7 as 8\n"
                             "errors of 3 return\n");
        assert_true(c->size == size && c->rank == 1 && c->axis == BT_AXIS_WORLD);
        assert_int_equal(number(c->mpi), size == 1 ? 0 : SPLIT);
        bt_comm_free(c);
        heard_is(size == 1 ? "" : "free 3\n");
        leave();
    }
    static const char *const parts[] = {"all-reduce", "split", "rank", "size", "errors"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        assert_int_equal(join(NULL), BT_OK);
        call_fails = parts[i];
        c = (bt_comm *)(void *)&err;
        assert_int_equal(bt_comm_split(&c, bt_comm_world(), 7, 8, &err), BT_MPI);
        assert_null(c);
        assert_non_null(strstr(err.msg, " failed: the link is gone"));
        leave();
    }
    assert_int_equal(join(NULL), BT_OK); /* one that outlives MPI asks nothing of it any more */
    assert_int_equal(bt_comm_split(&c, bt_comm_world(), 7, 8, &err), BT_OK);
    leave();
    bt_comm_free(c);
    heard_is("");
}

/* ranks of an axis have all other coordinates in common: their color is the rank where the axis is at 0 */
static void a_mesh_is_split_along_its_axes(void **state) {
    (void)state;
    static const bt_mesh_shape shape = {2, 3, 2, 2};
    static const int hosts[24] = {0};
    static const struct {
        int rank;
        bt_mesh_coord me;
        int dp, shard, replicate, tp, pp; /* colors */
    } rows[] = {{0, {0, 0, 0, 0, 0}, 0, 0, 0, 0, 0},
                {19, {1, 1, 1, 1, 3}, 13, 17, 15, 18, 7},
                {23, {1, 2, 1, 1, 5}, 13, 21, 15, 22, 11}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char want[700];
        bt_mesh m;
        assert_int_equal(join(NULL), BT_OK);
        leave();
        job.rank = rows[i].rank, job.size = 24, job.lowest = hosts;
        setenv("OMPI_COMM_WORLD_RANK", "0", 1);
        assert_int_equal(bt_comm_init(&err), BT_OK);
        bt_text_clear(&heard);
        assert_int_equal(bt_mesh_create(&m, &shape, bt_comm_world(), &err), BT_OK);
        int n = 0;
        const int colors[] = {rows[i].dp, rows[i].shard, rows[i].replicate, rows[i].tp, rows[i].pp};
        for (int k = 0; k < 5; k++)
            n += snprintf(want + n, sizeof want - (size_t)n,
                          "all-reduce 1 longs of a: least\nsplit 1 by %d as %d\nerrors of 3 "
                          "return\n",
                          colors[k], rows[i].rank);
        heard_is(want);
        assert_memory_equal(&m.shape, &shape, sizeof shape);
        assert_memory_equal(&m.me, &rows[i].me, sizeof m.me);
        assert_ptr_equal(m.world, bt_comm_world());
        assert_true(m.dp->axis == BT_AXIS_DP && m.shard->axis == BT_AXIS_SHARD &&
                    m.replicate->axis == BT_AXIS_REPLICATE && m.tp->axis == BT_AXIS_TP &&
                    m.pp->axis == BT_AXIS_PP && m.world->axis == BT_AXIS_WORLD);
        bt_mesh_release(&m);
        heard_is("free 3\nfree 3\nfree 3\nfree 3\nfree 3\n");
        assert_true(!m.dp && !m.world && !m.shape.pp);
        call_fails = "split";
        assert_int_equal(bt_mesh_create(&m, &shape, bt_comm_world(), &err), BT_MPI);
        call_fails = NULL;
        bt_mesh_release(&m);
        leave();
    }
}

/* ---- exchanges ------------------------------------------------------------------------------- */

/* calls of a kind, and the bytes that they are counted as; of a blocking one with its time */
static void counted(bt_coll kind, int64_t bytes, bool blocking) {
    const bt_traffic *x = row(kind);
    assert_int_equal(x->calls, 1);
    assert_int_equal(x->bytes_logical, bytes);
    assert_int_equal(x->bytes_wire, bytes);
    assert_int_equal(x->busy_ns > 0, blocking);
    assert_true(x->exposed_ns == x->busy_ns && x->rounds == 0 && x->wait_ns == 0);
    for (int k = 0; k < BT_COLL_COUNT; k++)
        if (k != (int)kind) assert_int_equal(row((bt_coll)k)->calls, 0);
    bt_traffic_reset();
}

static float floats[12];
static double doubles[12];
static int64_t longs[12];
static unsigned char bytes[5 * 12];

static void arrays_are_reduced_in_pieces(void **state) {
    (void)state;
    static const struct {
        bt_reduce_op op;
        const char *name;
    } ops[] = {{BT_SUM, "sum"}, {BT_MAX, "largest"}, {BT_MIN, "least"}};
    assert_int_equal(join(NULL), BT_OK);
    for (size_t i = 0; i < 3; i++) {
        char want[300];
        const uint64_t before = bt_comm_bytes_logical(), wire = bt_comm_bytes_wire();
        forget();
        assert_int_equal(bt_all_reduce_f32(bt_comm_world(), floats, 10, ops[i].op, &err), BT_OK);
        counted(BT_COLL_ALL_REDUCE, 2 * 40 * 4 / 5, true);
        assert_true(bt_comm_bytes_logical() == before + 64 && bt_comm_bytes_wire() == wire + 64);
        bt_comm_chunk_elems = 4;
        assert_int_equal(bt_all_reduce_f64(bt_comm_world(), doubles, 10, ops[i].op, &err), BT_OK);
        counted(BT_COLL_ALL_REDUCE, 2 * 80 * 4 / 5, true);
        bt_comm_chunk_elems = 5;
        assert_int_equal(bt_all_reduce_i64(bt_comm_world(), longs, 10, ops[i].op, &err), BT_OK);
        bt_comm_chunk_elems = INT_MAX;
        counted(BT_COLL_ALL_REDUCE, 2 * 80 * 4 / 5, true);
        snprintf(want, sizeof want,
                 "all-reduce 10 floats of a: %s\nall-reduce 4 doubles of b: %s\nall-reduce 4 "
                 "doubles of c: %s\nall-reduce 2 doubles of d: %s\nall-reduce 5 longs of e: "
                 "%s\nall-reduce 5 longs of f: %s\n",
                 ops[i].name, ops[i].name, ops[i].name, ops[i].name, ops[i].name, ops[i].name);
        heard_is(want);
        assert_true(seen_buffer[0] == floats && seen_buffer[1] == doubles &&
                    seen_buffer[2] == doubles + 4 && seen_buffer[3] == doubles + 8 &&
                    seen_buffer[4] == longs && seen_buffer[5] == longs + 5);
    }
    forget(); /* 16 MiB at most in one call; the fake one does not look at them */
    assert_int_equal(bt_all_reduce_f32(bt_comm_world(), floats, (4 << 20) + 1, BT_SUM, &err),
                     BT_OK);
    heard_is("all-reduce 4194304 floats of a: sum\nall-reduce 1 floats of b: sum\n");
    call_fails = "all-reduce";
    bt_traffic_reset();
    assert_int_equal(bt_all_reduce_f32(bt_comm_world(), floats, 1, BT_SUM, &err), BT_MPI);
    assert_string_equal(err.msg, "all-reduce failed: the link is gone");
    assert_int_equal(row(BT_COLL_ALL_REDUCE)->calls, 0);
    leave();
}

static void bytes_are_broadcast(void **state) {
    (void)state;
    assert_int_equal(join(NULL), BT_OK);
    forget();
    assert_int_equal(bt_broadcast(bt_comm_world(), bytes, 10, 1, &err), BT_OK);
    counted(BT_COLL_BROADCAST, 0, true); /* the root alone sends */
    bt_comm_chunk_elems = 4;
    assert_int_equal(bt_broadcast(bt_comm_world(), bytes, 10, 2, &err), BT_OK);
    bt_comm_chunk_elems = INT_MAX;
    counted(BT_COLL_BROADCAST, 40, true);
    heard_is("broadcast 10 bytes of a from 1 in 1\nbroadcast 4 bytes of a from 2 in 1\n"
             "broadcast 4 bytes of b from 2 in 1\nbroadcast 2 bytes of c from 2 in 1\n");
    assert_true(seen_buffer[1] == bytes + 4 && seen_buffer[2] == bytes + 8);
    call_fails = "broadcast";
    assert_int_equal(bt_broadcast(bt_comm_world(), bytes, 10, 2, &err), BT_MPI);
    assert_string_equal(err.msg, "broadcast failed: the link is gone");
    assert_int_equal(bt_barrier(bt_comm_world(), &err), BT_OK);
    counted(BT_COLL_BARRIER, 0, true);
    heard_is("broadcast 10 bytes of a from 2 in 1\nbarrier 1\n");
    call_fails = "barrier";
    assert_int_equal(bt_barrier(bt_comm_world(), &err), BT_MPI);
    assert_string_equal(err.msg, "barrier failed: the link is gone");
    leave();
}

#define TYPES "free type 2\nfree type 1\n"

static void bytes_are_gathered_side_by_side(void **state) {
    (void)state;
    unsigned char all[5 * 12];
    assert_int_equal(join(NULL), BT_OK);
    forget();
    bt_comm_chunk_elems = 8;
    assert_int_equal(bt_all_gather(bt_comm_world(), bytes, 12, all, &err), BT_OK);
    counted(BT_COLL_ALL_GATHER, 48, true);
    heard_is("all-gather 8 bytes of a to b, blocks of 8 every 12\n" TYPES
             "all-gather 4 bytes of c to d, blocks of 4 every 12\n" TYPES);
    assert_true(seen_buffer[0] == bytes && seen_buffer[1] == all && seen_buffer[2] == bytes + 8 &&
                seen_buffer[3] == all + 8);
    assert_int_equal(bt_gather(bt_comm_world(), bytes, 12, all, 2, &err), BT_OK);
    counted(BT_COLL_GATHER, 0, true); /* the root sends nothing */
    heard_is("gather 8 bytes of a to b at 2, blocks of 8 every 12\n" TYPES
             "gather 4 bytes of c to d at 2, blocks of 4 every 12\n" TYPES);
    bt_comm_chunk_elems = INT_MAX;
    assert_int_equal(bt_gather(bt_comm_world(), bytes, 12, NULL, 0, &err), BT_OK);
    counted(BT_COLL_GATHER, 12, true);
    heard_is("gather 12 bytes of a to - at 0, blocks of 12 every 12\n" TYPES);
    assert_int_equal(bt_all_gather(bt_comm_world(), bytes, 0, all, &err), BT_OK);
    heard_is("");
    static const char *const fails[] = {"contiguous", "resized", "commit", "all-gather", "gather"};
    static const char *const says[] = {"MPI_Type_contiguous", "MPI_Type_create_resized",
                                       "MPI_Type_commit", "all-gather", "gather"};
    for (int i = 0; i < 5; i++) {
        char want[80];
        bt_traffic_reset();
        bt_text_clear(&heard);
        call_fails = fails[i];
        assert_int_equal(i < 4 ? bt_all_gather(bt_comm_world(), bytes, 4, all, &err)
                               : bt_gather(bt_comm_world(), bytes, 4, all, 0, &err),
                         BT_MPI);
        snprintf(want, sizeof want, "%s failed: the link is gone", says[i]);
        assert_string_equal(err.msg, want);
        assert_true(row(BT_COLL_ALL_GATHER)->calls == 0 && row(BT_COLL_GATHER)->calls == 0);
    }
    leave();
}

static void exchanges_under_way(void **state) {
    (void)state;
    static const struct {
        bt_reduce_op op;
        const char *want;
    } ops[] = {{BT_SUM, "start 1: all-reduce 3 longs of a: sum\n"},
               {BT_MAX, "start 1: all-reduce 3 longs of a: largest\n"},
               {BT_MIN, "start 1: all-reduce 3 longs of a: least\n"}};
    bt_request r;
    bool over = true;
    _Atomic int64_t begun = 0;
    assert_int_equal(join(NULL), BT_OK);
    bt_traffic_count_in(&begun);
    for (size_t i = 0; i < 3; i++) {
        forget();
        memset(&r, 0x5a, sizeof r);
        assert_int_equal(bt_all_reduce_i64_start(bt_comm_world(), longs, 3, ops[i].op, &r, &err),
                         BT_OK);
        heard_is(ops[i].want);
        counted(BT_COLL_ALL_REDUCE, 2 * 24 * 4 / 5, false);
        assert_true(r.active && begun == (int64_t)i + 1);
    }
    job.under_way = true;
    assert_int_equal(bt_request_test(&r, &over, &err), BT_OK);
    assert_true(!over && r.active);
    job.under_way = false;
    assert_int_equal(bt_request_test(&r, &over, &err), BT_OK);
    assert_true(over && !r.active);
    over = false;
    assert_int_equal(bt_request_test(&r, &over, &err), BT_OK); /* it has arrived already */
    assert_true(over);
    assert_int_equal(bt_request_wait(&r, &err), BT_OK);
    heard_is("test 1\ntest 1\n");

    assert_int_equal(bt_gather_start(bt_comm_world(), bytes, 6, bytes + 12, 0, &r, &err), BT_OK);
    counted(BT_COLL_GATHER, 6, false);
    assert_int_equal(begun, 4);
    assert_int_equal(bt_request_wait(&r, &err), BT_OK);
    assert_false(r.active);
    heard_is("start 2: gather 6 bytes of b to c at 0\nwait 2\n");
    assert_int_equal(bt_gather_start(bt_comm_world(), bytes, 6, bytes + 12, 2, &r, &err), BT_OK);
    counted(BT_COLL_GATHER, 0, false); /* the root sends nothing */
    bt_traffic_count_in(NULL);
    bt_text_clear(&heard);

    call_fails = "test";
    assert_int_equal(bt_request_test(&r, &over, &err), BT_MPI);
    assert_string_equal(err.msg, "progress of an exchange failed: the link is gone");
    call_fails = "wait";
    assert_int_equal(bt_request_wait(&r, &err), BT_MPI);
    assert_string_equal(err.msg, "completion of an exchange failed: the link is gone");
    assert_false(r.active);
    call_fails = "all-reduce";
    assert_int_equal(bt_all_reduce_i64_start(bt_comm_world(), longs, 3, BT_SUM, &r, &err), BT_MPI);
    assert_string_equal(err.msg, "all-reduce failed: the link is gone");
    assert_false(r.active);
    call_fails = "gather";
    assert_int_equal(bt_gather_start(bt_comm_world(), bytes, 6, bytes + 12, 0, &r, &err), BT_MPI);
    assert_string_equal(err.msg, "gather failed: the link is gone");
    assert_false(r.active);
    /* more than a call takes */
    bt_text_clear(&heard);
    const size_t many = (size_t)INT_MAX + 1;
    assert_int_equal(bt_all_reduce_i64_start(bt_comm_world(), longs, many, BT_SUM, &r, &err),
                     BT_ARG);
    assert_string_equal(err.msg, "2147483648 elements are too many for one non-blocking exchange "
                                 "(at most 2147483647)");
    assert_int_equal(bt_gather_start(bt_comm_world(), bytes, many, bytes, 0, &r, &err), BT_ARG);
    assert_int_equal(bt_all_reduce_i64_start(bt_comm_world(), longs, 0, BT_SUM, &r, &err), BT_OK);
    assert_false(r.active);
    heard_is("");
    call_fails = NULL;
    assert_int_equal(bt_gather_start(bt_comm_world(), bytes, INT_MAX, bytes, 0, &r, &err), BT_OK);
    heard_is("start 6: gather 2147483647 bytes of b to b at 0\n");
    leave();
}

/* a rank that is alone exchanges nothing, asks nothing of MPI, and has what it would have */
static void a_rank_alone(void **state) {
    (void)state;
    bt_comm *c = bt_comm_world();
    unsigned char all[12];
    bt_request r = {.active = true};
    const uint64_t before = bt_comm_bytes_logical();
    forget();
    for (int i = 0; i < 12; i++) bytes[i] = (unsigned char)(i + 1), floats[i] = (float)i;
    assert_int_equal(bt_all_reduce_f32(c, floats, 12, BT_SUM, &err), BT_OK);
    for (int i = 0; i < 12; i++) assert_true(floats[i] == (float)i);
    assert_int_equal(bt_broadcast(c, bytes, 12, 0, &err), BT_OK);
    assert_int_equal(bt_barrier(c, &err), BT_OK);
    memset(all, 0, sizeof all);
    assert_int_equal(bt_gather(c, bytes, 12, all, 0, &err), BT_OK);
    assert_memory_equal(all, bytes, 12);
    memset(all, 0, sizeof all);
    assert_int_equal(bt_all_gather(c, bytes, 11, all, &err), BT_OK);
    assert_true(memcmp(all, bytes, 11) == 0 && all[11] == 0);
    assert_int_equal(bt_all_gather(c, NULL, 0, NULL, &err), BT_OK);
    assert_int_equal(bt_all_reduce_i64_start(c, longs, 12, BT_SUM, &r, &err), BT_OK);
    assert_false(r.active);
    r.active = true;
    memset(all, 0, sizeof all);
    assert_int_equal(bt_gather_start(c, bytes, 11, all, 0, &r, &err), BT_OK);
    assert_true(!r.active && memcmp(all, bytes, 11) == 0 && all[11] == 0);
    assert_int_equal(bt_gather_start(c, NULL, 0, NULL, 0, &r, &err), BT_OK);
    heard_is("");
    assert_true(bt_comm_bytes_logical() == before);
    for (int k = 0; k < BT_COLL_COUNT; k++) assert_int_equal(row((bt_coll)k)->calls, 0);
}

int main(void) {
    bt_text_init(&heard);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_is_a_rank_is_told_by_its_environment),
        cmocka_unit_test(a_rank_learns_its_place),
        cmocka_unit_test(what_fails_at_the_beginning),
        cmocka_unit_test(an_abort_ends_the_job),
        cmocka_unit_test(communicators_are_split_and_freed),
        cmocka_unit_test(a_mesh_is_split_along_its_axes),
        cmocka_unit_test(arrays_are_reduced_in_pieces),
        cmocka_unit_test(bytes_are_broadcast),
        cmocka_unit_test(bytes_are_gathered_side_by_side),
        cmocka_unit_test(exchanges_under_way),
        cmocka_unit_test(a_rank_alone),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_text_release(&heard);
    return failed;
}

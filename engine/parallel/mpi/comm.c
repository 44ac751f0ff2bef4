/* comm.c - MPI start and end, communicators, blocking and non-blocking collectives.
 *
 * A communicator of one never calls MPI, so a single process needs no MPI_Init at all: Open MPI's
 * singleton start would spawn a daemon. MPI returns errors (MPI_ERRORS_RETURN) as far as the library supports that. */
#include "engine/parallel/mpi/comm_internal.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/testing/testing.h"

/* Above 16 MiB Open MPI's all-reduce becomes much slower (it maps temporary buffers in every call). */
enum { REDUCE_CHUNK_BYTES = 16 << 20 };

static struct bt_comm world = {.mpi = MPI_COMM_NULL, .rank = 0, .size = 1};
static bool mpi_started;
static int local_rank, local_size = 1;
static int *hosts;          /* (world) NULL: one rank */
static const int *expected; /* (n_expected) slots of hosts; without MPI */
static int n_expected;
size_t bt_comm_chunk_elems = INT_MAX;

/* ---- start and end --------------------------------------------------------------------------- */

static bool has_shared_library(const char *name) {
    const char *v = getenv(name);
    return v && v[0];
}

/* SLURM_PROCID alone does not show that this is a rank, because a batch script has the variable too. */
bool bt_comm_am_rank(void) {
    return has_shared_library("OMPI_COMM_WORLD_RANK") || has_shared_library("PMIX_RANK") ||
           has_shared_library("PMI_RANK") || has_shared_library("PMI_FD") ||
           (has_shared_library("SLURM_PROCID") && has_shared_library("SLURM_STEP_ID") &&
            (has_shared_library("PMI_JOBID") || has_shared_library("PMIX_NAMESPACE")));
}

/* Returns the value of the first variable that is set; -1: none. */
static int first_number(const char *const *names, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (has_shared_library(names[i])) return atoi(getenv(names[i]));
    return -1;
}

void bt_comm_env_place(int *rank, int *size) {
    static const char *const ranks[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                        "SLURM_PROCID"};
    static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS",
                                        "SLURM_NTASKS"};
    const bool job = bt_comm_am_rank();
    const int r = job ? first_number(ranks, sizeof ranks / sizeof *ranks) : -1;
    const int n = job ? first_number(sizes, sizeof sizes / sizeof *sizes) : -1;
    *rank = r > 0 ? r : 0;
    *size = n > *rank ? n : *rank + 1;
}

bt_code bt_mpi_check(int rc, const char *what, bt_err *err) {
    if (rc == MPI_SUCCESS) return BT_OK;
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int n = 0;
    (void)MPI_Error_string(rc, text, &n); /* leaves text empty for an unknown error */
    bt_code code = bt_fail(err, BT_MPI, "%s failed: %s", what,
                           text[0] ? text : "unknown MPI error");
    if (err) err->rank = world.rank;
    return code;
}

bt_code bt_comm_describe(bt_comm *c, MPI_Comm mpi, bt_err *err) {
    BT_TRY(bt_mpi_check(MPI_Comm_rank(mpi, &c->rank), "MPI_Comm_rank", err));
    BT_TRY(bt_mpi_check(MPI_Comm_size(mpi, &c->size), "MPI_Comm_size", err));
    c->mpi = mpi;
    return bt_mpi_check(MPI_Comm_set_errhandler(mpi, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler",
                        err);
}

void bt_comm_library(char *out, size_t size) {
    char text[MPI_MAX_LIBRARY_VERSION_STRING + 1] = "";
    int n = 0;
    (void)MPI_Get_library_version(text, &n);
    snprintf(out, size, "%.*s", (int)strcspn(text, "\n"), text);
}

/* 4 MiB and room for a header */
#define TCP_EAGER_BYTES "4202496"

bt_code bt_comm_init(bt_err *err) {
    if (mpi_started || !bt_comm_am_rank()) return BT_OK;
    int provided = 0;
    /* MPI maps the machine, and its search for a display can wait for a name server. */
    setenv("HWLOC_COMPONENTS", "-gl,-opencl,-cuda,-nvml,-rsmi,-levelzero", 0);
    /* Before Open MPI 4.1 sends a message above this limit, it waits for the receiver's reply; two ranks that send
     * each other such messages use the TCP link in one direction at a time, at half its speed. Messages of
     * gradients are 4 MiB at most (train.bucket_bytes), so none of them is above it. */
    setenv("OMPI_MCA_btl_tcp_eager_limit", TCP_EAGER_BYTES, 0);
    BT_TRY(bt_mpi_check(MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided),
                        "MPI_Init_thread", err));
    mpi_started = true;
    if (provided < MPI_THREAD_FUNNELED)
        return bt_fail(err, BT_MPI,
                       "this MPI cannot serve a program with threads (MPI_THREAD_FUNNELED)");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);

    MPI_Comm mine = MPI_COMM_NULL, host = MPI_COMM_NULL;
    BT_TRY(bt_mpi_check(MPI_Comm_dup(MPI_COMM_WORLD, &mine), "MPI_Comm_dup", err));
    BT_TRY(bt_comm_describe(&world, mine, err));
    BT_TRY(bt_mpi_check(MPI_Comm_split_type(mine, MPI_COMM_TYPE_SHARED, world.rank, MPI_INFO_NULL,
                                            &host),
                        "MPI_Comm_split_type", err));
    BT_TRY(bt_mpi_check(MPI_Comm_rank(host, &local_rank), "MPI_Comm_rank", err));
    BT_TRY(bt_mpi_check(MPI_Comm_size(host, &local_size), "MPI_Comm_size", err));
    int lowest = world.rank;
    hosts = calloc((size_t)world.size, sizeof *hosts);
    if (!hosts) return bt_fail(err, BT_NOMEM, "cannot take memory for %d ranks", world.size);
    BT_TRY(bt_mpi_check(MPI_Bcast(&lowest, 1, MPI_INT, 0, host), "MPI_Bcast", err));
    BT_TRY(bt_mpi_check(MPI_Allgather(&lowest, 1, MPI_INT, hosts, 1, MPI_INT, mine),
                        "MPI_Allgather", err));
    return bt_mpi_check(MPI_Comm_free(&host), "MPI_Comm_free", err);
}

void bt_comm_finalize(void) {
    if (!mpi_started) return;
    if (world.mpi != MPI_COMM_NULL) MPI_Comm_free(&world.mpi);
    MPI_Finalize();
    mpi_started = false;
    free(hosts);
    hosts = NULL;
    world = (struct bt_comm){.mpi = MPI_COMM_NULL, .rank = 0, .size = 1};
    local_rank = 0;
    local_size = 1;
}

void bt_comm_abort(int exit_code) {
    if (mpi_started) MPI_Abort(MPI_COMM_WORLD, exit_code);
    _exit(exit_code);
}

bt_comm *bt_comm_world(void) { return &world; }
int bt_comm_rank(const bt_comm *c) { return c->rank; }
int bt_comm_size(const bt_comm *c) { return c->size; }
int bt_comm_local_rank(void) { return local_rank; }
int bt_comm_local_size(void) { return local_size; }

int bt_comm_host(int rank) {
    int pretended = bt_testing_host(rank);
    if (pretended >= 0) return pretended;
    if (hosts && rank < world.size) return hosts[rank];
    int first = 0;
    for (int i = 0; i + 1 < n_expected && rank >= first + expected[i]; i++) first += expected[i];
    return first;
}

void bt_comm_expect_hosts(const int *slots, int n) {
    expected = slots;
    n_expected = n;
}

void bt_comm_set_axis(bt_comm *c, bt_axis axis) { c->axis = axis; }

void bt_comm_free(bt_comm *c) {
    if (!c) return;
    if (c->mpi != MPI_COMM_NULL && mpi_started) MPI_Comm_free(&c->mpi);
    free(c);
}

/* ---- counting -------------------------------------------------------------------------------- */

static void count_plain(uint64_t bytes) { bt_comm_count(bytes, bytes); }

/* Exchanges that run beside a larger one count bytes but no time. */
static void count_started(const bt_comm *c, bt_coll coll, uint64_t bytes) {
    count_plain(bytes);
    bt_traffic_add(
        coll, c->axis,
        &(bt_traffic){.calls = 1, .bytes_logical = (int64_t)bytes, .bytes_wire = (int64_t)bytes});
}

/* Returns the bytes that each rank sends in a ring all-reduce, as a measure for any algorithm of MPI. */
static uint64_t ring_bytes(const bt_comm *c, size_t bytes) {
    return 2 * (uint64_t)bytes * (uint64_t)(c->size - 1) / (uint64_t)c->size;
}

/* ---- blocking collectives -------------------------------------------------------------------- */

static size_t next_chunk(size_t left, size_t largest) {
    size_t n = left < largest ? left : largest;
    return n < bt_comm_chunk_elems ? n : bt_comm_chunk_elems;
}

static bt_code all_reduce(bt_comm *c, void *x, size_t n, MPI_Datatype type, size_t elem_bytes,
                          bt_reduce_op op, bt_err *err) {
    if (c->size == 1) return BT_OK;
    MPI_Op mpi_op = op == BT_SUM ? MPI_SUM : op == BT_MAX ? MPI_MAX : MPI_MIN;
    unsigned char *p = x;
    bt_traffic_mark mark = bt_traffic_begin();
    count_plain(ring_bytes(c, n * elem_bytes));
    while (n > 0) {
        size_t k = next_chunk(n, REDUCE_CHUNK_BYTES / elem_bytes);
        BT_TRY(bt_mpi_check(MPI_Allreduce(MPI_IN_PLACE, p, (int)k, type, mpi_op, c->mpi),
                            "all-reduce", err));
        p += k * elem_bytes;
        n -= k;
    }
    bt_traffic_end(&mark, BT_COLL_ALL_REDUCE, c->axis);
    return BT_OK;
}

bt_code bt_all_reduce_f32(bt_comm *c, float *x, size_t n, bt_reduce_op op, bt_err *err) {
    return all_reduce(c, x, n, MPI_FLOAT, sizeof *x, op, err);
}

bt_code bt_all_reduce_f64(bt_comm *c, double *x, size_t n, bt_reduce_op op, bt_err *err) {
    return all_reduce(c, x, n, MPI_DOUBLE, sizeof *x, op, err);
}

bt_code bt_all_reduce_i64(bt_comm *c, int64_t *x, size_t n, bt_reduce_op op, bt_err *err) {
    return all_reduce(c, x, n, MPI_INT64_T, sizeof *x, op, err);
}

bt_code bt_broadcast(bt_comm *c, void *x, size_t bytes, int root, bt_err *err) {
    if (c->size == 1) return BT_OK;
    unsigned char *p = x;
    bt_traffic_mark mark = bt_traffic_begin();
    if (c->rank == root) count_plain((uint64_t)bytes * (uint64_t)(c->size - 1));
    while (bytes > 0) {
        size_t k = next_chunk(bytes, INT_MAX);
        BT_TRY(bt_mpi_check(MPI_Bcast(p, (int)k, MPI_BYTE, root, c->mpi), "broadcast", err));
        p += k;
        bytes -= k;
    }
    bt_traffic_end(&mark, BT_COLL_BROADCAST, c->axis);
    return BT_OK;
}

/* Gathers `bytes` of every rank into `all`: a large contribution is sent in several calls, each received with
 * stride `bytes`. */
static bt_code gather_bytes(bt_comm *c, const void *x, size_t bytes, void *all, int root,
                            bool everywhere, bt_err *err) {
    const unsigned char *src = x;
    unsigned char *dst = all;
    bool receiving = everywhere || c->rank == root;
    if (c->size == 1) {
        if (bytes) memcpy(all, x, bytes);
        return BT_OK;
    }
    bt_traffic_mark mark = bt_traffic_begin();
    if (everywhere)
        count_plain((uint64_t)bytes * (uint64_t)(c->size - 1));
    else if (!receiving)
        count_plain(bytes);
    for (size_t done = 0; done < bytes;) {
        size_t k = next_chunk(bytes - done, INT_MAX);
        MPI_Datatype block, spaced;
        BT_TRY(bt_mpi_check(MPI_Type_contiguous((int)k, MPI_BYTE, &block), "MPI_Type_contiguous",
                            err));
        BT_TRY(bt_mpi_check(MPI_Type_create_resized(block, 0, (MPI_Aint)bytes, &spaced),
                            "MPI_Type_create_resized", err));
        BT_TRY(bt_mpi_check(MPI_Type_commit(&spaced), "MPI_Type_commit", err));
        int rc = everywhere
                     ? MPI_Allgather(src + done, (int)k, MPI_BYTE, dst + done, 1, spaced, c->mpi)
                     : MPI_Gather(src + done, (int)k, MPI_BYTE, receiving ? dst + done : NULL, 1,
                                  spaced, root, c->mpi);
        MPI_Type_free(&spaced);
        MPI_Type_free(&block);
        BT_TRY(bt_mpi_check(rc, everywhere ? "all-gather" : "gather", err));
        done += k;
    }
    bt_traffic_end(&mark, everywhere ? BT_COLL_ALL_GATHER : BT_COLL_GATHER, c->axis);
    return BT_OK;
}

bt_code bt_gather(bt_comm *c, const void *x, size_t bytes, void *all, int root, bt_err *err) {
    return gather_bytes(c, x, bytes, all, root, false, err);
}

bt_code bt_all_gather(bt_comm *c, const void *x, size_t bytes, void *all, bt_err *err) {
    return gather_bytes(c, x, bytes, all, 0, true, err);
}

bt_code bt_barrier(bt_comm *c, bt_err *err) {
    if (c->size == 1) return BT_OK;
    bt_traffic_mark mark = bt_traffic_begin();
    BT_TRY(bt_mpi_check(MPI_Barrier(c->mpi), "barrier", err));
    bt_traffic_end(&mark, BT_COLL_BARRIER, c->axis);
    return BT_OK;
}

/* ---- non-blocking ---------------------------------------------------------------------------- */

/* MPI_Request is a pointer in Open MPI and an int in MPICH: both fit the opaque handle. */
_Static_assert(sizeof(MPI_Request) <= sizeof(void *), "an MPI_Request fits in bt_request.handle");

static void put_request(bt_request *r, MPI_Request q) {
    r->handle = NULL;
    memcpy(&r->handle, &q, sizeof q);
    r->active = true;
}

static MPI_Request get_request(const bt_request *r) {
    MPI_Request q;
    memcpy(&q, &r->handle, sizeof q);
    return q;
}

static bt_code keep_started_request(int rc, MPI_Request q, const char *what, bt_request *r,
                                    bt_err *err) {
    BT_TRY(bt_mpi_check(rc, what, err));
    put_request(r, q);
    return BT_OK;
}

static bt_code fits_mpi_count(size_t n, bt_err *err) {
    return n <= INT_MAX
               ? BT_OK
               : bt_fail(err, BT_ARG,
                         "%zu elements are too many for one non-blocking exchange (at most %d)", n,
                         INT_MAX);
}

bt_code bt_all_reduce_i64_start(bt_comm *c, int64_t *x, size_t n, bt_reduce_op op, bt_request *r,
                                bt_err *err) {
    *r = (bt_request){0};
    if (c->size == 1 || n == 0) return BT_OK;
    BT_TRY(fits_mpi_count(n, err));
    MPI_Request q;
    bt_traffic_next();
    int rc = MPI_Iallreduce(MPI_IN_PLACE, x, (int)n, MPI_INT64_T,
                            op == BT_SUM   ? MPI_SUM
                            : op == BT_MAX ? MPI_MAX
                                           : MPI_MIN,
                            c->mpi, &q);
    count_started(c, BT_COLL_ALL_REDUCE, ring_bytes(c, n * sizeof *x));
    return keep_started_request(rc, q, "all-reduce", r, err);
}

bt_code bt_gather_start(bt_comm *c, const void *x, size_t bytes, void *all, int root, bt_request *r,
                        bt_err *err) {
    *r = (bt_request){0};
    if (c->size == 1) {
        if (bytes) memcpy(all, x, bytes);
        return BT_OK;
    }
    BT_TRY(fits_mpi_count(bytes, err));
    MPI_Request q;
    bt_traffic_next();
    int rc = MPI_Igather(x, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, root, c->mpi, &q);
    count_started(c, BT_COLL_GATHER, c->rank != root ? bytes : 0);
    return keep_started_request(rc, q, "gather", r, err);
}

bt_code bt_request_test(bt_request *r, bool *done, bt_err *err) {
    *done = true;
    if (!r->active) return BT_OK;
    MPI_Request q = get_request(r);
    int flag = 0;
    BT_TRY(bt_mpi_check(MPI_Test(&q, &flag, MPI_STATUS_IGNORE), "progress of an exchange", err));
    *done = flag != 0;
    if (flag) r->active = false;
    return BT_OK;
}

bt_code bt_request_wait(bt_request *r, bt_err *err) {
    if (!r->active) return BT_OK;
    MPI_Request q = get_request(r);
    r->active = false;
    return bt_mpi_check(MPI_Wait(&q, MPI_STATUS_IGNORE), "completion of an exchange", err);
}

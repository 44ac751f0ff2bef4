/* fake_job.h - functions of MPI with which a rank begins, ends, divides its communicators and exchanges with all, as
 * fake_mpi.h has those of messages: communicators are numbers, and the process is whichever rank `job` says. For one
 * test program. */
#ifndef BT_TESTS_FAKE_JOB_H
#define BT_TESTS_FAKE_JOB_H

#include <stdlib.h>
#include <unistd.h>

#include "tests/engine/parallel/fake_mpi.h"

enum { MINE = 1, HOST, SPLIT };
static struct {
    int rank, size, host_rank, host_size, split_size, provided;
    const int *lowest; /* (size) of each rank's host */
    bool under_way;    /* what is tested for */
} job;

static MPI_Comm comm(int number) { return (MPI_Comm)(uintptr_t)number; }
static int number(MPI_Comm c) {
    return c == MPI_COMM_WORLD ? 99 : c == MPI_COMM_NULL ? 0 : (int)(uintptr_t)c;
}

int MPI_Init_thread(int *argc, char ***argv, int wanted, int *provided) {
    assert_true(!argc && !argv && wanted == MPI_THREAD_FUNNELED);
    *provided = job.provided;
    said("init: eager %s, display %s", getenv("OMPI_MCA_btl_tcp_eager_limit"),
         getenv("HWLOC_COMPONENTS"));
    return outcome("init");
}
int MPI_Comm_set_errhandler(MPI_Comm c, MPI_Errhandler e) {
    assert_ptr_equal(e, MPI_ERRORS_RETURN);
    said("errors of %d return", number(c));
    return number(c) == 99 ? MPI_SUCCESS : outcome("errors");
}
int MPI_Comm_dup(MPI_Comm c, MPI_Comm *out) {
    said("copy %d", number(c));
    *out = comm(MINE);
    return outcome("copy");
}
int MPI_Comm_rank(MPI_Comm c, int *rank) {
    *rank = number(c) == HOST ? job.host_rank : job.rank;
    return outcome(number(c) == HOST ? "rank here" : "rank");
}
int MPI_Comm_size(MPI_Comm c, int *size) {
    *size = number(c) == HOST ? job.host_size : number(c) == SPLIT ? job.split_size : job.size;
    return outcome(number(c) == HOST ? "size here" : "size");
}
int MPI_Comm_split_type(MPI_Comm c, int type, int key, MPI_Info info, MPI_Comm *out) {
    assert_true(type == MPI_COMM_TYPE_SHARED && info == MPI_INFO_NULL);
    said("hosts of %d, as %d", number(c), key);
    *out = comm(HOST);
    return outcome("hosts");
}
int MPI_Comm_split(MPI_Comm c, int color, int key, MPI_Comm *out) {
    said("split %d by %d as %d", number(c), color, key);
    *out = comm(SPLIT);
    return outcome("split");
}
int MPI_Bcast(void *x, int n, MPI_Datatype type, int root, MPI_Comm c) {
    if (number(c) == HOST) {
        assert_true(type == MPI_INT && *(int *)x == job.rank);
        *(int *)x = job.lowest[job.rank];
        said("lowest here");
    } else
        said("broadcast %d %s of %c from %d in %d", n, type_of(type), letter_of(x), root,
             number(c));
    return outcome("broadcast");
}
int MPI_Comm_free(MPI_Comm *c) {
    said("free %d", number(*c));
    *c = MPI_COMM_NULL;
    return outcome("free");
}
int MPI_Finalize(void) {
    said("end");
    return MPI_SUCCESS;
}
int MPI_Abort(MPI_Comm c, int code) { _exit(number(c) == 99 ? 100 + code : 1); }
int MPI_Get_library_version(char *text, int *n) {
    *n = sprintf(text, "Some MPI v1.2\nof a date");
    return MPI_SUCCESS;
}
/* a type of blocks is told by its bytes and the stride in which they land */
static int block_bytes;
static long block_stride;
int MPI_Type_contiguous(int n, MPI_Datatype of, MPI_Datatype *out) {
    assert_ptr_equal(of, MPI_BYTE);
    block_bytes = n;
    *out = (MPI_Datatype)(uintptr_t)1;
    return outcome("contiguous");
}
int MPI_Type_create_resized(MPI_Datatype of, MPI_Aint least, MPI_Aint bytes, MPI_Datatype *out) {
    assert_true(of == (MPI_Datatype)(uintptr_t)1 && least == 0);
    block_stride = bytes;
    *out = (MPI_Datatype)(uintptr_t)2;
    return outcome("resized");
}
int MPI_Type_commit(MPI_Datatype *type) {
    assert_true(*type == (MPI_Datatype)(uintptr_t)2);
    return outcome("commit");
}
int MPI_Type_free(MPI_Datatype *type) {
    said("free type %d", (int)(uintptr_t)*type);
    return MPI_SUCCESS;
}
int MPI_Allgather(const void *x, int n, MPI_Datatype type, void *all, int m, MPI_Datatype into,
                  MPI_Comm c) {
    if (into == MPI_INT) {
        assert_true(n == 1 && m == 1 && type == MPI_INT && *(const int *)x == job.lowest[job.rank]);
        memcpy(all, job.lowest, (size_t)job.size * sizeof(int));
        said("hosts of all in %d", number(c));
    } else {
        const char from = letter_of(x), to = letter_of(all);
        assert_true(type == MPI_BYTE && m == 1 && into == (MPI_Datatype)(uintptr_t)2);
        said("all-gather %d bytes of %c to %c, blocks of %d every %ld", n, from, to, block_bytes,
             block_stride);
    }
    return outcome("all-gather");
}
int MPI_Gather(const void *x, int n, MPI_Datatype type, void *all, int m, MPI_Datatype into,
               int root, MPI_Comm c) {
    const char from = letter_of(x), to = all ? letter_of(all) : '-';
    assert_true(type == MPI_BYTE && m == 1 && into == (MPI_Datatype)(uintptr_t)2 &&
                number(c) == MINE);
    said("gather %d bytes of %c to %c at %d, blocks of %d every %ld", n, from, to, root,
         block_bytes, block_stride);
    return outcome("gather");
}
int MPI_Barrier(MPI_Comm c) {
    said("barrier %d", number(c));
    return outcome("barrier");
}
int MPI_Iallreduce(const void *x, void *y, int n, MPI_Datatype type, MPI_Op op, MPI_Comm c,
                   MPI_Request *r) {
    assert_true(x == MPI_IN_PLACE && number(c) == MINE);
    *r = next_request(NULL, 0);
    said("start %d: all-reduce %d %s of %c: %s", n_requests, n, type_of(type), letter_of(y),
         name_of_op(op));
    return outcome("all-reduce");
}
int MPI_Igather(const void *x, int n, MPI_Datatype type, void *all, int m, MPI_Datatype into,
                int root, MPI_Comm c, MPI_Request *r) {
    const char from = letter_of(x), to = letter_of(all);
    assert_true(n == m && type == MPI_BYTE && into == MPI_BYTE && number(c) == MINE);
    *r = next_request(NULL, 0);
    said("start %d: gather %d bytes of %c to %c at %d", n_requests, n, from, to, root);
    return outcome("gather");
}
int MPI_Test(MPI_Request *r, int *flag, MPI_Status *s) {
    assert_ptr_equal(s, MPI_STATUS_IGNORE);
    *flag = !job.under_way;
    said("test %d", number_of(*r));
    return outcome("test");
}

#endif

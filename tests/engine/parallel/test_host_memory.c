/* test_host_memory.c - shared memory of the ranks on a host, with simulated messages: every rank maps the file that the
 * first rank created, even if another file has its path, and either all ranks have the memory or none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/parallel/mpi/comm_internal.h"
#include "engine/parallel/mpi/host_memory.h"

enum { PAGE = 4096, ASKED = PAGE + 1, BYTES = 3 * PAGE };

typedef struct ticket { /* the message of the first rank */
    int64_t pid, fd;
    uint64_t token;
} ticket;

static struct bt_comm comm = {.size = 2};
static ticket sent;
static bool others_have;
static int on_host;

int MPI_Comm_split_type(MPI_Comm from, int type, int key, MPI_Info info, MPI_Comm *out) {
    (void)from, (void)info;
    assert_true(type == MPI_COMM_TYPE_SHARED && key == comm.rank);
    *out = MPI_COMM_NULL;
    return MPI_SUCCESS;
}

int MPI_Comm_size(MPI_Comm c, int *n) {
    (void)c;
    *n = on_host;
    return MPI_SUCCESS;
}

int MPI_Comm_free(MPI_Comm *c) {
    (void)c;
    return MPI_SUCCESS;
}

int MPI_Bcast(void *data, int n, MPI_Datatype type, int root, MPI_Comm c) {
    (void)c;
    assert_true(n == sizeof sent && type == MPI_BYTE && root == 0);
    if (comm.rank == 0)
        memcpy(&sent, data, sizeof sent);
    else
        memcpy(data, &sent, sizeof sent);
    return MPI_SUCCESS;
}

int MPI_Allreduce(const void *mine, void *all, int n, MPI_Datatype type, MPI_Op op, MPI_Comm c) {
    int64_t *x = all;
    (void)c;
    assert_true(mine == MPI_IN_PLACE && n == 1 && type == MPI_INT64_T && op == MPI_MIN);
    if (!others_have) *x = 0;
    return MPI_SUCCESS;
}

static bt_host_memory create_memory(int rank) {
    bt_err err = BT_ERR_INIT;
    bt_host_memory m = {NULL, 7};
    comm.rank = rank;
    assert_int_equal(bt_host_memory_create(&m, &comm, ASKED, "bitrain-test", &err), BT_OK);
    if (!m.at) assert_int_equal(m.bytes, 0);
    return m;
}

/* Creates a file of this size that ends with this token, at the path in the message. */
static void put_file(size_t bytes, uint64_t token, uint64_t told) {
    const int fd = memfd_create("bitrain-test", MFD_CLOEXEC);
    assert_true(fd > 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    assert_int_equal(pwrite(fd, "abc", 3, 0), 3);
    assert_int_equal(pwrite(fd, &token, sizeof token, BYTES - PAGE), sizeof token);
    if (bytes < BYTES) assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    sent = (ticket){getpid(), fd, told};
}

static int init(void **state) {
    (void)state;
    on_host = 2;
    others_have = true;
    return 0;
}

static void the_first_rank_makes_zeros(void **state) {
    (void)state;
    bt_host_memory m = create_memory(0);
    assert_non_null(m.at);
    assert_int_equal(m.bytes, BYTES);
    for (int i = 0; i < ASKED; i++) assert_int_equal(m.at[i], 0);
    assert_int_equal(sent.pid, getpid());
    assert_true(sent.token != 0);
    m.at[ASKED - 1] = 1;
    bt_host_memory_release(&m);
    assert_null(m.at);
    bt_host_memory_release(&m);
    others_have = false;
    assert_null(create_memory(0).at);
    others_have = true;
    on_host = 1; /* A host with a single rank creates no file. */
    assert_null(create_memory(0).at);
    assert_int_equal(sent.token, 0);
}

static void another_rank_maps_only_this_file(void **state) {
    (void)state;
    static const struct {
        size_t bytes;
        uint64_t token, told;
        bool taken;
    } rows[] = {{BYTES, 5, 5, true},
                {BYTES, 5, 6, false}, /* a file of another job */
                {BYTES, 0, 0, false}, /* the first rank has none */
                {BYTES - PAGE, 5, 5, false},
                {BYTES + PAGE, 5, 5, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        put_file(rows[i].bytes, rows[i].token, rows[i].told);
        bt_host_memory m = create_memory(1);
        if ((m.at != NULL) != rows[i].taken) fail_msg("row %zu", i);
        if (m.at) {
            assert_memory_equal(m.at, "abc", 3);
            m.at[ASKED - 1] = 'x'; /* Writes are visible to the other ranks. */
            char seen = 0;
            assert_int_equal(pread((int)sent.fd, &seen, 1, ASKED - 1), 1);
            assert_int_equal(seen, 'x');
        }
        bt_host_memory_release(&m);
        close((int)sent.fd);
    }
    assert_null(create_memory(1).at); /* The file was removed. */
    put_file(BYTES, 5, 5);
    others_have = false;
    assert_null(create_memory(1).at);
    others_have = true;
    on_host = 1;
    assert_null(create_memory(1).at);
    close((int)sent.fd);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_first_rank_makes_zeros, init),
        cmocka_unit_test_setup(another_rank_maps_only_this_file, init),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

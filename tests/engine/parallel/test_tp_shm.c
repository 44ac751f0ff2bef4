/* test_tp_shm.c - a tensor-parallel group in shared memory, with forked processes as ranks: results of each exchange on
 * each rank, order of sums, counters and times, sleeping and waking, and a group that cannot be created. The test
 * replaces the clock, futexes and MPI: each clock read advances time by a microsecond, and a sleeping process sleeps
 * until it is woken. */
#include <dlfcn.h>
#include <linux/futex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/base/clock.h"
#include "engine/base/rng.h"
#include "engine/base/threads.h"
#include "engine/kernels/table/kernels.h"
#include "engine/parallel/mpi/comm_internal.h"
#include "engine/parallel/mpi/host_memory.h"
#include "engine/parallel/tp/tp_group_internal.h"

enum {
    COLS = 24,
    MOST_ROWS = 64,
    LONG = 2 * 16384 + 3000,
    RANKS_MOST = 5,
    BOX = 64 << 10,
    LOOK_NS = 1000
};

/* shared by all processes of the group */
static struct shared { atomic_int asleep, slept, wakes, turn; } * shared;
enum { MEMORY = 8 << 20 }; /* bytes; a write beyond them ends the process */
static unsigned char *memory;
static int rank, size;
static bt_comm axis;
static bt_tp_group *t;
static bt_err err;
static struct {
    bool refused, refused_elsewhere;
    const char *fails;
    int released;
    size_t bytes; /* bytes of the group's memory */
} world;

/* Ends a process of the group if the condition fails. */
#define CHECK(x) \
    do { \
        if (!(x)) { \
            fprintf(stderr, "%s:%d: rank %d of %d: %s\n", __FILE__, __LINE__, rank, size, #x); \
            _exit(1); \
        } \
    } while (0)

static int64_t now_ns;
int64_t bt_now_ns(void) { return now_ns += LOOK_NS; }
void bt_sleep_ns(int64_t ns) { (void)ns; }
int64_t bt_thread_cpu_ns(void) { return 0; }

long syscall(long number, ...);
long syscall(long number, ...) {
    long (*real)(long, ...);
    void *const found = dlsym(RTLD_NEXT, "syscall");
    memcpy(&real, &found, sizeof real);
    long arg[6];
    va_list ap;
    va_start(ap, number);
    for (int i = 0; i < 6; i++) arg[i] = va_arg(ap, long);
    va_end(ap);
    if (number != SYS_futex) return real(number, arg[0], arg[1], arg[2], arg[3], arg[4], arg[5]);
    void *const at = (void *)(uintptr_t)arg[0];
    const int op = (int)arg[1];
    const uint32_t value = (uint32_t)arg[2];
    const struct timespec *nap = (const struct timespec *)(uintptr_t)arg[3];
    if (op == FUTEX_WAKE) {
        CHECK(value == INT32_MAX);
        shared->wakes++;
        return real(SYS_futex, at, FUTEX_WAKE, value, NULL, NULL, 0);
    }
    CHECK(op == FUTEX_WAIT && nap->tv_sec == 0 && nap->tv_nsec == 100000000);
    shared->slept++;
    shared->asleep++;
    const long rc = real(SYS_futex, at, FUTEX_WAIT, value, NULL, NULL, 0);
    shared->asleep--;
    return rc;
}

bt_code bt_host_memory_create(bt_host_memory *m, bt_comm *c, size_t bytes, const char *name,
                              bt_err *e) {
    assert_true(c == &axis && strcmp(name, "bitrain-tp") == 0);
    assert_true(bytes <= MEMORY && bytes % 64 == 0);
    *m = (bt_host_memory){world.refused ? NULL : memory + MEMORY - bytes, bytes};
    world.bytes = bytes;
    return world.fails ? bt_fail(e, BT_MPI, "no memory is shared") : BT_OK;
}
void bt_host_memory_release(bt_host_memory *m) {
    world.released += m->at != NULL;
    m->at = NULL;
}
int MPI_Allreduce(const void *x, void *y, int n, MPI_Datatype type, MPI_Op op, MPI_Comm c) {
    (void)c;
    assert_true(x == MPI_IN_PLACE && n == 1 && type == MPI_INT64_T && op == MPI_MIN);
    if (world.refused_elsewhere) *(int64_t *)y = 0;
    return MPI_SUCCESS;
}

/* Calls `run` on each of n ranks; a failure or a timeout, which ends a deadlock, fails the test. */
static void run_on_group(int n, void (*run)(void)) {
    enum { DEADLOCK_S = 20 };
    pid_t pids[RANKS_MOST];
    size = n;
    memset(shared, 0, sizeof *shared);
    memset(memory, 0, MEMORY);
    memset(&world, 0, sizeof world);
    fflush(NULL);
    for (rank = 0; rank < n; rank++) {
        pids[rank] = fork();
        if (pids[rank] != 0) continue;
        alarm(DEADLOCK_S);
        axis = (bt_comm){.mpi = MPI_COMM_SELF, .rank = rank, .size = n, .axis = BT_AXIS_TP};
        CHECK(bt_tp_group_shm_create(&t, &axis, MOST_ROWS, COLS, &err) == BT_OK && t);
        bt_traffic_reset();
        CHECK(t->rank == rank && t->size == n && t->failed == BT_OK && t->busy_ns == 0);
        run();
        bt_tp_group_destroy(t);
        CHECK(world.released == 1);
        for (size_t i = 0; i < MEMORY - world.bytes; i++) /* bytes beyond its own */
            CHECK(memory[i] == 0);
        exit(0);
    }
    for (int k = 0; k < n; k++) {
        int status = 0;
        assert_int_equal(waitpid(pids[k], &status, 0), pids[k]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

static float numbers[RANKS_MOST][MOST_ROWS * 1000 + 4000];
static float value_of_rank_and_row(size_t i, int of) { return numbers[of][i]; }
static float tree_sum(size_t i, int first, int many) {
    int left = 1;
    if (many == 1) return value_of_rank_and_row(i, first);
    while (2 * left < many) left *= 2;
    return tree_sum(i, first, left) + tree_sum(i, first + left, many - left);
}

/* Checks the counters of one exchange of a kind since the last call: bytes sent, and number of meetings of the ranks;
 * time passes only outside meetings. */
static void check_exchange_counters(bt_coll kind, uint64_t before, uint64_t bytes, int meetings) {
    CHECK(bt_comm_bytes_wire() - before == bytes);
    const bt_traffic *x = bt_traffic_get(kind, BT_AXIS_TP);
    CHECK(x->calls == 1 && x->bytes_wire == (int64_t)bytes && x->bytes_logical == (int64_t)bytes);
    CHECK(x->busy_ns > meetings * LOOK_NS && x->exposed_ns == x->busy_ns);
    for (int k = 0; k < BT_COLL_COUNT; k++)
        CHECK(k == (int)kind || bt_traffic_get((bt_coll)k, BT_AXIS_TP)->calls == 0);
    CHECK(bt_tp_group_take_busy_ns(t) > meetings * LOOK_NS && t->busy_ns == 0);
    bt_traffic_reset();
    const int64_t moved = bt_span_ns(BT_MR_COMM_EXPOSED), waited = bt_span_ns(BT_MR_WAIT);
    CHECK(bt_span_ns(BT_MR_COMM_EXPOSED) == moved && bt_span_ns(BT_MR_WAIT) == waited);
}

static const size_t row_counts[] = {1, 2, 3, 7, 64};
enum { N_ROWS = sizeof row_counts / sizeof *row_counts };

static size_t first_row(size_t rows, int of) { return rows * (size_t)of / (size_t)size; }

static void run_gathers(void) {
    static unsigned char a[MOST_ROWS * 5];
    static float c[MOST_ROWS * COLS], w[MOST_ROWS * 1000];
    for (size_t k = 0; k < N_ROWS; k++)
        for (int again = 0; again < 3; again++) {
            const size_t rows = row_counts[k], first = first_row(rows, rank),
                         end = first_row(rows, rank + 1);
            const size_t own = end - first, more = (size_t)again * 1000;
            uint64_t before = bt_comm_bytes_wire();
            memset(a, 0, sizeof a);
            memset(c, 0, sizeof c);
            for (size_t i = first * 5; i < end * 5; i++) a[i] = (unsigned char)(i + more);
            for (size_t i = first * COLS; i < end * COLS; i++)
                t->common[i] = c[i] = value_of_rank_and_row(i + more, rank);
            t->all_gather_rows(t, (const bt_tp_rows[]){{a, 5}, {c, COLS * 4}}, 2, rows);
            check_exchange_counters(BT_COLL_ALL_GATHER, before,
                                    (uint64_t)(size - 1) * own * (5 + COLS * 4), 1);
            before = bt_comm_bytes_wire();
            t->all_gather_rows(t, &(bt_tp_rows){t->common, COLS * 4}, 1, rows);
            check_exchange_counters(BT_COLL_ALL_GATHER, before,
                                    (uint64_t)(size - 1) * own * COLS * 4, 1);
            for (int r = 0; r < size; r++)
                for (size_t i = first_row(rows, r) * COLS; i < first_row(rows, r + 1) * COLS; i++)
                    CHECK(c[i] == value_of_rank_and_row(i + more, r) && t->common[i] == c[i]);
            for (size_t i = 0; i < rows * 5; i++) CHECK(a[i] == (unsigned char)(i + more));
            /* Nothing is written after the rows. */
            for (size_t i = rows * COLS; i < MOST_ROWS * COLS; i++) CHECK(c[i] == 0);
            /* The rows of `common` may be used again after the next meeting. */
            before = bt_comm_bytes_wire();
            int all[RANKS_MOST], mine = rank * 3 + again;
            t->all_gather(t, &mine, all, sizeof mine);
            check_exchange_counters(BT_COLL_ALL_GATHER, before, (uint64_t)(size - 1) * sizeof mine,
                                    1);
            for (int r = 0; r < size; r++) CHECK(all[r] == r * 3 + again);
        }
    /* Rows longer than an outbox need several meetings. */
    for (size_t i = 0; i < MOST_ROWS * (size_t)1000; i++) w[i] = 0;
    const size_t first = first_row(MOST_ROWS, rank), end = first_row(MOST_ROWS, rank + 1);
    size_t longest = 0;
    for (int r = 0; r < size; r++) {
        const size_t n = first_row(MOST_ROWS, r + 1) - first_row(MOST_ROWS, r);
        if (n > longest) longest = n;
    }
    for (size_t i = first * 1000; i < end * 1000; i++) w[i] = value_of_rank_and_row(i, rank);
    const uint64_t before = bt_comm_bytes_wire();
    t->all_gather_rows(t, &(bt_tp_rows){w, 4000}, 1, MOST_ROWS);
    check_exchange_counters(BT_COLL_ALL_GATHER, before, (uint64_t)(size - 1) * (end - first) * 4000,
                            (int)((longest * 4000 + BOX - 1) / BOX));
    for (int r = 0; r < size; r++)
        for (size_t i = first_row(MOST_ROWS, r) * 1000; i < first_row(MOST_ROWS, r + 1) * 1000; i++)
            CHECK(w[i] == value_of_rank_and_row(i, r));
}

static void reduce_scatter(void) {
    for (size_t k = 0; k < 2 * N_ROWS; k++) {
        const size_t rows = row_counts[k / 2], first = first_row(rows, rank) * COLS,
                     end = first_row(rows, rank + 1) * COLS;
        const uint64_t before = bt_comm_bytes_wire();
        for (size_t i = 0; i < rows * COLS; i++) t->partial[i] = value_of_rank_and_row(i + k, rank);
        t->reduce_scatter_rows(t, rows, COLS);
        check_exchange_counters(BT_COLL_REDUCE_SCATTER, before, (rows * COLS - (end - first)) * 4,
                                1);
        for (size_t i = first; i < end; i++) CHECK(t->partial[i] == tree_sum(i + k, 0, size));
        int all[RANKS_MOST]; /* `partial` may be overwritten after the exchange */
        t->all_gather(t, &rank, all, sizeof rank);
        bt_traffic_reset();
        (void)bt_tp_group_take_busy_ns(t);
    }
}

static void all_reduce(void) {
    static float x[LONG];
    static const size_t lengths[] = {1, 1023, 1024, 1025, BOX / 4, BOX / 4 + 1, LONG};
    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++)
        for (int group = 1; group <= size; group++) {
            if (size % group) continue;
            const size_t n = lengths[k];
            const uint64_t before = bt_comm_bytes_wire();
            for (size_t i = 0; i < LONG; i++) x[i] = value_of_rank_and_row(i + k, rank);
            t->all_reduce(t, x, n, group);
            check_exchange_counters(BT_COLL_ALL_REDUCE, before,
                                    2 * (uint64_t)(group - 1) * n * 4 / (uint64_t)group,
                                    (int)((n * 4 + BOX - 1) / BOX));
            for (size_t i = 0; i < n; i++)
                CHECK(x[i] == tree_sum(i + k, rank / group * group, group));
            for (size_t i = n; i < LONG; i += 777)
                CHECK(x[i] == value_of_rank_and_row(i + k, rank));
        }
}

static void each_exchange_has_the_documented_result(void **state) {
    (void)state;
    for (int n = 2; n <= RANKS_MOST; n++) {
        run_on_group(n, run_gathers);
        run_on_group(n, reduce_scatter);
        run_on_group(n, all_reduce);
    }
}

/* The late rank arrives when all other ranks are asleep, wakes them, and does not sleep itself. */
static void run_with_a_late_rank(void) {
    int all[RANKS_MOST];
    for (int k = 0; k < 3 * size; k++) {
        if (k % size == rank) {
            while (shared->asleep < size - 1) usleep(50);
            const int wakes = shared->wakes;
            usleep(200); /* time to enter the kernel */
            t->all_gather(t, &rank, all, sizeof rank);
            CHECK(shared->wakes > wakes);
        } else {
            t->all_gather(t, &rank, all, sizeof rank);
        }
        for (int r = 0; r < size; r++) CHECK(all[r] == r);
        /* The next exchange begins when no rank sleeps in this one. */
        while (shared->asleep > 0) usleep(50);
        shared->turn++;
        while (shared->turn < (k + 1) * size) usleep(50);
    }
}

static void ranks_sleep_until_the_late_one_arrives(void **state) {
    (void)state;
    for (int n = 2; n <= 4; n++) {
        run_on_group(n, run_with_a_late_rank);
        assert_true(shared->slept >= 3 * n * (n - 1));
        assert_int_equal(shared->asleep, 0);
    }
}

static size_t rounded_to_pages(size_t bytes) { return (bytes + 4095) / 4096 * 4096; }

static void a_group_uses_its_planned_bytes(void **state) {
    (void)state;
    static const struct {
        int size;
        size_t rows, cols;
    } rows[] = {{2, 64, 24},   {3, 1, 1},    {4, 1000, 1000},
                {5, 7, 70000}, {40, 16, 16}, {8, 100000, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const size_t n = (size_t)rows[i].size,
                     matrix = rounded_to_pages(rows[i].rows * rows[i].cols * 4);
        /* own rows and a number for each, or the statistics of a row over the whole matrix */
        size_t own = (rows[i].rows + n - 1) / n * (rows[i].cols + 1) * 4,
               stats = rows[i].rows * sizeof(bt_row_stat),
               box = rounded_to_pages(own > stats ? own : stats);
        if (box < BOX) box = BOX;
        assert_int_equal(bt_tp_group_shm_bytes(rows[i].size, rows[i].rows, rows[i].cols),
                         rounded_to_pages(n * 128) + matrix + n * (matrix + 2 * box));
    }
}

static void a_group_that_cannot_be_made(void **state) {
    (void)state;
    rank = 0, size = 2;
    axis = (bt_comm){.mpi = MPI_COMM_SELF, .rank = 0, .size = 2, .axis = BT_AXIS_TP};
    for (int i = 0; i < 3; i++) {
        memset(&world, 0, sizeof world);
        world.refused = i == 0;
        world.refused_elsewhere = i <= 1;
        world.fails = i == 2 ? "memory" : NULL;
        t = (bt_tp_group *)(void *)&err;
        assert_int_equal(bt_tp_group_shm_create(&t, &axis, 4, 4, &err), i == 2 ? BT_MPI : BT_OK);
        assert_null(t);
        assert_int_equal(world.released, i != 0);
        if (i == 2) assert_string_equal(err.msg, "no memory is shared");
    }
    memset(&world, 0, sizeof world); /* A successful creation leaves no files. */
    assert_int_equal(bt_tp_group_shm_create(&t, &axis, 4, 4, &err), BT_OK);
    bt_tp_group_destroy(t);
    t = NULL;
    assert_int_equal(world.released, 1);
}

int main(void) {
    if (bt_threads_init(1, &err) != BT_OK || bt_kernels_select("generic", &err) != BT_OK) return 1;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    memory = mmap(NULL, MEMORY + BOX, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || memory == MAP_FAILED || mprotect(memory + MEMORY, BOX, PROT_NONE))
        return 1;
    for (int k = 0; k < RANKS_MOST; k++)
        bt_rng_normal(numbers[k], sizeof *numbers / sizeof **numbers, 0, 1, 3, (uint64_t)k);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_exchange_has_the_documented_result),
        cmocka_unit_test(ranks_sleep_until_the_late_one_arrives),
        cmocka_unit_test(a_group_uses_its_planned_bytes),
        cmocka_unit_test(a_group_that_cannot_be_made),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    munmap(memory, MEMORY + BOX);
    munmap(shared, sizeof *shared);
    return failed;
}

/* comm.h - the only interface to MPI: start, end, communicators, the collectives in use, bt_agree.
 *
 * Threads: MPI is initialised FUNNELED; only the training thread calls anything here.
 * Counts: bytes sent are counted here per communicator, logical and on the wire.
 * Without MPI (single process, not under mpirun) bt_comm_init still works: a world of one. */
#ifndef BT_ENGINE_PARALLEL_MPI_COMM_H
#define BT_ENGINE_PARALLEL_MPI_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"
#include "engine/parallel/mpi/traffic.h"

typedef struct bt_comm bt_comm; /* a communicator; opaque */

/* Returns true if mpirun, hydra or srun with PMI has set the environment. */
bool bt_comm_am_rank(void);
/* Reads the rank and the number of ranks from the environment before MPI starts; defaults are 0 and 1. */
void bt_comm_env_place(int *rank, int *size);
void bt_comm_library(char *out, size_t size); /* "Open MPI v4.1.4, ..."; valid before init */
bt_code bt_comm_init(bt_err *err) BT_MUST_CHECK;
void bt_comm_finalize(void);
void bt_comm_abort(int exit_code); /* ends the whole job; does not return */
bt_comm *bt_comm_world(void);
int bt_comm_rank(const bt_comm *c);
int bt_comm_size(const bt_comm *c);
int bt_comm_local_rank(void); /* rank within this host */
int bt_comm_local_size(void);
/* Host of a rank of the world: the lowest rank that shares its memory. For a rank beyond this world the host is as
 * declared by bt_comm_expect_hosts, else 0: a job that has not started counts as one host. */
int bt_comm_host(int rank);
/* Declares the hosts of a job that a process without MPI plans: its ranks fill hosts of slots[i] ranks in order;
 * the last host takes all further ranks. slots: (n) must remain valid; n 0: one host */
void bt_comm_expect_hosts(const int *slots, int n);
/* Collective over parent; all ranks return the same code. */
bt_code bt_comm_split(bt_comm **out, bt_comm *parent, int color, int key, bt_err *err)
    BT_MUST_CHECK;
/* Selects the row of traffic.h in which exchanges of this communicator count; the default is BT_AXIS_WORLD. */
void bt_comm_set_axis(bt_comm *c, bt_axis axis);
void bt_comm_free(bt_comm *c);

typedef enum { BT_SUM, BT_MAX, BT_MIN } bt_reduce_op;
/* In place, blocking. */
bt_code bt_all_reduce_f32(bt_comm *c, float *x, size_t n, bt_reduce_op op, bt_err *err)
    BT_MUST_CHECK;
bt_code bt_all_reduce_f64(bt_comm *c, double *x, size_t n, bt_reduce_op op, bt_err *err)
    BT_MUST_CHECK;
bt_code bt_all_reduce_i64(bt_comm *c, int64_t *x, size_t n, bt_reduce_op op, bt_err *err)
    BT_MUST_CHECK;
bt_code bt_broadcast(bt_comm *c, void *x, size_t bytes, int root, bt_err *err) BT_MUST_CHECK;
/* all: receives size * bytes on root. */
bt_code bt_gather(bt_comm *c, const void *x, size_t bytes, void *all, int root, bt_err *err)
    BT_MUST_CHECK;
bt_code bt_all_gather(bt_comm *c, const void *x, size_t bytes, void *all, bt_err *err)
    BT_MUST_CHECK;
bt_code bt_barrier(bt_comm *c, bt_err *err) BT_MUST_CHECK;

/* a non-blocking exchange: start, then test (which also makes MPI progress) until done */
typedef struct bt_request {
    void *handle;
    bool active;
} bt_request;
bt_code bt_all_reduce_i64_start(bt_comm *c, int64_t *x, size_t n, bt_reduce_op op, bt_request *r,
                                bt_err *err) BT_MUST_CHECK;
bt_code bt_gather_start(bt_comm *c, const void *x, size_t bytes, void *all, int root, bt_request *r,
                        bt_err *err) BT_MUST_CHECK;
bt_code bt_request_test(bt_request *r, bool *done, bt_err *err) BT_MUST_CHECK;
bt_code bt_request_wait(bt_request *r, bt_err *err) BT_MUST_CHECK;

/* Returns the bytes that this rank sent since init, over all communicators. All-reduce counts as a ring: 2(n-1)/n;
 * reduce-scatter and all-gather (n-1)/n of the whole; broadcast (n-1) at the root; gather the contribution of every
 * rank but the root. */
uint64_t bt_comm_bytes_logical(void);
uint64_t bt_comm_bytes_wire(void);

/* Makes ranks fail together, after a phase that can fail on one rank alone: every rank returns the code and message
 * of the lowest failing rank, or BT_OK if all ranks passed BT_OK. */
bt_code bt_agree(bt_comm *c, bt_code mine, bt_err *err);
#ifdef __clang_analyzer__ /* the analyzer cannot see that the result is never BT_OK for a rank that failed */
#define bt_agree(c, mine, err) bt_analyzed_agree(c, mine, err)
static inline bt_code bt_analyzed_agree(bt_comm *c, bt_code mine, bt_err *err) {
    bt_code all = (bt_agree)(c, mine, err);
    return mine != BT_OK ? mine : all;
}
#endif

#endif

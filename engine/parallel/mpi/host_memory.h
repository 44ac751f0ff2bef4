/* host_memory.h - one mapping shared by ranks of a host.
 *
 * It is an anonymous file of the first rank, which the other ranks open through /proc while that rank is alive: a
 * kill leaves nothing behind, and no limit of /dev/shm applies. The memory is zeroed.
 * Threads:  one caller; any thread may use the mapping. */
#ifndef BT_ENGINE_PARALLEL_MPI_HOST_MEMORY_H
#define BT_ENGINE_PARALLEL_MPI_HOST_MEMORY_H

#include "engine/parallel/mpi/comm.h"

typedef struct bt_host_memory {
    unsigned char *at; /* page-aligned; NULL: none */
    size_t bytes;      /* mapped size, which may be larger than requested */
} bt_host_memory;

/* Collective. If the ranks are on several hosts or the system refuses, m->at is NULL on all ranks and the result is
 * BT_OK. name: file name in lists of mapped files. */
bt_code bt_host_memory_create(bt_host_memory *m, bt_comm *c, size_t bytes, const char *name,
                              bt_err *err) BT_MUST_CHECK;
void bt_host_memory_release(bt_host_memory *m); /* accepts an all-zero struct */

#endif

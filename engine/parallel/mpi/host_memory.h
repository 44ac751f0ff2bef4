/* host_memory.h - one mapping that ranks of a host have in common.
 *
 * It is an anonymous file of the first rank, which the others open through /proc while it is alive: nothing
 * is left behind by a kill, and no limit of /dev/shm applies. Zeroed.
 * Threads:  one caller; the mapping from any. */
#ifndef BT_ENGINE_PARALLEL_MPI_HOST_MEMORY_H
#define BT_ENGINE_PARALLEL_MPI_HOST_MEMORY_H

#include "engine/parallel/mpi/comm.h"

typedef struct bt_host_memory {
    unsigned char *at; /* at a page; NULL: none */
    size_t bytes;      /* mapped: what was asked for, and more */
} bt_host_memory;

/* collective. m->at is NULL on all ranks, which is no error, where they are not of one host or the system refuses;
 * name: of the file in /proc/PID/maps */
bt_code bt_host_memory_create(bt_host_memory *m, bt_comm *c, size_t bytes, const char *name,
                              bt_err *err) BT_MUST_CHECK;
void bt_host_memory_release(bt_host_memory *m); /* accepts an all-zero struct */

#endif

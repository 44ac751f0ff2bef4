/* host_memory.c - maps an anonymous file of the first rank on all ranks of a host. */
#include "engine/parallel/mpi/host_memory.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/os/memory_pages.h"
#include "engine/base/os/unnamed_file.h"
#include "engine/base/rng.h"
#include "engine/parallel/mpi/comm_internal.h"

enum { PAGE = 4096 };

static bool one_host(const bt_comm *c) {
    MPI_Comm host;
    int n = 0;
    if (c->size == 1) return true;
    if (MPI_Comm_split_type(c->mpi, MPI_COMM_TYPE_SHARED, c->rank, MPI_INFO_NULL, &host) !=
        MPI_SUCCESS)
        return false;
    MPI_Comm_size(host, &n);
    MPI_Comm_free(&host);
    return n == c->size;
}

static bool map_host_memory(bt_host_memory *m, int fd) {
    void *at = mmap(NULL, m->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED) m->at = at, bt_pages_prefer_huge(at, m->bytes);
    return at != MAP_FAILED;
}

/* The process and descriptor of the file, and a token that the file also contains. The token detects a process
 * number that belongs to another process in another rank's namespace. */
typedef struct ticket {
    int64_t pid, fd;
    uint64_t token;
} ticket;

static uint64_t *ready_mark(const bt_host_memory *m) {
    return (uint64_t *)(void *)(m->at + m->bytes - PAGE);
}

static int create_with_ticket(bt_host_memory *m, const char *name, ticket *t) {
    int fd = bt_memory_file_create(name);
    if (fd < 0 || ftruncate(fd, (off_t)m->bytes) != 0 || !map_host_memory(m, fd)) return fd;
    *t = (ticket){getpid(), fd,
                  bt_splitmix64((uint64_t)bt_now_ns() ^ (uint64_t)getpid() << 32) | 1};
    *ready_mark(m) = t->token;
    return fd;
}

static int open_by_ticket(bt_host_memory *m, const ticket *t) {
    int fd = t->token ? bt_file_of_process((pid_t)t->pid, (int)t->fd) : -1;
    if (fd >= 0 && lseek(fd, 0, SEEK_END) == (off_t)m->bytes && map_host_memory(m, fd) &&
        *ready_mark(m) != t->token) {
        munmap(m->at, m->bytes);
        m->at = NULL;
    }
    return fd;
}

bt_code bt_host_memory_create(bt_host_memory *m, bt_comm *c, size_t bytes, const char *name,
                              bt_err *err) {
    int64_t seen = one_host(c);
    int fd = -1;
    ticket t = {0};
    *m = (bt_host_memory){.bytes = (bytes + PAGE - 1) / PAGE * PAGE + PAGE};
    if (seen && c->rank == 0) fd = create_with_ticket(m, name, &t);
    bt_code code = bt_broadcast(c, &t, sizeof t, 0, err);
    if (code == BT_OK && seen && c->rank != 0) fd = open_by_ticket(m, &t);
    seen = m->at != NULL;
    if (code == BT_OK) code = bt_all_reduce_i64(c, &seen, 1, BT_MIN, err);
    if (fd >= 0) close(fd); /* the mapping remains valid */
    if (code != BT_OK || !seen) bt_host_memory_release(m);
    return code;
}

void bt_host_memory_release(bt_host_memory *m) {
    if (m->at) munmap(m->at, m->bytes);
    *m = (bt_host_memory){0};
}

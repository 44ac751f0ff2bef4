/* memory_ring.c - orders hosts in a ring by their numbers (bt_comm_host). */
#include "engine/ckpt/memory/memory_ring.h"

#include "engine/parallel/mpi/comm.h"

static int ranks_of_host(int host, int size) {
    int n = 0;
    for (int r = 0; r < size; r++) n += bt_comm_host(r) == host;
    return n;
}

static int index_on_host(int rank) {
    const int host = bt_comm_host(rank);
    int n = 0;
    for (int r = 0; r < rank; r++) n += bt_comm_host(r) == host;
    return n;
}

int bt_memory_neighbour(int host, int step, int size) {
    int best = -1, end = -1; /* end: the first or the last host of all */
    for (int r = 0; r < size; r++) {
        const int h = bt_comm_host(r);
        if ((h - host) * step > 0 && (best < 0 || (h - best) * step < 0)) best = h;
        if (end < 0 || (h - end) * step < 0) end = h;
    }
    return best >= 0 ? best : end;
}

int bt_memory_keeper(int rank, int size) {
    const int mine = bt_comm_host(rank);
    if (mine == bt_comm_host(0)) return -1;
    const int next = bt_memory_neighbour(mine, 1, size);
    int place = index_on_host(rank) % ranks_of_host(next, size);
    for (int r = 0; r < size; r++)
        if (bt_comm_host(r) == next && place-- == 0) return r;
    return -1;
}

int bt_memory_kept(int rank, int size) {
    const int mine = bt_comm_host(rank), from = bt_memory_neighbour(mine, -1, size);
    if (from == mine || from == bt_comm_host(0)) return 0;
    const int n = ranks_of_host(from, size), sharers = ranks_of_host(mine, size),
              place = index_on_host(rank);
    return n > place ? (n - place + sharers - 1) / sharers : 0;
}

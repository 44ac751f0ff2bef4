/* memory_ring.h - chooses, for each rank's part of a spread state (memory_state.h), the rank that keeps a copy.
 *
 * Hosts form a ring in the order of their lowest rank. Parts of the first host have no copy, because the supervisor
 * runs there, and without it a run cannot restart from memory. Pure, for a world of `size` ranks whose hosts
 * bt_comm_host returns; O(size). */
#ifndef BT_ENGINE_CKPT_MEMORY_RING_H
#define BT_ENGINE_CKPT_MEMORY_RING_H

/* Returns the rank on the next host that keeps the copy of this rank's part; -1: none. */
int bt_memory_keeper(int rank, int size);
/* Returns the number of parts of the previous host of which a rank keeps copies. */
int bt_memory_kept(int rank, int size);
int bt_memory_neighbour(int host, int step, int size);

#endif

/* memory_ring.h - which rank keeps a copy of which rank's part of a spread state (memory_state.h).
 *
 * Hosts in the order of their lowest rank, in turn. Of the first host nothing is kept elsewhere: the supervisor
 * is there, and without it nobody goes on from memory. Pure, of a world of `size` ranks whose hosts
 * bt_comm_host knows; O(size). */
#ifndef BT_ENGINE_CKPT_MEMORY_RING_H
#define BT_ENGINE_CKPT_MEMORY_RING_H

/* a rank of the next host; -1: none */
int bt_memory_keeper(int rank, int size);
/* how many parts of the host before its own a rank keeps */
int bt_memory_kept(int rank, int size);
/* the host after a host (step 1) or before it (-1) */
int bt_memory_neighbour(int host, int step, int size);

#endif

/* placement.h - which processors a rank computes on: ranks and threads by sockets, memory domains and cores.
 *
 * The processors of a machine are put in the order of sockets, memory domains and cores. A memory domain
 * takes the tensor-parallel groups whose middle falls into it, and shares its cores out among their ranks in
 * equal runs, so that the ranks which exchange most are neighbours, and the memory that a rank touches first
 * is that of its domain. Where domains cannot hold whole groups, sockets do; where those cannot, domains
 * take single ranks; fewer ranks than domains have equal shares of all cores. A rank's threads get a core
 * each, not two of them the two hardware threads of one, unless it has more threads than cores.
 * Ranks of one thread that are k times as many as hardware threads have k on each: rank r on the r modulo nth,
 * so that neighbours, which exchange most, compute at the same time, and pipeline stages share.
 * Pure functions but for bt_machine_places and bt_place_bind. Threads: any. */
#ifndef BT_MONITOR_JOB_MACHINE_PLACEMENT_H
#define BT_MONITOR_JOB_MACHINE_PLACEMENT_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>

enum { BT_PLACES_MAX = CPU_SETSIZE };

typedef struct bt_cpu_place {  /* a hardware thread */
    int cpu;                   /* the system's number of it */
    int package, domain, core; /* numbers that differ where these do, on the whole machine */
} bt_cpu_place;

typedef struct bt_place_job {
    int ranks, rank; /* of this machine's ranks, in the order of the world */
    int threads;     /* of a rank */
    int group;       /* ranks of a tensor-parallel group */
} bt_place_job;

/* The hardware threads that this process may use, in the order above; at most BT_PLACES_MAX, and how
 * many. By hwloc; without it every processor is a core of one domain. machine: NULL for this one, or
 * hwloc's description of another, such as "pack:2 numa:2 core:4 pu:2" (0 where it cannot be made) */
size_t bt_machine_places(bt_cpu_place places[BT_PLACES_MAX], const char *machine);
/* The processors of a rank. false: they are not shared out, because ranks cannot have equally many, or there
 * are fewer in the rank's share than it has threads: the kernel then places them. */
bool bt_place_rank(const bt_cpu_place *places, size_t n, const bt_place_job *job, cpu_set_t *mine);
/* Binds this process, a rank of this machine, to its processors of those that the job may use, unless whoever
 * started it has shared them out already; threads that it starts afterwards inherit it, and inside the share
 * the kernel places them. false: the system refuses */
bool bt_place_bind(const bt_place_job *job);
/* "2 sockets, 4 memory domains, 16 cores, 32 hardware threads" */
const char *bt_places_words(const bt_cpu_place *places, size_t n, char *out, size_t size);

#endif

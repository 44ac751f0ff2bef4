/* cpu_binding.h - assigns processors to ranks and threads by sockets, memory domains and cores.
 *
 * Processors are ordered by socket, memory domain and core. A memory domain takes the tensor-parallel groups whose
 * middle is in it, and divides its cores among their ranks in equal ranges. Ranks that exchange most are thus
 * neighbours, and memory that a rank touches first belongs to its domain. If domains are too small for whole groups,
 * sockets are used; if these are too small, domains take single ranks; fewer ranks than domains have equal shares of
 * all cores. Each thread of a rank gets its own core, not a second hardware thread, unless the rank has more threads
 * than cores. If there are k times as many one-thread ranks as hardware threads, each hardware thread has k of them:
 * rank r uses number r modulo nth, so that neighbours compute at the same time, and pipeline stages share. */
#ifndef BT_MONITOR_JOB_MACHINE_CPU_BINDING_H
#define BT_MONITOR_JOB_MACHINE_CPU_BINDING_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/base/os/processors.h"

enum { BT_HARDWARE_THREADS_MAX = CPU_SETSIZE };

typedef struct bt_hardware_thread {
    int cpu;                   /* number of the core in the system */
    int package, domain, core; /* numbers that are unique on the machine */
} bt_hardware_thread;

typedef struct bt_binding_job {
    int ranks, rank; /* number of ranks on this machine; index of this one, in world order */
    int threads;     /* threads per rank */
    int group;       /* ranks of a tensor-parallel group */
} bt_binding_job;

/* Lists the hardware threads that this process may use, in the order above; returns their number. Without hwloc
 * every processor is a core of one domain. machine: NULL for this one, or hwloc's description of another, such as
 * "pack:2 numa:2 core:4 pu:2" (0 if it is invalid). */
size_t bt_hardware_threads(bt_hardware_thread places[BT_HARDWARE_THREADS_MAX], const char *machine);
/* Computes the processors of a rank. Returns false if the kernel must place the ranks, because equal shares are
 * impossible or a share has fewer processors than the rank has threads. */
bool bt_cpus_of_rank(const bt_hardware_thread *places, size_t n, const bt_binding_job *job,
                     cpu_set_t *mine);
/* Binds this process, a rank of this machine, to its share of the job's processors, unless its launcher has bound
 * it. Threads started later inherit the binding, and the kernel places them inside the share. Returns false if the
 * system refuses. */
bool bt_bind_rank(const bt_binding_job *job);
/* Writes for example "2 sockets, 4 memory domains, 16 cores, 32 hardware threads". */
const char *bt_hardware_threads_text(const bt_hardware_thread *places, size_t n, char *out,
                                     size_t size);

#endif

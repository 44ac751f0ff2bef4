/* processors.h - properties of the processors that this process may use.
 *
 * Sets are cpu_set_t with the macros CPU_SET, CPU_COUNT etc., which glibc, musl and FreeBSD have. Threads: any; a set
 * applies to the calling thread, and later threads and processes inherit it. */
#ifndef BT_ENGINE_BASE_OS_PROCESSORS_H
#define BT_ENGINE_BASE_OS_PROCESSORS_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>

/* Returns the number of processors in the set; 0: unknown, and the set is empty. */
int bt_processors_allowed(cpu_set_t *out);
/* Restricts the calling thread to a set. Returns false if the system refuses. May be called between fork and exec. */
bool bt_processors_bind(const cpu_set_t *set);
/* Returns the number of processors that are switched on; at least 1. */
int bt_processors_online(void);
/* Returns the number of cores: hardware threads of one core count once, and a processor whose core is unknown counts as
 * one. root: NULL, or in tests a folder in the form of /sys/devices/system/cpu. */
int bt_processors_cores(const int *cpus, int n, const char *root);

/* Returns the frequency of a processor in MHz; NaN: unknown, as in most virtual machines. */
double bt_processor_mhz(int cpu);
/* Reads the register MIDR_EL1 of an ARM processor. Returns false if the system does not show it. */
bool bt_processor_midr(int cpu, unsigned long long *out);
/* Returns true if the kernel lists a processor feature with this name. */
bool bt_processors_have(const char *feature);
/* Requests the tile registers of AMX for this process and its later threads. false: refused, or there are none. */
bool bt_processors_allow_tiles(void);

#endif

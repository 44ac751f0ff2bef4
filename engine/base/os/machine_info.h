/* machine_info.h - reads load, memory, disks, network and sensors of this machine. Stateless. Threads: any. */
#ifndef BT_ENGINE_BASE_OS_MACHINE_INFO_H
#define BT_ENGINE_BASE_OS_MACHINE_INFO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* In bytes; NaN: unknown. Inside a container these are values of the machine, not of the container. */
typedef struct bt_machine_memory {
    double total, available, swap_free;
} bt_machine_memory;

bt_machine_memory bt_machine_memory_read(void);

/* average: runnable tasks, mean of the last minute; runnable: tasks that are runnable now, including the caller. NaN:
 * unknown. The function allocates no memory. */
typedef struct bt_machine_load_now {
    double average, runnable;
} bt_machine_load_now;

bt_machine_load_now bt_machine_load_read(void);

/* Times since the machine started, in ticks of sysconf(_SC_CLK_TCK). */
typedef struct bt_processor_times {
    int cpu;              /* number of the processor; -1: sum over all */
    int64_t worked, idle; /* idle includes waits for disks */
    int64_t stolen;       /* time that a hypervisor gave to other machines */
} bt_processor_times;

/* Reads the sum over all processors without allocating memory. Returns false if unknown. */
bool bt_machine_times(bt_processor_times *out);
/* Reads each processor that is switched on, in ascending order, and returns their number, at most max. */
size_t bt_machine_times_each(bt_processor_times *out, size_t max);
/* Parses the first line of a file in the form of Linux's /proc/stat. */
bool bt_machine_times_parse(const char *text, bt_processor_times *out);

/* Reads the bytes of all whole disks since the machine started. Returns false if unknown. */
bool bt_machine_disk_bytes(double *read, double *written);
/* Returns the bytes received and sent by all network interfaces except the loopback; NaN: unknown. */
double bt_machine_network_bytes(void);
/* Returns the temperature of the hottest sensor in degrees Celsius; NaN: no sensor. */
double bt_machine_celsius(void);
/* Calls fn for each core with its own sensor. core: number of the core in the order of the sensors. */
void bt_machine_core_celsius(void (*fn)(void *ctx, int core, double celsius), void *ctx);
/* Returns the folder of the processors' energy counters, in the form of Linux's powercap. */
const char *bt_machine_energy_folder(void);

/* Writes the name of the clock that the kernel reads, such as "tsc". Returns false if unknown. */
bool bt_machine_clock(char *out, size_t size);
/* Writes a text that differs after each start of the machine. Returns false if unknown. */
bool bt_machine_boot(char out[40]);

#endif

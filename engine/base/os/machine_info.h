/* machine_info.h - load, memory, disks, network and sensors of this machine. Nothing is kept between calls.
 * Threads: any. */
#ifndef BT_ENGINE_BASE_OS_MACHINE_INFO_H
#define BT_ENGINE_BASE_OS_MACHINE_INFO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes; NaN: unknown. In a container these are the machine's, not the container's. */
typedef struct bt_machine_memory {
    double total, available, swap_free;
} bt_machine_memory;

bt_machine_memory bt_machine_memory_read(void);

/* average: runnable tasks, mean of the last minute; runnable: tasks that are runnable now, including the caller.
 * NaN: unknown. Allocates nothing. */
typedef struct bt_machine_load_now {
    double average, runnable;
} bt_machine_load_now;

bt_machine_load_now bt_machine_load_read(void);

/* Time since the machine started in ticks of sysconf(_SC_CLK_TCK). */
typedef struct bt_processor_times {
    int cpu;              /* number of the processor; -1: sum of all */
    int64_t worked, idle; /* idle: including waits for disks */
    int64_t stolen;       /* time that a hypervisor gave to other machines */
} bt_processor_times;

/* Reads the sum of all processors without allocating memory. Returns false if unknown. */
bool bt_machine_times(bt_processor_times *out);
/* Reads the processors that are switched on in ascending order; returns their number, at most max. */
size_t bt_machine_times_each(bt_processor_times *out, size_t max);
/* Parses the first line of a file in the form of Linux's /proc/stat. */
bool bt_machine_times_parse(const char *text, bt_processor_times *out);

/* Bytes since the machine started, of whole disks. Returns false if unknown. */
bool bt_machine_disk_bytes(double *read, double *written);
/* Bytes received and sent by all network interfaces but the loopback; NaN: unknown. */
double bt_machine_network_bytes(void);
/* Temperature of the hottest sensor in degrees Celsius; NaN: there is none. */
double bt_machine_celsius(void);
/* Calls fn for each core whose own temperature is known. core: number of the core in the order of the sensors. */
void bt_machine_core_celsius(void (*fn)(void *ctx, int core, double celsius), void *ctx);
/* Folder of the processors' energy counters in the form of Linux's powercap. */
const char *bt_machine_energy_folder(void);

/* Writes the name of the clock that the kernel reads, such as "tsc". Returns false if unknown. */
bool bt_machine_clock(char *out, size_t size);
/* Writes a text that is different after each start of the machine. Returns false if unknown. */
bool bt_machine_boot(char out[40]);

#endif

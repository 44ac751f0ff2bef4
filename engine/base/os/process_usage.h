/* process_usage.h - reads how much memory, processor time and I/O a process uses. Threads: any. */
#ifndef BT_ENGINE_BASE_OS_PROCESS_USAGE_H
#define BT_ENGINE_BASE_OS_PROCESS_USAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Writes the bytes of the address space and of the memory in use. pid 0: this process. Returns false: it has ended. */
bool bt_process_memory(pid_t pid, size_t *address_space, size_t *resident);
/* Returns the bytes of shared memory that this process has touched and that count for other processes: a page that n
 * processes use counts 1/n for each. NaN: unknown. */
double bt_process_memory_of_others(void);

typedef struct bt_process_io {
    uint64_t read, written; /* bytes of all read and write calls, including sockets and pipes */
    uint64_t disk_read, disk_written; /* bytes that were or will be transferred to or from a disk */
} bt_process_io;

/* Returns false if the process does not exist or belongs to another user. */
bool bt_process_io_read(pid_t pid, bt_process_io *out);
/* Returns the voluntary and forced context switches of all living threads; NaN: unknown. */
double bt_process_switches(pid_t pid);

typedef struct bt_process_schedule {
    /* sums over living threads: time on a processor, time runnable without a processor */
    int64_t ran_ns, waited_ns;
    bool runs; /* some thread is runnable now */
} bt_process_schedule;

/* Returns false if the process does not exist. If the system has no such statistics, times are 0. */
bool bt_process_schedule_read(pid_t pid, bt_process_schedule *out);
/* Writes the kernel function in which the first thread of a process sleeps; "": unknown, or it does not sleep. */
void bt_process_sleeps_in(pid_t pid, char *out, size_t size);

#endif

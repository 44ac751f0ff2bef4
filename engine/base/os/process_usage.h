/* process_usage.h - what a process uses: memory, processor time, files. Threads: any. */
#ifndef BT_ENGINE_BASE_OS_PROCESS_USAGE_H
#define BT_ENGINE_BASE_OS_PROCESS_USAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Bytes of the address space and of the memory in use. pid 0: this process. Allocates nothing. Returns false if the
 * process has ended. */
bool bt_process_memory(pid_t pid, size_t *address_space, size_t *resident);
/* Bytes of shared memory that this process has touched, less its share: a page that n processes use counts 1/n for
 * each. NaN: unknown. */
double bt_process_memory_of_others(void);

typedef struct bt_process_io {
    uint64_t read, written; /* bytes of all read and write calls, including sockets and pipes */
    uint64_t disk_read, disk_written; /* bytes that reached a disk, or will */
} bt_process_io;

/* Returns false if there is no such process, or it belongs to another user. */
bool bt_process_io_read(pid_t pid, bt_process_io *out);
/* Sum of voluntary and forced context switches of the threads that are alive; NaN: unknown. */
double bt_process_switches(pid_t pid);

typedef struct bt_process_schedule {
    int64_t ran_ns,
        waited_ns; /* sums over the threads that are alive: time on a processor, time runnable without one */
    bool runs; /* a thread is runnable now */
} bt_process_schedule;

/* Returns false if there is no such process. Where the system keeps no such statistics, times are 0. */
bool bt_process_schedule_read(pid_t pid, bt_process_schedule *out);
/* Writes the function of the kernel in which the first thread of a process sleeps; "": unknown, or it does not
 * sleep. */
void bt_process_sleeps_in(pid_t pid, char *out, size_t size);

#endif

/* process_info.h - reads properties of processes on this machine, including those of other users if the system shows
 * them.
 *
 * Every function takes a process number in the namespace of this process. Threads: any. */
#ifndef BT_ENGINE_BASE_OS_PROCESS_INFO_H
#define BT_ENGINE_BASE_OS_PROCESS_INFO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct bt_process_info {
    pid_t pid, parent, session;
    /* R runnable, S asleep, D in uninterruptible sleep, T stopped by a signal, t stopped by a debugger, Z not yet
     * reaped, X dead; other letters are not used here. */
    char state;
    char name[32];      /* name of the program, possibly cut; any bytes */
    double page_faults; /* since its start */
    double cpu_s;       /* processor time since its start, in user and system mode */
    int end_status;     /* in state Z the status that waitpid returns; 0 in other states */
} bt_process_info;

/* Returns false if the process does not exist. */
bool bt_process_info_read(pid_t pid, bt_process_info *out);

/* Lists processes in the ascending order of their numbers: call next until it returns 0, then end. Processes that start
 * or end meanwhile may be missing. The list is empty if the system does not list processes. */
typedef struct bt_process_scan {
    void *folder; /* NULL before the first call of next */
} bt_process_scan;

pid_t bt_process_scan_next(bt_process_scan *s);
void bt_process_scan_end(bt_process_scan *s);

/* Copies the arguments of a process, separated by NUL, and returns their bytes, at most size; 0: unknown. */
size_t bt_process_words(pid_t pid, char *out, size_t size);
/* Reads an initial environment variable of a process; false: it is absent, or the process belongs to another user. */
bool bt_process_variable(pid_t pid, const char *name, char *out, size_t size);
/* Returns the process that listens on a TCP port, and writes its name; 0: unknown, or it belongs to another user. */
pid_t bt_process_on_port(int port, char *name, size_t size);

#endif

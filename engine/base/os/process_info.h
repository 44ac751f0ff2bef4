/* process_info.h - processes of this machine, also those of other users where the system shows them.
 *
 * Every function takes the number of a process in the namespace of this process. Threads: any. */
#ifndef BT_ENGINE_BASE_OS_PROCESS_INFO_H
#define BT_ENGINE_BASE_OS_PROCESS_INFO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct bt_process_info {
    pid_t pid, parent, session;
    /* R runnable, S asleep, D asleep and not interruptible, T stopped by a signal, t by a debugger, Z not yet reaped,
     * X dead; other letters have no meaning here */
    char state;
    char name[32];      /* program, possibly cut; any bytes */
    double page_faults; /* since its start */
    double cpu_s;       /* processor time since its start, in user and system mode */
    int end_status;     /* of state Z: status as waitpid returns it; 0 in other states */
} bt_process_info;

/* Returns false if there is no such process. */
bool bt_process_info_read(pid_t pid, bt_process_info *out);

/* Lists processes in ascending order of their numbers: next until it returns 0, then end. Processes that start or end
 * meanwhile may be missing. A system that does not list processes has none. */
typedef struct bt_process_scan {
    void *folder; /* NULL before the first call of next */
} bt_process_scan;

pid_t bt_process_scan_next(bt_process_scan *s);
void bt_process_scan_end(bt_process_scan *s);

/* Copies the arguments of a process, separated by NUL, and returns their bytes, at most size; 0: unknown. */
size_t bt_process_words(pid_t pid, char *out, size_t size);
/* Reads a variable of the environment with which a process started. Returns false if it is absent or the process
 * belongs to another user. */
bool bt_process_variable(pid_t pid, const char *name, char *out, size_t size);
/* Finds the process that listens on a TCP port of this machine, and its name. Returns 0 if it is unknown or belongs to
 * another user. */
pid_t bt_process_on_port(int port, char *name, size_t size);

#endif

/* own_process.h - this process: its program, its parent and children, its threads. Threads: any, except where
 * stated. */
#ifndef BT_ENGINE_BASE_OS_OWN_PROCESS_H
#define BT_ENGINE_BASE_OS_OWN_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns a path that opens and starts this program even after its file was replaced. */
const char *bt_program_file(void);
/* Writes the path of the first loaded library whose path contains `part`. Returns false if there is none. */
bool bt_loaded_library(const char *part, char *out, size_t size);

/* Requests a signal for this process at the end of the thread that started it; 0: none. fork, and exec of a program
 * with more privileges, reset the request. A parent that ended before the call sends nothing, so compare getppid
 * afterwards. May be called between fork and exec. */
void bt_signal_at_parent_end(int signal);
/* Makes this process the parent of orphans among its descendants; it must reap them. */
void bt_adopt_orphans(void);

/* Returns a number that is equal for processes in the same pid namespace; -1: unknown. */
int64_t bt_process_namespace(void);
/* Returns true if this process may read the memory of other processes of its user. */
bool bt_may_read_processes(void);
/* Returns true if this process sees all processes of the machine under the kernel's numbers. */
bool bt_sees_all_processes(void);

/* Returns a number that no other thread of this machine has now; with one thread it is the process number. */
long bt_thread_number(void);
/* Sends a signal to the main thread. In the main thread, returns false and sends nothing. Async-signal-safe. */
bool bt_signal_main_thread(int signal);
/* Lowers the disk priority of the calling thread to the class for idle times. */
void bt_thread_use_idle_disk(void);

#endif

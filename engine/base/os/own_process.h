/* own_process.h - this process: its program, its relation to its parent and children, its threads.
 * Threads: any, except where stated. */
#ifndef BT_ENGINE_BASE_OS_OWN_PROCESS_H
#define BT_ENGINE_BASE_OS_OWN_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns a path under which the file of this program can be opened and started, also after it was replaced. */
const char *bt_program_file(void);
/* Writes the path of the first loaded library whose path contains `part`. Returns false if there is none. */
bool bt_loaded_library(const char *part, char *out, size_t size);

/* Requests a signal for this process when the thread that started it ends; 0: none. fork and exec of a program with
 * more privileges reset it. A parent that has ended before the call sends nothing: compare getppid afterwards. May be
 * called between fork and exec. */
void bt_signal_at_parent_end(int signal);
/* Makes orphans among the descendants of this process its children, which it must reap. */
void bt_adopt_orphans(void);

/* Returns a number of the process namespace that is equal for processes which see each other's numbers; -1: unknown. */
int64_t bt_process_namespace(void);
/* True if this process may copy from the memory of other processes of its user. */
bool bt_may_read_processes(void);
/* True if this process sees all processes of the machine under the kernel's own numbers. */
bool bt_sees_all_processes(void);

/* Returns a number that no other thread of this machine has now; a process number if there is one thread. */
long bt_thread_number(void);
/* Sends a signal to the thread that runs main. Returns false, and sends nothing, in that thread itself. May be called
 * in a signal handler. */
bool bt_signal_main_thread(int signal);
/* Gives files that the calling thread reads and writes the lowest priority at the disk. */
void bt_thread_use_idle_disk(void);

#endif

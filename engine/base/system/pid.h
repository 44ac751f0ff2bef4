/* pid.h - checks if a process of this machine exists. Threads: any. */
#ifndef BT_ENGINE_BASE_SYSTEM_PID_H
#define BT_ENGINE_BASE_SYSTEM_PID_H

#include <stdbool.h>
#include <stdint.h>

/* True if it is running or runnable; false for a zombie. */
bool bt_pid_lives(int64_t pid);

#endif

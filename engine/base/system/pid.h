/* pid.h - checks whether a process of this machine exists. Threads: any. */
#ifndef BT_ENGINE_BASE_SYSTEM_PID_H
#define BT_ENGINE_BASE_SYSTEM_PID_H

#include <stdbool.h>
#include <stdint.h>

/* Returns false also for a process that has ended and is not reaped (zombie). */
bool bt_pid_lives(int64_t pid);

#endif

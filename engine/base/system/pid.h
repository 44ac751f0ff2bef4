/* pid.h - whether a process of this machine is still there. Threads: any. */
#ifndef BT_ENGINE_BASE_SYSTEM_PID_H
#define BT_ENGINE_BASE_SYSTEM_PID_H

#include <stdbool.h>
#include <stdint.h>

/* It runs or could. One that has ended is not there, although nobody may have waited for it yet. */
bool bt_pid_lives(int64_t pid);

#endif

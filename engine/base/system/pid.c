/* pid.c - distinguishes running processes from ended ones that are not reaped yet. */
#include "engine/base/system/pid.h"

#include <errno.h>
#include <signal.h>

#include "engine/base/os/process_info.h"

bool bt_pid_lives(int64_t pid) {
    bt_process_info info;
    if (pid <= 0 || (kill((pid_t)pid, 0) != 0 && errno != EPERM)) return false;
    return !bt_process_info_read((pid_t)pid, &info) || (info.state != 'Z' && info.state != 'X');
}

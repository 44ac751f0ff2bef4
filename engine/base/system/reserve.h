/* reserve.h - reserves disk space for a file, restarting after signals. Threads: any. */
#ifndef BT_ENGINE_BASE_SYSTEM_RESERVE_H
#define BT_ENGINE_BASE_SYSTEM_RESERVE_H

#include <stdint.h>

/* The file's first bytes are there, and never missing when they are written. Returns 0 or an errno: ENOSPC of a
 * full disk; EOPNOTSUPP and EINVAL of a file system that cannot */
int bt_file_reserve(int fd, uint64_t bytes);

#endif

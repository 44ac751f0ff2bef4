/* reserve.h - reserves disk space for a file, restarting after signals. Threads: any. */
#ifndef BT_ENGINE_BASE_SYSTEM_RESERVE_H
#define BT_ENGINE_BASE_SYSTEM_RESERVE_H

#include <stdint.h>

/* Allocates the file's first bytes, so that later writes cannot fail for lack of space. Returns 0 or an errno:
 * ENOSPC for a full disk; EOPNOTSUPP and EINVAL for a file system without support */
int bt_file_reserve(int fd, uint64_t bytes);

#endif

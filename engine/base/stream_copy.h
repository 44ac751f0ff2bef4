/* stream_copy.h - copies data that are not read soon, bypassing the caches.
 *
 * An ordinary store first reads the line that it fills, and evicts lines that the next step needs. On processors
 * without such stores it is memcpy. Threads: any; visible to all threads when it returns, like memcpy. */
#ifndef BT_ENGINE_BASE_STREAM_COPY_H
#define BT_ENGINE_BASE_STREAM_COPY_H

#include <stddef.h>

/* the two do not overlap */
void bt_stream_copy(void *to, const void *from, size_t bytes);

#endif

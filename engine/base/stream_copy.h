/* stream_copy.h - copies data that will not be read soon, without the caches. An ordinary store reads the cache line
 * first and evicts lines that the next step needs. Without non-temporal stores it is memcpy. Threads: any; all threads
 * see the copy when it returns, as with memcpy. */
#ifndef BT_ENGINE_BASE_STREAM_COPY_H
#define BT_ENGINE_BASE_STREAM_COPY_H

#include <stddef.h>

/* The source and the destination do not overlap. */
void bt_stream_copy(void *to, const void *from, size_t bytes);

#endif

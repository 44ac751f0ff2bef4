/* stream_copy.h - a copy that nobody reads soon: past the caches.
 *
 * An ordinary store first reads the line that it fills, and drives out of the cache what the next step needs.
 * Where the processor has no such store it is memcpy. Threads: any; visible to others when it returns, as memcpy. */
#ifndef BT_ENGINE_BASE_STREAM_COPY_H
#define BT_ENGINE_BASE_STREAM_COPY_H

#include <stddef.h>

/* the two do not overlap */
void bt_stream_copy(void *to, const void *from, size_t bytes);

#endif

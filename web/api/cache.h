/* cache.h - keeps the newest responses for a short time, so that several readers of a run cost no more than one.
 *
 * A response is reused until the next commit, and at most for BT_CACHE_NS, because ages and states depend on the clock.
 * The number of entries is limited, and none is larger than BT_CACHE_BYTES. Threads: the server's thread. */
#ifndef BT_WEB_API_CACHE_H
#define BT_WEB_API_CACHE_H

#include "web/api/api.h"

#define BT_CACHE_NS 250000000
enum { BT_CACHE_ANSWERS = 24, BT_CACHE_BYTES = 131072 };

typedef struct bt_cache bt_cache;

bt_cache *bt_cache_open(void); /* NULL: out of memory; a NULL cache stores nothing */
void bt_cache_close(bt_cache *c);
/* Returns the response to the same path and arguments, or NULL; valid until the next bt_cache_keep. */
const bt_answer *bt_cache_find(bt_cache *c, const bt_req *r, int64_t version, int64_t now_ns);
void bt_cache_keep(bt_cache *c, const bt_req *r, int64_t version, int64_t now_ns,
                   const bt_answer *a);

#endif

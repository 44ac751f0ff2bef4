/* cache.h - the newest responses, kept for a short time, so that several readers of a run cost no more
 * than one.
 *
 * A response is reused until the next commit, and at most for BT_CACHE_NS, because ages and
 * states depend on the clock. Bounded: few, none above BT_CACHE_BYTES. Threads:
 * the server's one. */
#ifndef BT_WEB_API_CACHE_H
#define BT_WEB_API_CACHE_H

#include "web/api/api.h"

#define BT_CACHE_NS 250000000
enum { BT_CACHE_ANSWERS = 24, BT_CACHE_BYTES = 131072 };

typedef struct bt_cache bt_cache;

bt_cache *bt_cache_open(void); /* NULL: no memory; a NULL cache keeps nothing */
void bt_cache_close(bt_cache *c);
/* the answer to the same path and arguments, or NULL; valid until the next keep */
const bt_answer *bt_cache_find(bt_cache *c, const bt_req *r, int64_t version, int64_t now_ns);
void bt_cache_keep(bt_cache *c, const bt_req *r, int64_t version, int64_t now_ns,
                   const bt_answer *a);

#endif

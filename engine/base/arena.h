/* arena.h - plans memory for large arrays, then allocates and frees it as one block.
 *
 * Order:    plan -> reserve* -> commit -> at* -> release. `reserve` only adds sizes and returns an offset;
 *           `commit` maps the whole block (zeroed, with huge pages requested); `at` turns an offset into a
 *           pointer.
 * Owns:     one mapping. Pointers into it are valid until `release`.
 * Threads:  one caller until commit; `at` from any thread afterwards.
 * Errors:   overflow of the plan is reported by commit (BT_NOMEM), with the arena and its size. */
#ifndef BT_ENGINE_BASE_ARENA_H
#define BT_ENGINE_BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/base/status.h"

#define BT_ALIGN 64 /* bytes; alignment of all memory that kernels read or write */
#define BT_ARENA_PAGE \
    ((size_t)2 \
     << 20) /* bytes of a huge page; blocks of at least this size begin at multiples of it */

typedef struct bt_arena {
    const char *name; /* borrowed, a literal */
    size_t bytes;     /* planned so far */
    bool overflow;
    unsigned char *base; /* NULL before commit */
    bool borrowed;       /* base is memory of the caller, which release does not unmap */
} bt_arena;

void bt_arena_plan(bt_arena *a, const char *name);
/* Returns an offset in bytes, which is a multiple of BT_ALIGN. */
size_t bt_arena_reserve(bt_arena *a, size_t count, size_t elem_bytes);
bt_code bt_arena_commit(bt_arena *a, bt_err *err) BT_MUST_CHECK;
void *bt_arena_at(const bt_arena *a, size_t offset);
void bt_arena_release(bt_arena *a); /* accepts an all-zero struct */

#endif

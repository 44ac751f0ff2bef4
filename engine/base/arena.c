/* arena.c - one mmap per arena. */
#include "engine/base/arena.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/base/os/memory_pages.h"

void bt_arena_plan(bt_arena *a, const char *name) {
    memset(a, 0, sizeof *a);
    a->name = name;
}

size_t bt_arena_reserve(bt_arena *a, size_t count, size_t elem_bytes) {
    size_t want = 0, offset = a->bytes;
    if (__builtin_mul_overflow(count, elem_bytes, &want) ||
        __builtin_add_overflow(want, (size_t)BT_ALIGN - 1, &want) ||
        __builtin_add_overflow(a->bytes, want & ~(size_t)(BT_ALIGN - 1), &a->bytes)) {
        a->overflow = true;
    }
    return offset;
}

/* A block of at least a huge page begins at a multiple of huge pages; the excess of the mapping is unmapped. */
static void *map_aligned(size_t bytes) {
    const size_t page = BT_ARENA_PAGE, spare = bytes >= page ? page : 0;
    unsigned char *p = mmap(NULL, bytes + spare, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || spare == 0) return p;
    size_t before = (page - (uintptr_t)p % page) % page, used = (bytes + 4095) / 4096 * 4096;
    if (before > 0) munmap(p, before);
    if (before + used < bytes + spare)
        munmap(p + before + used, (bytes + spare + 4095) / 4096 * 4096 - before - used);
    return p + before;
}

bt_code bt_arena_commit(bt_arena *a, bt_err *err) {
    if (a->overflow)
        return bt_fail(err, BT_NOMEM, "arena '%s' is larger than an address can be", a->name);
    if (a->bytes == 0) return BT_OK;
    void *p = map_aligned(a->bytes);
    if (p == MAP_FAILED) {
        return bt_fail_errno(err, BT_NOMEM, errno, "cannot allocate %.1f MiB for arena '%s'",
                             (double)a->bytes / 1048576.0, a->name);
    }
    bt_pages_prefer_huge(p, a->bytes);
    a->base = p;
    return BT_OK;
}

void *bt_arena_at(const bt_arena *a, size_t offset) { return a->base ? a->base + offset : NULL; }

void bt_arena_release(bt_arena *a) {
    if (a->base && !a->borrowed) munmap(a->base, a->bytes);
    a->base = NULL;
    a->bytes = 0;
}

/* memory_format.h - the bytes of a segment of memory_state.h. Private to engine/ckpt. */
#ifndef BT_ENGINE_CKPT_MEMORY_FORMAT_H
#define BT_ENGINE_CKPT_MEMORY_FORMAT_H

#include "engine/ckpt/format.h"

#define MEMORY_MAGIC "BTMEMST1"
enum {
    MEMORY_VALUES = 3072, /* bytes of the registry's values, as JSON text */
    MEMORY_SECTION_ELEMS =
        65536 /* a section fits the second cache: it is hashed while it is there */
};

typedef struct memory_head {
    char magic[8];
    uint32_t version, rank, world_size, values_bytes;
    int64_t attempt, number, step, tokens, disk_ns;
    uint64_t params_hash, data_hash;
    uint64_t n_sections, bytes; /* of the segment */
    uint64_t table_hash;        /* XXH3-64 of the table, in which every section's hash is */
    char run[64], isa[32], build[64];
    char values[MEMORY_VALUES];
    char unused[752];
    uint64_t self_hash; /* XXH3-64 of what precedes; 0 while the segment is written */
} memory_head;
_Static_assert(sizeof(memory_head) == 4096, "one page");

/* where the data of section i + 1 begin, when those of section i begin at `at` */
static inline uint64_t memory_next(uint64_t at, const section_head *h) {
    return (at + h->count * h->elem_bytes + 63) & ~UINT64_C(63);
}
static inline uint64_t memory_data_begin(uint64_t n_sections) {
    return (sizeof(memory_head) + n_sections * sizeof(section_head) + 63) & ~UINT64_C(63);
}

#define MEMORY_PREFIX "state-"

/* memory_read.c: removes the segments of attempts below this one, that is of other layouts */
void ckpt_memory_drop_older(const char *dir, int64_t attempt);

#endif

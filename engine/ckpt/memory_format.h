/* memory_format.h - the bytes of a segment of memory_state.h. Private to engine/ckpt. */
#ifndef BT_ENGINE_CKPT_MEMORY_FORMAT_H
#define BT_ENGINE_CKPT_MEMORY_FORMAT_H

#include "engine/ckpt/format.h"
#include "engine/ckpt/memory_state.h"

#define MEMORY_MAGIC "BTMEMST1"
enum {
    MEMORY_VALUES = 64512, /* bytes of the registry's values, as JSON text: they grow by every batch
                              that is skipped */
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
_Static_assert(sizeof(memory_head) == 65536, "whole pages");

/* where the data of section i + 1 begin, when those of section i begin at `at` */
static inline uint64_t memory_next(uint64_t at, const section_head *h) {
    return (at + h->count * h->elem_bytes + 63) & ~UINT64_C(63);
}
static inline uint64_t memory_data_begin(uint64_t n_sections) {
    return (sizeof(memory_head) + n_sections * sizeof(section_head) + 63) & ~UINT64_C(63);
}

#define MEMORY_PREFIX "state-"

/* ---- memory_read.c ---- */
typedef struct memory_mapped {
    const unsigned char *at; /* NULL: not there, or not whole */
    size_t bytes;
} memory_mapped;
typedef struct memory_segments {
    memory_mapped *at; /* (n) whole ones */
    size_t n, cap;
} memory_segments;
static inline const memory_head *memory_head_of(const memory_mapped *s) {
    return (const memory_head *)s->at;
}
/* head and table are as they were written, and every section lies inside */
bool ckpt_memory_is_whole(const memory_mapped *s);
/* those of a folder; no memory for the list: as many as there is memory for */
void ckpt_memory_open(memory_segments *all, const char *dir);
/* takes over the mapping; false: no memory for the list */
bool ckpt_memory_add(memory_segments *all, memory_mapped s);
void ckpt_memory_close(memory_segments *all);
bool ckpt_memory_is_of(const memory_head *h, const bt_memory_id *id);
/* of the newest state that is complete, NULL: none */
const memory_head *ckpt_memory_newest(const memory_segments *all);
void ckpt_memory_describe(const memory_head *h, bt_memory_id *id, bt_ckpt_meta *meta);
/* name: for messages. Codes of bt_memory_state_load */
bt_code ckpt_memory_load(const memory_segments *all, const char *name, const bt_memory_id *id,
                         const bt_ckpt_slice *slices, size_t n, bt_err *err) BT_MUST_CHECK;
/* removes the segments of attempts below this one, that is of other layouts */
void ckpt_memory_drop_older(const char *dir, int64_t attempt);

#endif

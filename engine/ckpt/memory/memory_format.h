/* memory_format.h - layout of a segment of memory_state.h. Private to engine/ckpt. */
#ifndef BT_ENGINE_CKPT_MEMORY_FORMAT_H
#define BT_ENGINE_CKPT_MEMORY_FORMAT_H

#include "engine/ckpt/format.h"
#include "engine/ckpt/memory/memory_state.h"

#define MEMORY_MAGIC "BTMEMST1"
enum {
    MEMORY_VALUES =
        64512, /* size of the registry's values as JSON text, which grow with every skipped batch */
    MEMORY_SECTION_ELEMS =
        65536 /* a section fits into the second-level cache, where it is hashed */
};

typedef struct memory_head {
    char magic[8];
    uint32_t version, rank, world_size, values_bytes;
    int64_t attempt, number, step, tokens, disk_ns;
    uint64_t params_hash, data_hash;
    uint64_t n_sections, bytes; /* number of sections and size of the segment */
    uint64_t table_hash;        /* XXH3-64 of the table, which contains the hash of every section */
    char run[64], isa[32], build[64];
    char values[MEMORY_VALUES];
    uint32_t spread; /* 1: the parts of the state are on several hosts */
    uint32_t unused_word;
    uint64_t vocab_hash; /* hash of the tokenizer; 0: an older build wrote the state */
    char unused[736];
    uint64_t self_hash; /* XXH3-64 of the preceding bytes; 0 while the segment is written */
} memory_head;
_Static_assert(sizeof(memory_head) == 65536, "whole pages");

/* Returns the offset of the data of the section that follows section h, whose data begin at `at`. */
static inline uint64_t memory_next(uint64_t at, const section_head *h) {
    return (at + h->count * h->elem_bytes + 63) & ~UINT64_C(63);
}
static inline uint64_t memory_data_begin(uint64_t n_sections) {
    return (sizeof(memory_head) + n_sections * sizeof(section_head) + 63) & ~UINT64_C(63);
}

#define MEMORY_PREFIX "state-"

typedef struct memory_segment {
    char path[4096];
    unsigned char *at; /* NULL: not mapped */
    bool made;         /* this call has created the file */
} memory_segment;
/* Creates or reuses the file with this name and length, and maps it. */
bt_code ckpt_segment_take(memory_segment *s, uint64_t bytes, bt_err *err) BT_MUST_CHECK;
typedef struct memory_pair {
    memory_segment seg[2];
    uint64_t bytes; /* size of one segment */
    int next;       /* index of the segment that is written next */
} memory_pair;

typedef struct memory_pair_name {
    const char *dir;
    int rank, world_size;
    uint64_t layout;  /* hash of the table without the hashes of the data */
    const char *kind; /* "": the rank's own part; "m": the copy on the next host */
} memory_pair_name;
void ckpt_pair_init(memory_pair *p, const memory_pair_name *name, uint64_t bytes);
/* Returns the number of bytes that must still be allocated. */
uint64_t ckpt_pair_missing(const memory_pair *p);
/* Creates or reuses both segments. begun_from: the state from which this attempt began, or NULL. It is preserved until
 * the attempt's first own state is complete, by writing the other segment first; ranks may choose differently. */
bt_code ckpt_pair_take(memory_pair *p, const bt_memory_id *begun_from, bt_err *err) BT_MUST_CHECK;
void ckpt_pair_close(memory_pair *p); /* accepts all-zero; the segment files remain */
/* Removes the segments that ckpt_pair_take created. */
void ckpt_pair_remove(memory_pair *p);
static inline memory_head *ckpt_pair_head(const memory_pair *p) {
    return (memory_head *)p->seg[p->next].at;
}

typedef struct memory_mirror memory_mirror;
/* Determines the parts of which this rank keeps copies, and their size. own: the part of this rank. Collective. */
bt_code ckpt_mirror_create(memory_mirror **out, bt_comm *world, const memory_pair_name *own,
                           uint64_t bytes, bt_err *err) BT_MUST_CHECK;
uint64_t ckpt_mirror_missing(const memory_mirror *m);
bt_code ckpt_mirror_take(memory_mirror *m, const bt_memory_id *begun_from, bt_err *err)
    BT_MUST_CHECK;
/* Sends this rank's segment, with `valid` as its head, to the rank that keeps its copy, and receives the segments of
 * which this rank keeps copies. Collective; returns when all have arrived. */
bt_code ckpt_mirror_exchange(memory_mirror *m, const unsigned char *segment,
                             const memory_head *valid, bt_err *err) BT_MUST_CHECK;
/* size of both segments of all parts that are kept */
size_t ckpt_mirror_total(const memory_mirror *m);
/* remove: also removes the files that ckpt_mirror_take created. Accepts NULL. */
void ckpt_mirror_destroy(memory_mirror *m, bool remove);

typedef struct memory_mapped {
    const unsigned char *at; /* NULL: missing or incomplete */
    size_t bytes;
} memory_mapped;
typedef struct memory_segments {
    memory_mapped *at; /* (n) complete segments */
    size_t n, cap;
} memory_segments;
static inline const memory_head *memory_head_of(const memory_mapped *s) {
    return (const memory_head *)s->at;
}
/* Returns true if head and table are valid and every section is inside the segment. */
bool ckpt_memory_is_whole(const memory_mapped *s);
/* Opens the segments in a folder; if memory for the list is short, as many as possible. */
void ckpt_memory_open(memory_segments *all, const char *dir);
/* Takes ownership of the mapping. Returns false if memory for the list is short. */
bool ckpt_memory_add(memory_segments *all, memory_mapped s);
void ckpt_memory_close(memory_segments *all);
bool ckpt_memory_is_of(const memory_head *h, const bt_memory_id *id);
const memory_head *ckpt_memory_newest(const memory_segments *all);
void ckpt_memory_describe(const memory_head *h, bt_memory_id *id, bt_ckpt_meta *meta);
/* Returns the part of a rank in a state; NULL: missing. A part may exist twice. */
const memory_mapped *ckpt_memory_part(const memory_segments *all, const bt_memory_id *id,
                                      uint32_t rank);
/* name: for errors. some: parts without elements of the slices may be missing. Errors: bt_memory_state_load. */
bt_code ckpt_memory_load(const memory_segments *all, const char *name, const bt_memory_id *id,
                         const bt_ckpt_slice *slices, size_t n, bool some, bt_err *err)
    BT_MUST_CHECK;
/* Sets *touches if a slice has elements in a segment with this head and table. Errors: BT_NOMEM. */
bt_code ckpt_memory_touches(const memory_head *h, const section_head *table,
                            const bt_ckpt_slice *slices, size_t n, bool *touches, bt_err *err)
    BT_MUST_CHECK;
typedef struct memory_spread { /* a state with parts on several hosts */
    const char *dir;           /* folder on this host */
    bt_comm *world;
    bt_memory_id id;
    int parts; /* number of parts, one per rank that wrote the state */
} memory_spread;
/* Receives from other hosts those missing parts that the slices of this host's ranks need, and adds them to `all`, the
 * segments of dir. Collective; all ranks return the same code, BT_FORMAT if no host has a part. */
bt_code ckpt_memory_gather(memory_segments *all, const memory_spread *s,
                           const bt_ckpt_slice *slices, size_t n, bt_err *err) BT_MUST_CHECK;

/* Removes the segments of earlier attempts, which have other layouts (memory_read.c). */
void ckpt_memory_drop_older(const char *dir, int64_t attempt);

#endif

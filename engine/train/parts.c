/* parts.c - the table of parts.def. */
#include "engine/plan/plan.h"
#include "engine/train/part.h"

#define BT_PART(name) extern const bt_part bt_part_##name;
#include "engine/train/parts.def"
#undef BT_PART

const bt_part *const bt_parts[] = {
#define BT_PART(name) &bt_part_##name,
#include "engine/train/parts.def"
#undef BT_PART
};
const size_t bt_parts_n = sizeof bt_parts / sizeof *bt_parts;
_Static_assert(sizeof bt_parts / sizeof *bt_parts <= BT_PARTS_MOST, "more rows than BT_PARTS_MOST");

static size_t saved_bytes(const bt_rank_setup *s) {
    size_t bytes = 0;
    for (size_t i = 0; i < bt_parts_n; i++)
        if (bt_parts[i]->memory.is_saved) bytes += bt_parts[i]->memory.bytes(s, 0);
    return bytes;
}

size_t bt_parts_memory(const bt_rank_setup *s, bt_arena_row *rows) {
    const size_t saved = saved_bytes(s);
    size_t n = 0;
    for (size_t i = 0; i < bt_parts_n && n < BT_PLAN_PARTS; i++) {
        const size_t bytes = bt_parts[i]->memory.bytes ? bt_parts[i]->memory.bytes(s, saved) : 0;
        if (bytes)
            rows[n++] = (bt_arena_row){bt_parts[i]->memory.row, bytes, bt_parts[i]->memory.why};
    }
    return n;
}

/* parts.c - the table of parts.def. */
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

/* range.h - the range of elements [begin, end) of a flat array. */
#ifndef BT_ENGINE_BASE_RANGE_H
#define BT_ENGINE_BASE_RANGE_H

#include <stddef.h>

typedef struct bt_range {
    size_t begin, end;
} bt_range;

#endif

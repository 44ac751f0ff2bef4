/* time_part.c - descriptors of the rows of times.def. */
#include "engine/base/tables/time_part.h"

#define BT_TIME(id, key, title, letter, c256, c16, light, dark, help) \
    {key, title, letter, light, dark, help},
const bt_time_row bt_times[BT_TIME_PARTS] = {
#include "engine/base/tables/times.def"
};
#undef BT_TIME

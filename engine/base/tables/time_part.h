/* time_part.h - the parts of a run's wall-clock time, generated from times.def. Threads: any; constant tables. */
#ifndef BT_ENGINE_BASE_TABLES_TIME_PART_H
#define BT_ENGINE_BASE_TABLES_TIME_PART_H

#define BT_TIME(id, key, title, letter, c256, c16, light, dark, help) BT_TIME_##id,
typedef enum {
#include "engine/base/tables/times.def"
    BT_TIME_PARTS
} bt_time_part;
#undef BT_TIME

typedef struct bt_time_row {
    const char *key, *title; /* "startup", "start and end" */
    char letter;
    const char *light, *dark; /* its colour on a light and on a dark page, "#1f5fbf" */
    const char *help;
} bt_time_row;
extern const bt_time_row bt_times[BT_TIME_PARTS];

#endif

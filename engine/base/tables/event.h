/* event.h - kinds of events, generated from events.def: level, effect on the run's state, display.
 *
 * Threads: any; constant tables. */
#ifndef BT_ENGINE_BASE_TABLES_EVENT_H
#define BT_ENGINE_BASE_TABLES_EVENT_H

#include <stdint.h>

typedef enum { BT_EV_INFO, BT_EV_WARN, BT_EV_ERROR, BT_EV_LEVELS } bt_event_level;

typedef enum {
    BT_EFFECT_NONE,
    BT_EFFECT_BEGINS,
    BT_EFFECT_RESUMES,
    BT_EFFECT_PAUSES,
    BT_EFFECT_CONTINUES,
    BT_EFFECT_ENDS,
    BT_EFFECT_SEEN,
    BT_EFFECT_VALIDATES,
    BT_EFFECT_STALLS,
    BT_EFFECT_RECOVERS,
    BT_EFFECT_SKIPS
} bt_event_effect;

typedef enum { BT_MARK_LIST, BT_MARK_FAINT, BT_MARK_LINE } bt_event_mark;

#define BT_EVENT(id, name, level, effect, mark, glyph, help) BT_EVENT_##id,
typedef enum {
#include "engine/base/tables/events.def"
    BT_EVENT_COUNT
} bt_event_kind;
#undef BT_EVENT

typedef struct bt_event_row {
    const char *name;
    bt_event_level level;
    bt_event_effect effect;
    bt_event_mark mark;
    uint32_t glyph; /* Unicode */
    const char *help;
} bt_event_row;
extern const bt_event_row bt_events[BT_EVENT_COUNT];

/* BT_EVENT_COUNT: this program does not know the kind, because another version recorded it. */
bt_event_kind bt_event_find(const char *name);
const char *bt_event_level_name(bt_event_level level); /* "info", "warning", "error" */
/* "list", "faint", "line" */
const char *bt_event_mark_name(bt_event_mark mark);

#endif

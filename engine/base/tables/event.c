/* event.c - descriptors of the rows of events.def. */
#include "engine/base/tables/event.h"

#include <string.h>

#define BT_EVENT(id, name, level, effect, mark, glyph, help) \
    {name, BT_EV_##level, BT_EFFECT_##effect, BT_MARK_##mark, glyph, help},
const bt_event_row bt_events[BT_EVENT_COUNT] = {
#include "engine/base/tables/events.def"
};
#undef BT_EVENT

bt_event_kind bt_event_find(const char *name) {
    int k = 0;
    while (k < BT_EVENT_COUNT && strcmp(bt_events[k].name, name) != 0) k++;
    return (bt_event_kind)k;
}

const char *bt_event_level_name(bt_event_level level) {
    static const char *const names[BT_EV_LEVELS] = {"info", "warning", "error"};
    return (unsigned)level < BT_EV_LEVELS ? names[level] : "";
}

const char *bt_event_mark_name(bt_event_mark mark) {
    static const char *const names[] = {"list", "faint", "line"};
    return (unsigned)mark <= BT_MARK_LINE ? names[mark] : "";
}

/* screens.c - the table of screens. */
#include "monitor/tui/screens/screens.h"

#include <string.h>

#define BT_SCREEN(id, name, title, parts, panes) \
    [BT_SCREEN_##id] = {#name, title, parts, bt_screen_##name},
const bt_screen bt_screens[BT_SCREEN_COUNT] = {
    [BT_SCREEN_NONE] = {"", "", BT_VIEW_HEAD, NULL},
#include "monitor/tui/screens/screens.def"
};
#undef BT_SCREEN

int bt_top_screen_by_name(const char *name) {
    if (name[0] >= '0' && name[0] <= '9' && !name[1]) return name[0] == '0' ? 10 : name[0] - '0';
    for (int i = 1; i < BT_SCREEN_COUNT; i++)
        if (strcmp(name, bt_screens[i].name) == 0) return i;
    return 0;
}

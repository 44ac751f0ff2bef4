/* top_state.c - state shared by keys and screens: panes, the message line, a line of text. */
#include "monitor/tui/screens/top_state.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/clock.h"

int bt_top_panes(const bt_top *t) {
#define BT_SCREEN(id, name, title, parts, panes) [BT_SCREEN_##id] = panes,
    static const int panes_of[BT_SCREEN_COUNT] = {
        [BT_SCREEN_NONE] = 1,
#include "monitor/tui/screens/screens.def"
    };
#undef BT_SCREEN
    return panes_of[t->screen];
}

void bt_top_message(bt_top *t, uint8_t color, const char *fmt, ...) {
    char raw[sizeof t->message];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(raw, sizeof raw, fmt, ap);
    va_end(ap);
    bt_text_plain(t->message, sizeof t->message, raw);
    t->message_color = color;
    t->message_until_ns = bt_now_ns() + (color == BT_C_BAD ? 15 : 6) * INT64_C(1000000000);
    t->dirty = true;
}

bool bt_line_edit(char *line, size_t size, int32_t key) {
    size_t n = strlen(line);
    if (key == BT_KEY_BACKSPACE) {
        /* a whole character */
        while (n > 0 && ((unsigned char)line[n - 1] & 0xC0) == 0x80) n--;
        line[n > 0 ? n - 1 : 0] = 0;
        return true;
    }
    if (key == BT_CTRL('U')) {
        line[0] = 0;
        return true;
    }
    if (key < ' ' || key > 0x10FFFF || bt_glyph_width((uint32_t)key) == 0) return false;
    char utf8[5];
    size_t k = bt_glyph_put(utf8, (uint32_t)key);
    if (n + k < size) memcpy(line + n, utf8, k + 1);
    return true;
}

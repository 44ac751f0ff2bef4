/* screen_help.c - the key table as a screen. */
#include <stdio.h>
#include <string.h>

#include "monitor/tui/screens/screens.h"

void bt_screen_help_draw(bt_top *t, bt_rect r) {
    bt_canvas *c = &t->canvas;
    bt_canvas_rule(c, (bt_rect){r.x, r.y, r.w, 1},
                   (bt_style){.fg = BT_C_ACCENT, .attr = BT_ATTR_BOLD}, "keys",
                   "arrows scroll · Esc or ? closes");
    int columns = r.w >= 150 ? 2 : 1, width = r.w / columns, lines = 0, rows = r.h - 1;
    /* Counts the rows first, then draws the visible ones. */
    for (int pass = 0; pass < 2; pass++) {
        int line = 0, half = (lines + columns - 1) / columns;
        for (int g = 0; g < BT_KEYS_GROUPS; g++) {
            for (int i = -1; i < (int)bt_binds_n; i++) {
                if (i >= 0 && (int)bt_binds[i].group != g) continue;
                int column = columns > 1 && line >= half ? 1 : 0,
                    y = line - column * half - t->help_top, x = r.x + column * width;
                line++;
                if (pass == 0 || y < 0 || y >= rows) continue;
                y += r.y + 1;
                if (i < 0) {
                    bt_canvas_text(c, x, y, width - 1,
                                   (bt_style){.fg = BT_C_TEXT, .attr = BT_ATTR_BOLD},
                                   bt_keys_group_name((bt_key_group)g));
                } else {
                    bt_canvas_text(c, x + 2, y, 12, (bt_style){.fg = BT_C_SECOND},
                                   bt_binds[i].keys);
                    bt_canvas_text(c, x + 15, y, width - 16, (bt_style){.fg = BT_C_LABEL},
                                   bt_binds[i].help);
                }
            }
        }
        lines = line;
        int most = (lines + columns - 1) / columns - rows;
        if (t->help_top > most) t->help_top = most > 0 ? most : 0;
    }
}

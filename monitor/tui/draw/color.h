/* color.h - the palette: roles, not colours; each role knows its 256, 16 and mono form
 * (colors.def).
 *
 * Everything coloured is also coded another way (glyph, letter, position), so mono and colour-blind
 * readers lose nothing. */
#ifndef BT_MONITOR_TUI_DRAW_COLOR_H
#define BT_MONITOR_TUI_DRAW_COLOR_H

#include <stdint.h>

typedef enum { BT_DEPTH_MONO, BT_DEPTH_16, BT_DEPTH_256 } bt_color_depth;

#define BT_COLOR(id, c256, c16, help) BT_C_##id,
typedef enum {
#include "monitor/tui/draw/colors.def"
    BT_C_COUNT
} bt_color;
#undef BT_COLOR

/* BT_C_HEAT0 + i, BT_C_DIVERGE0 + i */
enum { BT_HEAT_STEPS = 12, BT_DIVERGE_STEPS = 11 };

typedef struct bt_color_row {
    int16_t c256, c16; /* -1: the terminal's own */
} bt_color_row;

extern const bt_color_row bt_colors[BT_C_COUNT];

int bt_color_index(uint8_t color, bt_color_depth depth); /* palette index, -1 default */
/* 0..1 -> viridis-like role; NaN -> BT_C_NONE */
uint8_t bt_color_heat(double frac);
uint8_t bt_color_diverge(double v); /* -1..1 -> blue - grey - orange */

#endif

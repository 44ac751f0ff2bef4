/* color.h - the palette: roles, not colours; each role has a 256-colour, a 16-colour and a mono
 * form (colors.def). Colour is never the only code (also glyph, letter, position), so mono
 * terminals and colour-blind readers lose nothing. */
#ifndef BT_MONITOR_TUI_DRAW_COLOR_H
#define BT_MONITOR_TUI_DRAW_COLOR_H

#include <stdint.h>

#include "engine/base/status.h"

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

extern const bt_color_row bt_colors[BT_C_COUNT]; /* the theme "dark" */

/* Sets the colours of the whole process: "dark" (the default), "light", or the path of a file
 * with lines 'ROLE INDEX' (a role of colors.def in small letters, an index of the 256 colours or
 * -1 for the terminal's own; '#' begins a comment) that override the dark ones. BT_ARG: the
 * message has file, line and the nearest role, and the colours are unchanged. To be called before any thread draws. */
bt_code bt_color_theme(const char *name, bt_err *err) BT_MUST_CHECK;

int bt_color_index(uint8_t color, bt_color_depth depth); /* palette index, -1 default */
/* Returns the role for a fraction from 0 to 1 on a scale like viridis; BT_C_NONE for NaN. */
uint8_t bt_color_heat(double frac);
uint8_t bt_color_diverge(double v); /* -1..1 -> blue - grey - orange */

#endif

/* color.c - the palette from colors.def. */
#include "monitor/tui/draw/color.h"

#include <math.h>

#define BT_COLOR(id, c256, c16, help) {c256, c16},
const bt_color_row bt_colors[BT_C_COUNT] = {
#include "monitor/tui/draw/colors.def"
};
#undef BT_COLOR

int bt_color_index(uint8_t color, bt_color_depth depth) {
    if (color >= BT_C_COUNT || depth == BT_DEPTH_MONO) return -1;
    return depth == BT_DEPTH_256 ? bt_colors[color].c256 : bt_colors[color].c16;
}

static int step_of(double frac, int steps) {
    if (frac <= 0) return 0;
    int i = (int)(frac * steps);
    return i >= steps ? steps - 1 : i;
}

uint8_t bt_color_heat(double frac) {
    return isnan(frac) ? BT_C_NONE : (uint8_t)(BT_C_HEAT0 + step_of(frac, BT_HEAT_STEPS));
}

uint8_t bt_color_diverge(double v) {
    return isnan(v) ? BT_C_NONE : (uint8_t)(BT_C_DIVERGE0 + step_of((v + 1) / 2, BT_DIVERGE_STEPS));
}

/* color.c - the palette from colors.def, and themes over it. */
#include "monitor/tui/draw/color.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/system/ascii.h"
#include "engine/base/text.h"

#define BT_COLOR(id, c256, c16, help) {c256, c16},
const bt_color_row bt_colors[BT_C_COUNT] = {
#include "monitor/tui/draw/colors.def"
};
#undef BT_COLOR

#define BT_COLOR(id, c256, c16, help) #id,
static const char *const names[BT_C_COUNT] = {
#include "monitor/tui/draw/colors.def"
};
#undef BT_COLOR

/* overrides of a theme; other colours are those of colors.def */
typedef struct replaced {
    uint8_t role;
    bt_color_row row;
} replaced;

/* for a white or pale background: darker text and rules, paler bars */
static const replaced light[] = {
    {BT_C_TEXT, {236, 0}},   {BT_C_BRIGHT, {16, 0}},    {BT_C_LABEL, {241, 8}},
    {BT_C_FAINT, {250, 7}},  {BT_C_ACCENT, {30, 6}},    {BT_C_SECOND, {25, 4}},
    {BT_C_THIRD, {130, 3}},  {BT_C_BAND, {152, 7}},     {BT_C_GOOD, {28, 2}},
    {BT_C_WARN, {130, 3}},   {BT_C_BAD, {160, 1}},      {BT_C_BAR, {254, 7}},
    {BT_C_INK, {231, 15}},   {BT_C_DIVERGE4, {110, 7}}, {BT_C_DIVERGE5, {246, 7}},
    {BT_C_P_WAIT, {168, 5}}, {BT_C_P_DATA, {172, 3}},
};

static struct {
    bool set; /* false: the colour of bt_colors applies */
    bt_color_row row[BT_C_COUNT];
} chosen;

int bt_color_index(uint8_t color, bt_color_depth depth) {
    if (color >= BT_C_COUNT || depth == BT_DEPTH_MONO) return -1;
    const bt_color_row *row = chosen.set ? &chosen.row[color] : &bt_colors[color];
    return depth == BT_DEPTH_256 ? row->c256 : row->c16;
}

/* A user's theme has only 256-colour indices; the nearest of 16 colours is not computed. */
static bt_code parse_color_line(char *line, const char *path, int at, bt_color_row *to,
                                bt_err *err) {
    char role[32], *end;
    line[strcspn(line, "#\n")] = 0;
    line += strspn(line, " \t");
    if (!*line) return BT_OK;
    const size_t n = strcspn(line, " \t");
    snprintf(role, sizeof role, "%.*s", (int)(n < 31 ? n : 31), line);
    for (char *c = role; *c; c++) *c = bt_ascii_upper(*c);
    int i = 0;
    while (i < BT_C_COUNT && strcmp(names[i], role) != 0) i++;
    if (i == BT_C_COUNT) {
        char plain[40];
        const char *near = bt_nearest(role, names, BT_C_COUNT);
        bt_text_plain(plain, sizeof plain, role);
        return bt_fail(err, BT_ARG, "%s:%d: no role '%s'%s%s%s", path, at, plain,
                       near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
    }
    const long index = strtol(line + n, &end, 10);
    if (end == line + n || end[strspn(end, " \t\r")] || index < -1 || index > 255)
        return bt_fail(err, BT_ARG, "%s:%d: %s needs an index of the 256 colours, or -1", path, at,
                       role);
    to[i] = (bt_color_row){(int16_t)index, (int16_t)(index < 16 ? index : bt_colors[i].c16)};
    return BT_OK;
}

static bt_code read_theme(const char *path, bt_color_row *to, bt_err *err) {
    char line[256];
    bt_code code = BT_OK;
    FILE *f = fopen(path, "r");
    if (!f)
        return bt_fail_errno(err, BT_NOTFOUND, errno,
                             "theme '%s' is neither dark nor light, and no file", path);
    for (int at = 1; code == BT_OK && fgets(line, sizeof line, f); at++)
        code = parse_color_line(line, path, at, to, err);
    fclose(f);
    return code;
}

bt_code bt_color_theme(const char *name, bt_err *err) {
    bt_color_row row[BT_C_COUNT];
    memcpy(row, bt_colors, sizeof row);
    if (strcmp(name, "light") == 0)
        for (size_t i = 0; i < sizeof light / sizeof light[0]; i++)
            row[light[i].role] = light[i].row;
    else if (strcmp(name, "dark") != 0)
        BT_TRY(read_theme(name, row, err));
    memcpy(chosen.row, row, sizeof row);
    chosen.set = true;
    return BT_OK;
}

static int shade_index(double frac, int steps) {
    if (frac <= 0) return 0;
    int i = (int)(frac * steps);
    return i >= steps ? steps - 1 : i;
}

uint8_t bt_color_heat(double frac) {
    return isnan(frac) ? BT_C_NONE : (uint8_t)(BT_C_HEAT0 + shade_index(frac, BT_HEAT_STEPS));
}

uint8_t bt_color_diverge(double v) {
    return isnan(v) ? BT_C_NONE
                    : (uint8_t)(BT_C_DIVERGE0 + shade_index((v + 1) / 2, BT_DIVERGE_STEPS));
}

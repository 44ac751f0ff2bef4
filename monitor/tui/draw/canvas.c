/* canvas.c - cells, text, rules, bars, sparklines, and the grid as text. */
#include "monitor/tui/draw/canvas.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- code points ----------------------------------------------------------------------------- */

uint32_t bt_glyph_next(const char **p) {
    const unsigned char *s = (const unsigned char *)*p;
    if (!s[0]) return 0;
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    int n = s[0] < 0x80             ? 1
            : (s[0] & 0xE0) == 0xC0 ? 2
            : (s[0] & 0xF0) == 0xE0 ? 3
            : (s[0] & 0xF8) == 0xF0 ? 4
                                    : 0;
    uint32_t cp = n == 1 ? s[0] : n == 2 ? s[0] & 0x1FU : n == 3 ? s[0] & 0x0FU : s[0] & 0x07U;
    for (int i = 1; i < n; i++) {
        if ((s[i] & 0xC0) != 0x80) {
            n = 0;
            break;
        }
        cp = cp << 6 | (s[i] & 0x3FU);
    }
    if (n == 0 || cp < least[n] || cp > 0x10FFFF || (cp >= 0xD800 && cp <= 0xDFFF)) {
        *p += 1;
        return '?';
    }
    *p += n;
    return cp;
}

size_t bt_glyph_put(char out[5], uint32_t cp) {
    size_t n = 0;
    if (cp < 0x80) {
        out[n++] = (char)cp;
    } else if (cp < 0x800) {
        out[n++] = (char)(0xC0 | cp >> 6);
        out[n++] = (char)(0x80 | (cp & 0x3F));
    } else if (cp < 0x10000) {
        out[n++] = (char)(0xE0 | cp >> 12);
        out[n++] = (char)(0x80 | (cp >> 6 & 0x3F));
        out[n++] = (char)(0x80 | (cp & 0x3F));
    } else {
        out[n++] = (char)(0xF0 | cp >> 18);
        out[n++] = (char)(0x80 | (cp >> 12 & 0x3F));
        out[n++] = (char)(0x80 | (cp >> 6 & 0x3F));
        out[n++] = (char)(0x80 | (cp & 0x3F));
    }
    out[n] = 0;
    return n;
}

typedef struct span {
    uint32_t lo, hi;
} span;

static bool is_in_spans(const span *t, size_t n, uint32_t cp) {
    for (size_t i = 0; i < n; i++)
        if (cp >= t[i].lo && cp <= t[i].hi) return true;
    return false;
}

/* Widths are computed here, because wcwidth depends on the current locale; coarse ranges are enough for names and
 * log lines. */
int bt_glyph_width(uint32_t cp) {
    static const span none[] = {
        {0, 0x1F},        {0x7F, 0x9F},     {0xAD, 0xAD},     {0x300, 0x36F},   {0x483, 0x489},
        {0x591, 0x5BD},   {0x610, 0x61A},   {0x61C, 0x61C},   {0x64B, 0x65F},   {0x1AB0, 0x1AFF},
        {0x1DC0, 0x1DFF}, {0x200B, 0x200F}, {0x2028, 0x202E}, {0x2060, 0x206F}, {0x20D0, 0x20FF},
        {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}, {0xFEFF, 0xFEFF}, {0xFFF9, 0xFFFB}, {0xE0000, 0xE0FFF}};
    static const span two[] = {{0x1100, 0x115F},   {0x231A, 0x231B},   {0x23E9, 0x23EC},
                               {0x25FD, 0x25FE},   {0x2614, 0x2615},   {0x2E80, 0x303E},
                               {0x3041, 0xA4CF},   {0xA960, 0xA97C},   {0xAC00, 0xD7A3},
                               {0xF900, 0xFAFF},   {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},
                               {0xFFE0, 0xFFE6},   {0x1F300, 0x1F64F}, {0x1F680, 0x1F6FF},
                               {0x1F900, 0x1F9FF}, {0x20000, 0x3FFFD}};
    /* text, lines and blocks, braille */
    if ((cp >= 0x20 && cp < 0x7F) || (cp >= 0x2500 && cp < 0x25FD) || (cp >= 0x2800 && cp < 0x2900))
        return 1;
    if (is_in_spans(none, sizeof none / sizeof none[0], cp)) return 0;
    return is_in_spans(two, sizeof two / sizeof two[0], cp) ? 2 : 1;
}

static uint32_t replace_by_ascii(uint32_t cp) {
    if (cp < 0x7F) return cp;
    if (cp >= 0x2581 && cp <= 0x2588) return (uint32_t) "_..-=+*#"[cp - 0x2581]; /* heights */
    /* left parts */
    if (cp >= 0x2589 && cp <= 0x258F) return cp <= 0x258B ? '#' : cp == 0x258C ? '=' : '-';
    switch (cp) {
    case 0x2500:
    case 0x2501:
    case 0x2504:
    case 0x254C: return '-';
    case 0x2502:
    case 0x2503:
    case 0x2506:
    case 0x2524:
    case 0x251C: return '|';
    case 0x250C:
    case 0x2510:
    case 0x2514:
    case 0x2518:
    case 0x253C:
    case 0x252C:
    case 0x2534:
    case 0x256D:
    case 0x256E:
    case 0x256F:
    case 0x2570: return '+';
    case 0x2591: return '.';
    case 0x2592: return 'o';
    case 0x2593: return '#';
    case 0x2190:
    case 0x25C0:
    case 0x25C2:
    case 0x2039: return '<';
    case 0x2192:
    case 0x25B6:
    case 0x25B8:
    case 0x203A: return '>';
    case 0x2191:
    case 0x25B2:
    case 0x25B4: return '^';
    case 0x2193:
    case 0x25BC:
    case 0x25BE: return 'v';
    case 0x00B7:
    case 0x2022: return '.';
    case 0x2026: return '~';
    case 0x00D7: return 'x';
    case 0x00B1: return '~';
    case 0x2013:
    case 0x2014:
    case 0x2212: return '-';
    case 0x00B5:
    case 0x03BC: return 'u';
    case 0x25CF:
    case 0x25C6:
    case 0x25A0:
    case 0x2605:
    case 0x2713: return '*';
    case 0x25CB:
    case 0x25C7:
    case 0x25A1: return 'o';
    case 0x2717: return 'x';
    default: return '?';
    }
}

/* ---- the grid -------------------------------------------------------------------------------- */

bt_code bt_canvas_init(bt_canvas *c, int w, int h, bt_chars chars, bt_err *err) {
    *c = (bt_canvas){.w = w < 1      ? 1
                          : w > 1000 ? 1000
                                     : w,
                     .h = h < 1     ? 1
                          : h > 500 ? 500
                                    : h,
                     .chars = chars};
    c->cells = malloc((size_t)c->w * (size_t)c->h * sizeof *c->cells);
    if (!c->cells) return bt_fail(err, BT_NOMEM, "cannot allocate a screen of %d x %d", c->w, c->h);
    bt_canvas_clear(c);
    return BT_OK;
}

void bt_canvas_release(bt_canvas *c) {
    free(c->cells);
    *c = (bt_canvas){0};
}

void bt_canvas_clear(bt_canvas *c) {
    c->clip = (bt_rect){0, 0, c->w, c->h};
    for (int i = 0; i < c->w * c->h; i++) c->cells[i] = (bt_cell){.glyph = ' '};
}

bt_rect bt_canvas_clip(bt_canvas *c, bt_rect r) {
    bt_rect old = c->clip;
    int x0 = r.x > old.x ? r.x : old.x, y0 = r.y > old.y ? r.y : old.y;
    int x1 = r.x + r.w < old.x + old.w ? r.x + r.w : old.x + old.w;
    int y1 = r.y + r.h < old.y + old.h ? r.y + r.h : old.y + old.h;
    c->clip = (bt_rect){x0, y0, x1 > x0 ? x1 - x0 : 0, y1 > y0 ? y1 - y0 : 0};
    return old;
}

void bt_canvas_unclip(bt_canvas *c, bt_rect old) { c->clip = old; }

static bool is_inside_clip(const bt_canvas *c, int x, int y) {
    return x >= c->clip.x && y >= c->clip.y && x < c->clip.x + c->clip.w &&
           y < c->clip.y + c->clip.h;
}

/* keeps wide glyphs whole: overwriting one half blanks the other */
static void set_cell(bt_canvas *c, int x, int y, uint32_t glyph, bt_style s) {
    bt_cell *row = c->cells + (size_t)y * (size_t)c->w;
    if (row[x].glyph == 0 && x > 0) row[x - 1].glyph = ' ';
    if (x + 1 < c->w && row[x + 1].glyph == 0) row[x + 1].glyph = ' ';
    row[x] = (bt_cell){glyph, s};
}

void bt_canvas_put(bt_canvas *c, int x, int y, uint32_t glyph, bt_style s) {
    if (c->chars == BT_CHARS_ASCII) glyph = replace_by_ascii(glyph);
    int width = bt_glyph_width(glyph);
    if (width == 0 || !is_inside_clip(c, x, y)) return;
    if (width == 2 && !is_inside_clip(c, x + 1, y)) glyph = ' ', width = 1;
    set_cell(c, x, y, glyph, s);
    if (width == 2) {
        set_cell(c, x + 1, y, ' ', s);
        c->cells[(size_t)y * (size_t)c->w + (size_t)x] = (bt_cell){glyph, s};
        c->cells[(size_t)y * (size_t)c->w + (size_t)x + 1] = (bt_cell){0, s};
    }
}

static int glyph_columns(const bt_canvas *c, uint32_t cp) {
    return bt_glyph_width(c && c->chars == BT_CHARS_ASCII ? replace_by_ascii(cp) : cp);
}

static int text_columns(const bt_canvas *c, const char *s) {
    int w = 0;
    for (uint32_t cp; (cp = bt_glyph_next(&s));) w += glyph_columns(c, cp);
    return w;
}

int bt_canvas_text_width(const char *utf8) { return text_columns(NULL, utf8); }

int bt_canvas_text(bt_canvas *c, int x, int y, int max_w, bt_style s, const char *utf8) {
    if (max_w <= 0) return 0;
    bool cut = text_columns(c, utf8) > max_w;
    int used = 0;
    for (uint32_t cp; (cp = bt_glyph_next(&utf8));) {
        int w = glyph_columns(c, cp);
        if (w == 0) continue;
        if (used + w > max_w - (cut ? 1 : 0)) break;
        bt_canvas_put(c, x + used, y, cp, s);
        used += w;
    }
    if (cut) bt_canvas_put(c, x + used++, y, 0x2026, s);
    return used;
}

int bt_canvas_textf(bt_canvas *c, int x, int y, int max_w, bt_style s, const char *fmt, ...) {
    char line[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    return bt_canvas_text(c, x, y, max_w, s, line);
}

void bt_canvas_text_right(bt_canvas *c, int x_end, int y, int max_w, bt_style s, const char *utf8) {
    int w = text_columns(c, utf8);
    if (w > max_w) w = max_w;
    bt_canvas_text(c, x_end - w, y, w, s, utf8);
}

/* number of bytes that fit into w columns without cutting a word */
static size_t line_bytes(const char *text, int w) {
    const char *p = text, *blank = NULL;
    for (int used = 0; *p && *p != '\n';) {
        const char *at = p;
        uint32_t cp = bt_glyph_next(&p);
        used += bt_glyph_width(cp);
        if (cp == ' ') blank = at;
        if (used > w) return (size_t)((blank && blank > text ? blank : at > text ? at : p) - text);
    }
    return (size_t)(p - text);
}

int bt_canvas_wrap(bt_canvas *c, bt_rect r, bt_style s, const char *utf8) {
    int lines = 0;
    while (*utf8 && lines < r.h && r.w > 0) {
        size_t n = line_bytes(utf8, r.w);
        const bool last = lines + 1 == r.h;
        char line[1024];
        /* The canvas ends a cut line in an ellipsis. */
        size_t take = last ? strcspn(utf8, "\n") : n;
        snprintf(line, sizeof line, "%.*s%s", (int)(take < 1000 ? take : 1000), utf8,
                 last && utf8[take] ? " \u2026" : "");
        if (c) bt_canvas_text(c, r.x, r.y + lines, r.w, s, line);
        utf8 += n;
        while (*utf8 == ' ') utf8++;
        if (*utf8 == '\n') utf8++;
        lines++;
    }
    return lines;
}

void bt_canvas_fill(bt_canvas *c, bt_rect r, uint32_t glyph, bt_style s) {
    for (int y = r.y; y < r.y + r.h; y++)
        for (int x = r.x; x < r.x + r.w; x++) bt_canvas_put(c, x, y, glyph, s);
}

void bt_canvas_box(bt_canvas *c, bt_rect r, bt_style s, const char *title) {
    if (r.w < 2 || r.h < 2) return;
    int x1 = r.x + r.w - 1, y1 = r.y + r.h - 1;
    for (int x = r.x + 1; x < x1; x++)
        bt_canvas_put(c, x, r.y, 0x2500, s), bt_canvas_put(c, x, y1, 0x2500, s);
    for (int y = r.y + 1; y < y1; y++)
        bt_canvas_put(c, r.x, y, 0x2502, s), bt_canvas_put(c, x1, y, 0x2502, s);
    bt_canvas_put(c, r.x, r.y, 0x256D, s);
    bt_canvas_put(c, x1, r.y, 0x256E, s);
    bt_canvas_put(c, r.x, y1, 0x2570, s);
    bt_canvas_put(c, x1, y1, 0x256F, s);
    if (title && r.w > 6) {
        int w = bt_canvas_text(c, r.x + 3, r.y, r.w - 6, s, title);
        bt_canvas_put(c, r.x + 2, r.y, ' ', s);
        bt_canvas_put(c, r.x + 3 + w, r.y, ' ', s);
    }
}

void bt_canvas_rule(bt_canvas *c, bt_rect row, bt_style title_style, const char *title,
                    const char *right) {
    bt_style faint = {.fg = BT_C_FAINT}, label = {.fg = BT_C_LABEL};
    int x = row.x, end = row.x + row.w;
    if (title && title[0]) x += bt_canvas_text(c, x, row.y, row.w, title_style, title) + 1;
    int rw = right && right[0] ? text_columns(c, right) : 0;
    if (rw > 0 && rw + 3 < end - x) {
        bt_canvas_text(c, end - rw, row.y, rw, label, right);
        end -= rw + 1;
    }
    for (; x < end; x++) bt_canvas_put(c, x, row.y, 0x2500, faint);
}

void bt_canvas_bar(bt_canvas *c, int x, int y, int w, double frac, bt_style s) {
    if (isnan(frac) || w <= 0) return;
    double cells = (frac < 0 ? 0 : frac > 1 ? 1 : frac) * w;
    int whole = (int)cells, eighths = (int)((cells - whole) * 8 + 0.5);
    for (int i = 0; i < whole; i++) bt_canvas_put(c, x + i, y, 0x2588, s);
    if (c->chars == BT_CHARS_ASCII) eighths = eighths >= 4 ? 8 : 0;
    if (eighths > 0 && whole < w) bt_canvas_put(c, x + whole, y, 0x2590U - (uint32_t)eighths, s);
}

void bt_canvas_spark(bt_canvas *c, bt_rect r, const double *v, size_t n, double lo, double hi,
                     bt_style s) {
    if (n == 0 || r.w <= 0 || r.h <= 0) return;
    if (isnan(lo) || isnan(hi)) {
        double a = INFINITY, b = -INFINITY;
        for (size_t i = 0; i < n; i++)
            if (!isnan(v[i])) a = fmin(a, v[i]), b = fmax(b, v[i]);
        lo = isnan(lo) ? a : lo;
        hi = isnan(hi) ? b : hi;
    }
    size_t first = n > (size_t)r.w ? n - (size_t)r.w : 0;
    for (size_t i = first; i < n; i++) {
        if (isnan(v[i])) continue;
        /* zeros are drawn at the bottom */
        double frac = hi > lo ? (v[i] - lo) / (hi - lo) : hi > 0 || hi < 0 ? 0.5 : 0;
        int e = (int)lround((frac < 0   ? 0
                             : frac > 1 ? 1
                                        : frac) *
                            (r.h * 8 - 1)) +
                1,
            x = r.x + (int)(i - first);
        for (int row = r.h - 1; row >= 0 && e > 0; row--, e -= 8)
            bt_canvas_put(c, x, r.y + row, 0x2580U + (uint32_t)(e > 8 ? 8 : e), s);
    }
}

void bt_canvas_restyle(bt_canvas *c, bt_rect r, uint8_t attr_on, uint8_t bg) {
    for (int y = r.y; y < r.y + r.h; y++)
        for (int x = r.x; x < r.x + r.w; x++) {
            if (!is_inside_clip(c, x, y)) continue;
            bt_style *s = &c->cells[(size_t)y * (size_t)c->w + (size_t)x].style;
            s->attr |= attr_on;
            if (bg != BT_C_NONE) s->bg = bg;
        }
}

/* ---- as text --------------------------------------------------------------------------------- */

static bool is_blank_cell(const bt_cell *cell) {
    return cell->glyph == ' ' && cell->style.bg == BT_C_NONE &&
           !(cell->style.attr & (BT_ATTR_REVERSE | BT_ATTR_UNDERLINE));
}

static void put_sgr(bt_text *out, bt_style s, bt_color_depth depth) {
    bt_text_put(out, "\033[0");
    if (s.attr & BT_ATTR_BOLD) bt_text_put(out, ";1");
    if (s.attr & BT_ATTR_DIM) bt_text_put(out, ";2");
    if (s.attr & BT_ATTR_UNDERLINE) bt_text_put(out, ";4");
    if (s.attr & BT_ATTR_REVERSE) bt_text_put(out, ";7");
    int fg = bt_color_index(s.fg, depth), bg = bt_color_index(s.bg, depth);
    if (depth == BT_DEPTH_256) {
        if (fg >= 0) bt_text_printf(out, ";38;5;%d", fg);
        if (bg >= 0) bt_text_printf(out, ";48;5;%d", bg);
    } else {
        if (fg >= 0) bt_text_printf(out, ";%d", fg < 8 ? 30 + fg : 82 + fg);
        if (bg >= 0) bt_text_printf(out, ";%d", bg < 8 ? 40 + bg : 92 + bg);
    }
    bt_text_put(out, "m");
}

static void dump_canvas(const bt_canvas *c, bool color, bt_color_depth depth, bt_text *out) {
    for (int y = 0; y < c->h; y++) {
        const bt_cell *row = c->cells + (size_t)y * (size_t)c->w;
        int end = c->w;
        while (end > 0 && (color ? is_blank_cell(row + end - 1) : row[end - 1].glyph == ' ')) end--;
        bt_style now = {0};
        for (int x = 0; x < end; x++) {
            if (row[x].glyph == 0) continue;
            if (color && memcmp(&row[x].style, &now, sizeof now) != 0)
                put_sgr(out, now = row[x].style, depth);
            char utf8[5];
            bt_glyph_put(utf8, row[x].glyph);
            bt_text_put(out, utf8);
        }
        static const bt_style plain = {0};
        if (color && memcmp(&now, &plain, sizeof now) != 0) bt_text_put(out, "\033[0m");
        bt_text_put(out, "\n");
    }
}

void bt_canvas_dump(const bt_canvas *c, bt_text *out) { dump_canvas(c, false, BT_DEPTH_MONO, out); }

void bt_canvas_dump_ansi(const bt_canvas *c, bt_color_depth depth, bt_text *out) {
    dump_canvas(c, true, depth, out);
}

/* machine_panel.c - this machine's load, memory, network and disks; a bar for each core with its
 * frequency and temperature if available; and other processes that use the cores. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "monitor/tui/screens/screens.h"

enum { CELL = 15, CELL_TOLD = 29, ROWS_MOST = 4, BAR = 5 };

static bool has_core_frequency(const bt_cores *c) { return c->n > 0 && !isnan(c->core[0].mhz); }

/* Cores are side by side; if there are too many, each is one glyph instead of a bar. */
static int cells_per_row(const bt_top *t, int w) {
    const int n = w / (has_core_frequency(&t->cores) ? CELL_TOLD : CELL);
    return n > 0 ? n : 1;
}

static int core_rows(const bt_top *t, int w) {
    const int across = cells_per_row(t, w), bars = (t->cores.n + across - 1) / across;
    if (t->cores.n == 0 || w < 20) return 0;
    return bars <= ROWS_MOST ? bars : (t->cores.n + w - 9) / (w - 8);
}

int bt_machine_height(const bt_top *t, int w) {
    if (t->procs.n == 0 || !t->view->head.live) return 0;
    return 1 + core_rows(t, w) + (t->cores.n_others > 0);
}

static bool append_if_fits(char *out, size_t size, int w, const char *text) {
    const size_t n = strlen(out);
    if (bt_canvas_text_width(out) + bt_canvas_text_width(text) > w || n + strlen(text) >= size)
        return false;
    snprintf(out + n, size - n, "%s", text);
    return true;
}

const char *bt_machine_summary(const bt_top *t, int w, char *out, size_t size) {
    const bt_procs *p = &t->procs;
    const double read = t->cores.read_per_s, written = t->cores.written_per_s;
    char text[160], b[40], c[40];
    snprintf(out, size, "this machine: load %.1f on %d processors", p->load, p->cpus);
    snprintf(text, sizeof text, " · memory %s of %s",
             bt_fmt(b, sizeof b, p->mem_used_mib, BT_UNIT_MIB),
             bt_fmt(c, sizeof c, p->mem_mib, BT_UNIT_MIB));
    append_if_fits(out, size, w, text);
    if (!isnan(p->net_per_s)) {
        snprintf(text, sizeof text, " · network %s/s",
                 bt_fmt(b, sizeof b, floor(p->net_per_s), BT_UNIT_BYTES));
        append_if_fits(out, size, w, text);
    }
    if (!isnan(read) && !isnan(written)) {
        snprintf(text, sizeof text, " · disks read %s/s, written %s/s",
                 bt_fmt(b, sizeof b, floor(read), BT_UNIT_BYTES),
                 bt_fmt(c, sizeof c, floor(written), BT_UNIT_BYTES));
        if (!append_if_fits(out, size, w, text)) { /* both directions together */
            snprintf(text, sizeof text, " · disks %s/s",
                     bt_fmt(b, sizeof b, floor(read + written), BT_UNIT_BYTES));
            append_if_fits(out, size, w, text);
        }
    }
    if (!isnan(p->celsius)) {
        snprintf(text, sizeof text, " · %.0f °C", p->celsius);
        append_if_fits(out, size, w, text);
    }
    return out;
}

static void draw_machine_summary(bt_top *t, bt_rect row) {
    char text[300];
    bt_canvas_text(&t->canvas, row.x + 1, row.y, row.w - 1, (bt_style){.fg = BT_C_LABEL},
                   bt_machine_summary(t, row.w - 1, text, sizeof text));
}

static bt_style core_load_style(double busy) {
    return (bt_style){.fg = busy > 0.9 ? BT_C_ACCENT : BT_C_GOOD};
}

static void draw_core_cell(bt_top *t, int x, int y, int w, int i) {
    const bt_core *k = &t->cores.core[i];
    char text[40];
    bt_canvas_textf(&t->canvas, x, y, 4, (bt_style){.fg = BT_C_LABEL}, "%3d", i);
    if (!isnan(k->busy_frac))
        bt_canvas_bar(&t->canvas, x + 4, y, BAR, k->busy_frac, core_load_style(k->busy_frac));
    if (isnan(k->busy_frac)) return;
    int n = snprintf(text, sizeof text, "%3.0f%%", 100 * k->busy_frac);
    if (!isnan(k->mhz)) n += snprintf(text + n, sizeof text - (size_t)n, " %.1f GHz", k->mhz / 1e3);
    if (!isnan(k->celsius)) snprintf(text + n, sizeof text - (size_t)n, " %.0f°", k->celsius);
    bt_canvas_text(&t->canvas, x + 4 + BAR + 1, y, w - BAR - 5, (bt_style){.fg = BT_C_TEXT}, text);
}

static void draw_core_bars(bt_top *t, bt_rect r) {
    const int across = cells_per_row(t, r.w), n = t->cores.n;
    const int w = has_core_frequency(&t->cores) ? CELL_TOLD : CELL;
    if ((n + across - 1) / across <= ROWS_MOST) {
        for (int i = 0; i < n && i / across < r.h; i++)
            draw_core_cell(t, r.x + 1 + i % across * w, r.y + i / across, w, i);
        return;
    }
    for (int i = 0, width = r.w - 8; i < n && i / width < r.h; i++) {
        const double busy = t->cores.core[i].busy_frac;
        if (i % width == 0)
            bt_canvas_textf(&t->canvas, r.x + 1, r.y + i / width, 6, (bt_style){.fg = BT_C_LABEL},
                            "%5d", i);
        if (!isnan(busy))
            bt_canvas_put(&t->canvas, r.x + 7 + i % width, r.y + i / width,
                          0x2581U + (uint32_t)(busy > 0.999 ? 7 : 8 * busy), core_load_style(busy));
    }
}

static void draw_other_programs(bt_top *t, bt_rect row) {
    char text[BT_OTHERS_MAX * 64] = "others on the cores:";
    size_t n = strlen(text);
    for (int i = 0; i < t->cores.n_others && n < sizeof text; i++) {
        const bt_other *x = &t->cores.other[i];
        n += (size_t)snprintf(text + n, sizeof text - n, "%s %s %.1f (%d)", i ? " ·" : "", x->name,
                              x->cores, x->pid);
    }
    bt_canvas_text(&t->canvas, row.x + 1, row.y, row.w - 1, (bt_style){.fg = BT_C_WARN}, text);
}

void bt_machine_draw(bt_top *t, bt_rect r) {
    const bool crowd = t->cores.n_others > 0 && r.h > 1;
    if (r.h < 1) return;
    draw_machine_summary(t, (bt_rect){r.x, r.y, r.w, 1});
    if (r.h - crowd > 1) draw_core_bars(t, (bt_rect){r.x, r.y + 1, r.w, r.h - 1 - crowd});
    if (crowd) draw_other_programs(t, (bt_rect){r.x, r.y + r.h - 1, r.w, 1});
}

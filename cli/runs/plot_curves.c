/* plot_curves.c - draws each curve as a line. */
#include "cli/runs/plot_curves.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "engine/base/text.h"
#include "monitor/tui/draw/plot.h"
#include "monitor/tui/draw/term.h"

enum { LINES = 12 };

static size_t collect_curve_points(const bt_curves *c) {
    size_t n = 0;
    for (size_t i = 0; i < bt_curves_count(c); i++) n += bt_curves_at(c, i).n;
    return n;
}

/* seconds: memory for the times of all points. */
static void draw_curve_lines(bt_canvas *canvas, const bt_curves *c, const bt_curves_style *how,
                             double *seconds) {
    static const uint8_t colors[] = {BT_C_ACCENT, BT_C_THIRD,  BT_C_GOOD,
                                     BT_C_BAD,    BT_C_SECOND, BT_C_BRIGHT};
    bt_plot_series lines[LINES];
    bt_plot_point names[LINES];
    bt_curve curves[LINES];
    const size_t n = bt_curves_count(c) < LINES ? bt_curves_count(c) : LINES;
    bt_plot p;
    bt_plot_init(&p);
    p.x_is_time = !how->tokens;
    p.x_unit = how->tokens ? BT_UNIT_COUNT : BT_UNIT_NONE;
    p.x_name = how->tokens ? "tokens" : "time of training steps";
    p.log_y = how->log_y;
    for (size_t i = 0; i < n; i++) {
        curves[i] = bt_curves_at(c, i);
        double *x = seconds;
        for (size_t k = 0; k < curves[i].n; k++) *seconds++ = 60 * curves[i].minutes[k];
        lines[i] = (bt_plot_series){.name = curves[i].name,
                                    .x = how->tokens ? curves[i].tokens : x,
                                    .y = curves[i].bits,
                                    .n = curves[i].n,
                                    .color = colors[i % sizeof colors]};
        /* the curve's name near its middle; names of several curves are placed apart */
        const size_t at = curves[i].n * (i % 3 + 1) / 4;
        names[i] = (bt_plot_point){.x = curves[i].n ? lines[i].x[at] : 0,
                                   .y = curves[i].n ? lines[i].y[at] : NAN,
                                   .glyph = how->ascii ? 'o' : 0x25cf,
                                   .color = lines[i].color,
                                   .label = curves[i].name};
    }
    p.points = names;
    p.n_points = n;
    bt_plot_draw(canvas, (bt_rect){0, 1, how->w, how->h - 2}, &p, lines, n);
}

static void print_curve_footer(bt_canvas *canvas, const bt_curves *c, const bt_curves_style *how) {
    bt_text ends;
    bt_text_init(&ends);
    for (size_t i = 0; i < bt_curves_count(c); i++) {
        const bt_curve x = bt_curves_at(c, i);
        if (x.n > 0)
            bt_text_printf(&ends, "%s%s %.4f", i ? " · " : "ends: ", x.name, x.bits[x.n - 1]);
    }
    bt_canvas_textf(canvas, 0, how->h - 1, how->w, (bt_style){.fg = BT_C_LABEL}, "%s",
                    bt_text_str(&ends));
    bt_text_release(&ends);
}

bt_code bt_curves_draw(const bt_curves *c, const char *title, const bt_curves_style *how,
                       bt_err *err) {
    bt_term_caps caps = bt_term_caps_of_env();
    bt_canvas canvas;
    bt_term *term = NULL;
    if (how->ascii) caps.chars = BT_CHARS_ASCII;
    if (!isatty(STDOUT_FILENO)) caps.depth = BT_DEPTH_MONO;
    double *seconds = calloc(collect_curve_points(c) + 1, sizeof *seconds);
    if (!seconds)
        return bt_fail(err, BT_NOMEM, "no memory for %zu points", collect_curve_points(c));
    bt_code code = bt_canvas_init(&canvas, how->w, how->h, caps.chars, err);
    if (code == BT_OK) {
        bt_canvas_rule(&canvas, (bt_rect){0, 0, how->w, 1},
                       (bt_style){.fg = BT_C_TEXT, .attr = BT_ATTR_BOLD}, title, "bits per byte");
        draw_curve_lines(&canvas, c, how, seconds);
        print_curve_footer(&canvas, c, how);
        code = bt_term_open_text(&term, stdout, caps, how->w, how->h, false, err);
        if (code == BT_OK) code = bt_term_present(term, &canvas, err);
        bt_term_close(term);
        bt_canvas_release(&canvas);
    }
    free(seconds);
    return code;
}

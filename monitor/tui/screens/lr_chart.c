/* lr_chart.c - the loss over the rate of a learning-rate range test, which replaces the loss by
 * step on the screen Overview, and the suggested rate. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "monitor/tui/screens/screens.h"

/* The type of the run is queried once; its losses are reloaded as long as it grows. */
bt_code bt_lr_chart_load(bt_top *t, bt_err *err) {
    const bool same = strcmp(t->range_of, t->run) == 0;
    if (same && (!t->range || t->range_steps == t->view->head.newest_step)) return BT_OK;
    bool is = false;
    bt_lr_range *range = t->range ? t->range : malloc(sizeof *range);
    t->range = NULL;
    if (!range) return bt_fail(err, BT_NOMEM, "no memory for the losses by learning rate");
    snprintf(t->range_of, sizeof t->range_of, "%s", t->run);
    t->range_steps = t->view->head.newest_step;
    const bt_code code = bt_db_lr_range(t->cfg.db, t->run, &is, range, err);
    if (code == BT_OK && is)
        t->range = range;
    else
        free(range);
    return code;
}

bool bt_lr_chart_shown(const bt_top *t) {
    return t->range && t->range->n > 1 && t->metric == BT_MS_LOSS && t->mode % 2 == 0;
}

void bt_lr_chart_draw(bt_top *t, bt_rect r, bool active) {
    const bt_lr_range *x = t->range;
    char right[200], label[40] = "";
    if (r.h < 3 || r.w < 12) return;
    if (isnan(x->suggested))
        snprintf(right, sizeof right, "%s", x->nothing ? x->nothing : "no rate is suggested");
    else
        snprintf(right, sizeof right, "suggested %.2g · steepest %.2g%s", x->suggested, x->steepest,
                 r.w >= 76 ? " · t: loss by step" : "");
    bt_canvas_rule(&t->canvas, (bt_rect){r.x, r.y, r.w, 1},
                   (bt_style){.fg = active ? BT_C_ACCENT : BT_C_TEXT, .attr = BT_ATTR_BOLD},
                   "loss over rate", right);
    bt_plot p;
    bt_plot_init(&p);
    p.log_x = true;
    p.log_y = t->log_y;
    p.x_name = "rate";
    p.y_unit = BT_UNIT_NATS;
    p.cursor_x = x->suggested;
    if (!isnan(x->top) && !t->y_all) p.y1 = x->top;
    const bt_plot_series lines[] = {
        {.name = "loss", .x = x->lr, .y = x->loss, .n = x->n, .color = BT_C_FAINT},
        {.name = "smoothed", .x = x->lr, .y = x->smooth, .n = x->n, .color = BT_C_ACCENT}};
    bt_plot_point point = {.glyph = 0x2605, .color = BT_C_THIRD, .label = label};
    for (size_t i = 0; i < x->n && !p.n_points; i++) {
        if (!(x->lr[i] >= x->suggested)) continue;
        snprintf(label, sizeof label, "use %.2g", x->suggested);
        point.x = x->lr[i];
        point.y = x->smooth[i];
        p.points = &point;
        p.n_points = 1;
    }
    bt_plot_draw(&t->canvas, (bt_rect){r.x, r.y + 1, r.w, r.h - 1}, &p, lines, 2);
}

/* screens.h - private to monitor/tui: the drawing function of each screen (screens.def), and pieces that several
 * screens use. */
#ifndef BT_MONITOR_TUI_SCREENS_SCREENS_H
#define BT_MONITOR_TUI_SCREENS_SCREENS_H

#include "monitor/tui/screens/top_state.h"

#define BT_SCREEN(id, name, title, parts, panes) void bt_screen_##name(bt_top *t, bt_rect body);
#include "monitor/tui/screens/screens.def"
#undef BT_SCREEN

/* pairs.c: height of the matrix of ranks that exchange directly; 0 if there is none */
int bt_pairs_height(const bt_top *t);
void bt_pairs_draw(bt_top *t, bt_rect r, bt_style title);
void bt_screen_help_draw(bt_top *t, bt_rect body);
void bt_screen_form_draw(bt_top *t, bt_rect body);
void bt_screen_compare_draw(bt_top *t, bt_rect body);

/* first_page.c: model, data, layout, learning rate and batch in one or two rows; problem and remedy of a run, 0 rows
 * without a problem; the newest sample beside the previous one */
int bt_chips_height(const bt_top *t, int w);
void bt_chips_draw(bt_top *t, bt_rect r);
int bt_trouble_height(const bt_top *t, int w);
void bt_trouble_draw(bt_top *t, bt_rect r);
void bt_texts_draw(bt_top *t, bt_rect r);

/* distribution_panel.c: weights and gradients of the tensor selected on the screen Ternary; least: minimum number of
 * rows, 0 without records */
int bt_distribution_least(const bt_top *t);
void bt_distribution_draw(bt_top *t, bt_rect r);

/* lr_chart.c: true if the Overview shows the loss over the rate; scatter.c: the listed runs as points */
bool bt_lr_chart_shown(const bt_top *t);
void bt_lr_chart_draw(bt_top *t, bt_rect r, bool active);
void bt_scatter_draw(bt_top *t, bt_rect r);

/* machine_panel.c: load of this machine, its cores and other programs; 0 rows if it has no rank */
int bt_machine_height(const bt_top *t, int w);
void bt_machine_draw(bt_top *t, bt_rect r);
/* Writes the first line of the panel in `w` columns and returns out. A narrow line has the sum of the disks' read and
 * write rates; a still narrower one omits what does not fit. */
const char *bt_machine_summary(const bt_top *t, int w, char *out, size_t size);

/* settings_table.c: active: keys apply to this table */
void bt_settings_table_draw(bt_top *t, bt_rect r, bool active);

void bt_event_line(bt_top *t, bt_rect row, const bt_view_event *e, bool with_clock);
/* "without rank 5: 412 -> 371 ms (-10 %), +1.2 M tokens/day" */
void bt_what_if_line(bt_top *t, bt_rect row, const bt_view_rank *x);

#endif

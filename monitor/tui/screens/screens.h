/* screens.h - private to monitor/tui: the drawing function of each screen (screens.def) and what
 * they lend each other. */
#ifndef BT_MONITOR_TUI_SCREENS_SCREENS_H
#define BT_MONITOR_TUI_SCREENS_SCREENS_H

#include "monitor/tui/screens/top_state.h"

#define BT_SCREEN(id, name, title, parts, panes) void bt_screen_##name(bt_top *t, bt_rect body);
#include "monitor/tui/screens/screens.def"
#undef BT_SCREEN

/* pairs.c: the matrix of ranks that exchange directly; 0 rows when there is none */
int bt_pairs_height(const bt_top *t);
void bt_pairs_draw(bt_top *t, bt_rect r, bt_style title);
void bt_screen_help_draw(bt_top *t, bt_rect body);
void bt_screen_form_draw(bt_top *t, bt_rect body);
void bt_screen_compare_draw(bt_top *t, bt_rect body);

/* first_page.c: model, data, layout, learning rate and batch in one or two rows; what happened to a run and
 * what to do, 0 rows where nothing did; what the model writes now, beside what it wrote before */
int bt_chips_height(const bt_top *t, int w);
void bt_chips_draw(bt_top *t, bt_rect r);
int bt_trouble_height(const bt_top *t, int w);
void bt_trouble_draw(bt_top *t, bt_rect r);
void bt_texts_draw(bt_top *t, bt_rect r);

/* distribution_panel.c: weights and gradients of the tensor that the screen Ternary has chosen; least:
 * rows it takes at least, 0 where nothing was recorded */
int bt_distribution_least(const bt_top *t);
void bt_distribution_draw(bt_top *t, bt_rect r);

/* lr_chart.c: whether the Overview shows the loss over the rate; scatter.c: the listed runs as points */
bool bt_lr_chart_shown(const bt_top *t);
void bt_lr_chart_draw(bt_top *t, bt_rect r, bool active);
void bt_scatter_draw(bt_top *t, bt_rect r);

/* machine_panel.c: this machine, its cores and who else takes them; 0 rows where no rank lives here */
int bt_machine_height(const bt_top *t, int w);
void bt_machine_draw(bt_top *t, bt_rect r);
/* its first line in `w` columns: what does not fit whole is left out, the disks' two ways are added
 * up before; returns out */
const char *bt_machine_summary(const bt_top *t, int w, char *out, size_t size);

/* settings_table.c: active: it is the screen's table, which keys move in */
void bt_settings_table_draw(bt_top *t, bt_rect r, bool active);

void bt_event_line(bt_top *t, bt_rect row, const bt_view_event *e, bool with_clock);
/* "without rank 5: 412 -> 371 ms (-10 %), +1.2 M tokens/day" */
void bt_what_if_line(bt_top *t, bt_rect row, const bt_view_rank *x);

#endif

/* plan_print.h - a ranking of layouts for people and for programs. */
#ifndef BT_CLI_PLAN_PLAN_PRINT_H
#define BT_CLI_PLAN_PLAN_PRINT_H

#include "cli/layout/choose_layout.h"

/* rows: layouts shown at most */
void bt_plan_put_text(const bt_layout_choice *c, int rows, bt_text *out);
void bt_plan_put_json(const bt_layout_choice *c, int rows, bt_text *out);

/* ---- pieces, shared with what is simulated */
void bt_plan_put_header(bt_text *out);
void bt_plan_put_row(const bt_layout *l, int number, bt_text *out);
void bt_plan_layout_json(bt_json *j, const char *key, const bt_layout *l);

#endif

/* plan_print.h - prints a ranking of layouts as text or JSON. */
#ifndef BT_CLI_PLAN_PLAN_PRINT_H
#define BT_CLI_PLAN_PLAN_PRINT_H

#include "cli/layout/choose_layout.h"
#include "cli/plan/plan_bill.h"
#include "cli/train/train_parts.h"

/* rows: maximum number of layouts. time: prediction for the first layout. asked: requested watts (0: those of the
 * rates) and price (0: none). */
void bt_plan_put_text(const bt_layout_choice *c, int rows, const bt_train_time *time,
                      const bt_bill *asked, bt_text *out);
void bt_plan_put_json(const bt_layout_choice *c, int rows, const bt_train_time *time,
                      const bt_bill *asked, bt_text *out);

/* ---- parts used by the simulation, too */
/* Describes a layout, and notes if its rates were measured for another shape. Returns buf. */
const char *bt_plan_words(const bt_layout *l, char *buf, size_t size);
/* Appends a warning if other programs used the machine so much during the measurement that times are too long. */
void bt_plan_put_load(const bt_rates *r, bt_text *out);
void bt_plan_load_json(const bt_rates *r, bt_json *j); /* fields probe_s and probe_load */
void bt_plan_layout_json(bt_json *j, const char *key, const bt_layout *l);

#endif

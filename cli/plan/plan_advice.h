/* plan_advice.h - alternatives that the user has to choose: layouts that need more memory, codecs, and a larger
 * batch with its learning rate. */
#ifndef BT_CLI_PLAN_PLAN_ADVICE_H
#define BT_CLI_PLAN_PLAN_ADVICE_H

#include "cli/layout/choose_layout.h"

/* Appends the lines "otherwise", "codec" and "batch". */
void bt_plan_put_advice(const bt_layout_choice *c, bt_text *out);
/* Writes the fields "codecs" and "larger_batches"; the latter names the rule of the learning rate (null: unknown). */
void bt_plan_advice_json(const bt_layout_choice *c, bt_json *j);

#endif

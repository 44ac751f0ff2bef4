/* part_rules.h - rules about settings in the tables of parts (each_part_setting.def). Pure. Threads: any. */
#ifndef BT_ENGINE_CONFIG_PART_RULES_H
#define BT_ENGINE_CONFIG_PART_RULES_H

#include "engine/config/run_cfg.h"

/* Sets automatic values of parts, and refuses settings that a part excludes. faults: as in bt_collect_fault. */
bt_code bt_resolve_part_settings(bt_run_cfg *c, bt_text *faults, bt_err *err) BT_MUST_CHECK;
/* Logs the warnings of parts about settings that the user has given. */
void bt_warn_part_settings(const bt_opts *o, const bt_run_cfg *c);
/* Writes the i-th value that parts recommend for a run on long text with steps of so many tokens; value is "" if it
 * does not suit this run. Returns false after the last one. */
bool bt_part_recipe(const bt_run_cfg *c, const bt_preset *p, int64_t step_tokens, size_t i,
                    const char **key, char *value, size_t size);

/* Purpose of a training that a command starts. */
typedef enum bt_forced_for { BT_FORCE_LEARN, BT_FORCE_LR_RANGE, BT_FORCE_STEP_TIME } bt_forced_for;
typedef struct bt_forced {
    bt_forced_for purpose;
    const char *key, *value;
} bt_forced;
/* Returns the i-th setting that a part forces for this purpose; NULL after the last. */
const bt_forced *bt_forced_at(bt_forced_for purpose, size_t i);

#endif

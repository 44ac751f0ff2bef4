/* part_rules.h - rules about settings that the tables of parts contain (each_part_setting.def). Pure. Threads: any. */
#ifndef BT_ENGINE_CONFIG_PART_RULES_H
#define BT_ENGINE_CONFIG_PART_RULES_H

#include "engine/config/run_cfg.h"

/* Refuses settings that a part excludes. faults: as in bt_collect_fault. */
bt_code bt_check_part_settings(const bt_run_cfg *c, bt_text *faults, bt_err *err) BT_MUST_CHECK;

/* purpose of a training that a command starts */
typedef enum bt_forced_for { BT_FORCE_LEARN, BT_FORCE_LR_RANGE } bt_forced_for;
typedef struct bt_forced {
    bt_forced_for purpose;
    const char *key, *value;
} bt_forced;
/* the i-th setting that a part forces for this purpose; NULL after the last */
const bt_forced *bt_forced_at(bt_forced_for purpose, size_t i);

#endif

/* run_cfg.c - the settings of a run: the table, presets, checks between settings, automatic values. */
#include "engine/train/run_cfg.h"

#include <stdio.h>
#include <string.h>

#define FIELD(f) offsetof(bt_run_cfg, f), sizeof(((bt_run_cfg *)0)->f)
#define BT_INT(f, key, flag, def, min, max, unit, help) {key, flag, BT_OPT_INT, FIELD(f), #def, min, max, NULL, unit, help},
#define BT_REAL(f, key, flag, def, min, max, unit, help) {key, flag, BT_OPT_REAL, FIELD(f), #def, min, max, NULL, unit, help},
#define BT_BOOL(f, key, flag, def, help) {key, flag, BT_OPT_BOOL, FIELD(f), def, 0, 0, NULL, NULL, help},
#define BT_ENUM(f, key, flag, def, choices, help) {key, flag, BT_OPT_ENUM, FIELD(f), def, 0, 0, choices, NULL, help},
#define BT_TEXT(f, key, flag, bytes, def, help) {key, flag, BT_OPT_TEXT, FIELD(f), def, 0, 0, NULL, NULL, help},
#define BT_LIST(f, key, flag, bytes, def, help) {key, flag, BT_OPT_LIST, FIELD(f), def, 0, 0, NULL, NULL, help},
const bt_opt bt_run_opts[] = {
#include "engine/train/options.def"
};
#undef BT_INT
#undef BT_REAL
#undef BT_BOOL
#undef BT_ENUM
#undef BT_TEXT
#undef BT_LIST
const size_t bt_run_opts_n = sizeof bt_run_opts / sizeof bt_run_opts[0];


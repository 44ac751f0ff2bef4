/* part_rules.c - reads the rows about settings in the tables of all parts. */
#include "engine/config/part_rules.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/log.h"
#include "engine/config/ramp.h"
#include "engine/config/rank_setup.h"

#include "engine/config/resolve_impl.h"
#include "engine/optim/optim.h"

bt_code bt_resolve_part_settings(bt_run_cfg *c, bt_text *faults, bt_err *err) {
    (void)c, (void)faults, (void)err; /* unused if no part has rows */
#define BT_AUTO(when, assignment) \
    if (when) assignment;
#include "engine/config/settings/each_part_setting.def"
#define BT_CHECK(code) BT_TRY(bt_collect_fault(faults, code, err));
#define BT_REFUSE(when, ...) \
    if (when) BT_TRY(bt_collect_fault(faults, bt_fail(err, BT_ARG, __VA_ARGS__), err));
#include "engine/config/settings/each_part_setting.def"
    return BT_OK;
}

void bt_warn_part_settings(const bt_opts *o, const bt_run_cfg *c) {
    (void)o, (void)c; /* unused if no part has rows */
#define BT_WARN(key, when, ...) \
    if (o->origin[bt_opt_find(o->table, o->n, key)] > BT_FROM_PRESET && (when)) \
        bt_log(BT_LOG_WARN, __VA_ARGS__);
#include "engine/config/settings/each_part_setting.def"
}

bool bt_part_recipe(const bt_run_cfg *c, const bt_preset *p, int64_t step_tokens, size_t i,
                    const char **key, char *value, size_t size) {
    (void)c, (void)p, (void)step_tokens, (void)i, (void)key,
        (void)size; /* unused if no part has rows */
    value[0] = '\0';
#define BT_RECIPE(name, fits, ...) \
    if (i-- == 0) { \
        *key = name; \
        if (fits) snprintf(value, size, __VA_ARGS__); \
        return true; \
    }
#include "engine/config/settings/each_part_setting.def"
    return false;
}

static const bt_forced forced[] = {
#define BT_FORCE(purpose, key, value) {BT_FORCE_##purpose, key, value},
#include "engine/config/settings/each_part_setting.def"
    {0}};

const bt_forced *bt_forced_at(bt_forced_for purpose, size_t i) {
    for (const bt_forced *f = forced; f->key; f++)
        if (f->purpose == purpose && i-- == 0) return f;
    return NULL;
}

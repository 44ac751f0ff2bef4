/* part_rules.c - the rows BT_REFUSE and BT_FORCE of all parts. */
#include "engine/config/part_rules.h"

#include "engine/config/resolve_impl.h"
#include "engine/optim/optim.h"

bt_code bt_check_part_settings(const bt_run_cfg *c, bt_text *faults, bt_err *err) {
    (void)c, (void)faults, (void)err; /* not used without rows */
#define BT_REFUSE(when, ...) \
    if (when) BT_TRY(bt_collect_fault(faults, bt_fail(err, BT_ARG, __VA_ARGS__), err));
#include "engine/config/settings/each_part_setting.def"
    return BT_OK;
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

/* run_property.c - the rows BT_PROPERTY and BT_LAMBDA of all parts. */
#include "engine/config/run_property.h"

#include <math.h>

#include "engine/model/shape/config.h"

bool bt_run_has(const bt_run_cfg *c, bt_run_property property, int64_t step) {
    (void)c, (void)property, (void)step; /* unused if no part has rows */
#define BT_PROPERTY(name, when) \
    if (property == BT_RUN_##name && (when)) return true;
#include "engine/config/settings/each_part_setting.def"
    return false;
}

double bt_run_lambda(const bt_run_cfg *c, int64_t step) {
    double least = 1;
    if (!bt_run_has(c, BT_RUN_FADES, step)) return least;
#define BT_LAMBDA(value) least = fmin(least, value);
#include "engine/config/settings/each_part_setting.def"
    return least;
}

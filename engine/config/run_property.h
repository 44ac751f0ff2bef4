/* run_property.h - properties of a run that parts determine from the settings alone (BT_PROPERTY, BT_LAMBDA in their
 * tables). Pure. Threads: any. */
#ifndef BT_ENGINE_CONFIG_RUN_PROPERTY_H
#define BT_ENGINE_CONFIG_RUN_PROPERTY_H

#include "engine/config/run_cfg.h"

typedef enum bt_run_property {
    BT_RUN_DENSE, /* the model of this step is a dense one, recreated with ternary layers later */
    BT_RUN_FADES, /* layers are partly ternary in some step */
    BT_RUN_SHORT_SPANS,  /* attention may see less than whole sequences in some step */
    BT_RUN_SOFT_TARGETS, /* the targets of this step depend on its inputs */
} bt_run_property;

/* step: 0-based; ignored for properties of a whole run */
bool bt_run_has(const bt_run_cfg *c, bt_run_property property, int64_t step);
/* share of the ternary values in the weights of this step (0-based): 1 in a run without BT_RUN_FADES */
double bt_run_lambda(const bt_run_cfg *c, int64_t step);

#endif

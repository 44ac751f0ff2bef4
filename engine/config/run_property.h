/* run_property.h - properties of a run that tables of parts derive from settings (BT_PROPERTY, BT_LAMBDA). Pure. */
#ifndef BT_ENGINE_CONFIG_RUN_PROPERTY_H
#define BT_ENGINE_CONFIG_RUN_PROPERTY_H

#include "engine/config/run_cfg.h"

typedef enum bt_run_property {
    BT_RUN_DENSE, /* the model of this step is dense; later it is created again with ternary layers */
    BT_RUN_FADES,        /* layers are partly ternary in some steps */
    BT_RUN_SHORT_SPANS,  /* attention sees less than the whole sequence in some steps */
    BT_RUN_SOFT_TARGETS, /* the targets of this step depend on its inputs */
} bt_run_property;

/* step: from 0; ignored for properties of the whole run. */
bool bt_run_has(const bt_run_cfg *c, bt_run_property property, int64_t step);
/* Returns the share of ternary values in the weights of this step (from 0): 1 in a run without BT_RUN_FADES. */
double bt_run_lambda(const bt_run_cfg *c, int64_t step);

#endif

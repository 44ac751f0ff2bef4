/* run_data.h - loader configuration from the data settings of a run. */
#ifndef BT_ENGINE_TRAIN_RUN_DATA_H
#define BT_ENGINE_TRAIN_RUN_DATA_H

#include "engine/config/run_cfg.h"
#include "engine/data/shards/loader.h"
#include "engine/observe/telemetry.h"

/* Returns the loader configuration for resolved settings, which it borrows. The caller sets micro-batches and
 * shares. */
bt_loader_cfg bt_run_data(const bt_run_cfg *c);
/* Emits events about a packed split: fill of its sequences, omitted and truncated data. */
void bt_run_data_describe(const bt_telemetry *t, const bt_loader *l, const bt_run_cfg *c,
                          int64_t step);

/* Emits each line of bt_loader_notes as an event with the prefix `of`. */
void bt_run_data_notes(const bt_telemetry *t, const char *of, const char *notes, int64_t step);

/* Emits, for a mixture, the share of each source in the completed steps. */
void bt_run_data_shares(const bt_telemetry *t, const bt_loader *l, int64_t steps_done);

#endif

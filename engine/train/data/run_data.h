/* run_data.h - the data settings of a run as the loader takes them. */
#ifndef BT_ENGINE_TRAIN_RUN_DATA_H
#define BT_ENGINE_TRAIN_RUN_DATA_H

#include "engine/config/run_cfg.h"
#include "engine/data/shards/loader.h"
#include "engine/observe/telemetry.h"

/* of the resolved settings, which it borrows; micro-batches and shares of a step are the caller's */
bt_loader_cfg bt_run_data(const bt_run_cfg *c);
/* events of a packed split: how full its sequences are, and what of it is left out or cut */
void bt_run_data_tell(const bt_telemetry *t, const bt_loader *l, const bt_run_cfg *c, int64_t step);

/* events of lines of bt_loader_notes; `of` precedes each of them */
void bt_run_data_notes(const bt_telemetry *t, const char *of, const char *notes, int64_t step);

/* what each source of a mixture has given to the steps done, as events; nothing of other data */
void bt_run_data_shares(const bt_telemetry *t, const bt_loader *l, int64_t steps_done);

#endif

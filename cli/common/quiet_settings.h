/* quiet_settings.h - the settings of a run of which only the steps are timed: synthetic data, one learning rate, no
 * record, no checkpoint, no validation, no statistics. For `bench train` and for trials of layouts. */
#ifndef BT_CLI_COMMON_QUIET_SETTINGS_H
#define BT_CLI_COMMON_QUIET_SETTINGS_H

#include "engine/config/run_cfg.h"

/* Reads the same arguments as `train`, with other defaults. steps: if the settings have no number of steps; warmup:
 * steps added to them. first: this process starts the ranks. */
bt_code bt_quiet_settings_read(bt_opts *o, bt_run_cfg *cfg, int argc, char **argv, bool first,
                               int64_t steps, int64_t warmup, bt_err *err) BT_MUST_CHECK;
/* Resolves them. In a rank, after the ranks agreed on a kernel set (bt_isa_agreement_apply). ranks 0: as many as the
 * settings have. */
bt_code bt_quiet_settings_settle(bt_opts *o, bt_run_cfg *cfg, int ranks, bt_err *err) BT_MUST_CHECK;

#endif

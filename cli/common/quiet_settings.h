/* quiet_settings.h - settings of a run that only measures step times: synthetic data, constant learning rate, no
 * record, checkpoint, validation or statistics. For `bench train` and trials of layouts. */
#ifndef BT_CLI_COMMON_QUIET_SETTINGS_H
#define BT_CLI_COMMON_QUIET_SETTINGS_H

#include "engine/config/run_cfg.h"

/* Parses the arguments of `train` with other defaults. steps: default number of steps; warmup: steps added to them.
 * first: this process starts the ranks. */
bt_code bt_quiet_settings_read(bt_opts *o, bt_run_cfg *cfg, int argc, char **argv, bool first,
                               int64_t steps, int64_t warmup, bt_err *err) BT_MUST_CHECK;
/* Resolves the settings; in a rank, after the ranks have agreed on a kernel set (bt_isa_agreement_apply). ranks 0:
 * the number in the settings. */
bt_code bt_quiet_settings_settle(bt_opts *o, bt_run_cfg *cfg, int ranks, bt_err *err) BT_MUST_CHECK;

#endif

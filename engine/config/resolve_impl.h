/* resolve_impl.h - functions shared by the files of run_resolve.c. Private to engine/config. */
#ifndef BT_ENGINE_CONFIG_RESOLVE_IMPL_H
#define BT_ENGINE_CONFIG_RESOLVE_IMPL_H

#include "engine/base/text.h"
#include "engine/config/run_cfg.h"

/* Returns the largest divisor of n that is <= most; 1 <= most. */
int64_t bt_divisor_below(int64_t n, int64_t most);
/* Returns the smallest divisor of n that is >= least; n if least > n. */
int64_t bt_divisor_above(int64_t n, int64_t least);
const char *bt_divisors(char *buf, size_t size, int64_t n, int64_t x);

/* Resolves batch_tokens, micro_batch, accum and unit. */
bt_code bt_resolve_batch(bt_run_cfg *c, bt_err *err) BT_MUST_CHECK;

/* Resolves the settings of the training data and of fine-tuning; faults: as for bt_collect_fault. */
bt_code bt_resolve_data(bt_run_cfg *c, bt_text *faults, bt_err *err) BT_MUST_CHECK;

/* Appends a wrong setting (BT_ARG) to `faults` and returns BT_OK, so that the next check runs. Returns all other codes
 * unchanged, and every code if faults is NULL. */
bt_code bt_collect_fault(bt_text *faults, bt_code code, bt_err *err);

/* Reports the lines of `faults`: one line becomes the error; of several, rank 0 logs each, so that one start shows all.
 * Returns `code`, the result of reading, if there are no faults. */
bt_code bt_report_faults(const bt_text *faults, bt_code code, bt_err *err);

#endif

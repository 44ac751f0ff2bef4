/* resolve_impl.h - functions for the files that resolve settings. Private to engine/config. */
#ifndef BT_ENGINE_CONFIG_RESOLVE_IMPL_H
#define BT_ENGINE_CONFIG_RESOLVE_IMPL_H

#include "engine/base/text.h"
#include "engine/config/run_cfg.h"

/* Return the largest divisor of n up to `most` (most >= 1); the smallest one from `least` on (n if least > n). */
int64_t bt_divisor_below(int64_t n, int64_t most);
int64_t bt_divisor_above(int64_t n, int64_t least);
const char *bt_divisors(char *buf, size_t size, int64_t n, int64_t x);

/* Resolves batch_tokens, micro_batch, accum and unit. */
bt_code bt_resolve_batch(bt_run_cfg *c, bt_err *err) BT_MUST_CHECK;

/* Resolves the settings of the training data and of fine-tuning; faults: as for bt_collect_fault. */
bt_code bt_resolve_data(bt_run_cfg *c, bt_text *faults, bt_err *err) BT_MUST_CHECK;

/* Appends the fault of a setting (BT_ARG) to `faults` and returns BT_OK, so that the next check runs. Returns all other
 * codes, or with faults NULL every code, unchanged. */
bt_code bt_collect_fault(bt_text *faults, bt_code code, bt_err *err);

/* Reports `faults`: a single line becomes the error; rank 0 logs each of several lines, so that one start shows all.
 * Without faults returns `code`, the result of reading. */
bt_code bt_report_faults(const bt_text *faults, bt_code code, bt_err *err);

#endif

/* ramp.h - ramp of the sequence length (train.seq_ramp): training begins with a fraction of the length, which doubles
 * at given shares of the run.
 *
 * "0.1,0.2,0.4": an eighth in the first tenth of the steps, then a quarter, a half, and from 0.4 of the steps on the
 * whole length. The ramp depends only on the step, so a resumed run reads the same data. Any thread. */
#ifndef BT_ENGINE_CONFIG_RAMP_H
#define BT_ENGINE_CONFIG_RAMP_H

#include <stdint.h>

#include "engine/base/status.h"

enum { BT_RAMP_MOST = 10 };

typedef struct bt_ramp {
    int n;                    /* number of doublings; 0: no ramp */
    int64_t at[BT_RAMP_MOST]; /* first step after each doubling */
} bt_ramp;

/* Parses ascending shares between 0 and 1; "": no ramp. key: setting for the error. BT_ARG: another text. */
bt_code bt_ramp_read(bt_ramp *out, const char *key, const char *text, int64_t steps, bt_err *err)
    BT_MUST_CHECK;
/* Checks that the shortest sequences of `text` have a whole number of tokens. */
bt_code bt_ramp_check(const char *key, const char *text, int64_t steps, int64_t seq_len,
                      bt_err *err) BT_MUST_CHECK;
/* Returns the first step with a doubled length; -1: no ramp. */
int64_t bt_ramp_first(const char *text, int64_t steps);
/* Returns how many times the length is halved in this step. */
int bt_ramp_halvings(const bt_ramp *r, int64_t step);

#endif

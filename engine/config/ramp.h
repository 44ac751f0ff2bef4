/* ramp.h - sequence length ramp: the length begins at a fraction of its value and doubles at given shares of the run
 * (train.seq_ramp).
 *
 * "0.1,0.2,0.4": an eighth for the first tenth of the steps, then a quarter, a half, and from 0.4 of the steps on the
 * whole length. It is a pure function of the step, so that a resumed run reads the same data. Any thread. */
#ifndef BT_ENGINE_CONFIG_RAMP_H
#define BT_ENGINE_CONFIG_RAMP_H

#include <stdint.h>

#include "engine/base/status.h"

enum { BT_RAMP_MOST = 10 };

typedef struct bt_ramp {
    int n;                    /* number of doublings; 0: no ramp */
    int64_t at[BT_RAMP_MOST]; /* first steps with the doubled value */
} bt_ramp;

/* Parses ascending shares between 0 and 1; "" is no ramp. key: name of the setting in messages. Fails with BT_ARG. */
bt_code bt_ramp_read(bt_ramp *out, const char *key, const char *text, int64_t steps, bt_err *err)
    BT_MUST_CHECK;
/* Checks that the shortest span of `text` is whole tokens as well. */
bt_code bt_ramp_check(const char *key, const char *text, int64_t steps, int64_t seq_len,
                      bt_err *err) BT_MUST_CHECK;
/* the first step with a doubled value; -1: no ramp */
int64_t bt_ramp_first(const char *text, int64_t steps);
/* number of times that the value is still halved in this step */
int bt_ramp_halvings(const bt_ramp *r, int64_t step);

#endif

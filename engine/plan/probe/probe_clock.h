/* probe_clock.h - clock of the probes and typical value of samples. Private to engine/plan/probe. */
#ifndef BT_ENGINE_PLAN_PROBE_PROBE_CLOCK_H
#define BT_ENGINE_PLAN_PROBE_PROBE_CLOCK_H

#include <stddef.h>

/* Returns the processor seconds of this thread if the pool has no other, else wall seconds. */
double bt_probe_clock(void);
/* Sorts n samples and returns a low quantile, which other programs hardly affect; 0 if n is 0. */
double bt_probe_typical(double *samples, size_t n);

#endif

/* probe_clock.h - the clock of the probes, and a typical value of many samples. Private to engine/plan/probe. */
#ifndef BT_ENGINE_PLAN_PROBE_PROBE_CLOCK_H
#define BT_ENGINE_PLAN_PROBE_PROBE_CLOCK_H

#include <stddef.h>

/* processor seconds of this thread where it works alone, else wall seconds */
double bt_probe_clock(void);
/* sorts n samples and returns one that other programs hardly lengthened; 0 where n is 0 */
double bt_probe_typical(double *samples, size_t n);

#endif

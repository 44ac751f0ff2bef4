/* span.h - measures the time of the training thread: a stack of phases.
 *
 *     begin(BWD) ...... begin(WAIT) ... end() ...... end()
 *     |---- BWD -------||--- WAIT ----||-- BWD -----|        outside of all: OTHER
 *
 * Time is charged to the innermost open phase. An exchange opens its own span, and the surrounding phase is not charged
 * for that time, so the phases of a step add up to its duration. Inside BT_SPAN_EXCLUDED (an evaluation, a pause) no
 * time is charged, also not to spans that begin there.
 *
 * Cost:     two readings of the clock per span.
 * Threads:  the training thread alone; it is the only one that calls MPI. */
#ifndef BT_ENGINE_BASE_SPAN_H
#define BT_ENGINE_BASE_SPAN_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/tables/metric.h"

enum { BT_SPAN_EXCLUDED = BT_MR_COUNT, BT_SPANS };

void bt_span_reset(void);
void bt_span_begin(int phase); /* a bt_rank_metric that is a phase, or BT_SPAN_EXCLUDED */
void bt_span_end(void);
bool bt_span_excluded(void); /* true inside BT_SPAN_EXCLUDED, where time belongs to no step */
/* Moves ns from the innermost open phase to another phase; without effect inside BT_SPAN_EXCLUDED. */
void bt_span_transfer(int to, int64_t ns);
/* Returns the time charged to a phase since the last cut, including an open span. */
int64_t bt_span_ns(int phase);
/* Returns and clears the charges of all phases; open spans remain open. */
void bt_span_cut(int64_t ns[BT_SPANS]);
/* Makes spans also charge the processor time of this thread, which other programs hardly affect, for two more system
 * calls per span. A cut does not clear it. bt_span_transfer moves the same share of processor time as of wall time. */
void bt_span_processor(bool on);
int64_t bt_span_processor_ns(int phase);

#endif

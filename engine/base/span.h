/* span.h - where the training thread's time goes: a stack of phases.
 *
 *     begin(BWD) ...... begin(WAIT) ... end() ...... end()
 *     |---- BWD -------||--- WAIT ----||-- BWD -----|        outside of all: OTHER
 *
 * The innermost open phase is charged; whoever exchanges something opens a span where it happens,
 * and the phase around it loses that time. So the phases of a step always add up to its time.
 * Inside BT_SPAN_EXCLUDED (an evaluation, a pause) everything is excluded, whatever is begun there.
 *
 * Cost:     two readings of the clock a span.
 * Threads:  the training thread alone; it is the only one that calls MPI. */
#ifndef BT_ENGINE_BASE_SPAN_H
#define BT_ENGINE_BASE_SPAN_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/tables/metric.h"

enum { BT_SPAN_EXCLUDED = BT_MR_COUNT, BT_SPANS };

/* nothing is open, nothing has been charged: a run begins */
void bt_span_reset(void);
void bt_span_begin(int phase); /* a bt_rank_metric that is a phase, or BT_SPAN_EXCLUDED */
void bt_span_end(void);        /* of the innermost */
bool bt_span_excluded(void);   /* BT_SPAN_EXCLUDED is open: what happens now belongs to no step */
/* ns of what the innermost open phase was charged belong to another phase; not while excluded */
void bt_span_transfer(int to, int64_t ns);
/* charged to a phase since the last cut, an open span included */
int64_t bt_span_ns(int phase);
/* all of them, which then begin anew; open spans stay open */
void bt_span_cut(int64_t ns[BT_SPANS]);
/* From now on phases are charged the processor time of this thread as well, which other programs on
 * the machine lengthen little; two more system calls a span. A cut leaves it alone. What is
 * transferred takes the same share of it along as of the wall time. */
void bt_span_processor(bool on);
/* processor time charged to a phase since it was switched on */
int64_t bt_span_processor_ns(int phase);

#endif

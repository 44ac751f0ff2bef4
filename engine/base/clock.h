/* clock.h - reads the monotonic clock for durations and the wall clock for records. Logic uses only the monotonic
 * clock.
 *
 * A process reads the system's wall clock once, and bt_wall_us adds the time that has passed since, so setting the
 * system's clock does not change the order and the distances of recorded times. Processes that record or show the same
 * run share a clock by its name: the supervisor of a resumed run joins the clock of the record, its ranks inherit the
 * name in BITRAIN_CLOCK, and a view uses the clock of each run. Any thread. */
#ifndef BT_ENGINE_BASE_CLOCK_H
#define BT_ENGINE_BASE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

int64_t bt_now_ns(void);        /* CLOCK_MONOTONIC, nanoseconds; ~20 ns a call */
int64_t bt_cpu_ns(void);        /* processor time that all threads of this process have used */
int64_t bt_thread_cpu_ns(void); /* processor time that the calling thread has used */
int64_t bt_wall_us(void);       /* microseconds since 1970; never decreases */
void bt_sleep_ns(int64_t ns);   /* sleeps at least ns, also across signals */

enum { BT_CLOCK_NAME = 80 };
/* Writes the name of this process's clock: the boot id of the machine and the clock's offset from the time since boot;
 * "" without a boot id. Returns buf. */
const char *bt_clock_name(char buf[BT_CLOCK_NAME]);
/* Returns the time of the clock with this name, in microseconds since 1970. If the name is NULL or belongs to another
 * start of the machine, returns the time of this process's clock. */
int64_t bt_clock_now_us(const char *name);
/* Makes bt_wall_us use this clock, unless it is of another start of the machine, and never go below `not_before_us`. */
void bt_clock_join(const char *name, int64_t not_before_us);

#endif

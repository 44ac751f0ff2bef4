/* clock.h - reads the monotonic clock for durations and the wall clock for records. Logic uses only the monotonic
 * clock.
 *
 * The wall clock of the system is read once in a process: bt_wall_us adds the time since boot to it, so that the
 * times of a run keep their order and their distances when the system's clock is set. Processes that record or
 * show the same run share one clock by its name: a resumed run's supervisor joins the clock of the record, its
 * ranks inherit the name in BITRAIN_CLOCK, and a view computes the time by the clock of each run. Any thread. */
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
/* Writes the name of this process's clock: the machine's boot id and the clock's offset from the time since boot; "" if
 * the system has no boot id. Returns buf. */
const char *bt_clock_name(char buf[BT_CLOCK_NAME]);
/* Returns the present time of the clock with this name, in microseconds since 1970; that of this process's clock if the
 * name is NULL or belongs to another boot. */
int64_t bt_clock_now_us(const char *name);
/* Makes bt_wall_us use the clock of that name, if it is of this boot, and never return less than `not_before_us`. */
void bt_clock_join(const char *name, int64_t not_before_us);

#endif

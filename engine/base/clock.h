/* clock.h - monotonic time for durations, wall time for records. Logic uses the monotonic clock
 * only. */
#ifndef BT_ENGINE_BASE_CLOCK_H
#define BT_ENGINE_BASE_CLOCK_H

#include <stdint.h>

int64_t bt_now_ns(void);        /* CLOCK_MONOTONIC, nanoseconds; ~20 ns a call */
int64_t bt_cpu_ns(void);        /* processor time of all threads of this process so far */
int64_t bt_thread_cpu_ns(void); /* processor time of the calling thread so far */
int64_t bt_wall_us(void);       /* CLOCK_REALTIME, microseconds since 1970 */
void bt_sleep_ns(int64_t ns);   /* sleeps at least ns, also across signals */

#endif

/* energy.h - the joules that a rank's work takes of its machine's processors, by their own counters.
 *
 * Linux gives them as files (Documentation/power/powercap): the microjoules of each package, and of its
 * memory where that is counted apart, since the system started. Intel processors have them (RAPL), AMD's
 * since Zen as well; since 2020 only root reads them (CVE-2020-8694), and most virtual machines have none.
 *
 * A counter is the whole machine's. A rank's part of it is
 *     joules x processor time of this process / busy time of all processors (/proc/stat),
 * so ranks that share a machine add up to what they took of it, other programs' work is not theirs, and
 * what an idle processor draws beside the work is shared out with it.
 * Order:    open -> take* -> close. Threads: one at a time. No allocation. */
#ifndef BT_ENGINE_OBSERVE_ENERGY_H
#define BT_ENGINE_OBSERVE_ENERGY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BT_ENERGY_ZONES = 32, BT_ENERGY_WHY = 240 };

typedef struct bt_energy {
    int n, fd[BT_ENERGY_ZONES], stat; /* open files; n = 0: there is no counter */
    uint64_t at[BT_ENERGY_ZONES];     /* microjoules when they were read last */
    uint64_t range[BT_ENERGY_ZONES];  /* maximum, after which the counter restarts at 0 */
    int64_t read_ns, own_ns;          /* clock and processor time of this process then */
    uint64_t busy_ticks;
    long ticks_per_s;
} bt_energy;

/* root: folder of the counters, NULL for the system's; in a test it may have a file `stat` in place of /proc/stat.
 * Returns false if no counter can be read, with the reason and, if known, the remedy in `why` (BT_ENERGY_WHY
 * bytes); `take` then returns NaN */
bool bt_energy_open(bt_energy *e, const char *root, char *why, size_t size);
void bt_energy_close(bt_energy *e);
/* joules since the previous value; NaN if there is no counter, or if less than a quarter of a second has passed,
 * because busy time is counted in hundredths of a second */
double bt_energy_take(bt_energy *e);

#endif

/* energy.h - measures the energy that the processors use for a rank's work, from hardware counters.
 *
 * Linux provides the counters as files (Documentation/power/powercap): microjoules since the system started, of each
 * package and, on some processors, of its memory. Intel processors (RAPL) and AMD processors since Zen have them. Since
 * 2020 only root may read them (CVE-2020-8694), and most virtual machines have none.
 *
 * A counter covers the whole machine. The part of a rank is
 *     joules x processor time of this process / busy time of all processors (/proc/stat),
 * so the parts of all ranks on a machine add up to the energy of their work, without other programs. The energy of idle
 * processors is distributed in the same proportion.
 * Order:    open -> take* -> close. Threads: one at a time. No allocation. */
#ifndef BT_ENGINE_OBSERVE_ENERGY_H
#define BT_ENGINE_OBSERVE_ENERGY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BT_ENERGY_ZONES = 32, BT_ENERGY_WHY = 240 };

typedef struct bt_energy {
    int n, fd[BT_ENERGY_ZONES], stat; /* open files; n = 0: no counter */
    uint64_t at[BT_ENERGY_ZONES];     /* microjoules at the previous reading */
    uint64_t range[BT_ENERGY_ZONES];  /* largest value, after which the counter restarts at 0 */
    /* clock, and processor time of this process, at the previous reading */
    int64_t read_ns, own_ns;
    uint64_t busy_ticks;
    long ticks_per_s;
} bt_energy;

/* root: folder of the counters; NULL: that of the system. In tests the folder may contain a file `stat` that replaces
 * /proc/stat. If no counter can be read, returns false; `why` (BT_ENERGY_WHY bytes) receives the reason and, if known,
 * the remedy, and `take` returns NaN. */
bool bt_energy_open(bt_energy *e, const char *root, char *why, size_t size);
void bt_energy_close(bt_energy *e);
/* Returns the joules since the previous call. NaN: there is no counter, or less than a quarter of a second has passed,
 * because busy time is counted in hundredths of a second. */
double bt_energy_take(bt_energy *e);

#endif

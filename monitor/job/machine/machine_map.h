/* machine_map.h - writes the map of this machine (cores, caches, memory) to a file, once per run.
 *
 * mpirun and every rank map the machine at their start (hwloc), which is half of their start: 60 to 100 ms for two
 * ranks.
 * A local job reads the map from the file instead (launch.c sets the environment).
 * Threads: one. */
#ifndef BT_MONITOR_JOB_MACHINE_MACHINE_MAP_H
#define BT_MONITOR_JOB_MACHINE_MACHINE_MAP_H

#include <stdbool.h>

/* Writes the map to `path` in about 15 ms. Returns false, without a file, if this build has no hwloc or the file
 * cannot be written; the job then maps the machine as it starts. */
bool bt_machine_map_write(const char *path);

#endif

/* machine_map.h - writes the map of this machine (cores, caches, memory) to a file, once per
 * run.
 *
 * mpirun and every rank map the machine when they start (hwloc), which is half of their start:
 * 60 to 100 ms for two ranks. A job on this host alone reads the map from the file instead
 * (launch.c sets the environment).
 * Threads:  one. */
#ifndef BT_MONITOR_JOB_MACHINE_MACHINE_MAP_H
#define BT_MONITOR_JOB_MACHINE_MACHINE_MAP_H

#include <stdbool.h>

/* Writes it to `path`. false, and no file: this build has no hwloc, or the file cannot be written;
 * the job then maps the machine as it starts. About 15 ms. */
bool bt_machine_map_write(const char *path);

#endif

/* machine_map.c - hwloc's view of the machine, exported as XML. The only file that knows hwloc. */
#include "monitor/job/launch/machine_map.h"

#ifdef BITRAIN_HAVE_HWLOC

#include <hwloc.h>
#include <stdlib.h>
#include <unistd.h>

/* Open MPI 4.1 asks for the same: processors that this job may not use are part of the map, and of
 * the devices the important ones. Displays and graphics cards are left out, because looking for a
 * display can wait for a name server, 5 s. */
static bool load(hwloc_topology_t topology) {
    static const char *const unwanted[] = {"gl", "opencl"};
    for (size_t i = 0; i < sizeof unwanted / sizeof *unwanted; i++)
        (void)hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST,
                                            unwanted[i]);
    return hwloc_topology_set_all_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_ALL) == 0 &&
           hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT) == 0 &&
           hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED) == 0 &&
           hwloc_topology_load(topology) == 0;
}

bool bt_machine_map_write(const char *path) {
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology) != 0) return false;
    bool ok = load(topology) && hwloc_topology_export_xml(topology, path, 0) == 0;
    hwloc_topology_destroy(topology);
    if (!ok) unlink(path);
    return ok;
}

#else

bool bt_machine_map_write(const char *path) {
    (void)path;
    return false;
}

#endif

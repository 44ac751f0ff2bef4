/* machine_map.c - exports hwloc's topology of the machine as XML and as a list of hardware threads. The only file
 * that uses hwloc. */
#include "monitor/job/machine/machine_map.h"
#include "engine/base/os/processors.h"
#include "monitor/job/machine/cpu_binding.h"

#ifdef BITRAIN_HAVE_HWLOC

#include <hwloc.h>
#include <stdlib.h>
#include <unistd.h>

/* Leaves out displays and graphics cards. Their plug-ins load drivers into this process: detecting a display can wait
 * for a name server, 5 s per process, and Level Zero crashes for a user without a home folder. */
static void leave_out_graphics(hwloc_topology_t topology) {
    static const char *const unwanted[] = {"gl", "opencl", "cuda", "nvml", "rsmi", "levelzero"};
    for (size_t i = 0; i < sizeof unwanted / sizeof *unwanted; i++)
        (void)hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST,
                                            unwanted[i]);
}

/* Requests the same as Open MPI: the map includes processors that this job may not use, and the
 * important devices. */
static bool load_topology(hwloc_topology_t topology) {
    leave_out_graphics(topology);
    return hwloc_topology_set_all_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_ALL) == 0 &&
           hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT) == 0 &&
           hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED) == 0 &&
           hwloc_topology_load(topology) == 0;
}

bool bt_machine_map_write(const char *path) {
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology) != 0) return false;
    bool ok = load_topology(topology) && hwloc_topology_export_xml(topology, path, 0) == 0;
    hwloc_topology_destroy(topology);
    if (!ok) unlink(path);
    return ok;
}

/* Loads only sockets, memory domains, cores and hardware threads (2 ms). A restarted job reads the map that its
 * supervisor has written. */
static bool load_processor_topology(hwloc_topology_t topology, const char *machine) {
    /* A memory domain inside a socket is a child of a group. */
    static const hwloc_obj_type_t kept[] = {HWLOC_OBJ_PACKAGE, HWLOC_OBJ_GROUP, HWLOC_OBJ_CORE};
    leave_out_graphics(topology);
    bool ok = hwloc_topology_set_all_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE) == 0;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        ok = ok && hwloc_topology_set_type_filter(topology, kept[i],
                                                  kept[i] == HWLOC_OBJ_GROUP
                                                      ? HWLOC_TYPE_FILTER_KEEP_STRUCTURE
                                                      : HWLOC_TYPE_FILTER_KEEP_ALL) == 0;
    return ok && (!machine || hwloc_topology_set_synthetic(topology, machine) == 0) &&
           hwloc_topology_load(topology) == 0;
}

/* Returns the number of the object of this type above pu; 0: unknown. */
static int index_of_ancestor(hwloc_topology_t topology, hwloc_obj_type_t type, hwloc_obj_t pu) {
    const struct hwloc_obj *o = hwloc_get_ancestor_obj_by_type(topology, type, pu);
    return o ? (int)o->logical_index : 0;
}

static int memory_domain_of(hwloc_topology_t topology, hwloc_obj_t pu) {
    const struct hwloc_obj *node = NULL;
    while ((node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, (hwloc_obj_t)node)))
        if (hwloc_bitmap_isset(node->cpuset, pu->os_index)) return (int)node->logical_index;
    return 0;
}

static int compare_hardware_threads(const void *a, const void *b) {
    const bt_hardware_thread *x = a, *y = b;
    if (x->package != y->package) return x->package - y->package;
    if (x->domain != y->domain) return x->domain - y->domain;
    return x->core != y->core ? x->core - y->core : x->cpu - y->cpu;
}

size_t bt_hardware_threads(bt_hardware_thread places[BT_HARDWARE_THREADS_MAX],
                           const char *machine) {
    hwloc_topology_t topology;
    hwloc_obj_t pu = NULL;
    cpu_set_t may;
    size_t n = 0;
    if (bt_processors_allowed(&may) == 0 || hwloc_topology_init(&topology) != 0) return 0;
    const bool ok = load_processor_topology(topology, machine);
    while (ok && n < BT_HARDWARE_THREADS_MAX &&
           (pu = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PU, pu))) {
        if (pu->os_index >= CPU_SETSIZE || (!machine && !CPU_ISSET(pu->os_index, &may))) continue;
        const bool has_core = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_CORE, pu);
        places[n++] =
            (bt_hardware_thread){.cpu = (int)pu->os_index,
                                 .package = index_of_ancestor(topology, HWLOC_OBJ_PACKAGE, pu),
                                 .domain = memory_domain_of(topology, pu),
                                 .core = has_core ? index_of_ancestor(topology, HWLOC_OBJ_CORE, pu)
                                                  : (int)pu->logical_index};
    }
    hwloc_topology_destroy(topology);
    qsort(places, n, sizeof *places, compare_hardware_threads);
    return n;
}

#else

bool bt_machine_map_write(const char *path) {
    (void)path;
    return false;
}

size_t bt_hardware_threads(bt_hardware_thread places[BT_HARDWARE_THREADS_MAX],
                           const char *machine) {
    cpu_set_t may;
    size_t n = 0;
    if (machine || bt_processors_allowed(&may) == 0) return 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET((size_t)cpu, &may))
            places[n++] = (bt_hardware_thread){.cpu = cpu, .core = cpu};
    return n;
}

#endif

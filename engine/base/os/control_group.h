/* control_group.h - reads the limits that a container, service or batch job sets for its processes. Threads: any. */
#ifndef BT_ENGINE_BASE_OS_CONTROL_GROUP_H
#define BT_ENGINE_BASE_OS_CONTROL_GROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns the smallest processor quota of this process's group and its ancestors (1.5: one and a half processors), for
 * cgroup v1 and v2; 0: none. A process with a quota can run on all processors of the machine, but is suspended when it
 * has used its share. root: "", or in tests a folder with proc and sys. */
double bt_group_processors(const char *root);

/* Returns the bytes that this process can still allocate below the limits of its group and all ancestors; file cache
 * counts as available. SIZE_MAX: no limit. */
size_t bt_group_memory_room(void);
/* Reads limit and use in bytes of this container; false: no limit. */
bool bt_group_memory_of_container(double *limit, double *used);
/* Returns how many processes of this process's group the kernel killed for lack of memory; -1: unknown. */
int64_t bt_group_memory_kills(void);
/* Writes the path of the file that counts these kills. cgroups: lines in the form of /proc/self/cgroup; root: folder in
 * which groups are mounted. Returns false if the group is unknown. */
bool bt_group_memory_file(const char *cgroups, const char *root, char *path, size_t size);

#endif

/* control_group.h - limits that a container, service or batch job sets for its processes. Threads: any. */
#ifndef BT_ENGINE_BASE_OS_CONTROL_GROUP_H
#define BT_ENGINE_BASE_OS_CONTROL_GROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns the smallest quota of this process's group and its ancestors in processors (1.5: one and a half), for cgroup
 * v1 and v2; 0: there is none. A process with a quota sees all processors of the machine, and is suspended when it has
 * used its share. root: "" or, in tests, a folder that contains proc and sys. */
double bt_group_processors(const char *root);

/* Returns the bytes that this process can still take below the limits of its group and all ancestors; their file cache
 * counts as available. SIZE_MAX: there is no limit. */
size_t bt_group_memory_room(void);
/* Reads the limit and the use in bytes of the group at the root of this container. Returns false if it has no limit. */
bool bt_group_memory_of_container(double *limit, double *used);
/* Returns the number of processes of this process's group that the kernel killed because memory was used up; -1:
 * unknown. */
int64_t bt_group_memory_kills(void);
/* Writes the path of the file with this number. cgroups: lines in the form of /proc/self/cgroup; root: folder in which
 * groups are mounted. Returns false if the group is unknown. */
bool bt_group_memory_file(const char *cgroups, const char *root, char *path, size_t size);

#endif

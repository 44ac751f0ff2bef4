/* cpu_quota.h - number of processors that the control groups of this process allow, which may be fewer than are
 * visible.
 *
 * A container or a service with a quota sees all processors of the machine and is suspended when it has used its
 * share. Threads: any. */
#ifndef BT_ENGINE_BASE_SYSTEM_CPU_QUOTA_H
#define BT_ENGINE_BASE_SYSTEM_CPU_QUOTA_H

/* The smallest quota of this process's group and of all groups above it, in processors (1.5: one and a half), of
 * cgroup v1 and v2; 0: there is none. root: "" or a folder that holds proc and sys (tests) */
double bt_cpu_quota(const char *root);

#endif

/* cpu_quota.h - the number of processors that the control groups of this process allow.
 *
 * A container or service with a quota sees all processors of the machine, and is suspended when it has used its
 * share. Threads: any. */
#ifndef BT_ENGINE_BASE_SYSTEM_CPU_QUOTA_H
#define BT_ENGINE_BASE_SYSTEM_CPU_QUOTA_H

/* Returns the smallest quota of this process's group and its ancestors in processors (1.5: one and a half), for cgroup
 * v1 and v2; 0: there is none. root: "" or, in tests, a folder that contains proc and sys. */
double bt_cpu_quota(const char *root);

#endif

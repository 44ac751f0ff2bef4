/* cpu_quota.c - reads cpu.max and cpu.cfs_quota_us of the process's control groups and of their ancestors. */
#include "engine/base/system/cpu_quota.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

typedef struct quota_search {
    const char *root;
    char group[2][PATH_MAX]; /* paths of the process's groups in versions 1 and 2; "": root group */
    double least;            /* smallest quota in processors; 0: none so far */
} quota_search;

/* Reads the first two words of a file as numbers ("max" is not a number) and returns how many were read. */
static int read_numbers(const char *folder, const char *name, long long out[2]) {
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "re");
    const int n = f ? fscanf(f, "%lld %lld", &out[0], &out[1]) : 0;
    if (f) fclose(f);
    return n;
}

static void read_group_quota(quota_search *s, const char *folder) {
    long long v[2], period[2];
    double quota = 0;
    if (read_numbers(folder, "cpu.max", v) == 2 && v[0] > 0 && v[1] > 0)
        quota = (double)v[0] / (double)v[1];
    else if (read_numbers(folder, "cpu.cfs_quota_us", v) >= 1 && v[0] > 0 &&
             read_numbers(folder, "cpu.cfs_period_us", period) >= 1 && period[0] > 0)
        quota = (double)v[0] / (double)period[0];
    if (quota > 0 && (s->least == 0 || quota < s->least)) s->least = quota;
}

/* Reads the quotas of a group below a mount point and of its ancestors. If the group is not visible there, as in a
 * container, the mount point itself is the container's group. */
static void search_mount(quota_search *s, const char *mount, const char *group) {
    char folder[2 * PATH_MAX];
    const int top = snprintf(folder, sizeof folder, "%s%s", s->root, mount);
    if (top <= 0 || (size_t)top >= sizeof folder) return;
    snprintf(folder + top, sizeof folder - (size_t)top, "%s", group);
    for (;;) {
        read_group_quota(s, folder);
        char *up = strrchr(folder + top, '/');
        if (!up) return;
        *up = '\0';
    }
}

static FILE *open_proc(const quota_search *s, const char *name) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/proc/self/%s", s->root, name);
    return fopen(path, "re");
}

/* True if `word` is an item of a list separated by commas. */
static bool is_listed_controller(const char *items, const char *word) {
    for (const size_t n = strlen(word); *items;
         items += strcspn(items, ","), items += *items == ',')
        if (strcspn(items, ",\n") == n && strncmp(items, word, n) == 0) return true;
    return false;
}

/* Parses lines "4:cpu,cpuacct:/group" (version 1) and "0::/group" (version 2). */
static void read_groups(quota_search *s) {
    char line[PATH_MAX + 128];
    FILE *f = open_proc(s, "cgroup");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'),
             *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group) continue;
        *group++ = '\0';
        const bool second = controllers[1] == '\0';
        if (!second && !is_listed_controller(controllers + 1, "cpu")) continue;
        snprintf(s->group[second], PATH_MAX, "%s", strcmp(group, "/") == 0 ? "" : group);
    }
    if (f) fclose(f);
}

/* Parses lines "ID PARENT MAJOR:MINOR ROOT POINT OPTIONS ... - TYPE SOURCE OPTIONS". */
static void search_mounts(quota_search *s) {
    char line[3 * PATH_MAX], root[PATH_MAX], point[PATH_MAX], type[32], options[PATH_MAX];
    FILE *f = open_proc(s, "mountinfo");
    while (f && fgets(line, sizeof line, f)) {
        const char *after = strstr(line, " - ");
        if (!after || sscanf(line, "%*s %*s %*s %4095s %4095s", root, point) != 2 ||
            sscanf(after, " - %31s %*s %4095s", type, options) != 2)
            continue;
        const bool second = strcmp(type, "cgroup2") == 0;
        if (!second && (strcmp(type, "cgroup") != 0 || !is_listed_controller(options, "cpu")))
            continue;
        const char *group = s->group[second];
        const size_t n = strcmp(root, "/") == 0 ? 0 : strlen(root);
        const bool inside = strncmp(group, root, n) == 0 && (group[n] == '/' || group[n] == '\0');
        search_mount(s, point, inside ? group + n : "");
    }
    if (f) fclose(f);
}

double bt_cpu_quota(const char *root) {
    static const char *const usual[] = {"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct",
                                        "/sys/fs/cgroup"};
    quota_search s = {.root = root};
    read_groups(&s);
    search_mounts(&s);
    for (int i = 0; i < 3; i++) search_mount(&s, usual[i], s.group[i == 2]);
    return s.least;
}

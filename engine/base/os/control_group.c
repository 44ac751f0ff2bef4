/* control_group.c - reads quotas, limits and kills of control groups, versions 1 and 2. */
#include "engine/base/os/control_group.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/small.h"

#define GROUPS "/proc/self/cgroup"
#define MOUNTED "/sys/fs/cgroup"

/* Reads the number after `key` in a file with lines "key value"; key "": the first word of the file. false: none. */
static bool read_keyed_number(const char *path, const char *key, size_t *out) {
    char line[256];
    bool found = false;
    FILE *f = fopen(path, "re");
    if (!f) return false;
    while (!found && fgets(line, sizeof line, f)) {
        size_t n = strlen(key);
        if (strncmp(line, key, n) != 0) continue;
        char *end;
        unsigned long long v = strtoull(line + n, &end, 10);
        if (end == line + n) continue; /* "max" */
        *out = (size_t)v;
        found = true;
    }
    fclose(f);
    return found;
}

/* Returns the bytes that can be allocated below the limits of a group and its parents, including the file cache. */
static size_t cgroup_room(const char *root, const char *group, const char *limit_name,
                          const char *usage_name) {
    char folder[512], path[640];
    size_t room = SIZE_MAX;
    snprintf(folder, sizeof folder, "%s%s", root, group);
    for (;;) {
        size_t limit, used, cache = 0;
        snprintf(path, sizeof path, "%s/%s", folder, limit_name);
        bool limited = read_keyed_number(path, "", &limit);
        snprintf(path, sizeof path, "%s/%s", folder, usage_name);
        if (limited && read_keyed_number(path, "", &used)) {
            snprintf(path, sizeof path, "%s/memory.stat", folder);
            (void)read_keyed_number(path, "inactive_file ", &cache);
            used -= bt_min_size(used, cache);
            room = bt_min_size(room, limit > used ? limit - used : 0);
        }
        char *up = strrchr(folder, '/');
        if (!up || strlen(folder) <= strlen(root)) return room;
        *up = '\0';
    }
}

size_t bt_group_memory_room(void) {
    char line[512];
    size_t room = SIZE_MAX;
    FILE *f = fopen(GROUPS, "re");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'),
             *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group) continue;
        *group++ = '\0';
        if (strcmp(group, "/") == 0) group = "";
        if (controllers[1] == '\0')
            room = bt_min_size(room, cgroup_room(MOUNTED, group, "memory.max", "memory.current"));
        else if (strstr(controllers, "memory"))
            room = bt_min_size(room, cgroup_room(MOUNTED "/memory", group, "memory.limit_in_bytes",
                                                 "memory.usage_in_bytes"));
    }
    if (f) fclose(f);
    return room;
}

bool bt_group_memory_of_container(double *limit, double *used) {
    size_t most, now = 0;
    if (!read_keyed_number(MOUNTED "/memory.max", "", &most) || most == 0) return false;
    (void)read_keyed_number(MOUNTED "/memory.current", "", &now);
    *limit = (double)most;
    *used = (double)now;
    return true;
}

/* A line has the form "N:controllers:PATH". Version 1 has a separate line for memory; version 2 is line 0. */
bool bt_group_memory_file(const char *cgroups, const char *root, char *path, size_t size) {
    path[0] = '\0';
    for (const char *line = cgroups; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        const char *names = strchr(line, ':'), *at = names ? strchr(names + 1, ':') : NULL;
        if (!at) break;
        const int length = (int)strcspn(++at, "\n");
        const size_t n = (size_t)(at - 1 - (names + 1));
        const bool old = n >= 6 && (strncmp(names + 1, "memory", n) == 0 ||
                                    strncmp(names + 1, "memory,", 7) == 0 ||
                                    strncmp(at - 1 - 7, ",memory", 7) == 0);
        if (old) {
            snprintf(path, size, "%s/memory%.*s/memory.oom_control", root, length, at);
            return true;
        }
        if (n == 0) snprintf(path, size, "%s%.*s/memory.events", root, length, at);
    }
    return path[0] != '\0';
}

static int64_t read_kill_count(const char *cgroups) {
    char path[PATH_MAX];
    int64_t kills = -1;
    if (!bt_group_memory_file(cgroups, MOUNTED, path, sizeof path)) return -1;
    FILE *f = fopen(path, "re");
    if (!f) return -1;
    for (char line[128]; kills < 0 && fgets(line, sizeof line, f);)
        if (sscanf(line, "oom_kill %" SCNd64, &kills) != 1) kills = -1;
    fclose(f);
    return kills;
}

int64_t bt_group_memory_kills(void) {
    char text[4096];
    FILE *f = fopen(GROUPS, "re");
    if (!f) return -1;
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    const int64_t kills = read_kill_count(text);
    /* Inside a container the root may be the group of this process, although the path differs. */
    return kills >= 0 ? kills : read_kill_count("1:memory:/\n");
}

typedef struct quota_search {
    const char *root;
    char group[2][PATH_MAX]; /* paths of the process's groups in versions 1 and 2; "": root group */
    double least;            /* smallest quota in processors; 0: none found yet */
} quota_search;

/* Reads the first two words of a file as numbers, and returns how many were numbers; "max" is not one. */
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

/* Reads the quotas of a group below a mount point, and of its ancestors. If the group is not visible there, as inside a
 * container, the mount point is the group of the container. */
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

/* items: separated by commas. */
static bool is_listed_controller(const char *items, const char *word) {
    for (const size_t n = strlen(word); *items;
         items += strcspn(items, ","), items += *items == ',')
        if (strcspn(items, ",\n") == n && strncmp(items, word, n) == 0) return true;
    return false;
}

/* Parses lines such as "4:cpu,cpuacct:/group" (version 1) and "0::/group" (version 2). */
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

double bt_group_processors(const char *root) {
    static const char *const usual[] = {"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct",
                                        "/sys/fs/cgroup"};
    quota_search s = {.root = root};
    read_groups(&s);
    search_mounts(&s);
    for (int i = 0; i < 3; i++) search_mount(&s, usual[i], s.group[i == 2]);
    return s.least;
}

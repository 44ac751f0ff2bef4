/* cpu_binding.c - computes each rank's share of the cores, memory domain by memory domain. */
#include "monitor/job/machine/cpu_binding.h"

#include <stdio.h>

#include "engine/base/os/processors.h"

/* True if p[i] starts another socket, domain or core than p[i - 1]. */
typedef bool (*starts_group)(const bt_hardware_thread *p, size_t i);

static bool starts_socket(const bt_hardware_thread *p, size_t i) {
    return i == 0 || p[i].package != p[i - 1].package;
}

static bool starts_memory_domain(const bt_hardware_thread *p, size_t i) {
    return starts_socket(p, i) || p[i].domain != p[i - 1].domain;
}

static bool starts_core(const bt_hardware_thread *p, size_t i) {
    return starts_memory_domain(p, i) || p[i].core != p[i - 1].core;
}

static int count_groups(const bt_hardware_thread *p, size_t n, starts_group is_new) {
    int sum = 0;
    for (size_t i = 0; i < n; i++) sum += is_new(p, i);
    return sum;
}

typedef struct core_range { /* range of cores [first, end) */
    int begin, end;
} core_range;

/* Returns the part of the machine that contains the core, as a range of cores. */
static core_range part_with_core(const bt_hardware_thread *p, size_t n, starts_group part,
                                 int core) {
    core_range r = {0, 0};
    int at = -1;
    for (size_t i = 0; i < n; i++) {
        if (!starts_core(p, i)) continue;
        at++;
        if (part(p, i)) {
            if (at > core) break;
            r.begin = at;
        }
        r.end = at + 1;
    }
    return r;
}

/* Returns the core in the middle of an equal share of all cores, for the group of this rank. */
static int middle_core(int cores, const bt_binding_job *j, int rank, int group) {
    const int groups = j->ranks / group;
    return (int)((long)cores * (2 * (rank / group) + 1) / (2 * groups));
}

/* Assigns all ranks of a group to the part of the machine that contains the group's middle core. Returns false if there
 * are fewer groups than parts, or a part gets more ranks than it has cores. */
static bool assign_groups(const bt_hardware_thread *p, size_t n, const bt_binding_job *j,
                          starts_group part, int group, core_range *mine) {
    const int cores = count_groups(p, n, starts_core);
    if (j->ranks % group != 0 || j->ranks / group < count_groups(p, n, part)) return false;
    const core_range own = part_with_core(p, n, part, middle_core(cores, j, j->rank, group));
    int first = -1, sharing = 0, here = 0, last = -1;
    for (int r = 0; r < j->ranks; r++) {
        const core_range at = part_with_core(p, n, part, middle_core(cores, j, r, group));
        here = at.begin == last ? here + 1 : 1;
        last = at.begin;
        if (here > at.end - at.begin) return false;
        if (at.begin != own.begin) continue;
        if (first < 0) first = r;
        sharing++;
    }
    const int size = own.end - own.begin, k = j->rank - first;
    *mine = (core_range){own.begin + size * k / sharing, own.begin + size * (k + 1) / sharing};
    return true;
}

static void add_cores_of_range(const bt_hardware_thread *p, size_t n, core_range cores,
                               bool first_threads_only, cpu_set_t *mine) {
    int at = -1;
    CPU_ZERO(mine);
    for (size_t i = 0; i < n; i++) {
        const bool first = starts_core(p, i);
        at += first;
        if (at >= cores.begin && at < cores.end && (first || !first_threads_only))
            CPU_SET((size_t)p[i].cpu, mine);
    }
}

bool bt_cpus_of_rank(const bt_hardware_thread *p, size_t n, const bt_binding_job *j,
                     cpu_set_t *mine) {
    const int cores = count_groups(p, n, starts_core);
    CPU_ZERO(mine);
    if (j->ranks < 1 || n == 0) return false;
    /* each hardware thread has the same number of ranks; ranks that exchange most use different hardware threads */
    if ((size_t)j->ranks > n) {
        if (j->threads > 1 || (size_t)j->ranks % n != 0) return false;
        CPU_SET((size_t)p[(size_t)j->rank % n].cpu, mine);
        return true;
    }
    if (j->ranks > cores) { /* hardware threads of a core are assigned to neighbours */
        for (size_t i = n * (size_t)j->rank / (size_t)j->ranks;
             i < n * (size_t)(j->rank + 1) / (size_t)j->ranks; i++)
            CPU_SET((size_t)p[i].cpu, mine);
        return j->threads <= CPU_COUNT(mine);
    }
    const int group = j->group > 1 ? j->group : 1;
    core_range share;
    if (!assign_groups(p, n, j, starts_memory_domain, group, &share) &&
        !(group > 1 && assign_groups(p, n, j, starts_socket, group, &share)) &&
        !assign_groups(p, n, j, starts_memory_domain, 1,
                       &share)) /* for example if there are fewer ranks than domains */
        share = (core_range){(int)((long)cores * j->rank / j->ranks),
                             (int)((long)cores * (j->rank + 1) / j->ranks)};
    add_cores_of_range(p, n, share, j->threads <= share.end - share.begin, mine);
    return j->threads <= CPU_COUNT(mine);
}

bool bt_bind_rank(const bt_binding_job *j) {
    bt_hardware_thread places[BT_HARDWARE_THREADS_MAX];
    cpu_set_t mine;
    const size_t n = j->ranks < 2 ? 0 : bt_hardware_threads(places, NULL);
    if (n == 0 || (long)n * j->ranks <= bt_processors_online()) return true;
    return !bt_cpus_of_rank(places, n, j, &mine) || bt_processors_bind(&mine);
}

const char *bt_hardware_threads_text(const bt_hardware_thread *p, size_t n, char *out,
                                     size_t size) {
    int packages = 0;
    for (size_t i = 0; i < n; i++) packages += i == 0 || p[i].package != p[i - 1].package;
    const int domains = count_groups(p, n, starts_memory_domain),
              cores = count_groups(p, n, starts_core);
    snprintf(out, size, "%d socket%s, %d memory domain%s, %d core%s, %zu hardware thread%s",
             packages, packages == 1 ? "" : "s", domains, domains == 1 ? "" : "s", cores,
             cores == 1 ? "" : "s", n, n == 1 ? "" : "s");
    return out;
}

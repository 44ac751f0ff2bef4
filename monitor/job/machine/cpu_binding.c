/* cpu_binding.c - shares of cores, domain by domain. */
#include "monitor/job/machine/cpu_binding.h"

#include <stdio.h>
#include <unistd.h>

/* ---- cores, domains and sockets -------------------------------------------------------------- */

/* places[i] begins another socket, domain or core than places[i - 1] */
typedef bool (*begins)(const bt_hardware_thread *p, size_t i);

static bool new_package(const bt_hardware_thread *p, size_t i) {
    return i == 0 || p[i].package != p[i - 1].package;
}

static bool new_domain(const bt_hardware_thread *p, size_t i) {
    return new_package(p, i) || p[i].domain != p[i - 1].domain;
}

static bool new_core(const bt_hardware_thread *p, size_t i) {
    return new_domain(p, i) || p[i].core != p[i - 1].core;
}

static int count_groups(const bt_hardware_thread *p, size_t n, begins is_new) {
    int sum = 0;
    for (size_t i = 0; i < n; i++) sum += is_new(p, i);
    return sum;
}

typedef struct run { /* range of cores: first, and one past the last */
    int begin, end;
} run;

/* the part of the machine that has the core, as a run of cores */
static run run_of_core(const bt_hardware_thread *p, size_t n, begins part, int core) {
    run r = {0, 0};
    int at = -1;
    for (size_t i = 0; i < n; i++) {
        if (!new_core(p, i)) continue;
        at++;
        if (part(p, i)) {
            if (at > core) break;
            r.begin = at;
        }
        r.end = at + 1;
    }
    return r;
}

/* ---- shares ---------------------------------------------------------------------------------- */

/* the core in the middle of an equal share of all cores, the group's that the rank is in */
static int middle(int cores, const bt_binding_job *j, int rank, int group) {
    const int groups = j->ranks / group;
    return (int)((long)cores * (2 * (rank / group) + 1) / (2 * groups));
}

/* Each group, whole, to the part that its middle falls into. false: there are fewer groups than parts, or
 * some part has more ranks than cores. */
static bool share_by(const bt_hardware_thread *p, size_t n, const bt_binding_job *j, begins part,
                     int group, run *mine) {
    const int cores = count_groups(p, n, new_core);
    if (j->ranks % group != 0 || j->ranks / group < count_groups(p, n, part)) return false;
    const run own = run_of_core(p, n, part, middle(cores, j, j->rank, group));
    int first = -1, sharing = 0, here = 0, last = -1;
    for (int r = 0; r < j->ranks; r++) {
        const run at = run_of_core(p, n, part, middle(cores, j, r, group));
        here = at.begin == last ? here + 1 : 1;
        last = at.begin;
        if (here > at.end - at.begin) return false;
        if (at.begin != own.begin) continue;
        if (first < 0) first = r;
        sharing++;
    }
    const int size = own.end - own.begin, k = j->rank - first;
    *mine = (run){own.begin + size * k / sharing, own.begin + size * (k + 1) / sharing};
    return true;
}

static void take_cores_of_run(const bt_hardware_thread *p, size_t n, run cores,
                              bool first_threads_only, cpu_set_t *mine) {
    int at = -1;
    CPU_ZERO(mine);
    for (size_t i = 0; i < n; i++) {
        const bool first = new_core(p, i);
        at += first;
        if (at >= cores.begin && at < cores.end && (first || !first_threads_only))
            CPU_SET((size_t)p[i].cpu, mine);
    }
}

bool bt_cpus_of_rank(const bt_hardware_thread *p, size_t n, const bt_binding_job *j,
                     cpu_set_t *mine) {
    const int cores = count_groups(p, n, new_core);
    CPU_ZERO(mine);
    if (j->ranks < 1 || n == 0) return false;
    /* the same number on each; ranks that exchange most on different ones */
    if ((size_t)j->ranks > n) {
        if (j->threads > 1 || (size_t)j->ranks % n != 0) return false;
        CPU_SET((size_t)p[(size_t)j->rank % n].cpu, mine);
        return true;
    }
    if (j->ranks > cores) { /* hardware threads of a core go to neighbours */
        for (size_t i = n * (size_t)j->rank / (size_t)j->ranks;
             i < n * (size_t)(j->rank + 1) / (size_t)j->ranks; i++)
            CPU_SET((size_t)p[i].cpu, mine);
        return j->threads <= CPU_COUNT(mine);
    }
    const int group = j->group > 1 ? j->group : 1;
    run share;
    if (!share_by(p, n, j, new_domain, group, &share) &&
        !(group > 1 && share_by(p, n, j, new_package, group, &share)) &&
        !share_by(p, n, j, new_domain, 1, &share)) /* such as fewer ranks than domains */
        share = (run){(int)((long)cores * j->rank / j->ranks),
                      (int)((long)cores * (j->rank + 1) / j->ranks)};
    take_cores_of_run(p, n, share, j->threads <= share.end - share.begin, mine);
    return j->threads <= CPU_COUNT(mine);
}

bool bt_bind_rank(const bt_binding_job *j) {
    bt_hardware_thread places[BT_HARDWARE_THREADS_MAX];
    cpu_set_t mine;
    const size_t n = j->ranks < 2 ? 0 : bt_hardware_threads(places, NULL);
    if (n == 0 || (long)n * j->ranks <= sysconf(_SC_NPROCESSORS_ONLN)) return true;
    return !bt_cpus_of_rank(places, n, j, &mine) || sched_setaffinity(0, sizeof mine, &mine) == 0;
}

/* ---- words ----------------------------------------------------------------------------------- */

const char *bt_hardware_threads_text(const bt_hardware_thread *p, size_t n, char *out,
                                     size_t size) {
    int packages = 0;
    for (size_t i = 0; i < n; i++) packages += i == 0 || p[i].package != p[i - 1].package;
    const int domains = count_groups(p, n, new_domain), cores = count_groups(p, n, new_core);
    snprintf(out, size, "%d socket%s, %d memory domain%s, %d core%s, %zu hardware thread%s",
             packages, packages == 1 ? "" : "s", domains, domains == 1 ? "" : "s", cores,
             cores == 1 ? "" : "s", n, n == 1 ? "" : "s");
    return out;
}

/* processors.c - uses affinity masks, /proc/cpuinfo and /sys/devices/system/cpu. */
#include "engine/base/os/processors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CPU_FOLDER "/sys/devices/system/cpu"

int bt_processors_allowed(cpu_set_t *out) {
    CPU_ZERO(out);
    if (sched_getaffinity(0, sizeof *out, out) == 0) return CPU_COUNT(out);
    CPU_ZERO(out);
    return 0;
}

bool bt_processors_bind(const cpu_set_t *set) {
    return sched_setaffinity(0, sizeof *set, set) == 0;
}

int bt_processors_online(void) {
    const long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

/* Returns the first hardware thread of the core of a processor; the processor itself if the core is unknown. */
static int core_of(int cpu, const char *root) {
    char path[256];
    int first = cpu;
    snprintf(path, sizeof path, "%s/cpu%d/topology/thread_siblings_list", root, cpu);
    FILE *f = fopen(path, "re");
    if (!f) return cpu;
    if (fscanf(f, "%d", &first) != 1) first = cpu;
    fclose(f);
    return first;
}

int bt_processors_cores(const int *cpus, int n, const char *root) {
    int cores = 0, seen[CPU_SETSIZE];
    for (int i = 0; i < n; i++) {
        const int core = core_of(cpus[i], root ? root : CPU_FOLDER);
        int k = 0;
        while (k < cores && seen[k] != core) k++;
        if (k == cores && cores < CPU_SETSIZE) seen[cores++] = core;
    }
    return cores;
}

double bt_processor_mhz(int cpu) {
    char path[96];
    double khz = NAN;
    snprintf(path, sizeof path, CPU_FOLDER "/cpu%d/cpufreq/scaling_cur_freq", cpu);
    FILE *f = fopen(path, "re");
    if (!f) return NAN;
    if (fscanf(f, "%lf", &khz) != 1) khz = NAN;
    fclose(f);
    return khz / 1e3;
}

bool bt_processor_midr(int cpu, unsigned long long *out) {
    char path[96];
    snprintf(path, sizeof path, CPU_FOLDER "/cpu%d/regs/identification/midr_el1", cpu);
    FILE *f = fopen(path, "re");
    if (!f) return false;
    const bool known = fscanf(f, "%llx", out) == 1;
    fclose(f);
    return known;
}

bool bt_processors_have(const char *feature) {
    FILE *f = fopen("/proc/cpuinfo", "re");
    if (!f) return false;
    char *line = NULL;
    size_t cap = 0, n = strlen(feature);
    bool found = false;
    while (!found && getline(&line, &cap, f) > 0)
        for (const char *p = line; (p = strstr(p, feature)) && !found; p += n)
            found = (p == line || p[-1] == ' ') && (p[n] == ' ' || p[n] == '\n');
    free(line);
    fclose(f);
    return found;
}

bool bt_processors_allow_tiles(void) {
#if defined(__x86_64__)
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
#else
    return false;
#endif
}

/* energy.c - reads the powercap counters and computes this process's share. */
#include "engine/observe/energy.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/os/machine_info.h"

static const int64_t LEAST_NS = 250000000;

/* Uses read, because stdio would allocate memory inside a step. */
static bool read_text(int fd, char *text, size_t size) {
    const ssize_t n = pread(fd, text, size - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    return n > 0;
}

static bool read_number(int fd, uint64_t *out) {
    char text[32], *end;
    if (!read_text(fd, text, sizeof text)) return false;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return end != text && !errno;
}

static int open_in(const char *root, const char *zone, const char *file) {
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s/%s", root, zone, file) >= (int)sizeof path) return -1;
    return open(path, O_RDONLY | O_CLOEXEC);
}

static bool read_small_text(const char *root, const char *zone, const char *file, char *text,
                            size_t size) {
    const int fd = open_in(root, zone, file);
    const bool ok = fd >= 0 && read_text(fd, text, size);
    if (fd >= 0) close(fd);
    return ok;
}

/* Accepts packages and memory. Cores and graphics are parts of a package; "psys" contains packages and memory;
 * intel-rapl-mmio counts the packages a second time. */
static bool is_package_zone(const char *root, const char *zone) {
    char name[64];
    if (strncmp(zone, "intel-rapl:", 11) != 0) return false;
    return read_small_text(root, zone, "name", name, sizeof name) &&
           (strncmp(name, "package-", 8) == 0 || strncmp(name, "dram", 4) == 0);
}

static uint64_t read_busy_ticks(const bt_energy *e) {
    char text[256];
    bt_processor_times times;
    const bool known = e->stat < 0 ? bt_machine_times(&times)
                                   : read_text(e->stat, text, sizeof text) &&
                                         bt_machine_times_parse(text, &times);
    return known ? (uint64_t)times.worked : 0;
}

bool bt_energy_open(bt_energy *e, const char *root, char *why, size_t size) {
    memset(e, 0, sizeof *e);
    e->stat = -1;
    if (!root) root = bt_machine_energy_folder();
    DIR *folder = opendir(root);
    const struct dirent *entry;
    int found = 0;
    while (folder && e->n < BT_ENERGY_ZONES && (entry = readdir(folder))) {
        char range[32];
        if (!is_package_zone(root, entry->d_name)) continue;
        found++;
        const int fd = open_in(root, entry->d_name, "energy_uj");
        if (fd < 0) continue;
        if (read_number(fd, &e->at[e->n])) {
            const bool ends = read_small_text(root, entry->d_name, "max_energy_range_uj", range,
                                              sizeof range);
            e->range[e->n] = ends ? strtoull(range, NULL, 10) : 0;
            e->fd[e->n++] = fd;
        } else {
            close(fd);
        }
    }
    if (folder) closedir(folder);
    if (e->n < found) { /* some counters cannot be read, so their sum would be too small */
        bt_energy_close(e);
        snprintf(why, size,
                 "the processors count their energy, but only root may read it (chmod a+r "
                 "%.80s/intel-rapl:*/energy_uj)",
                 root);
        return false;
    }
    if (e->n == 0) {
        snprintf(why, size,
                 "the processors' energy is not counted on this machine (%.80s has no "
                 "intel-rapl:*; most virtual machines have none)",
                 root);
        return false;
    }
    e->stat = open_in(root, ".", "stat");
    e->ticks_per_s = sysconf(_SC_CLK_TCK);
    e->busy_ticks = read_busy_ticks(e);
    e->own_ns = bt_cpu_ns();
    e->read_ns = bt_now_ns();
    why[0] = '\0';
    return true;
}

void bt_energy_close(bt_energy *e) {
    for (int i = 0; i < e->n; i++) close(e->fd[i]);
    if (e->n > 0 && e->stat >= 0) close(e->stat);
    e->n = 0;
    e->stat = -1;
}

/* Returns the share of this process; 1 if the machine's busy time is unknown or too coarse. */
static double energy_share(const bt_energy *e, int64_t own_ns, uint64_t busy_ticks) {
    const double own = (double)(own_ns - e->own_ns) / 1e9,
                 busy = (double)(busy_ticks - e->busy_ticks) / (double)e->ticks_per_s;
    return own > 0 ? own / fmax(own, busy) : 0;
}

double bt_energy_take(bt_energy *e) {
    const int64_t now = e->n > 0 ? bt_now_ns() : 0;
    if (e->n == 0 || now - e->read_ns < LEAST_NS) return NAN;
    uint64_t at[BT_ENERGY_ZONES];
    double joules = 0;
    for (int i = 0; i < e->n; i++)
        if (!read_number(e->fd[i], &at[i])) return NAN; /* the next value includes this interval */
    for (int i = 0; i < e->n; i++) {
        if (at[i] >= e->at[i])
            joules += (double)(at[i] - e->at[i]) / 1e6;
        else if (e->range[i] >= e->at[i]) /* the counter wrapped around */
            joules += (double)(e->range[i] - e->at[i] + at[i]) / 1e6;
        e->at[i] = at[i];
    }
    const int64_t own = bt_cpu_ns();
    const uint64_t busy = read_busy_ticks(e);
    joules *= energy_share(e, own, busy >= e->busy_ticks ? busy : e->busy_ticks);
    e->own_ns = own;
    e->busy_ticks = busy;
    e->read_ns = now;
    return joules;
}

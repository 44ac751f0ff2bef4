/* machine_info.c - reads /proc, /sys/class and /sys/block. */
#include "engine/base/os/machine_info.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/os/small_file.h"

/* Returns the bytes in a line "KEY:   123 kB"; NaN: no such line. */
static double bytes_after_key(const char *text, const char *key) {
    const char *at = strstr(text, key);
    return at ? strtod(at + strlen(key), NULL) * 1024 : NAN;
}

bt_machine_memory bt_machine_memory_read(void) {
    char text[4096];
    (void)bt_read_small_file("/proc/meminfo", text, sizeof text);
    return (bt_machine_memory){.total = bytes_after_key(text, "MemTotal:"),
                               .available = bytes_after_key(text, "MemAvailable:"),
                               .swap_free = bytes_after_key(text, "SwapFree:")};
}

/* Format: "0.20 0.18 0.12 1/80 11206": averages, runnable tasks / all tasks, newest process. */
bt_machine_load_now bt_machine_load_read(void) {
    char text[96];
    bt_machine_load_now out = {NAN, NAN};
    if (!bt_read_small_file("/proc/loadavg", text, sizeof text)) return out;
    out.average = strtod(text, NULL);
    const char *slash = strchr(text, '/');
    while (slash && slash > text && slash[-1] != ' ') slash--;
    const long runnable = slash ? strtol(slash, NULL, 10) : 0;
    if (runnable > 0) out.runnable = (double)runnable;
    return out;
}

/* Format: "cpu3 user nice system idle iowait irq softirq steal"; "cpu": the sum. Older kernels have fewer columns. */
static bool parse_times(const char *line, bt_processor_times *out) {
    long long t[8] = {0};
    if (strncmp(line, "cpu", 3) != 0) return false;
    char *at;
    const long cpu = strtol(line + 3, &at, 10);
    out->cpu = at == line + 3 || line[3] == ' ' ? -1 : (int)cpu;
    if (out->cpu < 0) at = (char *)(uintptr_t)line + 3;
    const int n = sscanf(at, "%lld %lld %lld %lld %lld %lld %lld %lld", &t[0], &t[1], &t[2], &t[3],
                         &t[4], &t[5], &t[6], &t[7]);
    out->worked = t[0] + t[1] + t[2] + t[5] + t[6];
    out->idle = t[3] + t[4];
    out->stolen = t[7];
    return n >= 4;
}

bool bt_machine_times_parse(const char *text, bt_processor_times *out) {
    return parse_times(text, out) && out->cpu < 0;
}

bool bt_machine_times(bt_processor_times *out) {
    char text[512];
    return bt_read_small_file("/proc/stat", text, sizeof text) && bt_machine_times_parse(text, out);
}

size_t bt_machine_times_each(bt_processor_times *out, size_t max) {
    char line[512];
    size_t n = 0;
    FILE *f = fopen("/proc/stat", "re");
    while (f && n < max && fgets(line, sizeof line, f) && strncmp(line, "cpu", 3) == 0)
        n += parse_times(line, &out[n]) && out[n].cpu >= 0;
    if (f) fclose(f);
    return n;
}

/* Counts only whole disks: the bytes of a partition, or of a loop, dm or md device, are also counted by its disk. */
static bool is_disk(const char *name) {
    char path[80];
    if (strncmp(name, "loop", 4) == 0 || strncmp(name, "ram", 3) == 0 ||
        strncmp(name, "dm-", 3) == 0 || strncmp(name, "md", 2) == 0 ||
        strncmp(name, "zram", 4) == 0)
        return false;
    snprintf(path, sizeof path, "/sys/block/%.40s", name);
    return access(path, F_OK) == 0;
}

bool bt_machine_disk_bytes(double *read, double *written) {
    enum { SECTOR = 512 }; /* unit of this file for every disk */
    char line[512], name[48];
    FILE *f = fopen("/proc/diskstats", "re");
    *read = *written = 0;
    if (!f) return false;
    while (fgets(line, sizeof line, f)) {
        double in, out;
        if (sscanf(line, " %*d %*d %47s %*f %*f %lf %*f %*f %*f %lf", name, &in, &out) != 3 ||
            (in <= 0 && out <= 0) || !is_disk(name))
            continue;
        *read += in * SECTOR;
        *written += out * SECTOR;
    }
    fclose(f);
    return true;
}

double bt_machine_network_bytes(void) {
    char buf[8192], *rest = NULL;
    double sum = 0;
    if (!bt_read_small_file("/proc/net/dev", buf, sizeof buf)) return NAN;
    for (char *line = strtok_r(buf, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *colon = strchr(line, ':');
        double in, out;
        if (!colon || sscanf(colon + 1, "%lf %*f %*f %*f %*f %*f %*f %*f %lf", &in, &out) != 2)
            continue;
        *colon = 0;
        if (strcmp(line + strspn(line, " "), "lo") != 0) sum += in + out;
    }
    return sum;
}

double bt_machine_celsius(void) {
    double most = NAN;
    for (int i = 0; i < 32; i++) {
        char path[64], buf[32];
        snprintf(path, sizeof path, "/sys/class/thermal/thermal_zone%d/temp", i);
        if (!bt_read_small_file(path, buf, sizeof buf)) break;
        const double c = strtod(buf, NULL) / 1e3;
        if (c > 0 && c < 150) most = fmax(most, c);
    }
    return most;
}

/* Reads sensors with the name "Core N", of coretemp and similar drivers. */
void bt_machine_core_celsius(void (*fn)(void *ctx, int core, double celsius), void *ctx) {
    for (int chip = 0; chip < 16; chip++) {
        for (int t = 1; t <= 64; t++) {
            char path[96], text[64], *end;
            int core;
            snprintf(path, sizeof path, "/sys/class/hwmon/hwmon%d/temp%d_label", chip, t);
            const bool named = bt_read_small_file(path, text, sizeof text);
            if (!named && t > 1) break;
            if (!named || sscanf(text, "Core %d", &core) != 1 || core < 0) continue;
            snprintf(path, sizeof path, "/sys/class/hwmon/hwmon%d/temp%d_input", chip, t);
            if (!bt_read_small_file(path, text, sizeof text)) continue;
            const double millidegrees = strtod(text, &end);
            if (end != text) fn(ctx, core, millidegrees / 1e3);
        }
    }
}

const char *bt_machine_energy_folder(void) { return "/sys/class/powercap"; }

static bool read_first_line(const char *path, char *out, size_t size) {
    if (!bt_read_small_file(path, out, size)) return false;
    out[strcspn(out, "\n")] = '\0';
    return out[0];
}

bool bt_machine_clock(char *out, size_t size) {
    return read_first_line("/sys/devices/system/clocksource/clocksource0/current_clocksource", out,
                           size);
}

bool bt_machine_boot(char out[40]) {
    return read_first_line("/proc/sys/kernel/random/boot_id", out, 40);
}

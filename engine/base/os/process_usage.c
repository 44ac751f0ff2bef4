/* process_usage.c - reads statistics in /proc/PID. */
#include "engine/base/os/process_usage.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/os/small_file.h"
#include "engine/base/system/ascii.h"

static double number_after(const char *text, const char *word) {
    const char *at = strstr(text, word);
    return at ? strtod(at + strlen(word), NULL) : NAN;
}

bool bt_process_memory(pid_t pid, size_t *address_space, size_t *resident) {
    char path[64] = "/proc/self/statm", text[128], *end;
    if (pid) snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
    if (!bt_read_small_file(path, text, sizeof text)) return false;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    *address_space = strtoull(text, &end, 10) * page;
    *resident = strtoull(end, NULL, 10) * page;
    return true;
}

double bt_process_memory_of_others(void) {
    char text[8192];
    const double touched = bt_read_small_file("/proc/self/status", text, sizeof text)
                               ? number_after(text, "\nRssShmem:")
                               : NAN;
    return bt_read_small_file("/proc/self/smaps_rollup", text, sizeof text)
               ? (touched - number_after(text, "\nPss_Shmem:")) * 1024
               : NAN;
}

bool bt_process_io_read(pid_t pid, bt_process_io *out) {
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/io", (int)pid);
    *out = (bt_process_io){0};
    if (pid <= 0 || !bt_read_small_file(path, text, sizeof text)) return false;
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        (void)(sscanf(line, "rchar: %" SCNu64, &out->read) == 1 ||
               sscanf(line, "wchar: %" SCNu64, &out->written) == 1 ||
               sscanf(line, "read_bytes: %" SCNu64, &out->disk_read) == 1 ||
               sscanf(line, "write_bytes: %" SCNu64, &out->disk_written) == 1);
    }
    return true;
}

/* Reads a file of the thread to which an entry of /proc/PID/task belongs. false: not a thread, or it has ended. */
static bool read_thread_file(const char *task, const struct dirent *e, const char *name, char *out,
                             size_t size) {
    char path[128];
    if (!bt_ascii_digit(e->d_name[0])) return false;
    snprintf(path, sizeof path, "%s/%.20s/%s", task, e->d_name, name);
    return bt_read_small_file(path, out, size);
}

double bt_process_switches(pid_t pid) {
    char task[64], text[4096];
    double sum = 0;
    snprintf(task, sizeof task, "/proc/%d/task", (int)pid);
    DIR *d = opendir(task);
    if (!d) return NAN;
    for (const struct dirent *e; (e = readdir(d));)
        if (read_thread_file(task, e, "status", text, sizeof text))
            sum += number_after(text, "\nvoluntary_ctxt_switches:") +
                   number_after(text, "\nnonvoluntary_ctxt_switches:");
    closedir(d);
    return sum;
}

bool bt_process_schedule_read(pid_t pid, bt_process_schedule *out) {
    char task[64], text[512];
    *out = (bt_process_schedule){0};
    snprintf(task, sizeof task, "/proc/%d/task", (int)pid);
    DIR *d = opendir(task);
    if (!d) return false;
    for (const struct dirent *e; (e = readdir(d));) {
        long long ran, waited;
        if (read_thread_file(task, e, "schedstat", text, sizeof text) &&
            sscanf(text, "%lld %lld", &ran, &waited) == 2)
            out->ran_ns += ran, out->waited_ns += waited;
        if (out->runs || !read_thread_file(task, e, "stat", text, sizeof text)) continue;
        const char *after = strrchr(text, ')');
        out->runs = after && strncmp(after, ") R", 3) == 0;
    }
    closedir(d);
    return true;
}

void bt_process_sleeps_in(pid_t pid, char *out, size_t size) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/wchan", (int)pid);
    if (!bt_read_small_file(path, out, size) || strcmp(out, "0") == 0) out[0] = '\0';
}

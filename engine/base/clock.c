/* clock.c - the monotonic clock, and a wall clock that is read once and then advances with the time since boot. */
#include "engine/base/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "engine/base/os/machine_info.h"

int64_t bt_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t bt_cpu_ns(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return ((int64_t)u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000000 +
           ((int64_t)u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1000;
}

int64_t bt_thread_cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* microseconds to add to the time since boot; 0: not read yet */
static _Atomic int64_t wall_offset_us;

static int64_t clock_us(clockid_t id) {
    struct timespec t;
    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static int64_t since_boot_us(void) { return clock_us(CLOCK_BOOTTIME); }

/* Reads the offset in the name of a clock. Returns false if the name belongs to another start of the machine. */
static bool parse_clock_offset(const char *name, int64_t *offset_us) {
    char boot[40];
    const size_t n = name ? strcspn(name, " ") : 0;
    return n && bt_machine_boot(boot) && strlen(boot) == n && strncmp(name, boot, n) == 0 &&
           sscanf(name + n, "%" SCNd64, offset_us) == 1;
}

static int64_t get_wall_offset(void) {
    int64_t offset = atomic_load(&wall_offset_us), unset = 0;
    if (offset) return offset;
    if (!parse_clock_offset(getenv("BITRAIN_CLOCK"), &offset))
        offset = clock_us(CLOCK_REALTIME) - since_boot_us();
    return atomic_compare_exchange_strong(&wall_offset_us, &unset, offset) ? offset : unset;
}

int64_t bt_wall_us(void) { return get_wall_offset() + since_boot_us(); }

const char *bt_clock_name(char buf[BT_CLOCK_NAME]) {
    char boot[40];
    buf[0] = '\0';
    if (bt_machine_boot(boot)) snprintf(buf, BT_CLOCK_NAME, "%s %" PRId64, boot, get_wall_offset());
    return buf;
}

int64_t bt_clock_now_us(const char *name) {
    int64_t offset;
    return parse_clock_offset(name, &offset) ? offset + since_boot_us() : bt_wall_us();
}

void bt_clock_join(const char *name, int64_t not_before_us) {
    int64_t offset;
    if (!parse_clock_offset(name, &offset)) offset = get_wall_offset();
    if (offset + since_boot_us() < not_before_us) offset = not_before_us - since_boot_us();
    atomic_store(&wall_offset_us, offset);
}

void bt_sleep_ns(int64_t ns) {
    struct timespec left = {ns / 1000000000, ns % 1000000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {}
}

/* doctor_machine.c - checks the hardware, and the limits that the operating system sets. */
#include <dlfcn.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/doctor/doctor.h"
#include "engine/base/os/control_group.h"
#include "engine/base/os/machine_info.h"
#include "engine/base/os/memory_pages.h"
#include "engine/base/os/processors.h"
#include "engine/base/system/ascii.h"
#include "engine/base/system/start_process.h"
#include "engine/base/tables/metric.h"
#include "engine/base/testing/testing.h"
#include "engine/kernels/isa/blas.h"
#include "engine/kernels/table/cpu.h"
#include "engine/kernels/table/kernels.h"
#include "engine/observe/energy.h"
#include "monitor/job/machine/cpu_binding.h"

static const char *format_bytes(char *buf, size_t size, double n) {
    return bt_metric_format(buf, size, n, BT_UNIT_BYTES);
}

/* ---- processor ------------------------------------------------------------------------------- */

static void report_quota(bt_doctor *d, const bt_cpu *c) {
    if (c->cores >= c->visible_cores) return;
    bt_finding_remedy(
        bt_doctor_report(
            d, BT_FINDING_WARN, "cores",
            "%d cores are visible, but a control group (container, service, batch job) allows %.2g "
            "processors: bitrain uses %d",
            c->visible_cores, c->quota, c->cores),
        "lift the quota, or leave --ranks x --threads at %d or less: more threads are held up",
        c->cores);
}

#if defined(__x86_64__)
static void missing_instructions(bt_doctor *d, const bt_cpu *c, bt_finding *f) {
    if (!c->avx2)
        bt_finding_remedy(
            f, "expect OpenBLAS speed only; on a virtual machine request the host's CPU model");
    if (!c->amx_tile && bt_processors_have("amx_tile"))
        bt_finding_remedy(
            bt_doctor_report(d, BT_FINDING_WARN, "cpu",
                             "the processor has AMX but the kernel gives no permission for it"),
            "Linux 5.16 or newer, and a sandbox that allows arch_prctl(ARCH_REQ_XCOMP_PERM)");
}
#else
static void missing_instructions(bt_doctor *d, const bt_cpu *c, bt_finding *f) {
    if (!c->neon) {
        bt_finding_remedy(
            f, "bitrain has no kernels for this kind of processor: expect OpenBLAS speed only");
        return;
    }
    if (!c->dotprod)
        bt_doctor_report(d, BT_DOC_INFO, "cpu",
                         "no dot product of int8 (dotprod: from Cortex-A76 and Neoverse N1 on), "
                         "which products of ternary layers use");
    bt_doctor_report(d, BT_DOC_INFO, "cpu",
                     "the ARM kernels were tested under emulation and never timed: 'bitrain bench "
                     "kernels' measures them");
}
#endif

static void check_instruction_sets(bt_doctor *d, const bt_cpu *c) {
    const struct {
        const char *name;
        bool has;
    } features[] = {{"avx2", c->avx2},
                    {"fma", c->fma},
                    {"f16c", c->f16c},
                    {"avx-vnni", c->avx_vnni},
                    {"avx512", c->avx512},
                    {"avx512-vnni", c->avx512_vnni},
                    {"avx512-bf16", c->avx512_bf16},
                    {"avx512-vbmi", c->avx512_vbmi},
                    {"amx-int8", c->amx_int8},
                    {"amx-bf16", c->amx_bf16},
                    {"neon", c->neon},
                    {"dotprod", c->dotprod},
                    {"i8mm", c->i8mm}};
    char list[200] = "";
    for (size_t i = 0; i < sizeof features / sizeof features[0]; i++) {
        size_t n = strlen(list);
        if (features[i].has) snprintf(list + n, sizeof list - n, " %s", features[i].name);
    }
    bt_finding *f = bt_doctor_report(d, c->avx2 || c->neon ? BT_FINDING_OK : BT_FINDING_WARN, "cpu",
                                     "can do%s",
                                     list[0] ? list : " nothing beyond the base instruction set");
    missing_instructions(d, c, f);
}

void bt_doctor_processor(bt_doctor *d) {
    const bt_cpu *c = bt_cpu_get();
    char l1[24], l2[24], l3[24];
    bt_doctor_report(d, BT_FINDING_OK, "cpu", "%s", c->model[0] ? c->model : "unknown model");
    check_instruction_sets(d, c);
    bt_doctor_report(d, BT_DOC_INFO, "cpu", "caches: L1d %s, L2 %s, L3 %s",
                     format_bytes(l1, sizeof l1, (double)c->l1d_bytes),
                     format_bytes(l2, sizeof l2, (double)c->l2_bytes),
                     format_bytes(l3, sizeof l3, (double)c->l3_bytes));

    const int online = bt_processors_online();
    if (online > c->hw_threads)
        bt_finding_remedy(
            bt_doctor_report(d, BT_FINDING_WARN, "cores",
                             "this process may use %d of %d hardware threads (affinity)",
                             c->hw_threads, online),
            "taskset -p shows the mask; a batch system sets it to the requested cores");
    else
        bt_doctor_report(d, BT_FINDING_OK, "cores", "%d%s", c->visible_cores,
                         c->cores < c->visible_cores ? "" : ", all usable");
    report_quota(d, c);
    bt_hardware_thread places[BT_HARDWARE_THREADS_MAX];
    char words[128];
    const size_t n = bt_hardware_threads(places, NULL);
    if (n > 0)
        bt_doctor_report(d, BT_DOC_INFO, "cores", "%s",
                         bt_hardware_threads_text(places, n, words, sizeof words));
    char clock[64];
    if (bt_machine_clock(clock, sizeof clock) &&
        (strcmp(clock, "hpet") == 0 || strcmp(clock, "acpi_pm") == 0))
        bt_finding_remedy(bt_doctor_report(d, BT_FINDING_WARN, "clock",
                                           "clock source '%s' takes about a microsecond to read",
                                           clock),
                          "boot with clocksource=tsc if the machine allows it");
}

void bt_doctor_energy(bt_doctor *d) {
    bt_energy e;
    char why[BT_ENERGY_WHY];
    if (bt_energy_open(&e, bt_testing_powercap(), why, sizeof why))
        bt_doctor_report(d, BT_FINDING_OK, "energy",
                         "%d counter%s of the processors' energy: runs record joules", e.n,
                         e.n == 1 ? "" : "s");
    else
        bt_doctor_report(d, BT_DOC_INFO, "energy", "%s", why);
    bt_energy_close(&e);
}

/* ---- kernels and OpenBLAS -------------------------------------------------------------------- */

/* This runs in a child, because a library cannot be loaded a second time. */
static void write_blas_core(const void *ctx) {
    (void)ctx;
    unsetenv("OPENBLAS_CORETYPE");
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    void *lib = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL),
         *symbol = lib ? dlsym(lib, "openblas_get_corename") : NULL;
    char *(*corename)(void) = NULL;
    memcpy(&corename, &symbol, sizeof symbol);
    const char *name = corename ? corename() : "";
    (void)!write(STDOUT_FILENO, name, strlen(name));
}

/* Writes the core type that OpenBLAS chooses without the setting of this program. */
static bool read_default_blas_core(char *out, size_t size) {
    int ends[2];
    pid_t pid;
    out[0] = '\0';
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    const bool started = bt_process_start(&pid,
                                          &(bt_start){.fn = write_blas_core, .out = ends[1]}) == 0;
    close(ends[1]);
    const ssize_t n = started ? read(ends[0], out, size - 1) : -1;
    close(ends[0]);
    if (started) waitpid(pid, NULL, 0);
    out[n > 0 ? n : 0] = '\0';
    return n > 0;
}

static void report_openblas(bt_doctor *d) {
    char alone[32] = "";
    const char *deserved = bt_cpu_blas_core(), *told = getenv("OPENBLAS_CORETYPE");
    char told_copy[32];
    snprintf(told_copy, sizeof told_copy, "%s", told ? told : "");
    bool known = read_default_blas_core(alone, sizeof alone);
    bt_err err = BT_ERR_INIT;
    if (bt_blas_load(&err) != BT_OK) {
        bt_finding_remedy(bt_doctor_report(d, BT_FINDING_WARN, "openblas", "%s", err.msg),
                          "without it, processors without a vector set of ours use plain loops: "
                          "apt-get install libopenblas0-pthread");
        return;
    }
    const char *used = bt_blas_corename();
    if (told_copy[0] && deserved && !bt_ascii_equal(told_copy, deserved))
        bt_finding_remedy(
            bt_doctor_report(
                d, BT_FINDING_WARN, "openblas",
                "OPENBLAS_CORETYPE=%s makes it use %s kernels; this processor deserves %s",
                told_copy, used, deserved),
            "unset OPENBLAS_CORETYPE");
    else if (known && !bt_ascii_equal(alone, used))
        bt_doctor_report(d, BT_FINDING_OK, "openblas",
                         "took this processor for %s; bitrain makes it use %s", alone, used);
    else
        bt_doctor_report(d, BT_FINDING_OK, "openblas", "uses %s", used);
    bt_doctor_report(d, BT_DOC_INFO, "openblas", "%s", bt_blas_config());
}

void bt_doctor_kernels(bt_doctor *d) {
    report_openblas(d);
    bt_err err = BT_ERR_INIT;
    if (bt_kernels_select(d->isa, &err) != BT_OK) {
        bt_finding_remedy(bt_doctor_report(d, BT_FINDING_FAIL, "kernels", "%s", err.msg),
                          "use --isa auto");
        return;
    }
    bt_doctor_report(d, BT_FINDING_OK, "kernels", "fastest set in use: %s", bt_kernels_isa());
    const char *seen[8];
    size_t n_seen = 0;
    for (size_t i = 0; i < bt_kernels_slots(); i++) {
        const char *winner = bt_kernels_slot_winner(i);
        bool done = false;
        for (size_t k = 0; k < n_seen; k++) done |= strcmp(seen[k], winner) == 0;
        if (done || n_seen == 8) continue;
        seen[n_seen++] = winner;
        char list[360] = "";
        for (size_t k = i; k < bt_kernels_slots(); k++) {
            size_t n = strlen(list);
            if (strcmp(bt_kernels_slot_winner(k), winner) == 0)
                snprintf(list + n, sizeof list - n, " %s", bt_kernels_slot_name(k));
        }
        bt_doctor_report(d, BT_DOC_INFO, "kernels", "%s:%s", winner, list);
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void report_memory(bt_doctor *d) {
    char a[24], b[24];
    const bt_machine_memory memory = bt_machine_memory_read();
    const double total = isnan(memory.total) ? 0 : memory.total;
    double available = isnan(memory.available) ? 0 : memory.available, limit = 0, used = 0;
    const bool limited = bt_group_memory_of_container(&limit, &used);
    if (limited && limit - used < available) available = limit - used;
    bt_finding *f =
        bt_doctor_report(d, available < 512.0 * 1048576 ? BT_FINDING_WARN : BT_FINDING_OK, "memory",
                         "%s free of %s", format_bytes(a, sizeof a, available),
                         format_bytes(b, sizeof b, limited && limit < total ? limit : total));
    if (f->state == BT_FINDING_WARN)
        bt_finding_remedy(
            f,
            "preset nano needs about 200 MiB; 'bitrain train --dry-run' prints what a run takes");
}

static void report_shared_memory(bt_doctor *d) {
    struct statvfs fs;
    char a[24];
    if (statvfs("/dev/shm", &fs) != 0) {
        bt_finding_remedy(bt_doctor_report(d, BT_FINDING_FAIL, "/dev/shm",
                                           "does not exist: ranks of one host talk through it"),
                          "mount -t tmpfs tmpfs /dev/shm");
        return;
    }
    double room = (double)fs.f_bavail * (double)fs.f_frsize;
    bool writable = access("/dev/shm", W_OK | X_OK) == 0;
    bt_finding_state state = !writable || room < 16.0 * 1048576 ? BT_FINDING_FAIL
                             : room < 128.0 * 1048576           ? BT_FINDING_WARN
                                                                : BT_FINDING_OK;
    bt_finding *f = bt_doctor_report(d, state, "/dev/shm", "%s free%s",
                                     format_bytes(a, sizeof a, room),
                                     writable ? "" : ", not writable");
    if (state != BT_FINDING_OK)
        bt_finding_remedy(
            f,
            "each rank needs about 8 MiB there; containers: --shm-size=1g, else remove old files");
}

static void report_limits(bt_doctor *d) {
    const struct {
        int which;
        const char *name;
        rlim_t least;
        const char *why;
    } rows[] = {
        {RLIMIT_NOFILE, "open files (ulimit -n)", 256, "ranks, sockets and shards"},
        {RLIMIT_STACK, "stack (ulimit -s)", 1 << 20, "threads"},
        {RLIMIT_AS, "address space (ulimit -v)", (rlim_t)2 << 30,
         "arenas and shared segments are mapped"},
        {RLIMIT_FSIZE, "file size (ulimit -f)", (rlim_t)1 << 30, "checkpoints"},
    };
    bool fine = true;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct rlimit r;
        if (getrlimit((__rlimit_resource_t)rows[i].which, &r) != 0 || r.rlim_cur == RLIM_INFINITY ||
            r.rlim_cur >= rows[i].least)
            continue;
        fine = false;
        bt_finding_remedy(bt_doctor_report(d, BT_FINDING_WARN, "limits",
                                           "%s is %" PRIu64 ", wanted for %s: %" PRIu64,
                                           rows[i].name, (uint64_t)r.rlim_cur, rows[i].why,
                                           (uint64_t)rows[i].least),
                          "raise it with ulimit, or in /etc/security/limits.conf");
    }
    if (fine)
        bt_doctor_report(d, BT_FINDING_OK, "limits",
                         "open files, stack, address space and file size are large enough");
}

void bt_doctor_memory(bt_doctor *d) {
    report_memory(d);
    report_shared_memory(d);
    if (bt_pages_huge_off())
        bt_finding_remedy(
            bt_doctor_report(d, BT_FINDING_WARN, "memory",
                             "huge pages are switched off: large models lose a few per cent"),
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled");
    report_limits(d);
}

/* cpu.c - processor features. An instruction set counts as available only if CPUID reports it, XCR0 enables its
 * registers and, for AMX, the kernel grants permission. ARM: cpu_arm.c. */
#include "engine/kernels/table/cpu.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/os/control_group.h"
#include "engine/base/os/processors.h"
#include "engine/base/testing/testing.h"
#include "engine/kernels/table/cpu_arm.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

/* found: features of the processor; cpu: the same less those hidden by bt_cpu_hide */
static bt_cpu found, cpu;
static pthread_once_t once = PTHREAD_ONCE_INIT;

int bt_cpu_usable_cores(int visible, double quota) {
    const double whole = quota + 0.01; /* a quota of 1.999 counts as 2 */
    if (!(quota > 0) || whole >= visible) return visible;
    return whole < 1 ? 1 : (int)whole;
}

static void count_cores(bt_cpu *c) {
    cpu_set_t set;
    int cpus[CPU_SETSIZE], n = 0;
    c->visible_cores = c->hw_threads = bt_processors_online();
    if (bt_processors_allowed(&set) > 0) {
        for (int i = 0; i < CPU_SETSIZE; i++)
            if (CPU_ISSET((size_t)i, &set)) cpus[n++] = i;
        c->hw_threads = n;
        c->visible_cores = bt_processors_cores(cpus, n, NULL);
    }
    c->quota = bt_group_processors("");
    c->cores = bt_cpu_usable_cores(c->visible_cores, c->quota);
}

static size_t cache_size(int name, size_t fallback) {
    long n = sysconf(name);
    return n > 0 ? (size_t)n : fallback;
}

#if defined(__x86_64__)
typedef struct regs {
    uint32_t a, b, c, d;
} regs;

static regs cpuid(uint32_t leaf, uint32_t sub) {
    regs r = {0};
    if ((uint32_t)__get_cpuid_max(leaf & 0x80000000u, NULL) >= leaf)
        __cpuid_count(leaf, sub, r.a, r.b, r.c, r.d);
    return r;
}

static bool bit_of(uint32_t word, int i) { return (word >> i) & 1u; }

static uint64_t xcr0(void) {
    uint32_t lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (uint64_t)hi << 32 | lo;
}

static bool request_tiles(void) { /* ARCH_REQ_XCOMP_PERM of XFEATURE_XTILEDATA */
    return bt_processors_allow_tiles();
}

static void read_cpu_names(void) {
    regs v = cpuid(0, 0);
    memcpy(cpu.vendor, &v.b, 4);
    memcpy(cpu.vendor + 4, &v.d, 4);
    memcpy(cpu.vendor + 8, &v.c, 4);
    for (uint32_t i = 0; i < 3; i++) {
        regs r = cpuid(0x80000002u + i, 0);
        memcpy(cpu.model + 16 * i, &r, 16);
    }
    cpu.model[48] = '\0';
    char *text = cpu.model;
    while (*text == ' ') text++;
    memmove(cpu.model, text, strlen(text) + 1);
    for (size_t n = strlen(cpu.model); n > 0 && cpu.model[n - 1] == ' '; n--)
        cpu.model[n - 1] = '\0';
    uint32_t sig = cpuid(1, 0).a;
    cpu.family = (int)((sig >> 8 & 15) + ((sig >> 8 & 15) == 15 ? sig >> 20 & 255 : 0));
    cpu.model_number = (int)((sig >> 4 & 15) | (sig >> 16 & 15) << 4);
}

/* Reads the deterministic cache parameters: leaf 4 (Intel) and 0x8000001D (AMD) have the same format. */
static void read_caches(void) {
    uint32_t leaf = strcmp(cpu.vendor, "AuthenticAMD") == 0 ? 0x8000001Du : 4u;
    for (uint32_t i = 0; i < 8; i++) {
        regs r = cpuid(leaf, i);
        uint32_t type = r.a & 31, level = r.a >> 5 & 7;
        if (type == 0) break;
        size_t bytes = (size_t)((r.b >> 22) + 1) * ((r.b >> 12 & 1023) + 1) * ((r.b & 4095) + 1) *
                       ((size_t)r.c + 1);
        if (level == 1 && type != 2) cpu.l1d_bytes = bytes;
        if (level == 2) cpu.l2_bytes = bytes;
        if (level == 3) cpu.l3_bytes = bytes;
    }
}

static void read_features(void) {
    regs f1 = cpuid(1, 0), f7 = cpuid(7, 0), f71 = cpuid(7, 1);
    if (!bit_of(f1.c, 27)) return; /* OSXSAVE */
    uint64_t x = xcr0();
    bool ymm = (x & 0x6) == 0x6, zmm = (x & 0xe6) == 0xe6, tile = (x & 0x60000) == 0x60000;
    cpu.avx2 = ymm && bit_of(f7.b, 5);
    cpu.fma = ymm && bit_of(f1.c, 12);
    cpu.f16c = ymm && bit_of(f1.c, 29);
    cpu.avx_vnni = ymm && bit_of(f71.a, 4);
    cpu.avx512 = zmm && bit_of(f7.b, 16) && bit_of(f7.b, 17) && bit_of(f7.b, 30) &&
                 bit_of(f7.b, 31);
    cpu.avx512_vnni = cpu.avx512 && bit_of(f7.c, 11);
    cpu.avx512_vbmi = cpu.avx512 && bit_of(f7.c, 1);
    cpu.avx512_bf16 = cpu.avx512 && bit_of(f71.a, 5);
    /* Cooper Lake has bf16 and no VBMI. The model number is not used, because a virtual machine may hide it and the
     * tiles. */
    cpu.bf16_slow = cpu.avx512_bf16 && cpu.avx512_vbmi && strcmp(cpu.vendor, "GenuineIntel") == 0;
    cpu.amx_tile = tile && bit_of(f7.d, 24) && request_tiles();
    cpu.amx_int8 = cpu.amx_tile && bit_of(f7.d, 25);
    cpu.amx_bf16 = cpu.amx_tile && bit_of(f7.d, 22);
}
#endif

/* The features of older kinds of processors, for tests on a newer one. None of these kinds has AMX or AVX-VNNI; i8mm
 * implies dotprod. */
static const struct kind {
    const char *name, *vendor;
    bool avx2, avx512, avx512_vnni, avx512_vbmi, avx512_bf16, dotprod, i8mm;
} kinds[] = {
    {"westmere", "GenuineIntel", false, false, false, false, false, false, false},
    {"haswell", "GenuineIntel", true, false, false, false, false, false, false},
    {"skylake", "GenuineIntel", true, true, false, false, false, false, false},
    {"icelake", "GenuineIntel", true, true, true, true, false, false, false},
    {"zen4", "AuthenticAMD", true, true, true, true, true, false, false},
    {"cortex-a72", "ARM", false, false, false, false, false, false, false},
    {"neoverse-n1", "ARM", false, false, false, false, false, true, false},
    {"neoverse-v1", "ARM", false, false, false, false, false, true, true},
};

static void hide_features_of(const char *name) {
    for (size_t i = 0; name && i < sizeof kinds / sizeof *kinds; i++) {
        const struct kind *k = &kinds[i];
        if (strcmp(k->name, name) != 0) continue;
        snprintf(cpu.vendor, sizeof cpu.vendor, "%s", k->vendor);
        cpu.avx_vnni = cpu.bf16_slow = false;
        cpu.amx_tile = cpu.amx_int8 = cpu.amx_bf16 = false;
        cpu.avx2 &= k->avx2;
        cpu.fma &= k->avx2;
        cpu.f16c &= k->avx2;
        cpu.avx512 &= k->avx512;
        cpu.avx512_vnni &= k->avx512_vnni;
        cpu.avx512_vbmi &= k->avx512_vbmi;
        cpu.avx512_bf16 &= k->avx512_bf16;
        cpu.dotprod &= k->dotprod;
        cpu.i8mm &= k->i8mm;
    }
}

static void read_cpu(void) {
    count_cores(&cpu);
#if defined(__x86_64__)
    read_cpu_names();
    read_caches();
    read_features();
#elif defined(__aarch64__)
    bt_cpu_read_arm(&cpu);
#endif
    if (!cpu.model[0]) memcpy(cpu.model, "unknown", 8);
    if (!cpu.l1d_bytes) cpu.l1d_bytes = cache_size(_SC_LEVEL1_DCACHE_SIZE, 32768);
    if (!cpu.l2_bytes) cpu.l2_bytes = cache_size(_SC_LEVEL2_CACHE_SIZE, 1048576);
    if (!cpu.l3_bytes) cpu.l3_bytes = cache_size(_SC_LEVEL3_CACHE_SIZE, 8388608);
    hide_features_of(bt_testing_cpu());
    found = cpu;
}

const bt_cpu *bt_cpu_get(void) {
    pthread_once(&once, read_cpu);
    return &cpu;
}

const bt_cpu *bt_cpu_found(void) {
    pthread_once(&once, read_cpu);
    return &found;
}

void bt_cpu_hide(unsigned features) {
    (void)bt_cpu_get();
    cpu = found;
    if (features & BT_HIDE_VNNI) cpu.avx512_vnni = false;
    if (features & BT_HIDE_BF16) cpu.avx512_bf16 = false;
    if (features & BT_HIDE_AVX_VNNI) cpu.avx_vnni = false;
    if (features & BT_HIDE_DOTPROD) cpu.dotprod = cpu.i8mm = false;
    if (features & BT_HIDE_I8MM) cpu.i8mm = false;
}

const char *bt_cpu_blas_core(void) {
    const bt_cpu *c = bt_cpu_get();
    /* measured: this is also the fastest choice on newer Intel processors and on AMD Zen 4 and 5 */
    if (c->avx512) return "SKYLAKEX";
    if (c->avx2 && c->fma) return strcmp(c->vendor, "AuthenticAMD") == 0 ? "ZEN" : "HASWELL";
    return NULL;
}

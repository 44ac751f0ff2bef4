/* cpu_arm.c - MIDR_EL1 of every core, as Linux shows it in /sys or, without that, as the instruction gives it for the
 * current core; features from HWCAP, which the kernel sets only for instructions that it permits.
 *
 * Names: implementer and part numbers of the processors' reference manuals, which lscpu (util-linux
 * sys-utils/lscpu-arm.c) also lists. */
#include "engine/kernels/table/cpu_arm.h"

#include <stdio.h>
#include <string.h>

static const struct vendor {
    unsigned implementer;
    const char *name;
} vendors[] = {{0x41, "ARM"},       {0x42, "Broadcom"}, {0x43, "Cavium"},    {0x46, "Fujitsu"},
               {0x48, "HiSilicon"}, {0x4e, "NVIDIA"},   {0x50, "APM"},       {0x51, "Qualcomm"},
               {0x53, "Samsung"},   {0x61, "Apple"},    {0x6d, "Microsoft"}, {0x70, "Phytium"},
               {0xc0, "Ampere"}};

static const struct core {
    unsigned implementer, part;
    const char *name;
} cores[] = {
    {0x00, 0x051, "QEMU"},         {0x41, 0xd03, "Cortex-A53"},   {0x41, 0xd04, "Cortex-A35"},
    {0x41, 0xd05, "Cortex-A55"},   {0x41, 0xd07, "Cortex-A57"},   {0x41, 0xd08, "Cortex-A72"},
    {0x41, 0xd09, "Cortex-A73"},   {0x41, 0xd0a, "Cortex-A75"},   {0x41, 0xd0b, "Cortex-A76"},
    {0x41, 0xd0c, "Neoverse-N1"},  {0x41, 0xd0d, "Cortex-A77"},   {0x41, 0xd40, "Neoverse-V1"},
    {0x41, 0xd41, "Cortex-A78"},   {0x41, 0xd42, "Cortex-A78AE"}, {0x41, 0xd44, "Cortex-X1"},
    {0x41, 0xd46, "Cortex-A510"},  {0x41, 0xd47, "Cortex-A710"},  {0x41, 0xd48, "Cortex-X2"},
    {0x41, 0xd49, "Neoverse-N2"},  {0x41, 0xd4a, "Neoverse-E1"},  {0x41, 0xd4b, "Cortex-A78C"},
    {0x41, 0xd4d, "Cortex-A715"},  {0x41, 0xd4e, "Cortex-X3"},    {0x41, 0xd4f, "Neoverse-V2"},
    {0x41, 0xd80, "Cortex-A520"},  {0x41, 0xd81, "Cortex-A720"},  {0x41, 0xd82, "Cortex-X4"},
    {0x41, 0xd84, "Neoverse-V3"},  {0x41, 0xd85, "Cortex-X925"},  {0x41, 0xd87, "Cortex-A725"},
    {0x41, 0xd8e, "Neoverse-N3"},  {0x43, 0x0af, "ThunderX2"},    {0x46, 0x001, "A64FX"},
    {0x48, 0xd01, "Kunpeng-920"},  {0x4e, 0x004, "Carmel"},       {0x51, 0x001, "Oryon"},
    {0x61, 0x022, "M1 Icestorm"},  {0x61, 0x023, "M1 Firestorm"}, {0x61, 0x032, "M2 Blizzard"},
    {0x61, 0x033, "M2 Avalanche"}, {0xc0, 0xac3, "Ampere-1"},     {0xc0, 0xac4, "Ampere-1a"}};

static unsigned implementer_of(uint64_t midr) { return (unsigned)(midr >> 24 & 0xff); }
static unsigned part_number_of(uint64_t midr) { return (unsigned)(midr >> 4 & 0xfff); }

const char *bt_cpu_arm_core(uint64_t midr, const char **vendor) {
    *vendor = "";
    for (size_t i = 0; i < sizeof vendors / sizeof *vendors; i++)
        if (vendors[i].implementer == implementer_of(midr)) *vendor = vendors[i].name;
    for (size_t i = 0; i < sizeof cores / sizeof *cores; i++)
        if (cores[i].implementer == implementer_of(midr) && cores[i].part == part_number_of(midr))
            return cores[i].name;
    return "";
}

void bt_cpu_arm_model(const uint64_t *midr, size_t n, char *out, size_t size) {
    size_t len = 0;
    out[0] = '\0';
    for (size_t i = 0; i < n; i++) {
        char one[48];
        const char *vendor, *name = bt_cpu_arm_core(midr[i], &vendor);
        if (name[0])
            snprintf(one, sizeof one, "%s", name);
        else if (vendor[0])
            snprintf(one, sizeof one, "%s core 0x%03x", vendor, part_number_of(midr[i]));
        else
            snprintf(one, sizeof one, "core 0x%03x of implementer 0x%02x", part_number_of(midr[i]),
                     implementer_of(midr[i]));
        if (strstr(out, one) || len + strlen(one) + 6 > size) continue;
        len += (size_t)snprintf(out + len, size - len, "%s%s", len ? " and " : "", one);
    }
}

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>

#include "engine/base/os/processors.h"

enum { KINDS_MOST = 8 };

/* Returns the number of different values of MIDR_EL1 among the first 1024 hardware threads. */
static size_t read_midr(uint64_t kinds[KINDS_MOST]) {
    size_t n = 0;
    for (int cpu = 0; cpu < 1024 && n < KINDS_MOST; cpu++) {
        unsigned long long midr;
        if (!bt_processor_midr(cpu, &midr)) break;
        size_t i = 0;
        while (i < n && (kinds[i] ^ midr) >> 4 & 0xff0ffff)
            i++; /* the variant and revision are no kind */
        if (i == n) kinds[n++] = midr;
    }
    /* the kernel emulates reading MIDR_EL1 of the current core */
    if (n == 0 && getauxval(AT_HWCAP) & HWCAP_CPUID) {
        __asm__("mrs %0, midr_el1" : "=r"(kinds[0]));
        n = 1;
    }
    return n;
}

void bt_cpu_read_arm(bt_cpu *c) {
    uint64_t kinds[KINDS_MOST];
    const size_t n = read_midr(kinds);
    const char *vendor = "";
    if (n > 0) {
        bt_cpu_arm_core(kinds[0], &vendor);
        snprintf(c->vendor, sizeof c->vendor, "%s", vendor);
        bt_cpu_arm_model(kinds, n, c->model, sizeof c->model);
        c->family = (int)implementer_of(kinds[0]);
        c->model_number = (int)part_number_of(kinds[0]);
    }
    c->neon = getauxval(AT_HWCAP) & HWCAP_ASIMD;
    c->dotprod = c->neon && getauxval(AT_HWCAP) & HWCAP_ASIMDDP;
    c->i8mm = c->dotprod && getauxval(AT_HWCAP2) & HWCAP2_I8MM;
}
#endif

/* cpu.h - features permitted by this processor and its operating system. Read once; constant afterwards. */
#ifndef BT_ENGINE_KERNELS_TABLE_CPU_H
#define BT_ENGINE_KERNELS_TABLE_CPU_H

#include <stdbool.h>
#include <stddef.h>

typedef struct bt_cpu {
    char model[64]; /* brand string; on ARM the names of its kinds of cores */
    char vendor[16];
    int family, model_number;
    /* Number of cores that this process may use: those of its affinity, at most the quota of its control groups, at
     * least 1. Compute threads are counted by cores, because the hardware threads of a core share its multipliers. */
    int cores;
    int visible_cores, hw_threads; /* cores of the affinity, and their hardware threads */
    double quota; /* processors that its control groups allow (bt_group_processors); 0: no limit */
    size_t l1d_bytes, l2_bytes, l3_bytes;
    bool avx2, fma, f16c; /* reported by CPUID and enabled in XCR0 */
    bool avx512;          /* F, BW, VL, DQ */
    bool avx512_vnni, avx512_bf16, avx512_vbmi, avx_vnni;
    /* vdpbf16ps has half the rate of fp32: Intel from Sapphire Rapids on, which has tiles for bf16 (measured: 65
     * against 133 GFLOP/s a core). On AMD it has twice the rate of fp32; the same is assumed for Cooper Lake. */
    bool bf16_slow;
    /* CPUID and XCR0 report them, and the kernel gives permission, which the first call requests */
    bool amx_tile, amx_int8, amx_bf16;
    bool neon, dotprod, i8mm; /* aarch64, from the kernel's HWCAP */
} bt_cpu;

const bt_cpu *bt_cpu_get(void);
/* Returns all features of the machine, including those that bt_cpu_hide hides. */
const bt_cpu *bt_cpu_found(void);
/* Features to hide (0: none). bt_kernels_select hides them for the plain sets. */
enum {
    BT_HIDE_VNNI = 1,
    BT_HIDE_BF16 = 2,
    BT_HIDE_AVX_VNNI = 4,
    BT_HIDE_DOTPROD = 8,
    BT_HIDE_I8MM = 16
};
void bt_cpu_hide(unsigned features);
/* number of cores to use: whole ones, at least 1. visible: number of visible cores; quota: in processors, 0: none */
int bt_cpu_usable_cores(int visible, double quota);
/* OPENBLAS_CORETYPE for this processor (SKYLAKEX, HASWELL, ZEN, ...); NULL: OpenBLAS chooses */
const char *bt_cpu_blas_core(void);

#endif

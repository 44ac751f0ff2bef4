/* cpu.h - features permitted by this processor and its operating system. Read once; constant afterwards. */
#ifndef BT_ENGINE_KERNELS_TABLE_CPU_H
#define BT_ENGINE_KERNELS_TABLE_CPU_H

#include <stdbool.h>
#include <stddef.h>

typedef struct bt_cpu {
    char model[64]; /* brand string */
    char vendor[16];
    int family, model_number;
    /* Cores that this process may use: those of its affinity, and at most the quota of its control groups (at least 1).
     * The hardware threads of a core share its multipliers, so a compute thread is for a core */
    int cores;
    int visible_cores, hw_threads; /* from the affinity alone: cores, and their hardware threads */
    double quota; /* processors that its control groups allow (bt_cpu_quota); 0: no limit */
    size_t l1d_bytes, l2_bytes, l3_bytes;
    bool avx2, fma, f16c; /* CPUID and XCR0 both */
    bool avx512;          /* F, BW, VL, DQ */
    bool avx512_vnni, avx512_bf16, avx512_vbmi, avx_vnni;
    /* vdpbf16ps multiplies at half the rate of fp32: Intel from Sapphire Rapids on, which has tiles for bf16 (65
     * against 133 GFLOP/s a core). AMD's does twice that of fp32; Cooper Lake's is taken to do so too */
    bool bf16_slow;
    /* CPUID, XCR0 and the kernel's permission (requested on first call) */
    bool amx_tile, amx_int8, amx_bf16;
} bt_cpu;

const bt_cpu *bt_cpu_get(void);
/* the same with nothing hidden */
const bt_cpu *bt_cpu_found(void);
/* pretend these are missing (0: nothing is): bt_kernels_select does for the plain sets */
enum { BT_HIDE_VNNI = 1, BT_HIDE_BF16 = 2, BT_HIDE_AVX_VNNI = 4 };
void bt_cpu_hide(unsigned features);
/* Number of cores of the n hardware threads in `cpus`, from `root`/cpuN/topology/thread_siblings_list
 * (/sys/devices/system/cpu); a thread without this file counts as a core */
int bt_cpu_count_cores(const int *cpus, int n, const char *root);
/* the cores to use of the visible ones under a quota of processors (0: none): whole ones, at least 1 */
int bt_cpu_usable_cores(int visible, double quota);
/* OPENBLAS_CORETYPE for this CPU: SKYLAKEX, HASWELL, ZEN, ... or NULL: chosen by OpenBLAS */
const char *bt_cpu_blas_core(void);

#endif

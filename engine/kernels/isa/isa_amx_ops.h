/* isa_amx_ops.h - the nine tile operations of the AMX set, as instructions or (BT_AMX_EMULATED) in software. The
 * software form has the same bits, including the order of sums of bf16 products, so that tests run on machines
 * without AMX. The emulation traps where the processor would fault: at a wrong shape or an unconfigured tile. */
#ifndef BT_ENGINE_KERNELS_ISA_ISA_AMX_OPS_H
#define BT_ENGINE_KERNELS_ISA_ISA_AMX_OPS_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct amx_config { /* the memory format of ldtilecfg */
    uint8_t palette, start_row, reserved[14];
    uint16_t colsb[16];
    uint8_t rows[16];
} amx_config;
_Static_assert(sizeof(amx_config) == 64, "ldtilecfg reads 64 bytes");

#if !defined(BT_AMX_EMULATED)

/* gcc 12 assumes that _tile_loadconfig reads only 8 bytes, and drops the stores to the rest */
static void amx_configure(const amx_config *c) {
    __asm__ volatile("" ::"r"(c) : "memory");
    _tile_loadconfig(c);
}
#define amx_zero(t) _tile_zero(t)
#define amx_load(t, p, stride) _tile_loadd(t, p, stride)
#define amx_store(t, p, stride) _tile_stored(t, p, stride)
#define amx_dot_su8(c, a, b) _tile_dpbsud(c, a, b)
#define amx_dot_us8(c, a, b) _tile_dpbusd(c, a, b)
#define amx_dot_bf16(c, a, b) _tile_dpbf16ps(c, a, b)

#else

static _Thread_local struct {
    amx_config cfg;
    uint8_t tile[8][16][64];
} amx;

#define AMX_MUST(cond) \
    do { \
        if (!(cond)) __builtin_trap(); \
    } while (0)

static void amx_configure(const amx_config *c) {
    AMX_MUST(c->palette == 1 && c->start_row == 0);
    for (int t = 0; t < 16; t++)
        AMX_MUST(c->rows[t] <= 16 && c->colsb[t] <= 64 && (t < 8 || c->rows[t] == 0) &&
                 !c->rows[t] == !c->colsb[t]);
    memset(&amx, 0, sizeof amx);
    amx.cfg = *c;
}
static void amx_zero(int t) {
    AMX_MUST(amx.cfg.rows[t]);
    memset(amx.tile[t], 0, sizeof amx.tile[t]);
}
static void amx_load(int t, const void *p, size_t stride) {
    amx_zero(t);
    for (size_t r = 0; r < amx.cfg.rows[t]; r++)
        memcpy(amx.tile[t][r], (const char *)p + r * stride, amx.cfg.colsb[t]);
}
static void amx_store(int t, void *p, size_t stride) {
    AMX_MUST(amx.cfg.rows[t]);
    for (size_t r = 0; r < amx.cfg.rows[t]; r++)
        memcpy((char *)p + r * stride, amx.tile[t][r], amx.cfg.colsb[t]);
}
static void amx_fit(int c, int a, int b) {
    AMX_MUST(amx.cfg.rows[c] && amx.cfg.rows[c] == amx.cfg.rows[a] &&
             amx.cfg.colsb[c] == amx.cfg.colsb[b] && amx.cfg.colsb[a] == 4 * amx.cfg.rows[b]);
}
/* TDPBSUD adds four products of signed a and unsigned b to each dword, wrapping around. */
static void amx_dot_su8(int c, int a, int b) {
    amx_fit(c, a, b);
    for (size_t m = 0; m < amx.cfg.rows[c]; m++)
        for (size_t n = 0; n < amx.cfg.colsb[c] / 4u; n++) {
            uint32_t sum;
            memcpy(&sum, amx.tile[c][m] + 4 * n, 4);
            for (size_t k = 0; k < amx.cfg.colsb[a]; k++)
                sum += (uint32_t)((int8_t)amx.tile[a][m][k] * amx.tile[b][k / 4][4 * n + k % 4]);
            memcpy(amx.tile[c][m] + 4 * n, &sum, 4);
        }
}
/* TDPBUSD adds four products of unsigned a and signed b to each dword, wrapping around. */
static void amx_dot_us8(int c, int a, int b) {
    amx_fit(c, a, b);
    for (size_t m = 0; m < amx.cfg.rows[c]; m++)
        for (size_t n = 0; n < amx.cfg.colsb[c] / 4u; n++) {
            uint32_t sum;
            memcpy(&sum, amx.tile[c][m] + 4 * n, 4);
            for (size_t k = 0; k < amx.cfg.colsb[a]; k++)
                sum += (uint32_t)(amx.tile[a][m][k] * (int8_t)amx.tile[b][k / 4][4 * n + k % 4]);
            memcpy(amx.tile[c][m] + 4 * n, &sum, 4);
        }
}
static float amx_widen(const uint8_t *p) {
    uint16_t half;
    memcpy(&half, p, 2);
    uint32_t bits = (uint32_t)half << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}
/* TDPBF16PS sums even and odd products separately and then adds both sums to c. */
static void amx_dot_bf16(int c, int a, int b) {
    amx_fit(c, a, b);
    for (size_t m = 0; m < amx.cfg.rows[c]; m++)
        for (size_t n = 0; n < amx.cfg.colsb[c] / 4u; n++) {
            float sum[2] = {0, 0}, all;
            for (size_t k = 0; k < amx.cfg.colsb[a] / 2u; k++) {
                sum[k % 2] += amx_widen(amx.tile[a][m] + 2 * k) *
                              amx_widen(amx.tile[b][k / 2] + 4 * n + 2 * (k % 2));
            }
            memcpy(&all, amx.tile[c][m] + 4 * n, 4);
            all += sum[0] + sum[1];
            memcpy(amx.tile[c][m] + 4 * n, &all, 4);
        }
}

#endif
#endif

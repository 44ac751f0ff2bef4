/* isa_amx_tile.h - register tiles of the AMX products, in place of the vector tiles of isa_avx512_tile.h (which
 * includes this). Operand forms, epilogues and blocking are those of the vector sets:
 *
 *                          B: 16 groups x 32 columns, 2 KiB contiguous | tile 6 | tile 7 |
 *     A: 32 rows x 16 groups, two contiguous tiles of 1 KiB tile 4 ->  | C 0    | C 1    |
 *                                                          tile 5 ->  | C 2    | C 3    |
 *
 * 4 tile products (16 x 16 x 64 bytes each) against 4 tile loads. One tile product takes 16 cycles, a load from L1
 * 10; with both operands in L1/L2 the loop alone runs at 82 % of the int8 peak (Xeon with AMX, 2 MiB of L2; 512 x
 * 512 x 512). int8 and scaled C are stored to 4 KiB of stack (L1), where the epilogue of the vector set reads them:
 * with it the same product runs at 44 %, with C in L2, and 20 to 25 % with C in memory. Three variants were not
 * faster: delaying a tile's epilogue until after the products of the next tile, B as contiguous tiles of 1 KiB, and
 * prefetching the next A tile. A tile product takes 34 to 40 cycles, and rates are a third, if the core's other
 * hardware thread is busy. All other C is loaded and stored by tile instructions. At the edges of an operand the
 * tile configuration has fewer rows and groups, so nothing is read beyond it. int8: tdpbsud, signed A by unsigned B
 * (code + 1, or xq + 128). */
#ifndef BT_ENGINE_KERNELS_ISA_ISA_AMX_TILE_H
#define BT_ENGINE_KERNELS_ISA_ISA_AMX_TILE_H

#include "engine/kernels/isa/isa_amx_ops.h"
#include "engine/kernels/isa/isa_tile.h"

#if defined(BT_AMX_TILES)

/* The tile configuration belongs to a thread. No other code of the program changes it (OpenBLAS is not loaded with
 * vector sets), so it is set only when the shape changes. Changing it zeroes all tiles. */
static void amx_shape(size_t rows, size_t groups) {
    static _Thread_local size_t now;
    size_t want = rows << 8 | groups, high = rows < 16 ? rows : 16, low = rows > 16 ? rows - 16 : 0;
    if (want == now) return;
    amx_config c = {.palette = 1};
    const size_t tile_rows[8] = {high, high, low, low, high, low, groups, groups};
    for (int t = 0; t < 8; t++) {
        c.rows[t] = (uint8_t)tile_rows[t];
        c.colsb[t] = (uint16_t)(tile_rows[t] == 0 ? 0 : t == 4 || t == 5 ? 4 * groups : 64);
    }
    amx_configure(&c);
    now = want;
}

/* bytes of a row of a B panel, and of a C buffer */
enum { AMX_LD = NR * 4 };

static void amx_out(char *c, size_t ldc, int low) {
    amx_store(0, c, ldc);
    amx_store(1, c + 64, ldc);
    if (!low) return;
    amx_store(2, c + 16 * ldc, ldc);
    amx_store(3, c + 16 * ldc + 64, ldc);
}
static void amx_in(const char *c, size_t ldc, int low) {
    amx_load(0, c, ldc);
    amx_load(1, c + 64, ldc);
    if (!low) return;
    amx_load(2, c + 16 * ldc, ldc);
    amx_load(3, c + 16 * ldc + 64, ldc);
}

/* c (rows, 32) dwords = a b (+ c); ldc, lda, a_step in bytes */
#define AMX_PRODUCT(name, dot) \
    static void name(char *c, size_t ldc, int acc, size_t rows, const char *a, size_t lda, \
                     size_t a_step, const char *b, size_t groups) { \
        size_t whole = groups / CHUNK, rest = groups % CHUNK; \
        int low = rows > 16; \
        amx_shape(rows, whole ? CHUNK : rest); \
        if (acc) \
            amx_in(c, ldc, low); \
        else { \
            amx_zero(0); \
            amx_zero(1); \
            if (low) { \
                amx_zero(2); \
                amx_zero(3); \
            } \
        } \
        for (size_t i = 0; i <= whole; i++, a += a_step, b += CHUNK * AMX_LD) { \
            if (i == whole) { \
                if (rest == 0) break; \
                if (whole) { /* the last groups have another shape, so C passes through memory */ \
                    amx_out(c, ldc, low); \
                    amx_shape(rows, rest); \
                    amx_in(c, ldc, low); \
                } \
            } \
            amx_load(4, a, lda); \
            amx_load(6, b, AMX_LD); \
            dot(0, 4, 6); \
            amx_load(7, b + 64, AMX_LD); \
            dot(1, 4, 7); \
            if (low) { \
                amx_load(5, a + 16 * lda, lda); \
                dot(2, 5, 6); \
                dot(3, 5, 7); \
            } \
        } \
        amx_out(c, ldc, low); \
    }

AMX_PRODUCT(amx_product_i8, amx_dot_su8)
AMX_PRODUCT(amx_product_bf16, amx_dot_bf16)

/* Without a scale and with all columns present (dW, attention's dQ, dK, dV, most of the head) tiles load and store
 * C itself. */
static void amx_bf16(size_t rows, const tile_out *o, const uint32_t *a, size_t lda,
                     const uint32_t *b, size_t groups) {
    const int whole = o->cols >= NR, direct = groups && whole && o->alpha == 1.0f;
    _Alignas(64) float c[MR][NR];
    prefetch_c(o->c, o->ldc, rows);
    size_t step = o->a_step ? 4 * o->a_step : 4 * CHUNK;
    if (direct) {
        amx_product_bf16((char *)o->c, 4 * o->ldc, o->acc, rows, (const char *)a, 4 * lda, step,
                         (const char *)b, groups);
        return;
    }
    if (groups)
        amx_product_bf16((char *)c, AMX_LD, 0, rows, (const char *)a, 4 * lda, step,
                         (const char *)b, groups);
    else
        memset(c, 0, rows * sizeof c[0]);
    const tile_out own = *o;
    for (size_t i = 0; i < rows; i++) {
        __m512 v[2] = {_mm512_load_ps(c[i]), _mm512_load_ps(&c[i][16])};
        if (whole)
            tile_store(&own, (int)i, v, 1);
        else
            tile_store(&own, (int)i, v, 0);
    }
}

static void amx_i8(size_t rows, const tile_i8_out *o, const int8_t *a, size_t lda, const uint8_t *b,
                   size_t groups) {
    const int whole = o->cols >= NR;
    _Alignas(64) int32_t c[MR][NR];
    prefetch_c(o->y, o->ldy, rows);
    if (groups)
        amx_product_i8((char *)c, AMX_LD, 0, rows, (const char *)a, lda,
                       o->a_step ? o->a_step : 4 * CHUNK, (const char *)b, groups);
    else
        memset(c, 0, rows * sizeof c[0]);
    const tile_i8_out own = *o;
    for (size_t i = 0; i < rows; i++) {
        __m512i v[2] = {_mm512_load_si512(c[i]), _mm512_load_si512(&c[i][16])};
        if (whole)
            tile_store_i8(&own, (int)i, v, 1);
        else
            tile_store_i8(&own, (int)i, v, 0);
    }
}

static tile_i8_fn tile_i8(void) { return amx_i8; }
static tile_i8_fn tile_u8(void) { return amx_i8; }
#define TILE_F32 run_f32 /* never called: fp32 operands use the AVX-512 set */
#define TILE_BF16 amx_bf16

#endif /* BT_AMX_TILES */
#endif

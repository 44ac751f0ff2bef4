/* isa_int8.h - the products of int8 operands over a set's tiles: forward, and backward with gradients rounded to
 * int8 (noise.h). Included once by each set's file.
 *
 *     tern_fwd   xq (rows, K) x panels of W        rows of a block are in L2, panels (K, NR) stream: one byte a
 *                weight
 *     tern_dx8   dy -> int8 rows (rows, N) x panels of W^T      the same product; rows are rounded
 *                when they are copied into the block
 *     w8_dx8     the same for int8 weights, whose scales multiply the gradients before rounding
 *     w8_fwd     the first one for int8 weights; their scales multiply the results
 *     tern_dw8   for each G_ROWS outputs                        dy -> int8, transposed: (G_ROWS,
 *                  tokens) of G_DEPTH blocks in L2
 *                  for each panel of NR inputs                  xq + BYTE_BIAS in fours of tokens:
 *                    G_DEPTH (tokens, NR), 16 KiB each, in L1
 *                    tiles of MR outputs                        C (MR, NR) is read and written once, prefetched
 *                                                               one tile ahead
 *                      for each BT_GRAD_BLOCK tokens            registers, then C; the depth is not split
 *
 * Sums are exact in int32, so results are the same bits on every set. */
#ifndef BT_ENGINE_KERNELS_ISA_ISA_INT8_H
#define BT_ENGINE_KERNELS_ISA_ISA_INT8_H

#include "engine/kernels/isa/isa_grads.h"

#if defined(BT_VECTORS)

/* y (rows, cols) (+)= (float)(product - sums) * (dq * scale), where product = a panels */
typedef struct i8_product {
    tile_i8_fn tile;
    float *y;
    size_t ldy;
    const int8_t *a;
    size_t lda;
    const float *dq;
    const int32_t *sums;
    const uint8_t *panels;
    size_t rows, cols, groups;
    float scale;
    int acc;
    size_t a_step;
    /* Form of `panels`: READY panels, 2-bit weights (isa_packed_2bit.h), or rows of int8. The latter two are unpacked
     * to panels of outputs, or of inputs (ACROSS), one at a time in `room` */
    enum { READY, PACKED_2BIT, PACKED_2BIT_ACROSS, ROWS, ROWS_ACROSS } form;
    uint8_t *room;
    size_t depth;    /* int8 elements along K; zeros fill the last group of four */
    const float *by; /* (cols) factors applied to the result; NULL: none */
} i8_product;

/* ROWS_TOGETHER: panels of inputs made at once, so that whole cache lines of each row are used; ROWS_AHEAD: rows
 * prefetched */
enum { ROWS_TOGETHER = 128 / NR, ROWS_DEPTH = 1024, ROWS_AHEAD = 16 };

static size_t rows_together(size_t depth) { return depth <= ROWS_DEPTH ? ROWS_TOGETHER : 1; }

static void rows_across(const i8_product *p, size_t k, size_t some) {
    const size_t K = p->cols, panel = p->groups * 4 * NR;
    const int8_t *row = (const int8_t *)p->panels + k;
    for (size_t n = 0; n < p->depth; n += 4, row += 4 * K) {
        BT_UNROLL for (size_t i = 0; i < 4; i++) {
            __builtin_prefetch(row + (ROWS_AHEAD + i) * K);
            __builtin_prefetch(row + (ROWS_AHEAD + i) * K + 64);
        }
        for (size_t i = 0; i < some && k + i * NR < K; i++)
            interleave4(p->room + i * panel + n * NR, row + i * NR, K,
                        smaller_size(4, p->depth - n), K - k - i * NR, BYTE_BIAS);
    }
}

static const uint8_t *panel_of(const i8_product *p, size_t n) {
    const size_t some = rows_together(p->depth);
    switch (p->form) {
    case READY: break;
    case PACKED_2BIT:
        open_2bit(p->room, p->panels + n / NR * panel_2bit(p->depth), p->depth);
        break;
    case PACKED_2BIT_ACROSS: across_2bit(p->room, p->panels, p->cols, n, 0, p->depth); break;
    case ROWS:
        pack_fwd_panel(p->room, (const int8_t *)p->panels + n * p->depth, p->depth,
                       smaller_size(NR, p->cols - n), BYTE_BIAS);
        break;
    case ROWS_ACROSS:
        if (n / NR % some == 0) rows_across(p, n, some);
        return p->room + n / NR % some * p->groups * 4 * NR;
    }
    return p->form == READY ? p->panels + n * p->groups * 4 : p->room;
}

static void run_i8(const i8_product *p) {
    size_t tiles = (p->rows + MR - 1) / MR;
    for (size_t n = 0; n < p->cols; n += NR) {
        const uint8_t *panel = panel_of(p, n);
        tile_i8_out o = {.ldy = p->ldy,
                         .cols = p->cols - n,
                         .scale = p->scale,
                         .acc = p->acc,
                         .a_step = p->a_step,
                         .by = p->by ? p->by + n : NULL};
        for (size_t t = 0; t < tiles; t++) {
            size_t r0 = p->rows * t / tiles, r1 = p->rows * (t + 1) / tiles;
            o.y = p->y + r0 * p->ldy + n;
            o.dq = p->dq + r0;
            o.sums = p->sums + r0;
            p->tile(r1 - r0, &o, p->a + r0 * p->lda, p->lda, panel, p->groups);
        }
    }
}

/* Rows of int8 in L2, `length` long: copied into chunks if the set needs them; otherwise a padded copy if the
 * length is not a multiple of a group, or rows would use the same cache sets. The block has more rows if panels
 * are unpacked for each block. */
enum { I8_ROWS = 16 * MR, I8_BYTES = 262144 };

typedef struct i8_block { /* scratch of a block of rows */
    size_t most_rows, length, ld, step;
    int32_t *sums;
    float *dq;
    int8_t *rows;
    uint8_t *room; /* space for one unpacked panel */
} i8_block;

static size_t i8_rows(size_t K, int packed_2bit) {
    size_t rows = (size_t)(packed_2bit ? 2 * I8_BYTES : I8_BYTES) / (K ? K : 1) / MR * MR;
    return rows < MR ? MR : rows > I8_ROWS ? I8_ROWS : rows;
}
static size_t i8_stride(size_t K) { return round_up(K, 64) + 64; }
static size_t i8_block_bytes(size_t K) {
    return 2 * I8_ROWS * 4 + i8_rows(K, 1) * i8_stride(K) +
           most(room_2bit(K), ROWS_TOGETHER * room_2bit(smaller_size(K, ROWS_DEPTH)));
}

static i8_block i8_block_of(void *scratch, size_t K, int packed_2bit) {
    int32_t *p = scratch;
    int8_t *block = (int8_t *)(p + 2 * I8_ROWS);
    size_t rows = i8_rows(K, packed_2bit), stride = i8_stride(K);
    return (i8_block){rows,
                      K,
                      IN_TILES ? I8_CHUNK : stride,
                      IN_TILES ? rows * I8_CHUNK : 0,
                      p,
                      (float *)(void *)(p + I8_ROWS),
                      block,
                      (uint8_t *)block + rows * stride};
}

/* Copies x to row i of the block and fills the last group with zeros. */
static void i8_put(const i8_block *b, size_t i, const int8_t *x) {
    int8_t *to = b->rows + i * b->ld;
    size_t k = 0;
    for (; IN_TILES && k + I8_CHUNK <= b->length; k += I8_CHUNK, to += b->step)
        memcpy(to, x + k, I8_CHUNK);
    const size_t n = b->length - k;
    memcpy(to, x + k, n);
    memset(to + n, 0, round_up(n, 4) - n);
}

/* Computes rows m0 to m1 of y from xq (rows, depth). bias: what the bytes of panels have added to each code. p:
 * arguments common to all blocks. */
static void run_fwd(i8_product p, float *y, const int8_t *xq, const float *dq, size_t m0, size_t m1,
                    int32_t bias, void *scratch) {
    const size_t K = p.depth;
    i8_block b = i8_block_of(scratch, K, p.form != READY);
    int copies = IN_TILES || K % 4 || K % 1024 == 0;
    p.lda = copies ? b.ld : K, p.a_step = b.step, p.sums = b.sums, p.groups = round_up(K, 4) / 4,
    p.room = b.room;
    for (size_t m = m0; m < m1; m += b.most_rows) {
        p.rows = smaller_size(b.most_rows, m1 - m);
        for (size_t i = 0; i < p.rows; i++) {
            b.sums[i] = bias * sum_i8(xq + (m + i) * K, K);
            if (copies) i8_put(&b, i, xq + (m + i) * K);
        }
        p.y = y + m * p.ldy;
        p.a = copies ? b.rows : xq + m * K;
        p.dq = dq + m;
        run_i8(&p);
    }
}

static void prod_tern_fwd(float *y, size_t ldy, const int8_t *xq, const float *dq,
                          const void *packed, float scale, size_t m0, size_t m1, size_t N, size_t K,
                          int flags, void *scratch) {
    run_fwd((i8_product){.tile = tile_i8(),
                         .ldy = ldy,
                         .panels = packed,
                         .cols = N,
                         .depth = K,
                         .scale = scale,
                         .acc = flags & BT_ACC,
                         .form = flags & BT_COMPACT ? PACKED_2BIT : READY},
            y, xq, dq, m0, m1, 1, scratch);
}

static void prod_w8_fwd(float *y, size_t ldy, const int8_t *xq, const float *dq,
                        const int8_t *codes, const float *row_scale, size_t m0, size_t m1, size_t N,
                        size_t K, void *scratch) {
    run_fwd((i8_product){.tile = tile_u8(),
                         .ldy = ldy,
                         .panels = (const uint8_t *)codes,
                         .cols = N,
                         .depth = K,
                         .scale = 1,
                         .form = ROWS,
                         .by = row_scale},
            y, xq, dq, m0, m1, BYTE_BIAS, scratch);
}

/* ---- dx8 ------------------------------------------------------------------------------------- */
/* gradients (rows, N), of which column n is multiplied by by[n] unless by is NULL. bias: what the bytes of panels
 * have added to each code */
typedef struct dx8_source {
    bt_grads dy;
    const float *by;
    size_t N, m0, m1;
    int32_t bias;
    const bt_noise *noise;
} dx8_source;

/* p: arguments common to all blocks */
static void run_dx8(i8_product p, float *dx, const dx8_source *s, void *scratch) {
    i8_block b = i8_block_of(scratch, s->N, p.form != READY);
    const size_t chunk = IN_TILES ? b.step : I8_CHUNK;
    int32_t (*const row)(int8_t *, size_t, float *, bt_grads, const float *, size_t,
                         uint32_t) = s->by        ? scaled_row
                                     : s->dy.bf16 ? bf16_row
                                                  : f32_row;
    p.room = b.room, p.depth = s->N;
    p.a = b.rows, p.lda = b.ld, p.a_step = b.step, p.dq = b.dq, p.sums = b.sums,
    p.groups = round_up(s->N, 4) / 4;
    for (size_t m = s->m0; m < s->m1; m += b.most_rows) {
        p.rows = smaller_size(b.most_rows, s->m1 - m);
        for (size_t i = 0; i < p.rows; i++) {
            b.sums[i] = s->bias * row(b.rows + i * b.ld, chunk, &b.dq[i],
                                      bt_grads_from(s->dy, m + i, 0), s->by, s->N,
                                      s->noise->rows[m + i] ^ s->noise->salt);
        }
        p.y = dx + m * p.ldy;
        run_i8(&p);
    }
}

static void prod_tern_dx8(float *dx, size_t lddx, bt_grads dy, const void *packed, float scale,
                          size_t m0, size_t m1, size_t N, size_t K, const bt_noise *noise,
                          int flags, void *scratch) {
    dx8_source s = {dy, NULL, N, m0, m1, 1, noise};
    const int packed_2bit = flags & BT_COMPACT;
    run_dx8((i8_product){.tile = tile_i8(),
                         .ldy = lddx,
                         .panels = (const uint8_t *)packed + (packed_2bit ? 0 : fwd_bytes(N, K)),
                         .cols = K,
                         .scale = scale,
                         .acc = flags & BT_ACC,
                         .form = packed_2bit ? PACKED_2BIT_ACROSS : READY},
            dx, &s, scratch);
}

/* ---- int8 weights: [K/NR panels][N/4][NR][4] bytes of code + BYTE_BIAS ---------------------------- */
static size_t prod_w8_bytes(size_t N, size_t K) { return round_up(K, NR) * round_up(N, 4); }

static void prod_w8_pack(void *packed, const int8_t *codes, size_t N, size_t K, size_t n0,
                         size_t n1) {
    for (size_t n = n0; n < n1; n += 4) {
        for (size_t k = 0; k < K; k += NR)
            interleave4((uint8_t *)packed + k * round_up(N, 4) + n * NR, codes + (n - n0) * K + k,
                        K, smaller_size(4, n1 - n), K - k, BYTE_BIAS);
    }
}

static void prod_w8_dx8(float *dx, size_t lddx, const float *dy, size_t lddy, const void *packed,
                        const float *row_scale, size_t m0, size_t m1, size_t N, size_t K,
                        const bt_noise *noise, int flags, void *scratch) {
    dx8_source s = {bt_grads_f32(dy, lddy), row_scale, N, m0, m1, BYTE_BIAS, noise};
    run_dx8((i8_product){.tile = tile_u8(),
                         .ldy = lddx,
                         .panels = packed,
                         .cols = K,
                         .scale = 1,
                         .acc = flags & BT_ACC,
                         .form = flags & BT_COMPACT ? ROWS_ACROSS : READY},
            dx, &s, scratch);
}

/* ---- dw8 ------------------------------------------------------------------------------------- */
/* the blocks of tokens from m on, for outputs n to n + rows */
typedef struct grad_span {
    size_t m, tokens, n, rows;
} grad_span;

/* Packs a panel of xq + BYTE_BIAS. */
static void dw8_panel(uint8_t *panel, const int8_t *x, size_t K, size_t tokens, size_t cols) {
    for (size_t g = 0; 4 * g < tokens; g++) {
        for (size_t i = 0; i < 4 && 4 * (g + 8) + i < tokens; i++)
            __builtin_prefetch(x + (4 * (g + 8) + i) * K);
        interleave4(panel + g * NR * 4, x + 4 * g * K, K, smaller_size(4, tokens - 4 * g), cols,
                    BYTE_BIAS);
    }
}

BT_INLINE void dw8_move(float *to, size_t ld_to, const float *from, size_t ld_from, size_t rows) {
    for (size_t i = 0; i < rows; i++)
        BT_UNROLL for (size_t j = 0; j < 2; j++)
            v_store(to + i * ld_to + j * VL, v_load(from + i * ld_from + j * VL));
}

/* Computes a panel of inputs tile by tile over all blocks of tokens, so that each tile of C is read and written
 * once. */
static void dw8_tiles(float *c, size_t K, const grad_span *s, const uint8_t *panels, size_t cols,
                      void *scratch) {
    size_t blocks = (s->tokens + BT_GRAD_BLOCK - 1) / BT_GRAD_BLOCK,
           tiles = (s->rows + MR - 1) / MR;
    tile_i8_fn tile = tile_u8();
    float *own = scratch;
    /* sums the tile in `own` first where rows of C map to the same set of L1 */
    int apart = K % 1024 == 0 && cols >= NR;
    for (size_t t = 0; t < tiles; t++) {
        size_t r0 = s->rows * t / tiles, r1 = s->rows * (t + 1) / tiles,
               next = s->rows * (t + 2) / tiles;
        float *y = c + r0 * K;
        if (apart) {
            if (t + 1 < tiles)
                for (size_t r = r1; r < next; r++) prefetch_c(c + r * K, K, 1);
            else if (cols > NR)
                for (size_t r = 0; r < s->rows / tiles; r++) prefetch_c(c + NR + r * K, K, 1);
            dw8_move(own, NR, y, K, r1 - r0);
        }
        for (size_t i = 0; i < blocks; i++) {
            grad_block b = grad_block_of(scratch, i);
            tile_i8_out o = {.y = apart ? own : y,
                             .ldy = apart ? NR : K,
                             .cols = cols,
                             .dq = b.scale + r0,
                             .sums = b.sums + r0,
                             .scale = 1,
                             .acc = 1,
                             .a_step = G_STEP};
            tile(r1 - r0, &o, b.q + r0 * G_LD, G_LD, panels + i * G_PANEL,
                 round_up(smaller_size(BT_GRAD_BLOCK, s->tokens - i * BT_GRAD_BLOCK), 4) / 4);
        }
        if (apart) dw8_move(y, K, own, NR, r1 - r0);
    }
}

static void dw8_span(float *dw, size_t K, const grad_span *s, const int8_t *xq, void *scratch) {
    uint8_t *panels = grad_panels(scratch);
    for (size_t k = 0; k < K; k += NR) {
        size_t cols = K - k;
        for (size_t at = 0; at < s->tokens; at += BT_GRAD_BLOCK) {
            dw8_panel(panels + at * NR, xq + (s->m + at) * K + k, K,
                      smaller_size(BT_GRAD_BLOCK, s->tokens - at), cols);
        }
        dw8_tiles(dw + s->n * K + k, K, s, panels, cols, scratch);
    }
}

static void prod_tern_dw8(float *dw, bt_grads dy, const int8_t *xq, const float *dq, size_t M,
                          size_t N, size_t K, size_t n0, size_t n1, const bt_noise *noise,
                          void *scratch) {
    (void)N;
    /* divides the outputs evenly */
    size_t spans = (n1 - n0 + G_ROWS - 1) / G_ROWS,
           each = spans ? round_up((n1 - n0 + spans - 1) / spans, 32) : 0;
    for (size_t m = 0; m < M; m += G_DEPTH * BT_GRAD_BLOCK) {
        for (size_t n = n0; n < n1; n += each) {
            grad_span span = {m, smaller_size(G_DEPTH * BT_GRAD_BLOCK, M - m), n,
                              smaller_size(each, n1 - n)};
            for (size_t at = 0; at < span.tokens; at += BT_GRAD_BLOCK) {
                grad_block b = grad_block_of(scratch, at / BT_GRAD_BLOCK);
                grad_source s = {bt_grads_from(dy, m + at, n),
                                 smaller_size(BT_GRAD_BLOCK, span.tokens - at),
                                 span.rows,
                                 dq + m + at,
                                 noise->rows + m + at,
                                 noise->salt ^ BT_NOISE_DW,
                                 noise->first + (uint32_t)n};
                grad_columns(&b, &s);
            }
            dw8_span(dw, K, &span, xq, scratch);
        }
    }
}

static size_t int8_scratch(size_t K) { return most(i8_block_bytes(K), grad_bytes()); }

#define BT_INT8_SLOTS \
    .tern_fwd = prod_tern_fwd, .tern_dx8 = prod_tern_dx8, .tern_dw8 = prod_tern_dw8, \
    .w8_bytes = prod_w8_bytes, .w8_pack = prod_w8_pack, .w8_dx8 = prod_w8_dx8, \
    .w8_fwd = prod_w8_fwd

#endif /* BT_VECTORS */
#endif

/* ternary.c - packing codes into 2 bits and back. */
#include "engine/quant/ternary.h"

#include <stdbool.h>
#include <string.h>

enum { BLOCK = 128, BLOCK_BYTES = 32 };

size_t bt_tern2_row_bytes(size_t K) { return (K + BLOCK - 1) / BLOCK * BLOCK_BYTES; }

static void pack_block(uint8_t *out, const int8_t *codes, size_t have) {
    uint8_t c[BLOCK];
    for (size_t k = 0; k < BLOCK; k++) c[k] = (uint8_t)(k < have ? codes[k] + 1 : 1);
    for (size_t j = 0; j < BLOCK_BYTES; j++) out[j] = (uint8_t)(c[j] | c[j + 32] << 2 | c[j + 64] << 4 | c[j + 96] << 6);
}

void bt_tern2_pack(uint8_t *packed, const int8_t *codes, size_t N, size_t K) {
    for (size_t n = 0; n < N; n++) {
        for (size_t k = 0; k < K; k += BLOCK) {
            pack_block(packed, codes + n * K + k, K - k < BLOCK ? K - k : BLOCK);
            packed += BLOCK_BYTES;
        }
    }
}

/* false: a code 3 is among them, or among those beyond `have` */
static bool unpack_block(int8_t *out, const uint8_t *in, size_t have) {
    int8_t c[BLOCK], *to = have < BLOCK ? c : out;
    uint8_t threes = 0;
    for (size_t j = 0; j < BLOCK_BYTES; j++) threes |= (uint8_t)(in[j] & in[j] >> 1 & 0x55);
    for (size_t j = 0; j < BLOCK_BYTES; j++) to[j] = (int8_t)((in[j] & 3) - 1);
    for (size_t j = 0; j < BLOCK_BYTES; j++) to[j + 32] = (int8_t)((in[j] >> 2 & 3) - 1);
    for (size_t j = 0; j < BLOCK_BYTES; j++) to[j + 64] = (int8_t)((in[j] >> 4 & 3) - 1);
    for (size_t j = 0; j < BLOCK_BYTES; j++) to[j + 96] = (int8_t)((in[j] >> 6 & 3) - 1);
    if (to == c) memcpy(out, c, have);
    return threes == 0;
}

static size_t first_three(const uint8_t *block) {
    size_t k = 0;
    while ((block[k % 32] >> (k / 32 * 2) & 3) != 3) k++;
    return k;
}

bt_code bt_tern2_unpack(int8_t *codes, const uint8_t *packed, size_t N, size_t K, bt_err *err) {
    for (size_t n = 0; n < N; n++) {
        for (size_t k = 0; k < K; k += BLOCK) {
            if (!unpack_block(codes + n * K + k, packed, K - k < BLOCK ? K - k : BLOCK)) {
                return bt_fail(err, BT_FORMAT, "row %zu, input %zu holds the code 3, which no ternary weight has", n, k + first_three(packed));
            }
            packed += BLOCK_BYTES;
        }
    }
    return BT_OK;
}

void bt_tern2_read(int8_t *codes, const uint8_t *packed, size_t first, size_t n) {
    for (size_t i = 0; i < n;) {
        size_t k = first + i, in = k % BLOCK;
        const uint8_t *block = packed + k / BLOCK * BLOCK_BYTES;
        if (in == 0 && n - i >= BLOCK) {
            (void)unpack_block(codes + i, block, BLOCK);
            i += BLOCK;
        } else {
            codes[i++] = (int8_t)((block[in % 32] >> (in / 32 * 2) & 3) - 1);
        }
    }
}

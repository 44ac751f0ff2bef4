/* ternary.c - packing codes into 2 bits and back. */
#include "engine/quant/ternary.h"

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

bt_code bt_tern2_unpack(int8_t *codes, const uint8_t *packed, size_t N, size_t K, bt_err *err) {
    size_t row = bt_tern2_row_bytes(K);
    for (size_t n = 0; n < N; n++) {
        for (size_t k = 0; k < K; k++) {
            int c = packed[n * row + k / BLOCK * BLOCK_BYTES + k % 32] >> (k % BLOCK / 32 * 2) & 3;
            if (c == 3) return bt_fail(err, BT_FORMAT, "row %zu, input %zu holds the code 3, which no ternary weight has", n, k);
            codes[n * K + k] = (int8_t)(c - 1);
        }
    }
    return BT_OK;
}

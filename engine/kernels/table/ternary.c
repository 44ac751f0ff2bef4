/* ternary.c - packs ternary codes into 2 bits each and unpacks them. */
#include "engine/kernels/table/ternary.h"

#include <stdbool.h>
#include <string.h>

enum { BLOCK = 128, BLOCK_BYTES = 32 };

size_t bt_tern2_row_bytes(size_t K) { return (K + BLOCK - 1) / BLOCK * BLOCK_BYTES; }

/* Processes eight codes in a 64-bit word, one per byte, and maps -1, 0, 1 to 0, 1, 2 and back. A set top bit in each
 * byte prevents borrows between bytes. */
enum { WORDS = BLOCK_BYTES / 8 };
static const uint64_t ONES = 0x0101010101010101u, TOPS = 0x8080808080808080u,
                      TWO_BITS = 0x0303030303030303u;
static uint64_t codes_to_fields(uint64_t codes) { return ((codes ^ TOPS) + ONES) ^ TOPS; }
static uint64_t down(uint64_t stored) { return ((stored | TOPS) - ONES) ^ TOPS; }

static void pack_block(uint8_t *out, const int8_t *codes, size_t have) {
    uint64_t c[4 * WORDS] = {0}, word[WORDS];
    memcpy(c, codes, have);
    for (size_t j = 0; j < WORDS; j++)
        word[j] = codes_to_fields(c[j]) | codes_to_fields(c[j + WORDS]) << 2 |
                  codes_to_fields(c[j + 2 * WORDS]) << 4 | codes_to_fields(c[j + 3 * WORDS]) << 6;
    memcpy(out, word, BLOCK_BYTES);
}

void bt_tern2_pack(uint8_t *packed, const int8_t *codes, size_t N, size_t K) {
    for (size_t n = 0; n < N; n++) {
        for (size_t k = 0; k < K; k += BLOCK) {
            pack_block(packed, codes + n * K + k, K - k < BLOCK ? K - k : BLOCK);
            packed += BLOCK_BYTES;
        }
    }
}

/* Returns false if a code is 3, also among those beyond `have`. */
static bool unpack_block(int8_t *out, const uint8_t *in, size_t have) {
    uint64_t word[WORDS], c[4 * WORDS], threes = 0;
    memcpy(word, in, BLOCK_BYTES);
    for (size_t j = 0; j < WORDS; j++)
        threes |= word[j] & word[j] >> 1 & (ONES | ONES << 2 | ONES << 4 | ONES << 6);
    for (size_t i = 0; i < 4; i++)
        for (size_t j = 0; j < WORDS; j++) c[i * WORDS + j] = down(word[j] >> 2 * i & TWO_BITS);
    memcpy(out, c, have);
    return threes == 0;
}

static size_t position_of_code_three(const uint8_t *block) {
    size_t k = 0;
    while ((block[k % 32] >> (k / 32 * 2) & 3) != 3) k++;
    return k;
}

bt_code bt_tern2_unpack(int8_t *codes, const uint8_t *packed, size_t N, size_t K, bt_err *err) {
    for (size_t n = 0; n < N; n++) {
        for (size_t k = 0; k < K; k += BLOCK) {
            if (!unpack_block(codes + n * K + k, packed, K - k < BLOCK ? K - k : BLOCK)) {
                return bt_fail(err, BT_FORMAT,
                               "row %zu, input %zu holds the code 3, which no ternary weight has",
                               n, k + position_of_code_three(packed));
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
